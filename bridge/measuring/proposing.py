"""Which swap of the tree would be made now, by what replicas measured (D4 to D6 of paper D; docs/protocol.md §5.6).

Nothing that harms is proposed: the overlay with the other edges is checked whole, as if it were loaded. The tree rests
between two changes; only one that made it worse is taken back sooner, for which the link that went is measured on. The
link that made it worse is barred then, twice as long each time, so that the tree does not go to and fro. An edge that
came and carries nothing is taken back at once. Not here: who signs (`gateway.owner.organising`), the arithmetic
(`bridge.organising`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bridge.document import TREE_GRACE_S, TREE_SETTLE_S, Organising, Overlay, OverlayError, Policy
from bridge.measuring.region_costs import RegionCosts
from bridge.measuring.summaries import ReplicaSummary
from bridge.organising import Swap, best_swap, way

JUDGED_INTERVALS = 2  # behind a change, before it is said to be worse than what was
BROKEN_S = 10.0  # behind the settling of a change, before the edge that came is said to carry nothing


@dataclass(frozen=True, slots=True)
class SwapProposal:
    """`swap` None: nothing is to be changed, for `why`; if there is one, `why` says what broke, empty if it is to spare
    cost. `silent`: regions of which too few replicas spoke.
    `rests_until`: UNIX time in seconds until which the tree rests; 0: it does not."""

    names: dict[int, str]
    swap: Swap | None
    why: str = ""
    silent: tuple[str, ...] = ()
    rests_until: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """For programs; costs in microseconds."""
        found: dict[str, Any] = {"why": self.why, "silent": list(self.silent), "swap": None}
        found["rests_until"] = self.rests_until
        if self.swap is not None:
            found["swap"] = {
                "add": self.named(self.swap.added), "remove": self.named(self.swap.removed),
                "cycle": [self.names[region] for region in self.swap.ring],
                "cost_before_us": round(self.swap.before), "cost_after_us": round(self.swap.after),
                "gain_percent": round(100 * self.swap.gain, 1),
            }  # fmt: skip
            if self.why:
                found["swap"] |= dict.fromkeys(("cost_before_us", "cost_after_us", "gain_percent"))
        return found

    def named(self, edge: Sequence[int]) -> str:
        """An edge by the names of its regions."""
        return " - ".join(self.names[region] for region in edge)


def proposal(overlay: Overlay, summaries: Iterable[ReplicaSummary], now: float) -> SwapProposal | None:
    """What the owner would sign now; `summaries`: of each replica the newest, verified. None where nobody measures."""
    names = {region: view.name for region, view in overlay.latest.items()}
    organising = overlay.policy.organising
    if organising is None:
        return None
    costs = RegionCosts(overlay, summaries, now)
    silent = tuple(
        view.name for region, view in sorted(overlay.views.items()) if costs.spoke(region) < 2 * view.faults + 1
    )
    back = _way_back(overlay, costs)
    if back is not None and _loads(overlay, back, now):
        return SwapProposal(names, back, "the edge that came carries nothing", silent)
    judged_at, rests_until = _rest(overlay.policy, organising)
    rests = now < rests_until
    if rests and now < judged_at:
        return SwapProposal(names, None, "the tree was changed, and rests", silent, rests_until)
    tree = overlay.trees.newest
    neighbours = {region: tree.neighbours(region) for region in tree.regions}
    barred = organising.barred(now)

    def admissible(swap: Swap) -> bool:
        if (rests and not _is_back(overlay, swap)) or any(set(swap.added) == set(link) for link in barred):
            return False
        return _loads(overlay, swap, now)

    swap = best_swap(neighbours, organising.links, costs, organising.hops, organising.min_gain, admissible)
    if swap is None and rests:
        why = "the tree was changed, is not worse than before, and rests"
        return SwapProposal(names, None, why, silent, rests_until)
    found = SwapProposal(names, swap, "", silent)
    if swap is not None:
        return found
    why = f"no potential link spares {organising.min_gain_percent} % of what its cycle costs"
    if barred:
        why += f"; barred, since they made it worse: {', '.join(map(found.named, barred))}"
    if silent:
        why = f"too few replicas of {', '.join(silent)} have told what they measured lately"
    return replace(found, why=why)


def swapped(overlay: Overlay, swap: Swap, now: float, grace_s: int = TREE_GRACE_S) -> Policy:
    """The policy with the other edge: another tree, which follows the present one; that stays open for `grace_s`. A way
    back before the tree has rested bars the link that goes."""
    policy = overlay.policy
    left = tuple(edge for edge in policy.edges if set(edge) != set(swap.removed))
    tree = policy.tree.followed_by(policy.edges, int(now * 1000), TREE_SETTLE_S, grace_s)
    organising = policy.organising
    if organising is not None:  # what goes may come back: so it is measured as the other potential links are
        links = {tuple(sorted(link)): link for link in (*organising.links, swap.removed)}
        links.pop(tuple(sorted(swap.added)), None)
        is_worse = now < _rest(policy, organising)[1] and _is_back(overlay, swap)
        organising = organising.with_bar(swap.removed, now) if is_worse else organising
        organising = replace(organising, links=tuple(links.values()))
    return replace(policy, edges=(*left, swap.added), tree=tree, organising=organising)


def _loads(overlay: Overlay, swap: Swap, now: float) -> bool:
    """Whether the overlay would load with it."""
    try:
        Overlay(overlay.owner, swapped(overlay, swap, now), overlay.latest.values(), overlay.members.values())
    except OverlayError:
        return False
    return True


def _way_back(overlay: Overlay, costs: RegionCosts) -> Swap | None:
    """To the former tree, where fewer than k replicas of an end reach the other over the edge that came, and the one
    that went is measured still. f liars that deny a link leave k that do not; f that claim one are fewer than k."""
    policy, change = overlay.policy, overlay.policy.tree
    came = {frozenset(edge) for edge in policy.edges} - {frozenset(edge) for edge in change.former or ()}
    went = [edge for edge in change.former or () if frozenset(edge) not in map(frozenset, policy.edges)]
    if len(came) != 1 or len(went) != 1 or costs.link(*went[0]) is None:
        return None
    here, there = sorted(*came)
    told_from = change.since_ms / 1000 + change.settle_s + BROKEN_S
    for one, other in ((here, there), (there, here)):
        view = overlay.views[one]
        told = costs.of_replicas(one).values()
        said = [each for each in told if each.tree == change.number and each.interval * each.interval_s >= told_from]
        reach = sum(each.link_us(other) is not None for each in said)
        if len(said) >= 2 * view.faults + 1 and reach <= view.faults:
            tree = overlay.trees.newest
            ring = way({region: tree.neighbours(region) for region in tree.regions}, *went[0])
            return Swap(went[0], (here, there), tuple(ring), 0.0, 0.0)
    return None


def _rest(policy: Policy, organising: Organising) -> tuple[float, float]:
    """UNIX times in seconds: when the last change of the tree can be judged, and until when the tree rests."""
    change = policy.tree
    if not change.number:
        return 0.0, 0.0
    judged_at = change.closes_ms / 1000 + JUDGED_INTERVALS * organising.interval_s
    return judged_at, max(change.since_ms / 1000 + organising.dwell_s, judged_at)


def _is_back(overlay: Overlay, swap: Swap) -> bool:
    """Whether it would undo the last change."""
    former = {frozenset(edge) for edge in overlay.policy.tree.former or ()}
    left = {frozenset(edge) for edge in overlay.policy.edges} - {frozenset(swap.removed)}
    return left | {frozenset(swap.added)} == former
