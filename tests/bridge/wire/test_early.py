"""Keys that came before their views: kept as they came, once, and a flooder loses its own."""

from __future__ import annotations

from dataclasses import replace
from sys import getsizeof

import pytest

from bridge.contract import EarlyPolicy, EarlyRoom
from bridge.wire import KEYS, EarlyKeys, keep_key
from bridge.wire.early import EARLY_KEYS_BYTES
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS, KeyHeader, to_property
from keys.errors import BadFrame
from tests.keys.helpers import made

HEADER = made(3).header


def told(number: int = 0, publisher: bytes = b"p" * 16, shares: str = "shares") -> dict[str, str]:
    header: KeyHeader = replace(HEADER, publisher=publisher, first_sequence=number)
    return {PROPERTY_KEY: to_property(header.encode()), PROPERTY_SHARES: shares, PROPERTY_HEADER: "not kept"}


@pytest.fixture
def small() -> EarlyKeys:
    return EarlyRoom(EarlyPolicy(4 * KEYS.overhead_bytes, KEYS.overhead_bytes))


def test_what_came_is_taken_in_its_order_and_then_is_gone() -> None:
    ahead: EarlyKeys = EarlyRoom(KEYS)
    for number in range(3):
        keep_key(ahead, f"r{number}", told(number), "plant/a")
    taken = ahead.take_all()
    assert [sender for sender, _, _ in taken] == ["r0", "r1", "r2"]
    assert [set(properties) for _, _, properties in taken] == [{PROPERTY_KEY, PROPERTY_SHARES}] * 3
    assert (len(ahead), ahead.take_all()) == (0, [])


def test_a_repetition_is_kept_once_and_any_difference_apart() -> None:
    ahead: EarlyKeys = EarlyRoom(KEYS)
    for _ in range(2):
        keep_key(ahead, "r1", told(), "plant/a")
    assert len(ahead) == 1
    keep_key(ahead, "r2", told(), "plant/a")
    keep_key(ahead, "r1", told(), "plant/b")
    keep_key(ahead, "r1", told(shares="others"), "plant/a")
    without = {PROPERTY_KEY: told()[PROPERTY_KEY]}
    keep_key(ahead, "r1", without, "plant/a")
    assert len(ahead) == 5


def test_a_publisher_that_names_views_that_never_come_loses_its_own_only(small: EarlyKeys) -> None:
    keep_key(small, "r1", told(1, b"g" * 16), "plant/good")
    for number in range(20):
        keep_key(small, "r1", told(number, b"b" * 16), "plant/bad")
    kept = [topic for _, topic, _ in small.take_all()]
    assert kept == ["plant/good", *["plant/bad"] * 3]


def test_a_neighbour_that_invents_shares_of_one_key_costs_what_it_says_only(small: EarlyKeys) -> None:
    keep_key(small, "honest", told(), "plant/a")
    for number in range(20):
        keep_key(small, "liar", told(shares=str(number)), "plant/a")
    kept = [(sender, properties[PROPERTY_SHARES]) for sender, _, properties in small.take_all()]
    assert kept == [("honest", "shares"), ("liar", "17"), ("liar", "18"), ("liar", "19")]


def test_what_is_no_key_header_is_refused() -> None:
    with pytest.raises(BadFrame):
        keep_key(EarlyRoom(KEYS), "r1", {PROPERTY_KEY: "AAAA"}, "plant/a")


def test_a_repetition_makes_nothing_younger(small: EarlyKeys) -> None:
    for number in (1, 2, 3, 4, 1, 5):
        keep_key(small, "r1", told(number), f"plant/{number}")
    assert [topic for _, topic, _ in small.take_all()] == ["plant/2", "plant/3", "plant/4", "plant/5"]


@pytest.mark.long
@pytest.mark.attack(64)
@pytest.mark.parametrize("text", ["x" * 65_000, "\U0001f40d" + "x" * 65_000])
def test_long_shares_and_topics_beside_a_key_that_waits_fill_no_memory(text: str) -> None:
    """Attack: a key header that its publisher signed for a view to come, again and again with other shares and on other
    topics, which nobody signed. It was half a gigabyte."""
    ahead: EarlyKeys = EarlyRoom(KEYS)
    keep_key(ahead, "honest", told(), "plant/a")
    for number in range(1000):
        keep_key(ahead, "liar", told(shares=f"{number}{text}"), f"$veil/key/{number}{text}")
    kept = ahead.take_all()
    assert sum(getsizeof(each) for _, topic, said in kept for each in (topic, *said.values())) <= EARLY_KEYS_BYTES
    assert kept[0][0] == "honest"


def test_wraps_are_kept_beside_shares() -> None:
    ahead: EarlyKeys = EarlyRoom(KEYS)
    keep_key(ahead, "r1", {**told(), PROPERTY_WRAPS: "wraps"}, "plant/a")
    ((_, _, properties),) = ahead.take_all()
    assert properties[PROPERTY_WRAPS] == "wraps"
