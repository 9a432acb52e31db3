"""What follows an entry that was dropped names the one before it."""

from __future__ import annotations

import pytest

from bridge.contract.machine import Publication
from bridge.document import Scope, ScopeSecret
from bridge.publisher import cutting as predecessors
from bridge.publisher.cutting import Predecessors
from bridge.publisher.entry import Entry


def entry(sequence: int, previous: int, qos: int = 1) -> Entry:
    secret = ScopeSecret(Scope("plant/#"), "plant/#")
    return Entry(sequence, Publication("plant/t", b"", qos), secret, "t", previous, 0.0)


def test_a_run_of_dropped_entries_is_passed_over() -> None:
    before = Predecessors()
    before.drop_entries([entry(2, 1), entry(3, 2), entry(4, 3, qos=0)])
    assert [before[number] for number in (1, 2, 3, 4)] == [1, 1, 1, 4]


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predecessors, "DROPPED_MAX", 2)
    before = Predecessors()
    before.drop_entries([entry(2, 1), entry(4, 3), entry(6, 5)])
    assert [before[number] for number in (2, 4, 6)] == [2, 3, 5]


def test_one_that_is_dropped_later_is_passed_over_too() -> None:
    before = Predecessors()
    before.drop_entries([entry(3, 2)])
    before.drop_entries([entry(2, 1)])
    assert before[3] == 1


def restarted(before: Predecessors, disk: dict[bytes, bytes]) -> Predecessors:
    for effect in before.changed_rows():
        for name, row in effect.rows:
            disk.pop(name, None)
            disk.update({} if row is None else {name: row})
    again = Predecessors()
    again.restore([(b"s of others", b"?"), (b"d damaged", b""), *disk.items()])
    return again


def test_the_next_life_names_what_this_one_would() -> None:
    disk: dict[bytes, bytes] = {}
    before = Predecessors()
    before.drop_entries([entry(2, 1), entry(3, 2), entry(9, 8)])
    again = restarted(before, disk)
    assert [again[number] for number in (3, 9)] == [1, 8]
    again.drop_entries([entry(5, 3)])
    assert restarted(again, disk)[5] == 1
    assert again.changed_rows() == []


def test_one_row_stands_for_a_run_however_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody but the next one of its chain names an entry."""
    disk: dict[bytes, bytes] = {}
    before = Predecessors()
    for number in range(2, 100):
        before.drop_entries([entry(number, number - 1)])
        restarted(before, disk)
    assert len(disk) == 1
    monkeypatch.setattr(predecessors, "DROPPED_MAX", 2)
    before.drop_entries([entry(200, 150), entry(300, 250), entry(400, 350)])
    assert len(restarted(before, disk)._before) == len(disk) == 2
