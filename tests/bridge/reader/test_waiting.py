"""What waits in streams: found by key and by publisher, given back with its room, and looked at when its time comes."""

from __future__ import annotations

import pytest

from bridge.reader.streams import Held, Stream
from bridge.reader.waiting import REPAIR_S, HeldRoom, Waiting
from bridge.wire.admission import Admission
from keys.envelope import Mode
from tests.bridge.helpers import NOW, craft
from tests.sim.world import make_world

WORLD = make_world({1: 3}, [], {"a": 1, "b": 1})
ADMISSION = Admission(WORLD.overlay, replica=True)
A, B = (WORLD.identities[name].party_id for name in "ab")
KEY = b"k" * 16


def held(sequence: int, publisher: str = "a", key: bytes = KEY) -> Held:
    mode = Mode.COPIES
    wire = craft(WORLD, publisher, "plant/t", sequence=sequence, key_id=key, mode=mode, content=b"c")
    admitted = ADMISSION.publication(dict(wire.properties)["vmq"], wire.topic, NOW)
    return Held(admitted, wire.payload, wire.topic, NOW, admitted.header.publisher)


def test_what_waits_is_found_by_its_key_and_its_publisher_until_it_leaves() -> None:
    waiting, streams = Waiting(), {A: Stream(), B: Stream()}
    first, second, other = held(1), held(2), held(1, "b")
    for one in (first, second, other):
        waiting.put_held(streams[one.author], one)
    assert waiting.naming(KEY) == sorted([first.stream_id, other.stream_id])
    assert (waiting.longest_waiting(A), waiting.longest_waiting(B)) == (first.stream_id, other.stream_id)
    assert waiting.take_left_publishers() == set()
    assert waiting.take_held(streams[A], 1) is first
    assert waiting.longest_waiting(A) == second.stream_id
    assert waiting.take_left_publishers() == {A}
    assert waiting.take_left_publishers() == set()
    waiting.take_held(streams[A], 2)
    assert waiting.longest_waiting(A) is None
    assert waiting.naming(KEY) == [other.stream_id]
    assert streams[A].held == {}


def test_its_room_is_its_publishers_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.reader.waiting.HELD_MAX", 1)
    waiting, stream = Waiting(), Stream()
    waiting.put_held(stream, held(1))
    assert not waiting.has_room(held(2))
    assert waiting.has_room(held(2, "b"))
    waiting.take_held(stream, 1)
    assert waiting.has_room(held(2))


def test_a_stream_is_looked_at_once_at_the_time_that_was_said_last() -> None:
    waiting, one, two = Waiting(), (A, "t"), (B, "t")
    waiting.wakes(one, NOW + 5)
    waiting.wakes(one, NOW + 2)
    waiting.wakes(two, NOW + 3)
    assert waiting.next_deadline == NOW + 2
    assert waiting.due_stream(NOW + 1) is None
    assert [waiting.due_stream(NOW + 4) for _ in range(3)] == [one, two, None]
    waiting.wakes(one, None)
    assert waiting.next_deadline is None
    assert waiting.due_stream(NOW + 9) is None


def test_one_publisher_has_a_quarter_of_the_bytes_and_once_all_are_full_its_fair_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bridge.reader.waiting.HELD_BYTES_MAX", 80)
    room, names = HeldRoom(), [bytes([n]) for n in range(8)]
    assert room.has_for(names[0], 1_000), "each may have one"
    for name in names:
        room.add_publication(name, 10)
    assert [room.has_for(names[0], size) for size in (10, 11)] == [True, False], "all together are not beyond the bound"
    room.add_publication(names[7], 1)
    assert [room.has_for(names[0], size) for size in (0, 1)] == [True, False], "an eighth each"
    assert room.has_for(b"another", 1_000)
    room.remove_publication(names[7], 1)
    assert room.has_for(names[0], 10)
    for name in names[3:]:
        room.remove_publication(name, 10)
    room.add_publication(names[0], 50)
    assert room.has_for(names[1], 10), "a quarter, though few are here"
    assert not room.has_for(names[1], 11)


def test_a_stream_is_due_at_its_time_and_when_that_is_beyond_the_longest_wait() -> None:
    waiting, one = Waiting(), (A, "t")
    waiting.wakes(one, NOW)
    assert waiting.due_stream(NOW - REPAIR_S) is None
    assert waiting.due_stream(NOW - 0.01) is None
    assert waiting.due_stream(NOW) == one
    waiting.wakes(one, None)
    waiting.wakes(one, NOW)
    assert waiting.due_stream(NOW - REPAIR_S - 0.01) == one, "the clock was set back"
