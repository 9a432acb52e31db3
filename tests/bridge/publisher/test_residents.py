"""Numbers of outbox entries in memory by kind, each kind with room of its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.publisher.entry import ENTRY, EntryTurn, Standing
from bridge.publisher.residents import (
    LEAD_MAX,
    RESIDENT_BYTES_MAX,
    RESIDENT_MAX,
    WAITING_BYTES_MAX,
    WAITING_MAX,
    Residents,
    first_lacking,
)

UNSETTLED = (Standing.FRESH, Standing.SEALED)


@dataclass(eq=False)
class Row:
    sequence: int
    size: int = 1
    standing: Standing = Standing.FRESH
    acked: set[str] = field(default_factory=set)


def filled(count: int, standing: Standing, size: int = 1) -> Residents:
    residents = Residents()
    for sequence in range(count):
        residents.add_entry(Row(sequence, size, standing))
    return residents


def test_what_too_few_have_begins_at_the_first_that_is_not_settled() -> None:
    settled, sealed = Standing.SETTLED, Standing.SEALED
    assert first_lacking([]) == 1
    assert first_lacking([Row(4, standing=settled), Row(7, standing=settled)]) == 8
    assert first_lacking([Row(9, standing=sealed), Row(4, standing=settled), Row(6, standing=sealed)]) == 6


def may_come(turn: EntryTurn, standing: Standing) -> bool:
    return any(turn is row.event and standing in row.before for row in ENTRY.rows)


STEP = st.tuples(st.sampled_from(["move", "ack", "remove"]), st.integers(0, 9), st.sampled_from([*EntryTurn]))


@given(st.lists(st.integers(0, 5), min_size=10, max_size=10), st.lists(STEP, max_size=40))
def test_counts_are_those_of_the_entries_whatever_becomes_of_them(
    sizes: list[int], steps: list[tuple[str, int, EntryTurn]]
):
    residents = Residents()
    rows = {sequence: Row(sequence, size) for sequence, size in enumerate(sizes)}
    settled: list[int] = []
    for row in rows.values():
        residents.add_entry(row)
    for what, at, turn in steps:
        row = rows.get(at)
        if row is None or (what == "move" and not may_come(turn, row.standing)):
            continue
        was_settled = row.standing is Standing.SETTLED
        if what == "move":
            residents.move(row, turn)
        elif what == "ack":
            residents.note_acknowledged(row, "ab"[at % 2])
        else:
            residents.remove_entry(rows.pop(at))
        if at in settled and (at not in rows or row.standing is not Standing.SETTLED):
            settled.remove(at)
        if at in rows and row.standing is Standing.SETTLED and not was_settled:
            settled.append(at)
    kinds = {kind: [row for row in rows.values() if row.standing is kind] for kind in Standing}
    unsettled = [row for kind in UNSETTLED for row in kinds[kind]]
    held = sum(row.size for row in unsettled)
    assert residents.room(is_draining=True) == (RESIDENT_MAX - len(unsettled), RESIDENT_BYTES_MAX - held)
    assert (residents.settled_count, residents.settled_bytes) == (len(settled), sum(rows[s].size for s in settled))
    assert not settled or residents.longest_settled == settled[0]
    lead = Counter(peer for row in kinds[Standing.SEALED] for peer in row.acked)
    assert [residents.lacked_by(peer) for peer in "ab"] == [len(kinds[Standing.SEALED]) - lead[p] for p in "ab"]


def test_while_nothing_drains_half_of_the_room_stays_free() -> None:
    residents = filled(3, Standing.FRESH, 10)
    assert residents.room(is_draining=False) == (RESIDENT_MAX // 2 - 3, RESIDENT_BYTES_MAX // 2 - 30)


@pytest.mark.parametrize("kind", UNSETTLED)
def test_what_was_left_on_disk_comes_until_half_is_full(kind: Standing) -> None:
    residents = filled(RESIDENT_MAX // 2 - 1, kind)
    assert residents.wants_backlog
    residents.add_entry(Row(-1, standing=kind))
    assert not residents.wants_backlog
    large = Residents()
    large.add_entry(Row(1, RESIDENT_BYTES_MAX // 2 - 1, kind))
    assert large.wants_backlog
    large.add_entry(Row(2, 1, kind))
    assert not large.wants_backlog


@pytest.mark.parametrize("kind", [Standing.WAITING, Standing.SETTLED])
def test_what_waits_or_is_kept_for_stragglers_takes_no_room_from_what_goes_on(kind: Standing) -> None:
    assert filled(RESIDENT_MAX, kind).room(is_draining=True) == (RESIDENT_MAX, RESIDENT_BYTES_MAX)
    assert filled(RESIDENT_MAX, kind).wants_backlog


def test_too_much_that_waits_stays_on_disk_and_holds_up_nothing_else() -> None:
    residents = filled(WAITING_MAX - 1, Standing.WAITING)
    assert not residents.waiting_full
    residents.add_entry(Row(-1, standing=Standing.WAITING))
    assert residents.waiting_full
    assert residents.wants_backlog
    assert filled(1, Standing.WAITING, WAITING_BYTES_MAX).waiting_full
    assert not filled(1, Standing.WAITING, WAITING_BYTES_MAX - 1).waiting_full


def test_a_replica_that_is_far_ahead_gets_nothing_new_until_others_have_it() -> None:
    residents, rows = Residents(), [Row(n, standing=Standing.SEALED) for n in range(LEAD_MAX)]
    for row in rows:
        residents.add_entry(row)
        assert not residents.leads("a")
        residents.note_acknowledged(row, "a")
    assert residents.leads("a")
    assert not residents.leads("b")
    residents.note_acknowledged(rows[0], "a")
    residents.move(rows[0], EntryTurn.HAD)
    assert not residents.leads("a"), "n - f have that one"


def test_acknowledgements_count_for_sealed_entries_only() -> None:
    residents, row = Residents(), Row(1)
    residents.add_entry(row)
    residents.note_acknowledged(row, "a")
    assert row.acked == {"a"}
    residents.move(row, EntryTurn.SEALED)
    assert residents.lacked_by("a") == 0
    assert residents.lacked_by("b") == 1


def test_what_is_settled_again_is_no_younger_for_that() -> None:
    residents, first, second = Residents(), Row(1), Row(2)
    for row in (first, second):
        residents.add_entry(row)
        residents.move(row, EntryTurn.HAD)
    residents.move(first, EntryTurn.HAD)
    assert residents.longest_settled == 1
