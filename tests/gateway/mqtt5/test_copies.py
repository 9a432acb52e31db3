"""Bodies that were decoded lately: kept within bounds, the older half going first."""

from __future__ import annotations

import pytest

from gateway.mqtt5.copies import BODY_OVERHEAD_BYTES, COPY_BYTES_MAX, COPY_PROPERTIES_MAX, Body, Copies
from gateway.mqtt5.packets import NO_PROPERTIES, Properties

PLAIN: Body = ("t", b"x", NO_PROPERTIES)
MANY = tuple((str(n), "") for n in range(COPY_PROPERTIES_MAX))


def known(copies: Copies) -> set[bytes]:
    younger, older = copies.generations
    return {*younger, *older}


def test_a_body_is_found_as_it_was_decoded() -> None:
    copies = Copies()
    younger, older = copies.keep_body(b"body", PLAIN)
    assert younger[b"body"] is PLAIN
    assert older == {}
    assert copies.generations == (younger, older)


def test_half_goes_at_a_time_and_the_older_first() -> None:
    body = 100
    copies = Copies(2 * 3 * (body + BODY_OVERHEAD_BYTES))  # three in each half
    for number in range(3):
        copies.keep_body(bytes([number]) * body, PLAIN)
    assert copies.generations[1] == {}
    copies.keep_body(b"3" * body, PLAIN)
    assert (len(copies.generations[0]), len(copies.generations[1])) == (1, 3)
    for number in range(4, 7):
        copies.keep_body(bytes([number]) * body, PLAIN)
    assert known(copies) == {b"3" * body, *(bytes([number]) * body for number in range(4, 7))}


@pytest.mark.parametrize(("body", "properties", "kept"), [
    (COPY_BYTES_MAX, NO_PROPERTIES, True), (COPY_BYTES_MAX + 1, NO_PROPERTIES, False),
    (5, Properties(user=MANY), True), (5, Properties(user=(*MANY, ("one", "more"))), False),
    (5, Properties(user=MANY, subscription_ids=(1,)), False),
])  # fmt: skip
def test_what_costs_too_much_to_compare_or_hold_is_not_kept(body: int, properties: Properties, kept: bool) -> None:
    copies = Copies()
    copies.keep_body(bytes(body), ("t", b"", properties))
    assert bool(known(copies)) is kept


def test_a_body_larger_than_a_half_empties_what_was_there_and_stays_bounded() -> None:
    copies = Copies(1000)
    for number in range(50):
        copies.keep_body(bytes([number]) * 600, PLAIN)
        assert len(known(copies)) <= 2
