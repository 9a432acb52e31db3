"""Numbers of records: never twice, in blocks of one scope, and rarely a word to the disk."""

from __future__ import annotations

import pytest

from bridge.publisher.numbers import CLOCK_STEP_MS, MS_NUMBERS, RESERVE, Numbers
from keys.batchheader import BLOCK_NUMBERS, NUMBER_LIMIT
from keys.errors import OurFault


def test_numbers_are_never_drawn_twice_whatever_becomes_of_disk_and_clock() -> None:
    drawn: set[int] = set()

    def draw(numbers: Numbers, scope: int, count: int, now_ms: int) -> None:
        for first, size in numbers.draw(scope, count, now_ms):
            run = set(range(first, first + size))
            assert not run & drawn
            assert first // 4096 == (first + size - 1) // 4096
            assert first + size <= numbers.durable
            drawn.update(run)

    numbers = Numbers(0, 1_000_000)
    for scope, count in ((1, 3), (2, 5000), (1, 4096), (2, 1)):
        draw(numbers, scope, count, 1_000_000)
    draw(Numbers(numbers.durable, 1_000_000), 1, 5, 1_000_000)  # a restart
    draw(Numbers(numbers.durable + 100_000, 900_000), 1, 5, 900_000)  # one with a clock that was set back
    lost = Numbers(0, 1_000_500)  # a directory that was lost
    draw(lost, 1, 5, 1_000_500)
    draw(lost, 1, 5, 1_070_000)  # the clock was set on
    assert max(drawn) >= 1_070_000 * MS_NUMBERS


def test_scopes_draw_blocks_of_their_own() -> None:
    numbers = Numbers(0, 1)
    one, other = numbers.draw(1, 1, 1)[0][0], numbers.draw(2, 1, 1)[0][0]
    assert other - one >= 4096
    assert numbers.draw(1, 1, 1)[0][0] == one + 1
    numbers.new_block(1)
    assert numbers.draw(1, 1, 1)[0][0] > other


def test_a_block_that_is_full_is_followed_by_a_new_one() -> None:
    numbers = Numbers(0, 0)
    first = numbers.draw(7, BLOCK_NUMBERS, 0)[0][0]
    assert first == BLOCK_NUMBERS, "number 0 is nobody's"
    assert numbers.draw(7, BLOCK_NUMBERS + 2, 0) == [(first + BLOCK_NUMBERS, BLOCK_NUMBERS), (3 * BLOCK_NUMBERS, 2)]
    assert numbers.draw(7, 1, 0) == [(3 * BLOCK_NUMBERS + 2, 1)]
    assert numbers.draw(7, 0, 0) == []


def test_the_disk_hears_of_it_once_for_many_blocks() -> None:
    numbers = Numbers(0, 0)
    assert numbers.durable == BLOCK_NUMBERS, "nothing is drawn yet: a restart may begin where we do"
    heard = set()
    for scope in range(2 * RESERVE // BLOCK_NUMBERS):
        numbers.draw(scope, 1, 0)
        heard.add(numbers.durable)
    assert len(heard) == 2
    assert max(heard) <= (scope + 2) * BLOCK_NUMBERS + RESERVE
    numbers = Numbers(0, 0)
    numbers.draw(1, RESERVE + BLOCK_NUMBERS, 0)
    assert numbers.durable == RESERVE + 2 * BLOCK_NUMBERS, "what it was told is used up, and no more"


def test_only_a_clock_that_jumps_forward_begins_anew() -> None:
    numbers = Numbers(0, 200_000)
    first = numbers.draw(1, 1, 200_000)[0][0]
    assert first == 200_000 * MS_NUMBERS
    assert numbers.draw(1, 1, 200_000 + CLOCK_STEP_MS) == [(first + 1, 1)], "a minute may pass without a message"
    assert numbers.draw(1, 1, 100_000) == [(first + 2, 1)]
    back = numbers.draw(1, 1, 100_000 + CLOCK_STEP_MS + 1)
    assert back == [(first + BLOCK_NUMBERS, 1)], "no lower than what was drawn"
    late = 200_000 + 3 * CLOCK_STEP_MS
    assert numbers.draw(1, 1, late) == [(late * MS_NUMBERS, 1)]


def test_no_number_is_above_the_limit() -> None:
    numbers = Numbers(NUMBER_LIMIT - BLOCK_NUMBERS, 0)
    assert numbers.draw(1, BLOCK_NUMBERS, 0) == [(NUMBER_LIMIT - BLOCK_NUMBERS, BLOCK_NUMBERS)]
    with pytest.raises(OurFault, match="clock"):
        numbers.draw(1, 1, 0)
