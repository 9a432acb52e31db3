"""Random numbers of experiments: the same on every machine, and of the distributions that they claim."""

from __future__ import annotations

import hashlib
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.experiments.draws import Draws, Zipf


def test_the_same_names_draw_the_same_and_others_do_not():
    assert Draws("a", 1).randbytes(100) == Draws("a", 1).randbytes(100) != Draws("a", 2).randbytes(100)
    assert Draws("a", 11).random() != Draws("a1", 1).random(), "names are kept apart"


def test_draws_are_uniform_and_within_bounds():
    draws = Draws("uniform")
    numbers = [draws.random() for _ in range(20_000)]
    assert all(0 <= number < 1 for number in numbers)
    assert fmean(numbers) == pytest.approx(0.5, abs=0.01)
    assert pstdev(numbers) == pytest.approx(12**-0.5, abs=0.01)
    assert {draws.randrange(5) for _ in range(200)} == set(range(5))
    assert len(draws.randbytes(13)) == 13


def test_a_shuffle_loses_nothing():
    items = list(range(50))
    Draws("shuffle").shuffle(items)
    assert items != list(range(50))
    assert sorted(items) == list(range(50))


def test_popularity_follows_the_law_of_zipf():
    draws, zipf = Draws("zipf"), Zipf(128, 1.0)
    drawn = [zipf.draw(draws) for _ in range(40_000)]
    assert drawn.count(0) / drawn.count(9) == pytest.approx(10, rel=0.2)
    assert max(drawn) < 128
    assert len(set(zipf.distinct(draws, 4))) == 4
    with pytest.raises(ValueError, match="different"):
        zipf.distinct(draws, 129)


def test_a_stream_is_what_the_module_says_on_every_machine():
    """SHAKE-256 of the name, 8 bytes a number: figures that were printed once can be printed again."""
    words = hashlib.shake_256(b"figure 4\x007\x00" + bytes(8)).digest(512 * 8)
    following = hashlib.shake_256(b"figure 4\x007\x00" + (1).to_bytes(8)).digest(512 * 8)
    draws = Draws("figure 4", 7)
    assert draws.random() == (int.from_bytes(words[:8]) >> 11) / 2**53
    assert draws.randrange(1000) == int.from_bytes(words[8:16]) * 1000 >> 64
    assert draws.randbytes(11) == words[16:27]
    for _ in range(508):
        draws.random()
    assert draws.randbytes(8) == following[:8], "the next block"


@given(st.integers(0, 1 << 32), st.floats(-5, 5), st.floats(0, 9))
def test_what_is_drawn_is_within_what_was_asked(seed: int, low: float, width: float):
    draws = Draws("within", seed)
    assert low <= draws.uniform(low, low + width) <= low + width
    assert draws.choice("abc") in "abc"
    assert draws.randrange(1) == 0
    assert draws.randbytes(0) == b""


def test_every_order_of_a_shuffle_comes_and_none_more_often():
    draws, counts = Draws("orders"), dict[tuple[int, ...], int]()
    for _ in range(6000):
        items = [1, 2, 3]
        draws.shuffle(items)
        counts[tuple(items)] = counts.get(tuple(items), 0) + 1
    assert len(counts) == 6
    assert all(count == pytest.approx(1000, rel=0.15) for count in counts.values())


def test_a_beta_distribution_has_its_mean_and_spread():
    draws = Draws("beta")
    drawn = [draws.beta(0.375, 0.825) for _ in range(20_000)]
    assert fmean(drawn) == pytest.approx(0.375 / 1.2, abs=0.01)
    assert pstdev(drawn) ** 2 == pytest.approx(0.375 * 0.825 / (1.2**2 * 2.2), rel=0.05)


def test_ranks_that_are_drawn_together_are_different_and_may_be_all_there_are():
    assert sorted(Zipf(5, 1.0).distinct(Draws("all"), 5)) == [0, 1, 2, 3, 4]
    drawn = [Zipf(3, 0.0).draw(Draws("even", seed)) for seed in range(3000)]
    assert all(drawn.count(rank) == pytest.approx(1000, rel=0.15) for rank in range(3))
