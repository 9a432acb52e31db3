"""QoS 0 in memory is bounded by number and by bytes, and of the client with most the oldest goes."""

from __future__ import annotations

import pytest

from bridge.publisher.residents import Fleeting


@pytest.mark.parametrize(("most", "most_bytes", "size"), [(2, 1 << 20, 10), (10, 20, 10)])
def test_the_oldest_goes_by_either_bound(most: int, most_bytes: int, size: int) -> None:
    held = Fleeting(most, most_bytes)
    for number in range(1, 5):
        held.add_entry(number, size, "a")
    assert held.excess() == [1, 2]
    assert (len(held), held.excess()) == (2, [])


def test_what_is_gone_makes_room() -> None:
    held = Fleeting(1, 100)
    held.add_entry(1, 10, "a")
    held.add_entry(2, 10, "a")
    held.remove_entry(1)
    held.remove_entry(7)
    assert held.excess() == []


@pytest.mark.parametrize("size", [1, 900])
def test_who_floods_loses_its_own_and_alone_has_all(size: int) -> None:
    """Attack: a client publishes at QoS 0 without end while there is no uplink, in many or in long messages."""
    held = Fleeting(20, 20 * 90)
    held.add_entry(1, 10, "good")
    for number in range(2, 500):
        held.add_entry(number, size, "evil")
        assert 1 not in held.excess()
    held.remove_entry(1)
    for number in range(500, 600):
        held.add_entry(number, 10, "good")
        held.excess()
    assert len(held) > 10, "all have their share again"


def test_a_long_entry_counts_as_so_many_parts_of_the_bound() -> None:
    for size, kept in ((0, 10), (10, 10), (11, 5), (30, 3), (31, 2), (200, 0)):
        held = Fleeting(10, 95)  # ten entries of ten bytes
        for number in range(1, 12):
            held.add_entry(number, size, "a")
        assert held.excess() == list(range(1, 12 - kept))
        assert len(held) == kept


def test_who_has_most_parts_loses_and_not_who_has_most_entries() -> None:
    held = Fleeting(10, 100)
    for number in range(1, 5):
        held.add_entry(number, 1, "many")
    held.add_entry(5, 65, "long")
    assert held.excess() == [5], "four entries, and seven parts"
