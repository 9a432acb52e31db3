"""Where and when the next attempt goes, without a network."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.replica.content_relay import RECENT_S
from gateway.client.redial import (
    ELSEWHERE_MAX,
    REFUSED_S,
    RETRY_FIRST_S,
    RETRY_MOST_S,
    STABLE_S,
    Address,
    Redial,
    host_port,
    split_host_port,
)

OWN = ("192.0.2.1", 1)


def redial(*others: Address, random: float = 1.0) -> Redial:
    return Redial(OWN, lambda: others, lambda: random)


def test_a_found_address_is_tried_at_once_and_then_there_is_a_pause() -> None:
    it = redial(("192.0.2.2", 2), OWN, ("192.0.2.3", 3))
    tried = []
    for _ in range(7):
        at = it.address
        tried.append((at[1], it.record_end(None)))
    assert tried == [(1, 0.0), (2, 0.0), (3, 0.25), (1, 0.0), (2, 0.0), (3, 0.5), (1, 0.0)]


def test_an_address_on_which_the_connection_stood_is_tried_again_first() -> None:
    it = redial(("192.0.2.2", 2))
    it.record_end(None)
    assert it.record_end(STABLE_S) == RETRY_FIRST_S
    assert it.address == ("192.0.2.2", 2)
    it.record_end(None)
    assert it.address == OWN


def test_whoever_hears_of_more_addresses_all_the_time_still_comes_back_to_the_signed_one() -> None:
    """Attack: a neighbour that advertises a new address for each attempt."""
    made_up: list[Address] = []

    def elsewhere() -> list[Address]:
        made_up.append((f"198.51.100.{len(made_up) % 250}", 9))
        return made_up[::-1]

    it = Redial(OWN, elsewhere, lambda: 0.5)
    for _ in range(20):
        in_a_row = 1
        while it.record_end(None) == 0.0:
            in_a_row += 1
        assert in_a_row <= 1 + ELSEWHERE_MAX
        assert it.address == OWN


@given(st.lists(st.none() | st.floats(0, 1e6), max_size=60), st.floats(0, 1), st.booleans())
def test_pauses_are_bounded_on_both_sides_and_spread_by_half(ends: list[float | None], random: float, longest: bool):
    it = redial(random=random)
    for up_s in ends:
        assert RETRY_FIRST_S / 2 <= it.record_end(up_s, longest) <= (REFUSED_S if longest else RETRY_MOST_S)


def test_who_dials_again_comes_before_a_replica_forgets_what_passed() -> None:
    assert 2 * RETRY_MOST_S < RECENT_S


@pytest.mark.parametrize(
    ("text", "address"),
    [("[::1]:8883", ("::1", 8883)), ("h.example:1", ("h.example", 1)), ("1.2.3.4:5", ("1.2.3.4", 5))],
)
def test_addresses_are_written_as_they_are_read(text: str, address: Address) -> None:
    assert split_host_port(text) == address
    assert host_port(address) == text
