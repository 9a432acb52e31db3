"""The owner looks at what replicas measured, and signs one change of the tree that spares most (paper D).

    gathered     signed summaries as running replicas give them; whoever hands them over can only leave some out
    proposal     the swap, inside the owner's `links`, that may be signed on top of what was signed last
    apply_swap   the next version with it, which members follow live (`bridge.document.trees`)

Nothing that harms is proposed: the overlay with the other edges is checked whole, as if it were loaded. The tree rests
between two changes; only one that made it worse is taken back sooner, for which the link that went is measured on. Not
here: asking the replicas, the arithmetic (`bridge.organising`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridge.document import TREE_GRACE_S, TREE_SETTLE_S, Overlay, OverlayError, Policy
from bridge.measuring import RegionCosts, ReplicaSummary, check_author
from bridge.organising import Swap, best_swap
from gateway.owner.record import locked, open_record_of
from gateway.owner.signing import check_certificates, next_version, publish
from gateway.owner.views import carried
from gateway.trust import TrustDomain, TrustError, date_of
from keys.errors import KeysError

JUDGED_INTERVALS = 2  # behind a change, before it is said to be worse than what was
SUMMARIES_MAX = 65_536  # that one answer of a replica may hold; stops one that never ends


@dataclass(frozen=True, slots=True)
class SwapProposal:
    """`swap` None: nothing is to be changed, for `why`. `silent`: regions of which too few replicas spoke."""

    names: dict[int, str]
    swap: Swap | None
    why: str = ""
    silent: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"why": self.why, "silent": list(self.silent), "swap": None}
        if self.swap is not None:
            found["swap"] = {
                "add": self.named(self.swap.added), "remove": self.named(self.swap.removed),
                "cycle": [self.names[region] for region in self.swap.ring],
                "cost_before_us": round(self.swap.before), "cost_after_us": round(self.swap.after),
                "gain_percent": round(100 * self.swap.gain, 1),
            }  # fmt: skip
        return found

    def named(self, edge: Sequence[int]) -> str:
        """An edge by the names of its regions."""
        return " - ".join(self.names[region] for region in edge)


def gathered(told: Iterable[str], overlay: Overlay) -> list[ReplicaSummary]:
    """Of each replica the newest summary that it signed, of what anybody handed over; the rest is left out."""
    newest: dict[str, ReplicaSummary] = {}
    for each in list(told)[:SUMMARIES_MAX]:
        try:
            said = ReplicaSummary.decode(base64.b64decode(each, validate=True))
            if said.member not in newest or said.interval > newest[said.member].interval:
                check_author(said, overlay)
                newest[said.member] = said
        except (KeysError, binascii.Error, TypeError, ValueError):
            continue
    return list(newest.values())


def proposal(overlay: Overlay, summaries: Iterable[ReplicaSummary], now: float) -> SwapProposal:
    """What would be signed now. Raises TrustError if the owner never let replicas measure."""
    names = {region: view.name for region, view in overlay.latest.items()}
    organising = overlay.policy.organising
    if organising is None:
        raise TrustError("the overlay has no `organise`, so that nobody measures; add it to the description and sign")
    costs = RegionCosts(overlay, summaries, now)
    silent = tuple(
        view.name for region, view in sorted(overlay.views.items()) if costs.spoke(region) < 2 * view.faults + 1
    )
    change = overlay.policy.tree
    judged_at = change.closes_ms / 1000 + JUDGED_INTERVALS * organising.interval_s
    rests_until = max(change.since_ms / 1000 + organising.dwell_s, judged_at)
    rests = change.number > 0 and now < rests_until
    if rests and now < judged_at:
        return SwapProposal(names, None, f"the tree was changed, and rests until {date_of(rests_until)}", silent)
    tree = overlay.trees.newest
    neighbours = {region: tree.neighbours(region) for region in tree.regions}

    def admissible(swap: Swap) -> bool:
        if rests and not _is_back(overlay, swap):
            return False
        try:
            Overlay(overlay.owner, _swapped(overlay, swap, now), overlay.latest.values(), overlay.members.values())
        except OverlayError:
            return False
        return True

    swap = best_swap(neighbours, organising.links, costs, organising.hops, organising.min_gain, admissible)
    if swap is None and rests:
        why = f"the tree was changed, is not worse than before, and rests until {date_of(rests_until)}"
        return SwapProposal(names, None, why, silent)
    why = "" if swap else f"no potential link spares {organising.min_gain_percent} % of what its cycle costs"
    if swap is None and silent:
        why = f"too few replicas of {', '.join(silent)} have told what they measured lately"
    return SwapProposal(names, swap, why, silent)


def apply_swap(out: Path, owner: Path, told: Iterable[str], now: float) -> tuple[SwapProposal, Overlay | None]:
    """Sign what `proposal` finds; None if that is nothing. Raises TrustError, OverlayError."""
    domain = TrustDomain.load(owner)
    with locked(domain):
        record, previous = open_record_of(domain, out)
        check_certificates(out, previous, now)
        found = proposal(previous, gathered(told, previous), now)
        if found.swap is None:
            return found, None
        policy = _swapped(previous, found.swap, now)
        overlay = next_version(domain, record, previous, carried(previous, now), {}, now, policy=policy)
        publish(domain, record, overlay, out)
        return found, overlay


def edges_lines(overlay: Overlay) -> str:
    """How the description has to name edges and potential links from now on."""

    def named(edges: Iterable[tuple[int, int]]) -> str:
        return ", ".join(f"[{overlay.latest[a].name}, {overlay.latest[b].name}]" for a, b in edges)

    told = f"edges: [{named(overlay.policy.edges)}]"
    organising = overlay.policy.organising
    if organising is None:
        return told
    numbers = f"interval_s: {organising.interval_s}, hops: {organising.hops}, min_gain: {organising.min_gain_percent}"
    return f"{told}\norganise: {{links: [{named(organising.links)}], {numbers}, dwell_s: {organising.dwell_s}}}"


def _swapped(overlay: Overlay, swap: Swap, now: float) -> Policy:
    """The policy with the other edge: another tree, which follows the present one."""
    policy = overlay.policy
    left = tuple(edge for edge in policy.edges if set(edge) != set(swap.removed))
    tree = policy.tree.followed_by(policy.edges, int(now * 1000), TREE_SETTLE_S, TREE_GRACE_S)
    organising = policy.organising
    if organising is not None:  # what goes may come back: so it is measured as the other potential links are
        links = {tuple(sorted(link)): link for link in (*organising.links, swap.removed)}
        links.pop(tuple(sorted(swap.added)), None)
        organising = replace(organising, links=tuple(links.values()))
    return replace(policy, edges=(*left, swap.added), tree=tree, organising=organising)


def _is_back(overlay: Overlay, swap: Swap) -> bool:
    """Whether it would undo the last change."""
    former = {frozenset(edge) for edge in overlay.policy.tree.former or ()}
    left = {frozenset(edge) for edge in overlay.policy.edges} - {frozenset(swap.removed)}
    return left | {frozenset(swap.added)} == former
