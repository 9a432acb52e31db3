"""The swap of the tree that would be made now, by the measurements of replicas (D4 to D6 of paper D; docs/protocol.md
§5.6).

The owner signs the swap, or the organiser in its place. No harmful swap is proposed: the overlay with the other edges
is checked whole, as at loading. The tree rests between two changes; only a change that made it worse is taken back
sooner, so the removed link is still measured. The link that made it worse is barred then, twice as long each time, so
that the tree does not go to and fro. A new edge carrying nothing is taken back at once. Not here: signing
(`gateway.owner.organising`, `bridge.organiser`), consent (`swap_objection`), the arithmetic (`bridge.organising`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from bridge.document import OWNER_STEPS, TREE_GRACE_S, Overlay, OverlayError, Policy
from bridge.measuring.region_costs import RegionCosts
from bridge.measuring.summaries import InterestSummary, ReplicaSummary
from bridge.organising import Swap, good_swaps, way

TRIED_MOST = 32  # best swaps that are checked whole; stops hundreds of checks of which none would load
BROKEN_S = 10.0  # after a change has settled, before the new edge counts as carrying nothing


@dataclass(frozen=True, slots=True)
class SwapProposal:
    """A proposal. `swap` None: nothing is to be changed, for the reason `why`; with a swap, `why` names the fault that
    it mends, empty if it is to spare cost. `silent`: regions of which too few replicas spoke. `rests_until`: UNIX time
    in seconds until the tree rests; 0 if it does not rest.
    """

    names: dict[int, str]
    swap: Swap | None
    why: str = ""
    silent: tuple[str, ...] = ()
    rests_until: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Returns the proposal for programs; costs in microseconds."""
        found: dict[str, Any] = {"why": self.why, "silent": list(self.silent), "swap": None}
        found["rests_until"] = self.rests_until
        if self.swap is not None:
            found["swap"] = {
                "add": self.edge_names(self.swap.added), "remove": self.edge_names(self.swap.removed),
                "cycle": [self.names[region] for region in self.swap.ring],
                "cost_before_us": round(self.swap.before), "cost_after_us": round(self.swap.after),
                "gain_percent": round(100 * self.swap.gain, 1),
            }  # fmt: skip
            if self.why:
                found["swap"] |= dict.fromkeys(("cost_before_us", "cost_after_us", "gain_percent"))
        return found

    def edge_names(self, edge: Sequence[int]) -> str:
        """Returns an edge by the names of its regions."""
        return " - ".join(self.names[region] for region in edge)


def proposal(
    overlay: Overlay, told: Iterable[ReplicaSummary | InterestSummary], now: float
) -> SwapProposal | None:  # fmt: skip
    """Returns the swap the owner or the organiser would sign now; `told`: the newest of each replica, verified. None
    if the overlay does not measure.
    """
    names = {region: view.name for region, view in overlay.latest.items()}
    arrangement = overlay.arrangement
    organising = arrangement.organising
    if organising is None:
        return None
    costs = RegionCosts(overlay, told, now)
    silent = tuple(
        view.name for region, view in sorted(overlay.views.items()) if costs.spoke(region) < 2 * view.faults + 1
    )
    back = way_back(overlay, costs)
    if back is not None and _loads(overlay, back, now):
        return SwapProposal(names, back, "the edge that came carries nothing", silent)
    judged_at, rests_until = arrangement.rests
    rests = now < rests_until
    if rests and now < judged_at:
        return SwapProposal(names, None, "the tree was changed, and rests", silent, rests_until)
    tree = overlay.trees.newest
    neighbours = {region: tree.neighbours(region) for region in tree.regions}
    barred = organising.barred(now)

    def may_come(swap: Swap) -> bool:
        is_barred = any(set(swap.added) == set(link) for link in barred)
        return not is_barred and (not rests or arrangement.undone_by(swap.added, swap.removed))

    good = filter(may_come, good_swaps(neighbours, organising.links, costs, organising.min_gain))
    swap = next((each for each in islice(good, TRIED_MOST) if _loads(overlay, each, now)), None)
    if swap is None and rests:
        why = "the tree was changed, is not worse than before, and rests"
        return SwapProposal(names, None, why, silent, rests_until)
    found = SwapProposal(names, swap, "", silent)
    if swap is not None:
        return found
    why = f"no potential link spares {organising.min_gain_percent} % of what all publications cost"
    if barred:
        why += f"; barred, since they made it worse: {', '.join(map(found.edge_names, barred))}"
    if silent:
        why = f"too few replicas of {', '.join(silent)} have told what they measured lately"
    elif not costs.are_interests_known:
        why = f"of no interval all regions' interests came; they go {organising.hops} regions far (`hops`)"
    return replace(found, why=why)


class IntervalProposal:
    """The proposal at the beginning of an interval: computed once in each interval, and when the tree changes."""

    def __init__(self) -> None:
        self._found: tuple[tuple[int, int, int], SwapProposal | None] | None = None

    def proposal_at(
        self, overlay: Overlay, told: Iterable[ReplicaSummary | InterestSummary], now: float
    ) -> SwapProposal | None:  # fmt: skip
        """Returns the proposal of the present interval; None if the overlay does not measure."""
        organising = overlay.policy.organising
        if organising is None:
            return None
        of = overlay.policy.version, overlay.arrangement.change.number, int(now) // organising.interval_s
        if self._found is None or self._found[0] != of:
            self._found = of, proposal(overlay, told, now)
        return self._found[1]


def swapped(overlay: Overlay, swap: Swap, now: float, grace_s: int = TREE_GRACE_S) -> Policy:
    """Returns the owner's policy with the other edge: another tree, which follows the present one. The present tree
    stays open for `grace_s`.
    """
    arrangement = overlay.arrangement
    steps = OWNER_STEPS if arrangement.organising and arrangement.organising.organiser else 1
    return arrangement.swapped(swap.added, swap.removed, int(now * 1000), grace_s, steps).in_policy(overlay.policy)


def _loads(overlay: Overlay, swap: Swap, now: float) -> bool:
    """Returns True if the overlay would load with the swap."""
    try:
        Overlay(overlay.owner, swapped(overlay, swap, now), overlay.latest.values(), overlay.members.values())
    except OverlayError:
        return False
    return True


def way_back(overlay: Overlay, costs: RegionCosts) -> Swap | None:
    """Returns the swap back to the former tree, if fewer than k replicas of an end reach the other over the new edge,
    and the removed edge is still measured. f liars that deny a link leave k that do not; f liars claiming a link are
    fewer than k.
    """
    edges, change = overlay.arrangement.edges, overlay.arrangement.change
    came = {frozenset(edge) for edge in edges} - {frozenset(edge) for edge in change.former or ()}
    went = [edge for edge in change.former or () if frozenset(edge) not in map(frozenset, edges)]
    if len(came) != 1 or len(went) != 1 or costs.link_cost(*went[0]) is None:
        return None
    here, there = sorted(*came)
    told_from = change.since_ms / 1000 + change.settle_s + BROKEN_S
    for one, other in ((here, there), (there, here)):
        view = overlay.views[one]
        told = costs.of_replicas(one).values()
        said = [each for each in told if each.tree == change.number and each.ended_s >= told_from]
        reach = sum(each.link_us(other) is not None for each in said)
        if len(said) >= 2 * view.faults + 1 and reach <= view.faults:
            tree = overlay.trees.newest
            ring = way({region: tree.neighbours(region) for region in tree.regions}, *went[0])
            return Swap(went[0], (here, there), tuple(ring), 0.0, 0.0)
    return None
