"""Work in turns: paced by origin, nobody's behind another's, and begun again without a heap of repetitions."""

from __future__ import annotations

from bridge.devices.device_work import WorkInTurns

A, B = b"192.0.2.1", b"192.0.2.2"


def done(turns: WorkInTurns[str], now: float, most: int = 1_000) -> list[tuple[str, str]]:
    return list(turns.due_names(now, most))


def test_each_origin_has_its_own_pace() -> None:
    turns: WorkInTurns[str] = WorkInTurns(10.0)
    turns.begin_work(A, "a", lambda: [f"a{number}" for number in range(1_000)], "x", 0.0)
    turns.begin_work(B, "b", lambda: ["b0", "b1"], "y", 0.0)
    assert turns.next_deadline == 0.1
    assert done(turns, 0.05) == []
    assert sorted(done(turns, 0.1)) == [("a0", "x"), ("b0", "y")]
    assert sorted(done(turns, 0.21)) == [("a1", "x"), ("b1", "y")]
    assert len(done(turns, 5.0)) == 48, "the flooder's goes on at its pace"
    assert len(done(turns, 1_000.0, most=7)) == 7
    assert len(done(turns, 1_000.0)) == 1_000 - 2 - 48 - 7
    assert turns.next_deadline is None


def test_works_of_one_origin_take_turns() -> None:
    turns: WorkInTurns[str] = WorkInTurns(1.0)
    turns.begin_work(A, "long", lambda: map(str, range(100)), "long", 0.0)
    turns.begin_work(A, "short", lambda: ["x"], "short", 0.0)
    assert done(turns, 2.0) == [("0", "long"), ("x", "short")]


def test_what_begins_again_has_the_newest_data_and_starts_over_at_its_end() -> None:
    turns: WorkInTurns[str] = WorkInTurns(1.0)
    names = ["a", "b", "c"]
    turns.begin_work(A, "k", lambda: names, "old", 0.0)
    assert done(turns, 1.0) == [("a", "old")]
    for number in range(1_000):
        turns.begin_work(A, "k", lambda: names, f"new {number}", 1.0)
    assert turns.is_under_way(A, "k")
    names.append("d")
    assert [name for name, data in done(turns, 100.0) if data == "new 999"] == ["b", "c", "a", "b", "c", "d"]
    assert not turns.is_under_way(A, "k")
    turns.begin_work(A, "none", list, "x", 0.0)
    assert done(turns, 100.0) == []
    assert turns.next_deadline is None
