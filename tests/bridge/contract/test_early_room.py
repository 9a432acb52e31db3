"""The room for what comes too early: order, bounds of all and of one owner, and the longest wait."""

from __future__ import annotations

from bridge.contract import EarlyPolicy, EarlyRoom

FAIR = EarlyPolicy(limit_bytes=40, overhead_bytes=10)
STRICT = EarlyPolicy(limit_bytes=1000, overhead_bytes=0, own_bytes=20, own_count=3, waits_s=5)


def test_on_overflow_the_owner_with_most_loses_its_oldest() -> None:
    room = EarlyRoom[str, int](FAIR)
    assert room.keep_value("quiet", b"q", 0, 0) == []
    gone = [room.keep_value(str(number), b"loud", number, 5) for number in range(4)]
    assert gone == [[], [], [("0", 0)], [("1", 1)]]
    assert ("quiet" in room, "1" in room, room.get("3"), len(room)) == (True, False, 3, 3)
    assert (room.pop("3"), room.pop("3")) == (3, None)
    assert room.take_all() == [0, 2]
    assert (len(room), room.take_all(), room.next_deadline) == (0, [], None)


def test_a_full_owner_is_refused_and_others_are_not() -> None:
    room = EarlyRoom[str, int](STRICT)
    assert [room.keep_value(name, b"a", 1, 10) for name in "xyz"] == [[], [], None]
    assert [room.keep_value(name, b"b", 2, 1) for name in "klmn"] == [[], [], [], None]


def test_what_waited_long_enough_is_due_also_if_the_clock_was_set_back() -> None:
    room = EarlyRoom[str, int](STRICT)
    room.keep_value("x", b"a", 1, 1, now=100.0)
    room.keep_value("y", b"a", 2, 1, now=102.0)
    assert room.next_deadline == 105.0
    assert room.take_due(104.9) == []
    assert room.take_due(105.0) == [1]
    assert room.take_due(50.0) == [2]
