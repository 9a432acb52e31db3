"""A replica's judgement on a swap of the organiser: the gain by this replica's own medians (paper D, D5).

The organiser is believed in nothing. An honest replica checks the owner's `links`, the bars, the time of rest, the
signed summaries that it heard itself, and, at an end of the new edge, its own links: the new tree must not come into
force before the edge carries anything. Half of the organiser's gain is enough here, since two parties never measure
quite the same. Not here: the admissibility of the tree and its succession (`Overlay.hears`), endorsing
(`bridge.membership.swapping`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bridge.document import Overlay, SignedSwap
from bridge.document.trees import Phase
from bridge.measuring.region_costs import RegionCosts
from bridge.measuring.summaries import InterestSummary, ReplicaSummary
from bridge.measuring.swap_proposal import way_back
from bridge.organising import swap_of

AGREED_PART = 0.5  # of the gain that a proposer must see


def objection(
    overlay: Overlay, region: int, swap: SignedSwap, told: Iterable[ReplicaSummary | InterestSummary],
    up: Collection[str], now: float,
) -> str:  # fmt: skip
    """Returns the reason why a replica of `region` does not endorse an offered swap now; empty if it endorses. `up`:
    replicas to which its links stand.
    """
    arrangement = overlay.arrangement
    organising = arrangement.organising
    if organising is None or not overlay.is_organisers(swap) or now * 1000 > swap.certificate.not_after_ms:
        return f"{swap.author} does not organise"
    if swap.grace_s != organising.grace_s:
        return f"the former tree would stay open for {swap.grace_s} s, not {organising.grace_s}"
    if not arrangement.allows(swap.added):
        return "the link is none of the owner's"
    costs = RegionCosts(overlay, told, now)
    back = way_back(overlay, costs)
    mends = back is not None and all(
        set(one) == set(other) for one, other in ((back.added, swap.added), (back.removed, swap.removed))
    )
    return ("" if mends else _harm(overlay, swap, costs, now)) or _lanes(overlay, region, swap, up)


def _harm(overlay: Overlay, swap: SignedSwap, costs: RegionCosts, now: float) -> str:
    arrangement = overlay.arrangement
    organising = arrangement.organising
    assert organising is not None
    # By our own clock: the time that a swap states may be long past when the swap comes into force.
    if overlay.trees.phase is not Phase.ALONE:
        return "the tree before is open still"
    judged_at, rests_until = arrangement.rests
    if now < rests_until and (now < judged_at or not arrangement.undone_by(swap.added, swap.removed)):
        return "the tree rests"
    if any(set(link) == set(swap.added) for link in organising.barred(now)):
        return "the link is barred"
    tree = overlay.trees.newest
    neighbours = {region: tree.neighbours(region) for region in tree.regions}
    judged = swap_of(neighbours, swap.added, swap.removed, costs)
    if judged is None:
        return "too little is known of what publications cost"
    wanted = AGREED_PART * organising.min_gain
    if judged.gain < wanted or judged.gain <= 0:
        return f"it spares {100 * judged.gain:.1f} %, and {100 * wanted:.1f} % are asked for"
    return ""


def _lanes(overlay: Overlay, region: int, swap: SignedSwap, up: Collection[str]) -> str:
    """Returns an objection if we are at an end of the new edge and fewer than n - f replicas of the other end are
    linked to us; else "".
    """
    if region not in swap.added:
        return ""
    other = swap.added[1] if swap.added[0] == region else swap.added[0]
    view = overlay.views[other]
    linked, needed = len(view.members_among(up)), len(view.members) - view.faults
    return "" if linked >= needed else f"{linked} replicas of {view.name} are linked, {needed} are needed"
