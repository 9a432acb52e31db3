"""What follows an entry that was dropped names the one before it."""

from __future__ import annotations

import pytest

from bridge.contract.machine import Publication, Wire
from bridge.document import Scope, ScopeSecret
from bridge.publisher import cutting as predecessors
from bridge.publisher.cutting import DROPPED_ROW, Predecessors
from bridge.publisher.entry import Entry


def entry(sequence: int, previous: int, qos: int = 1) -> Entry:
    secret = ScopeSecret(Scope("plant/#"), "plant/#")
    return Entry(sequence, Publication("plant/t", b"", qos), secret, previous, 0.0)


def named(before: Predecessors, previous: int) -> int:
    """Returns what a follower of that number names."""
    return before.predecessor_of(entry(1000, previous))


def test_a_run_of_dropped_entries_is_passed_over() -> None:
    before = Predecessors()
    before.drop_entries([entry(2, 1), entry(3, 2), entry(4, 3, qos=0)])
    assert [named(before, number) for number in (1, 2, 3, 4)] == [1, 1, 1, 4]


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predecessors, "DROPPED_MAX", 2)
    before = Predecessors()
    before.drop_entries([entry(2, 1), entry(4, 3), entry(6, 5)])
    assert [named(before, number) for number in (2, 4, 6)] == [2, 3, 5]


def test_one_that_is_dropped_later_is_passed_over_too() -> None:
    before = Predecessors()
    before.drop_entries([entry(3, 2)])
    before.drop_entries([entry(2, 1)])
    assert named(before, 3) == 1


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
    assert [named(again, number) for number in (3, 9)] == [1, 8]
    again.drop_entries([entry(5, 3)])
    assert named(restarted(again, disk), 5) == 1
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


# -------------------------------------------------------------------------------------- entries that change chains


def of_chain(chain: str, sequence: int, previous: int = 0, qos: int = 1, sealed: bool = False) -> Entry:
    secret = ScopeSecret(Scope(chain), chain)
    return Entry(sequence, Publication("t", b"", qos), secret, previous, 0.0, Wire("t", b"") if sealed else None)


def moved(before: Predecessors, sequence: int, previous: int, origin: str = "a/#", goal: str = "b/#") -> None:
    before.left_chain(of_chain(goal, sequence), origin, previous)


def test_what_follows_an_entry_that_left_its_chain_passes_over_it_in_that_chain_alone() -> None:
    before, disk = Predecessors(), dict[bytes, bytes]()
    moved(before, 5, 3)
    assert before.predecessor_of(of_chain("a/#", 7, 5)) == 3
    assert before.predecessor_of(of_chain("b/#", 7, 5)) == 5
    assert before.predecessor_of(of_chain("c/#", 7, 5)) == 5
    assert restarted(before, disk).predecessor_of(of_chain("a/#", 7, 5)) == 3
    before.left_chain(of_chain("a/#", 5), "b/#", 4)
    assert before.predecessor_of(of_chain("a/#", 7, 5)) == 5, "it came back"
    assert before.predecessor_of(of_chain("b/#", 7, 5)) == 4
    assert restarted(before, disk).predecessor_of(of_chain("a/#", 7, 5)) == 5


def test_what_precedes_nothing_leaves_no_trace() -> None:
    before = Predecessors()
    before.left_chain(of_chain("b/#", 5, qos=0), "a/#", 3)
    before.left_chain(of_chain("b/#", 5), "a/#", 5)
    snapshot = of_chain("a/#", 9, 8)
    snapshot.is_snapshot = True
    before.drop_entries([snapshot, of_chain("a/#", 4, 4), of_chain("a/#", 4, 6)])
    assert before.changed_rows() == []


def test_a_new_entry_follows_the_last_one_of_a_chain_into_which_others_came() -> None:
    before = Predecessors()
    snapshot = of_chain("a/#", 9)
    snapshot.is_snapshot = True
    there = [of_chain("a/#", 4), of_chain("a/#", 6, qos=0), of_chain("b/#", 8), snapshot]
    before.joins("a/#", {entry.sequence: entry for entry in there})
    came = []
    for entry in (
        of_chain("a/#", 10, 2),
        of_chain("a/#", 11, 2, qos=0),
        of_chain("a/#", 12, 11),
        of_chain("b/#", 13, 1),
    ):
        before.join_chain(entry)
        came.append(entry.previous)
    assert came == [4, 10, 11, 1]
    before.joins("a/#", {})
    late = of_chain("a/#", 12, 2)
    before.join_chain(late)
    assert late.previous == 2, "not behind itself"


def test_a_changed_chain_is_linked_in_order_of_numbers_and_what_is_sealed_stays() -> None:
    before = Predecessors()
    before.joins("a/#", {})
    snapshot = of_chain("a/#", 7)
    snapshot.is_snapshot = True
    there = [
        of_chain("a/#", 9, 3), of_chain("a/#", 2), of_chain("a/#", 4, 1, sealed=True), of_chain("a/#", 5, qos=0),
        of_chain("b/#", 6, 1), snapshot, of_chain("a/#", 10, 9),
    ]  # fmt: skip
    before.link_chains({entry.sequence: entry for entry in there})
    assert {entry.sequence: entry.previous for entry in there} == {9: 4, 2: 0, 4: 1, 5: 4, 6: 1, 7: 0, 10: 9}
    later = of_chain("a/#", 12)
    before.join_chain(later)
    assert later.previous == 10


def test_what_precedes_nothing_hides_no_other_dropped_entry() -> None:
    before = Predecessors()
    before.drop_entries([entry(2, 1, qos=0), entry(3, 1), entry(4, 4), entry(5, 3)])
    assert [named(before, number) for number in (2, 3, 4, 5)] == [2, 1, 4, 1]


def test_rows_that_name_themselves_or_what_comes_later_are_damaged() -> None:
    """They would lead round in a circle."""
    before = Predecessors()
    name = DROPPED_ROW + (5).to_bytes(8)
    rows = [(name, (5).to_bytes(8)), (DROPPED_ROW + (6).to_bytes(8), (7).to_bytes(8)), (name[:-1], (1).to_bytes(8))]
    before.restore([*rows, (DROPPED_ROW + (8).to_bytes(8), bytes(9)), (b"x" + (9).to_bytes(8), bytes(8))])
    assert [named(before, number) for number in (5, 6, 8, 9)] == [5, 6, 8, 9]
    before.restore([(name, (4).to_bytes(8)), (name[:-1] + b"\x04", (2).to_bytes(8))])
    assert named(before, 5) == 2


def test_of_rows_of_a_former_process_the_lowest_numbers_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predecessors, "DROPPED_MAX", 2)
    before = Predecessors()
    before.restore([(DROPPED_ROW + number.to_bytes(8), (number - 1).to_bytes(8)) for number in (6, 4)])
    before.drop_entries([entry(8, 7)])
    assert [named(before, number) for number in (4, 6, 8)] == [4, 5, 7]
