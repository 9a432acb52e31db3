"""Entries that must be sealed anew: the choice of them, their unsealing, and voids in place of ones that are too old.

`sealing` gives the keys and views of a scope, `own_retained` the snapshots of retained publications, `windows` has the
lanes, `residents` finds the entries that are too old.

When the home region's view changes, entries are handed over (A13, A14): if a replica that left has not acknowledged an
entry, the entry is sealed again for every replica, since the replicas remaining may hold too few honest shares. An
entry lacked only by absent replicas is on its way, and newcomers need not get it.

A *void* goes to all replicas under the number of a sealed entry that is too old to be sent, with a record that only
counts (docs/protocol.md §2.6): a replica may have the entry, and its follower names it. So no reader waits for an
entry nobody sends, nor holds a copy that nothing opens. A void that grew as old itself is dropped without a void.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter

from bridge.contract import Publication, void
from bridge.contract.budgets import RESEALED_MAX
from bridge.document import RegionView
from bridge.publisher.entry import ENTRY, Entry, EntryTurn, Standing, has_enough, sealed_ago_s
from bridge.publisher.residents import Residents
from bridge.publisher.sealing import Sealer
from bridge.publisher.windows import RESEAL_AFTER_S, WINDOW_MAX, Lanes
from keys.records import Records

BACK_AFTER_S = 240.0
"""Age in seconds from which an entry is sealed anew once a link is back: a new subscriber takes 300 s old ones for
replays.
"""
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


def outdated(
    entries: Mapping[int, Entry], sealer: Sealer, view: RegionView, lanes: Lanes, now: float
) -> tuple[list[int], list[int]]:
    """Returns entries a replica lacks and that would be sealed otherwise now, or are so old that replicas will refuse
    them.

    If a link came back since the last call, entries count, too, that are too old for readers hearing of the publisher
    first. An entry that n - f replicas have stays while the grace of its epoch lasts, if nothing else has changed. Of
    the other entries the newest are among the first; second come those that are done with, though a single replica may
    lack them.
    """
    oldest_s = BACK_AFTER_S if lanes.is_any_back() else RESEAL_AFTER_S
    calendar = sealer.calendar
    again, stragglers, over = list[int](), list[Entry](), list[int]()
    for sequence, entry in entries.items():
        if entry.wire is None or all(peer in entry.acked for peer, _ in lanes):
            continue
        current, age_s = sealer.is_current(entry), sealed_ago_s(entry, now)
        if not has_enough(entry, view):
            if not current or age_s > oldest_s:
                again.append(sequence)
        elif not current:
            epoch = _former_epoch(entry, sealer)
            if epoch is None or not calendar.may_seal(epoch, now):  # else replicas still take it as it is
                # An epoch that is to come, by a clock that was set back, is not over.
                is_over = epoch is not None and now >= calendar.end_s(epoch) + calendar.grace_s
                if is_over and age_s > max(AWAY_S, calendar.grace_s):
                    over.append(sequence)
                else:
                    stragglers.append(entry)
    newest, older = newest_of(stragglers, view.members, now)
    return sorted([*again, *newest]), [*over, *older]


def is_on_its_way(entry: Entry, sealer: Sealer, view: RegionView, now: float) -> bool:
    """Returns True if n - f replicas have the entry, another may still get it, and all accept it although its epoch is
    over.
    """
    epoch, calendar = _former_epoch(entry, sealer), sealer.calendar
    if sealer.is_current(entry) or epoch is None or not calendar.may_seal(epoch, now) or not has_enough(entry, view):
        return False
    return is_lacked(entry, view, max(AWAY_S, calendar.grace_s), now)


def is_lacked(entry: Entry, view: RegionView, most_s: float, now: float) -> bool:
    """Returns True if a replica lacks an entry sealed at most `most_s` ago. After that time the replica may be a
    liar.
    """
    return not entry.acked.issuperset(view.members) and sealed_ago_s(entry, now) <= most_s


def _former_epoch(entry: Entry, sealer: Sealer) -> int | None:
    """Returns the epoch in which the entry is sealed, if its present sealing would differ in the epoch alone."""
    assert entry.name is not None
    return entry.name.epoch if sealer.is_current_but_for_its_epoch(entry) else None


def unseal(sequences: Iterable[int], entries: Mapping[int, Entry], residents: Residents, lanes: Lanes) -> None:
    """Unseals entries: nobody has them, and copies on their way do not count."""
    for sequence in dict.fromkeys(sequences):
        entry = entries[sequence]
        lanes.outdate(sequence)
        entry.wire = entry.name = entry.key = None
        forget_acknowledgements(entry, residents)


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
    residents.move(entry, EntryTurn.UNSEALED)
    entry.acked.clear()


def newest_of(stragglers: Iterable[Entry], members: Collection[str], now: float) -> tuple[list[int], list[int]]:
    """Splits entries that n - f replicas have into entries to seal anew and the others. The first are the newest each
    of the `members` lacks: a member that never acknowledges takes no other member's place.
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


def voided(entries: dict[int, Entry], old: Iterable[int], residents: Residents, lanes: Lanes, now: float) -> list[int]:
    """Replaces these entries by voids where needed; returns the others, which are to be dropped."""
    others: list[int] = []
    back: list[tuple[int, str]] = []
    for sequence in old:
        entry = entries[sequence]
        of = entry.publication
        if entry.is_void or not (entry.sealed_ms and of.qos) or of.retain or entry.standing is Standing.SETTLED:
            others.append(sequence)
            continue
        entries[sequence] = entries.pop(sequence)  # it is young again
        if entry.wire is not None:
            lanes.outdate(sequence)
        if entry.wire is not None or entry.standing is Standing.WAITING:  # else its turn to be sealed comes anyway
            back.append((sequence, entry.chain))
        residents.remove_entry(entry)
        entry.publication, entry.is_void = _void_of(entry, now), True
        entry.wire = entry.name = entry.key = None
        entry.standing = ENTRY.after((EntryTurn.UNSEALED, entry.standing))
        entry.acked.clear()
        residents.add_entry(entry)
    lanes.requeue(back, lambda _peer, _sequence: True)
    return others


def _void_of(entry: Entry, now: float) -> Publication:
    """Returns the void of an entry, on the topic of its first record, to which this member had the right."""
    of = entry.publication
    first = Records.decode(of.payload).topics[0].decode() if of.records else of.topic
    return void(entry.secret.clear_filter, first, of.qos, int(now * 1000))
