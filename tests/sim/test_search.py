"""Recombination under attack: how many combinations of places are tried, in the worst case (docs/protocol.md §3).

Under one combination k places of every region after the first are believed, for all columns alike; C(n, k) to the
number of those regions are all there are: 27 for four regions of three, 1,000 for four of five, 42,875 for four of
seven. The worst case is reached: liars that hold the first places of each region make the one honest combination the
last that is tried. `python -m tests.bench.keys` times the arithmetic of one step; here steps are counted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

import pytest

from bridge.reader import key_opening as opening
from bridge.sim.adversary import Behaviour
from keys.errors import SearchExhausted
from keys.sharetree import STEPS_LIMIT, Recombined, recombine
from tests.sim.linearview import faulty
from tests.sim.placements import assert_promises, everywhere, run
from tests.sim.searches import bound, lied, split, worst


def placements(counts: Sequence[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    return product(*(combinations(range(1, n + 1), faulty(n)) for n in counts))


# ------------------------------------------------------------------------------------------------ one search


@pytest.mark.parametrize(
    ("counts", "steps"), [((3, 3), 3), ((3, 3, 3), 9), ((3, 3, 3, 3), 27), ((5, 5), 10), ((5,), 1)]
)
def test_every_placement_is_found_within_the_bound_and_the_worst_one_reaches_it(
    counts: tuple[int, ...], steps: int
) -> None:
    """9, 27, 81, 100 and 10 placements. Honest places are good, and no place that was honest throughout is wrong."""
    key = split(counts)
    most = 0
    for bad in placements(counts):
        for together in (True, False):
            found = key.search(lied(key, bad, together))
            assert found.secret == key.secret
            assert found.wrong <= set(bad[0])
            most = max(most, found.steps)
    assert most == steps == bound(counts)


@pytest.mark.slow
def test_every_placement_on_three_regions_of_five_is_found_within_the_bound() -> None:
    """1,000 placements, at most 100 steps each."""
    key = split((5, 5, 5))
    steps = [key.search(lied(key, bad)).steps for bad in placements((5, 5, 5))]
    assert len(steps) == 1000
    assert max(steps) == bound((5, 5, 5)) == 100


@pytest.mark.parametrize(("n", "steps"), [(3, 27), (5, 1000), (7, 42_875)])
def test_the_worst_case_of_four_regions(n: int, steps: int) -> None:
    """Liars on the first places: the search ends with its last combination; with the next key it starts with that.

    Each lies on its own account: at x = 1, 2, 3 all weights are 1, so that two equal lies cancel each other.
    """
    counts = (n,) * 4
    key = split(counts)
    shares = worst(key)
    found = key.search(shares)
    assert (found.secret, found.steps) == (key.secret, steps)
    assert steps == bound(counts) <= STEPS_LIMIT
    assert key.search(shares, first=found.combination).steps == 1


@pytest.mark.parametrize("seed", range(3))
def test_random_placements_on_four_regions_of_seven(seed: int) -> None:
    rng = random.Random(seed)
    key = split((7,) * 4)
    bad = [tuple(rng.sample(range(1, 8), 3)) for _ in range(4)]
    found = key.search(lied(key, bad, together=seed % 2 == 0))
    assert found.secret == key.secret
    assert found.steps <= 42_875


def test_commitments_that_fit_nothing_end_the_search_at_the_bound() -> None:
    key = split((7,) * 4)
    with pytest.raises(SearchExhausted) as vain:
        recombine(key.shares, key.hops, lambda place, value: False, lambda secret: False)
    assert vain.value.steps == 42_875
    assert not vain.value.stopped


@pytest.mark.parametrize("counts", [(3, 10, 10), (3, 3, 9, 9)])
def test_a_path_with_more_combinations_than_the_bound_may_be_searched_in_vain(counts: tuple[int, ...]) -> None:
    """Why no overlay should have such paths, though no receiver holds 1,024 shares: f liars stop a reader."""
    key = split(counts)
    assert len(key.shares) < 1024
    assert bound(counts) > STEPS_LIMIT
    with pytest.raises(SearchExhausted) as vain:
        key.search(worst(key))
    assert vain.value.stopped


# -------------------------------------------------------------------------------------------- at a subscriber


@pytest.mark.parametrize("way", [Behaviour.SHARES, Behaviour.COLLUDE, Behaviour.DELAY])
@pytest.mark.parametrize("counts", [(3, 3, 3), (5, 5)])
def test_a_key_costs_a_subscriber_at_most_one_search_for_each_wire_with_news(
    counts: tuple[int, ...], way: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Liars are first here: each wire of theirs before k honest replicas sent theirs is a search in vain."""
    searches: list[int] = []

    def counted(*arguments: object, **options: object) -> Recombined:
        try:
            found = recombine(*arguments, **options)  # type: ignore[arg-type]
        except SearchExhausted as error:
            searches.append(error.steps)
            raise
        searches.append(found.steps)
        return found

    monkeypatch.setattr(opening, "recombine", counted)
    bad: Mapping[int, tuple[int, ...]] = {region: tuple(range(1, faulty(n) + 1)) for region, n in enumerate(counts, 1)}
    done = run(counts, bad, everywhere(bad, {way}), bursts_s=(5.0,))
    assert_promises(done)
    assert searches
    assert max(searches) <= bound(counts)
    wires = done.trace.figures["shares_received"]
    assert len(searches) <= wires
