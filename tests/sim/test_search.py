"""The search under attack: how many choices of places are worked out, in the worst case (docs/protocol.md §3).

Under one choice k places of every region after the first are believed, for all rows alike; C(n, k) to the number of
those regions are all there are: 27 for four regions of three, 1,000 for four of five; each costs a step for each row
that does not fit yet. `python -m tests.bench.keys` times the arithmetic; here steps are counted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

import pytest

from bridge.reader import key_opening
from keys.columnsearch import CHOICES_LIMIT, ColumnSearch, worst_steps
from papers.sim.adversary import Behaviour
from tests.sim.linearview import faulty, threshold
from tests.sim.placements import assert_promises, everywhere, run
from tests.sim.searches import bound, lied, split, worst

pytestmark = pytest.mark.invariant(24)

EVERYTHING = 1 << 20


def placements(counts: Sequence[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    return product(*(combinations(range(1, n + 1), faulty(n)) for n in counts))


# ------------------------------------------------------------------------------------------------ one search


@pytest.mark.attack(22)
@pytest.mark.parametrize("counts", [(3, 3), (3, 3, 3), (3, 3, 3, 3), (5, 5), (5,)])
def test_every_placement_is_found_within_the_bound(counts: tuple[int, ...]) -> None:
    """9, 27, 81, 100 and 10 placements. No row that fits went through a liar of the first region."""
    key = split(counts)
    for bad in placements(counts):
        for together in (True, False):
            search = key.search(lied(key, bad, together))
            found = search.search(EVERYTHING, {})
            assert found is not None
            assert found.secret == key.secret
            assert found.rows.keys().isdisjoint(bad[0])
            assert search.steps <= worst_steps(key.hops)


@pytest.mark.slow
def test_every_placement_on_three_regions_of_five_is_found_within_the_bound() -> None:
    """1,000 placements, at most 100 choices of five rows each."""
    key = split((5, 5, 5))
    searches = [key.search(lied(key, bad)) for bad in placements((5, 5, 5))]
    assert all(search.search(EVERYTHING, {}) for search in searches)
    assert max(search.steps for search in searches) <= worst_steps(key.hops) == 500


@pytest.mark.attack(21)
@pytest.mark.parametrize("counts", [(3, 3, 3, 3), (5, 5, 5, 5), (5, 7, 7)])
def test_liars_cost_a_path_one_search(counts: tuple[int, ...]) -> None:
    """On the first places they make the one honest choice the last; the next key begins with it.

    Each lies on its own account: at x = 1, 2, 3 all weights are 1, so that two equal lies cancel each other.
    """
    key = split(counts)
    search = key.search(worst(key))
    found = search.search(EVERYTHING, {})
    assert found is not None
    assert found.secret == key.secret
    assert bound(counts) <= search.steps <= worst_steps(key.hops) == bound(counts) * counts[0]
    again = key.search(worst(key))
    assert again.search(EVERYTHING, search.contradictions(found)) is not None
    assert again.steps <= threshold(counts[0]) + faulty(counts[0])


@pytest.mark.parametrize("seed", range(3))
def test_random_placements_on_three_regions_of_seven(seed: int) -> None:
    rng = random.Random(seed)
    key = split((7,) * 3)
    bad = [tuple(rng.sample(range(1, 8), 3)) for _ in range(3)]
    found = key.search(lied(key, bad, together=seed % 2 == 0)).search(EVERYTHING, {})
    assert found is not None
    assert found.secret == key.secret


@pytest.mark.parametrize("counts", [(3, 10, 10), (3, 3, 9, 9)])
def test_an_overlay_has_no_path_with_more_choices_than_a_reader_works_out(counts: tuple[int, ...]) -> None:
    """Though no receiver would hold 1,024 shares: f liars would stop a reader for seconds."""
    assert len(split(counts).shares) < 1024
    assert bound(counts) > CHOICES_LIMIT


# -------------------------------------------------------------------------------------------- at a subscriber


@pytest.mark.parametrize("way", [Behaviour.SHARES, Behaviour.COLLUDE, Behaviour.DELAY])
@pytest.mark.parametrize("counts", [(3, 3, 3), (5, 5)])
def test_a_key_costs_a_subscriber_each_choice_at_most_once(
    counts: tuple[int, ...], way: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Liars are first here, and each key of theirs comes in several wires, with many more wires of publications."""
    searches: list[ColumnSearch] = []

    class Counted(ColumnSearch):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            searches.append(self)

    monkeypatch.setattr(key_opening, "ColumnSearch", Counted)
    bad: Mapping[int, tuple[int, ...]] = {region: tuple(range(1, faulty(n) + 1)) for region, n in enumerate(counts, 1)}
    done = run(counts, bad, everywhere(bad, {way}), bursts_s=(5.0,))
    assert_promises(done)
    assert searches
    assert max(search.steps for search in searches) <= max(counts) * bound(counts)
