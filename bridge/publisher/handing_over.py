"""Handing over of outbox entries when the home region's view changes (A13, A14).

If a replica that left has not acknowledged an entry, seals the entry again for every replica: the replicas that remain
may hold too few honest shares. An entry lacked only by absent replicas is on its way, and newcomers need not get it.
`windows` has the lanes, `resealing` the other reasons to seal again.
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
"""Entries held by n - f replicas that are sealed anew for each other replica after a change of keys or views. All get
them before new entries. Without a bound, a replica that is away or never acknowledges would stop all publications at
each such change.
"""
AWAY_S = 3.0
"""Seconds after which a replica that lacks an entry held by n - f counts as one of the f; a cut of a second or a slow
link is shorter.
"""
YOUNG_MAX = RESEALED_MAX - WINDOW_MAX
"""Entries, the youngest, that are sealed anew although n - f replicas have them: liars acknowledge at once, before
honest replicas get the entry. Honest replicas take a new sealing of an older entry for a repetition.
"""


def hand_over(
    entries: Collection[Entry],
    residents: Residents,
    before: RegionView,
    view: RegionView,
    lanes: Collection[str],
    now: float,
) -> None:
    """Adjusts acknowledgements to `view`. `lanes` are replicas of the former view whose link is up. Does nothing if
    another version of the overlay has the same view.
    """
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
    """Clears an entry's acknowledgements, so that it is sealed anew."""
    entry.had_enough = entry.had_enough or entry.standing is Standing.SETTLED
    residents.move(entry, Standing.FRESH)
    entry.acked.clear()


def newest_of(stragglers: Iterable[Entry], members: Collection[str], now: float) -> tuple[list[int], list[int]]:
    """Splits entries that n - f replicas have into entries to seal anew and the others. The first are the newest that
    each of the `members` lacks: a member that never acknowledges takes no other member's place.
    """
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
    """Returns True if n - f replicas of the view acknowledged the entry."""
    enough = len(view.members) - view.faults
    return len(entry.acked) >= enough and len(view.members_among(entry.acked)) >= enough


def sealed_ago_s(entry: Entry, now: float) -> float:
    """Returns the seconds since the entry was sealed, positive also if the clock was set back since."""
    return abs(now - entry.sealed_ms / 1000)
