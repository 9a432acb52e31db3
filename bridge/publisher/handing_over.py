"""What becomes of outbox entries when the home region's view changes (A13, A14).

What a replica that left may not have, all get anew: those that stay may hold too few honest shares of it. What none but
those that are away lack is on its way, and newcomers need not have it. Not here: lanes (`windows`), what else is sealed
anew (`resealing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from operator import attrgetter

from bridge.contract.budgets import RESEALED_MAX
from bridge.document.region_view import RegionView
from bridge.publisher.residents import Residents, Standing
from bridge.publisher.sealing import Entry
from bridge.publisher.windows import WINDOW_MAX

STRAGGLERS_MAX = WINDOW_MAX
"""Of what n - f replicas have, so much is sealed anew for each of the others after a change of keys or views. All get
it before what is new. Without a bound one that was away, or acknowledges nothing, would stop all publications at each
such change."""
AWAY_S = 3.0
"""Who lacks for longer what n - f replicas have was one of the f: a link that was cut for a second, or is slow, is not.
"""
YOUNG_MAX = RESEALED_MAX - WINDOW_MAX
"""So much of what is younger: liars acknowledge at once, and then n - f have what honest ones are still to get. They
take a new sealing of what is older for a repetition."""


def hand_over(
    entries: Collection[Entry],
    residents: Residents,
    before: RegionView,
    view: RegionView,
    lanes: Collection[str],
    now: float,
) -> None:
    """Acknowledgements as they count in `view`; `lanes`: replicas of the view before whose link is up. Another version
    of the overlay may have the same view: then all goes on as it is."""
    if (view.number, view.members) == (before.number, before.members):
        return
    left = [name for name in before.members if name not in view.members]
    newcomers = [name for name in view.members if name not in before.members]
    settled = (e for e in entries if e.standing is Standing.SETTLED and not e.acked.issuperset(before.members))
    older = set(newest_of(settled, before.members, now)[1])
    for entry in entries:
        if entry.sequence in older:
            residents.need_not(entry, view.members)
        elif entry.key is not None and not entry.acked.issuperset(left):
            forget_acknowledgements(entry, residents)
        elif entry.acked.issuperset(lanes) and has_enough(entry, before):
            residents.need_not(entry, newcomers)


def forget_acknowledgements(entry: Entry, residents: Residents) -> None:
    """Nobody has it: it is to be sealed anew."""
    entry.had_enough = entry.had_enough or entry.standing is Standing.SETTLED
    residents.move(entry, Standing.FRESH)
    entry.acked.clear()


def newest_of(stragglers: Iterable[Entry], members: Collection[str], now: float) -> tuple[list[int], list[int]]:
    """Which of these, that n - f replicas have, are to be sealed anew, and the others: the newest that each of the
    `members` lacks, so that none that acknowledges nothing takes the place of what another one lacks."""
    newest, older = list[int](), list[int]()
    lacked = Counter[str]()
    for entry in sorted(stragglers, key=attrgetter("sequence"), reverse=True):
        lacking = [peer for peer in members if peer not in entry.acked]
        most = YOUNG_MAX if sealed_ago_s(entry, now) <= AWAY_S else STRAGGLERS_MAX
        is_new = any(lacked[peer] < most for peer in lacking)
        (newest if is_new else older).append(entry.sequence)
        lacked.update(lacking)
    return newest, older


def has_enough(entry: Entry, view: RegionView) -> bool:
    """Whether n - f replicas of the view acknowledged it."""
    return len(view.members_among(entry.acked)) >= len(view.members) - view.faults


def sealed_ago_s(entry: Entry, now: float) -> float:
    """How long ago it was sealed; the clock may have been set back since."""
    return abs(now - entry.sealed_ms / 1000)
