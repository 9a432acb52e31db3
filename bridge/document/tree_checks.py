"""Checks of a tree of regions: each returns the fault in a line, or an empty text.

They are asked of every tree an overlay may come to have, the owner's and the organiser's alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import comb, prod
from typing import Protocol

from bridge.document.policy import Policy, Scope
from bridge.document.region_view import RegionView
from bridge.document.trees import Tree
from keys.columnsearch import CHOICES_LIMIT
from keys.envelope import Mode

SHARES_PER_KEY_MAX = 1024  # that one receiver may be made to hold for one key (docs/protocol.md §3.2)
DEPTH_MAX = 4  # regions on a path (A8)


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
    """Returns a fault if a receiver on a path of a sealed scope would hold too many shares of a key (A8).

    Too many combinations of shares to try are a fault too. Plain publications have no key: their paths may have any
    length. A subscriber of the last region holds the product of all n of the path. Where f replicas of each region
    lie, the last choice of k of n, region by region behind the first, may be the one that fits. Of two views of a
    region the worse counts: keys may name either.
    """
    count, choices = dict[int, int](), dict[int, int]()
    views = [view for latest in overlay.latest.values() for view in (latest, latest.former) if view is not None]
    for hop in (view.hop for view in views):
        count[hop.region] = max(hop.count, count.get(hop.region, 0))
        choices[hop.region] = max(comb(hop.count, hop.threshold), choices.get(hop.region, 0))
    sealed = {overlay.regions_of(scope): scope for scope in overlay.policy.scopes if scope.mode is not Mode.PLAIN}
    for regions, scope in sealed.items():
        for path in (tree.path(start, end) for start in sorted(regions) for end in sorted(regions)):
            shares = prod(count[region] for region in path)
            steps = prod(choices[region] for region in path[1:])
            names = " - ".join(overlay.latest[region].name for region in path)
            if shares > SHARES_PER_KEY_MAX or len(path) > DEPTH_MAX:
                return (
                    f"path {names} of scope {scope.filter:.40} has {len(path)} regions and {shares} shares a key "
                    f"(at most {DEPTH_MAX} and {SHARES_PER_KEY_MAX}); shorten it or use fewer replicas"
                )
            if steps > CHOICES_LIMIT:
                return (
                    f"path {names} of scope {scope.filter:.40} has {steps} combinations of replicas to try where "
                    f"some lie (at most {CHOICES_LIMIT}); shorten it or use smaller regions"
                )
    return ""
