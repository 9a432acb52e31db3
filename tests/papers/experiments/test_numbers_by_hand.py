"""Numbers of the papers that can be counted by hand, and what docs/explanation/papers.md says of them.

Whether a number can be right under its paper's own assumptions is counted here without any code of the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations, product
from random import Random

import pytest

from bridge.topology.scot import RowTable, Scot, subscribe_all

BROKERS, REPLICAS = 400, 3
WINDOW = 3_000  # subscribers of figure 10b


@cache
def distances(fan_out: int) -> tuple[tuple[int, ...], ...]:
    """Hops between all brokers of a complete tree, numbered breadth first."""
    up = [(place - 1) // fan_out for place in range(BROKERS)]

    def way(place: int) -> list[int]:
        return [place] if not place else [place, *way(up[place])]

    ways = [way(place) for place in range(BROKERS)]
    met = [set(each) for each in ways]
    return tuple(
        tuple(len(met[a] ^ met[b]) for b in range(BROKERS))
        for a in range(BROKERS)
    )  # fmt: skip


def mean(fan_out: int, alpha: float, of: Callable[[int], float], *, places: str = "core", two: bool = False) -> float:
    """Of a publisher and a subscriber by Zipf's law over brokers, the most popular at the root, or anywhere (`places`);
    `two`: at two different brokers."""
    at = list(range(BROKERS)) if places == "core" else Random(1).sample(range(BROKERS), BROKERS)
    weights = [(rank + 1) ** -alpha for rank in range(BROKERS)]
    hops, total, found = distances(fan_out), 0.0, 0.0
    for a, b in product(range(BROKERS), repeat=2):
        if not two or a != b:
            weight = weights[a] * weights[b]
            total += weight
            found += weight * of(hops[at[a]][at[b]])
    return found / total


def shares(hops: int) -> float:
    """At the end of a path of so many hops, three replicas a region (A8)."""
    return REPLICAS ** (hops + 1)


def test_shares_of_figure_9_by_hand() -> None:
    assert mean(2, 0.5, float) == pytest.approx(9.5, abs=0.1)
    assert mean(2, 0.5, shares) == pytest.approx(4.96e6, rel=0.01)
    assert mean(5, 1.0, shares, two=True) == pytest.approx(939, abs=1), "the paper's number, at another α"
    assert mean(5, 0.5, shares) == pytest.approx(3_563, abs=1)
    assert mean(5, 0.5, shares, places="anywhere") > 3_563, "elsewhere ways are longer"


def test_the_median_of_figure_9_is_no_count_of_one_pair() -> None:
    counts = [shares(hops) for hops in range(20)]
    assert 80_000 not in counts
    assert max(each for each in counts if each < 80_000) == 59_049
    assert min(each for each in counts if each > 80_000) == 177_147


def test_hops_at_a_steep_law_lie_between_those_of_two_placements() -> None:
    assert mean(2, 2.0, float) < 2.6 < mean(2, 2.0, float, places="anywhere")
    assert mean(2, 2.0, shares) < 860 < mean(2, 2.0, shares, two=True)


def core_tree() -> Iterator[tuple[int, int]]:
    """15 brokers, of which five are inner ones (paper C)."""
    inner = [(0, 1), (1, 2), (2, 3), (3, 4)]
    return iter([*inner, *((place % 5, place) for place in range(5, 15))])


def test_messages_of_a_subscription_by_hand() -> None:
    """15 brokers times five complete planes: 75, and a copy over each link from either side, but for where it came."""
    acyclic = [((a, plane), (b, plane)) for a, b in core_tree() for plane in range(5)]
    inside = [((region, a), (region, b)) for region in range(15) for a, b in combinations(range(5), 2)]
    links = len(acyclic) + len(inside)
    brokers = {end for link in (*acyclic, *inside) for end in link}
    assert (len(brokers), links) == (75, 220)
    once, flooded = len(brokers) - 1, 2 * links - (len(brokers) - 1)
    assert (once, flooded) == (74, 366)
    scot = Scot(15, list(core_tree()), 5)
    assert {*map(frozenset, (*scot.tree_links, *scot.region_links))} == {*map(frozenset, (*acyclic, *inside))}
    for host in ((0, 0), (9, 3), (14, 4)):
        assert subscribe_all(scot, {place: RowTable(scot, place) for place in scot.brokers}, "one", host) == once
    assert 100 * (once / flooded - 1) == pytest.approx(-79.8, abs=0.05)
    assert 100 * (once / (2 * links) - 1) == pytest.approx(-83.2, abs=0.05), "not even with a message each way"


def test_matching_by_hand() -> None:
    """Of 75 brokers with 40 subscribers each, who want 2 % each, 41 want a publication."""
    wanting = 75 * (1 - 0.98 ** (WINDOW // 75))
    assert wanting == pytest.approx(41.6, abs=0.1)
    assert 100 * (75 / wanting - 1) == pytest.approx(80, abs=1), "not 265 %, if all of them match"
