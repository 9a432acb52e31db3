"""Room at a reader: bounded by number and bytes, and nobody has all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.reader import waiting
from bridge.reader.waiting import HeldRoom

PUBLISHERS = [bytes([n]) * 16 for n in range(8)]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "HELD_MAX", 50)
    monkeypatch.setattr(waiting, "HELD_BYTES_MAX", 1000)


def fill(held: HeldRoom, publisher: bytes, size: int) -> int:
    """How many go in, until none does."""
    count = 0
    while held.has_for(publisher, size):
        held.add_publication(publisher, size)
        count += 1
    return count


def test_one_publisher_has_so_many_and_a_quarter_of_the_bytes():
    assert fill(HeldRoom(), PUBLISHERS[0], 0) == 50
    assert fill(HeldRoom(), PUBLISHERS[0], 10) == 25


def test_whoever_comes_to_a_full_room_has_a_fair_part_of_it():
    held = HeldRoom()
    assert [fill(held, publisher, 10) for publisher in PUBLISHERS[:5]] == [25, 25, 25, 25, 20]
    assert [fill(held, publisher, 10) for publisher in PUBLISHERS[5:]] == [16, 14, 12]
    assert not held.has_for(PUBLISHERS[0], 10)


def test_one_of_each_may_always_wait():
    held = HeldRoom()
    assert held.has_for(PUBLISHERS[0], 5000)
    held.add_publication(PUBLISHERS[0], 5000)
    assert not held.has_for(PUBLISHERS[0], 1)
    assert held.has_for(PUBLISHERS[1], 5000)


@given(st.lists(st.tuples(st.sampled_from(PUBLISHERS), st.integers(0, 300)), max_size=200))
def test_what_leaves_gives_its_room_back_and_all_of_it_is_bounded(steps: list[tuple[bytes, int]]):
    held, inside = HeldRoom(), list[tuple[bytes, int]]()
    for publisher, size in steps:
        if held.has_for(publisher, size):
            held.add_publication(publisher, size)
            inside.append((publisher, size))
        assert held._bytes == sum(size for _, size in inside)
        assert held._bytes <= 2 * waiting.HELD_BYTES_MAX + 300 * len(PUBLISHERS)
    for publisher, size in inside:
        held.remove_publication(publisher, size)
    assert (held._bytes, held._held) == (0, {})
