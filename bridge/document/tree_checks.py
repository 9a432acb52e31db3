"""Checks of a tree of regions: each returns the fault in a line, or an empty text.

They are asked of every tree an overlay may come to have, the owner's and the organiser's alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb, prod
from typing import NamedTuple, Protocol

from bridge.document.policy import Policy, Scope
from bridge.document.region_view import RegionView
from bridge.document.trees import Tree
from keys.columnsearch import CHOICES_LIMIT
from keys.envelope import Mode
from keys.sharetree import DEPTH_LIMIT
from keys.wrapping import REGIONS_LIMIT, WRAPS_LIMIT, is_long, wraps_among
from keys.wrapsearch import wrap_steps

SHARES_PER_KEY_MAX = 1024  # that one receiver may be made to hold for one key (docs/protocol.md §3.2)
DEPTH_MAX = REGIONS_LIMIT  # regions on a path (A8)


class Regions(Protocol):
    """The part of an overlay the checks read."""

    policy: Policy

    @property
    def latest(self) -> Mapping[int, RegionView]: ...
    def regions_of(self, scope: Scope) -> frozenset[int]: ...


def unjoined(overlay: Regions, tree: Tree) -> str:
    """Returns a fault if edges of the tree do not join the regions of a scope among themselves.

    Publications of the scope may not enter other regions, so a single side would never see the other's publications.
    """
    for scope in overlay.policy.scopes:
        regions = sorted(overlay.regions_of(scope) & tree.regions)
        for start, end in ((regions[0], end) for end in regions):
            missing = [region for region in tree.path(start, end) if region not in regions]
            if missing:
                one, other, between = (overlay.latest[region].name for region in (start, end, missing[0]))
                return (
                    f"regions {one} and {other} of scope {scope.filter:.40} are not joined: region {between} lies "
                    "between and is not in the scope; add it to the scope's regions"
                )
    return ""


def overlong(overlay: Regions, tree: Tree) -> str:
    """Returns a fault if a receiver on a path of a sealed scope would hold too many shares of a key (A8), or too many
    wraps, or if a history would have to keep wraps.

    Too many combinations of shares to try are a fault too. Plain publications have no key: their paths may have any
    length. Of two views of a region the worse counts: keys may name either.
    """
    count, choices = dict[int, int](), dict[int, int]()
    views = [view for latest in overlay.latest.values() for view in (latest, latest.former) if view is not None]
    for hop in (view.hop for view in views):
        count[hop.region] = max(hop.count, count.get(hop.region, 0))
        choices[hop.region] = max(comb(hop.count, hop.threshold), choices.get(hop.region, 0))
    scopes = [scope for scope in overlay.policy.scopes if scope.mode is not Mode.PLAIN]
    for (regions, _), scope in {(overlay.regions_of(s), s.history is None): s for s in scopes}.items():
        for start in sorted(regions):
            wrapped = is_long(tree.longest(start, regions))
            for path in (tree.path(start, end) for end in sorted(regions)):
                load = key_load([count[r] for r in path], [choices[r] for r in path], wrapped=wrapped)
                said = load.fault
                if not said and scope.history is not None and is_long(len(path)):
                    said = (
                        f"{len(path)} regions and a history (at most {DEPTH_LIMIT} with one, which keeps no wrapped "
                        "shares); give it no history or shorten it"
                    )
                if said:
                    names = " - ".join(overlay.latest[region].name for region in path)
                    return f"path {names} of scope {scope.filter:.40} has {said}"
    return ""


class KeyLoad(NamedTuple):
    """The load of one key on a receiver at the end of a path: shares and wraps to hold, and choices to try.

    Where f replicas of each region lie, the last choice of k of n may be the fitting one: of all regions behind the
    first together, or under a wrapped key of each region alone.
    """

    regions: int
    shares: int
    wraps: int
    choices: int

    @property
    def fault(self) -> str:
        """The excess, and the cure; empty if there is none."""
        if self.shares > SHARES_PER_KEY_MAX or self.regions > DEPTH_MAX:
            return (
                f"{self.regions} regions and {self.shares} shares a key (at most {DEPTH_MAX} and "
                f"{SHARES_PER_KEY_MAX}); shorten it or use fewer replicas"
            )
        if self.wraps > WRAPS_LIMIT:
            return f"{self.wraps} wraps a key (at most {WRAPS_LIMIT}); shorten it or use fewer replicas"
        if self.choices > CHOICES_LIMIT:
            return (
                f"{self.choices} combinations of replicas to try where some lie (at most {CHOICES_LIMIT}); shorten it "
                "or use smaller regions"
            )
        return ""


def key_load(counts: Sequence[int], choices: Sequence[int], *, wrapped: bool) -> KeyLoad:
    """Returns the load of a key at the end of a path. `counts`: replicas of each region; `choices`: k-subsets of
    these.
    """
    if not wrapped:
        return KeyLoad(len(counts), prod(counts), 0, prod(choices[1:]))
    return KeyLoad(len(counts), prod(counts[-2:]), wraps_among(counts), wrap_steps(counts, choices))
