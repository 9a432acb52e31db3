"""Keys that came before their views: kept as they came, once, and a flooder loses its own."""

from __future__ import annotations

from dataclasses import replace
from sys import getsizeof

import pytest

from bridge.wire import early_keys
from bridge.wire.early_keys import AHEAD_BYTES, Ahead
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS, KeyHeader, to_property
from keys.errors import BadFrame
from tests.keys.helpers import made

HEADER = made(3).header


def told(number: int = 0, publisher: bytes = b"p" * 16, shares: str = "shares") -> dict[str, str]:
    header: KeyHeader = replace(HEADER, publisher=publisher, first_sequence=number)
    return {PROPERTY_KEY: to_property(header.encode()), PROPERTY_SHARES: shares, PROPERTY_HEADER: "not kept"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Ahead:
    monkeypatch.setattr(early_keys, "AHEAD_MAX", 4)
    return Ahead()


def test_what_came_is_taken_in_its_order_and_then_is_gone() -> None:
    ahead = Ahead()
    for number in range(3):
        ahead.keep(f"r{number}", told(number), "plant/a")
    taken = ahead.take()
    assert [sender for sender, _, _ in taken] == ["r0", "r1", "r2"]
    assert [set(properties) for _, _, properties in taken] == [{PROPERTY_KEY, PROPERTY_SHARES}] * 3
    assert (len(ahead), ahead.take()) == (0, [])


def test_a_repetition_is_kept_once_and_any_difference_apart() -> None:
    ahead = Ahead()
    for _ in range(2):
        ahead.keep("r1", told(), "plant/a")
    assert len(ahead) == 1
    ahead.keep("r2", told(), "plant/a")
    ahead.keep("r1", told(), "plant/b")
    ahead.keep("r1", told(shares="others"), "plant/a")
    without = {PROPERTY_KEY: told()[PROPERTY_KEY]}
    ahead.keep("r1", without, "plant/a")
    assert len(ahead) == 5


def test_a_publisher_that_names_views_that_never_come_loses_its_own_only(small: Ahead) -> None:
    small.keep("r1", told(1, b"g" * 16), "plant/good")
    for number in range(20):
        small.keep("r1", told(number, b"b" * 16), "plant/bad")
    kept = [topic for _, topic, _ in small.take()]
    assert kept == ["plant/good", *["plant/bad"] * 3]


def test_a_neighbour_that_invents_shares_of_one_key_costs_what_it_says_only(small: Ahead) -> None:
    small.keep("honest", told(), "plant/a")
    for number in range(20):
        small.keep("liar", told(shares=str(number)), "plant/a")
    kept = [(sender, properties[PROPERTY_SHARES]) for sender, _, properties in small.take()]
    assert kept == [("honest", "shares"), ("liar", "17"), ("liar", "18"), ("liar", "19")]


def test_what_is_no_key_header_is_refused() -> None:
    with pytest.raises(BadFrame):
        Ahead().keep("r1", {PROPERTY_KEY: "AAAA"}, "plant/a")


def test_a_repetition_makes_nothing_younger(small: Ahead) -> None:
    for number in (1, 2, 3, 4, 1, 5):
        small.keep("r1", told(number), f"plant/{number}")
    assert [topic for _, topic, _ in small.take()] == ["plant/2", "plant/3", "plant/4", "plant/5"]


@pytest.mark.parametrize("text", ["x" * 65_000, "\U0001f40d" + "x" * 65_000])
def test_long_shares_and_topics_beside_a_key_that_waits_fill_no_memory(text: str) -> None:
    """Attack: a key header that its publisher signed for a view to come, again and again with other shares and on other
    topics, which nobody signed. It was half a gigabyte."""
    ahead = Ahead()
    ahead.keep("honest", told(), "plant/a")
    for number in range(1000):
        ahead.keep("liar", told(shares=f"{number}{text}"), f"$veil/key/{number}{text}")
    kept = ahead.take()
    assert sum(getsizeof(each) for _, topic, said in kept for each in (topic, *said.values())) <= AHEAD_BYTES
    assert kept[0][0] == "honest"


def test_wraps_are_kept_beside_shares() -> None:
    ahead = Ahead()
    ahead.keep("r1", {**told(), PROPERTY_WRAPS: "wraps"}, "plant/a")
    ((_, _, properties),) = ahead.take()
    assert properties[PROPERTY_WRAPS] == "wraps"
