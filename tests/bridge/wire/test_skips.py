"""Property `vmq-skip`: its one spelling, and what several say together."""

from __future__ import annotations

import pytest

from bridge.wire import PROPERTY_SKIP, agreed, read_skip
from keys.errors import BadFrame
from keys.message import NO_KEY, MessageHeader, Mode

HEADER = MessageHeader(bytes(16), NO_KEY, 9, 7, 1, 0, 1, False, False, Mode.PLAIN, (bytes(32),))


def test_what_is_said_of_a_gap() -> None:
    assert read_skip({}, HEADER) is None
    assert read_skip({PROPERTY_SKIP: "0"}, HEADER) == 0
    assert read_skip({PROPERTY_SKIP: "6"}, HEADER) == 6


@pytest.mark.parametrize("told", ["", "7", "8", "-1", "06", "six", "٣", "1" * 20, "6 "])
def test_what_says_nothing_is_refused(told: str) -> None:
    with pytest.raises(BadFrame):
        read_skip({PROPERTY_SKIP: told}, HEADER)


def test_so_many_say_the_same_that_one_of_them_is_honest() -> None:
    assert agreed({"a": 3}, 2) is None
    assert agreed({"a": 0, "b": 5}, 2) == 5, "the liar's word counts for no more than the other's"
    assert agreed({"a": 0, "b": 5, "c": 4}, 2) == 4
    assert agreed({"a": 3}, 1) == 3
