"""Guesses on a clock of the test's own: counted before they are judged, and by address block."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from gateway.console.guesses import BLOCKS_MAX, GUESSES_MAX, GUESSES_S, Guesses, TooManyError


@pytest.mark.parametrize(
    ("addresses", "others"),
    [
        (["192.0.2.1"], ["192.0.2.2"]),
        (["127.0.0.1", "::1", "127.9.9.9", ""], ["192.0.2.2"]),  # this machine
        ([f"2001:db8:1:2::{number:x}" for number in range(1, 99)], ["2001:db8:1:3::1"]),  # one /64
        (["::ffff:192.0.2.1", "192.0.2.1"], ["::ffff:192.0.2.2"]),
    ],
)
def test_a_block_that_guesses_waits_and_no_other(addresses: list[str], others: list[str]) -> None:
    guesses = Guesses()
    for at in range(GUESSES_MAX):
        guesses.count_guess(addresses[at % len(addresses)], float(at))  # none of which is judged yet
    for address in addresses:
        with pytest.raises(TooManyError):
            guesses.count_guess(address, float(GUESSES_MAX))
    for other in others:
        guesses.count_guess(other, float(GUESSES_MAX))
    guesses.count_guess(addresses[0], GUESSES_S)
    with pytest.raises(TooManyError):
        guesses.count_guess(addresses[-1], GUESSES_S)


def test_what_was_right_was_no_guess() -> None:
    guesses = Guesses()
    for at in range(3 * GUESSES_MAX):
        guesses.right(guesses.count_guess("192.0.2.1", float(at)), float(at))
    for at in range(GUESSES_MAX):
        guesses.count_guess("192.0.2.1", 100.0 + at)
    guesses.right("192.0.2.1", 5.0)  # of long ago
    with pytest.raises(TooManyError):
        guesses.count_guess("192.0.2.1", 120.0)


def test_blocks_are_bounded() -> None:
    guesses = Guesses()
    for number in range(BLOCKS_MAX + 5):
        guesses.count_guess(str(ip_address(0x0B000000 + number)), 0.0)
    assert len(guesses._made) == BLOCKS_MAX
