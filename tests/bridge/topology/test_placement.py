"""Where replicas go: the worked example of the paper, and what holds for every overlay."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.topology.placement import Path, deal, place, priorities
from keys.errors import OurFault

P, B1, B2, B3, B4, B5, B6 = range(7)
STAR = (Path((B1, B2, B3), 2.0), Path((B1, B2, B4), 3.0), Path((B1, B2, B5), 5.0))
"""The shape of Figure 5: three paths of one length that meet in B1 and B2."""


def test_the_worked_example_of_the_paper_ten_replicas_for_priorities_2_3_and_5():
    assert place(STAR, 10, {}).by_path == (2, 3, 5)
    assert deal(10, [2, 3, 5]) == [2, 3, 5]


def test_the_largest_remainder_gets_what_is_left_over_and_of_equals_the_first():
    assert deal(10, [1, 1, 1]) == [4, 3, 3]
    assert deal(7, [5.0, 3.4, 1.6]) == [4, 2, 1]  # 3.5, 2.38, 1.12: one is left over
    assert deal(0, [0, 0]) == [0, 0]


@pytest.mark.parametrize(("total", "claims"), [
    (1, []), (1, [0.0]), (-1, [1.0]), (1, [-1.0, 2.0]), (1, [float("inf")]), (1, [float("nan")]),
])  # fmt: skip
def test_impossible_proportions_are_refused(total: int, claims: list[float]):
    with pytest.raises(OurFault, match="give a budget"):
        deal(total, claims)


def test_longer_failing_and_weightier_paths_have_the_greater_claim():
    short, long, failing, heavy = Path((1,)), Path((2, 3, 4)), Path((5,)), Path((6,), 3.0)
    rho = priorities([short, long, failing, heavy], {5: 2})
    assert rho[1] == pytest.approx(3 * rho[0])
    assert rho[2] == pytest.approx(3 * rho[0])  # one failure is added to each: 3 against 1
    assert rho[3] == pytest.approx(3 * rho[0])


def test_the_failures_of_a_path_go_to_the_node_that_failed():
    sizes = place([Path((1, 2, 3))], 4, {2: 97}).sizes
    assert sizes == {1: 1, 2: 5, 3: 1}


def test_without_failures_the_overlay_is_served_evenly():
    assert place([Path((1, 2, 3))], 6, {}).sizes == {1: 3, 2: 3, 3: 3}


def test_a_node_on_several_paths_gets_a_pack_from_each_or_only_the_largest():
    failures = {B1: 8}
    every = place(STAR, 12, failures)
    single = place(STAR, 12, failures, one_pack=True)
    assert every.sizes[B1] > single.sizes[B1] >= 3
    assert sum(size >= 3 for size in single.sizes.values()) > sum(size >= 3 for size in every.sizes.values())


def test_a_path_over_its_maximum_loses_replicas_of_its_least_failing_node_first():
    result = place([Path((1, 2))], 8, {1: 1, 2: 2}, path_max=4)
    assert result.stripped == 4
    assert result.sizes == {1: 1, 2: 5}


def test_of_two_even_nodes_the_one_that_fails_more_becomes_odd_at_the_cost_of_the_other():
    result = place([Path((1, 2))], 2, {})
    assert result.sizes == {1: 3, 2: 1}
    assert place([Path((1, 2))], 6, {2: 1}).sizes == {1: 3, 2: 5}


def test_no_paths_or_no_budget_is_no_placement():
    assert place([], 5, {}).unused == 5
    assert place([Path((1, 2))], 0, {1: 3}).sizes == {1: 1, 2: 1}


@pytest.mark.parametrize("arguments", [{"replicas": -1}, {"replicas": 1, "path_max": -1}])
def test_negative_numbers_are_refused(arguments: dict[str, int]):
    with pytest.raises(OurFault, match="negative"):
        place(STAR, failures={}, **arguments)


@pytest.mark.parametrize(("nodes", "weight"), [((), 1.0), ((1, 1), 1.0), ((1,), 0.0), ((1,), float("nan"))])
def test_a_path_that_is_none_is_refused(nodes: tuple[int, ...], weight: float):
    with pytest.raises(OurFault, match="a path"):
        Path(nodes, weight)


_PATHS = st.lists(
    st.builds(
        lambda nodes, weight: Path(tuple(nodes), weight),
        st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True),
        st.floats(0.1, 10),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(
    _PATHS,
    st.integers(0, 60),
    st.dictionaries(st.integers(0, 8), st.integers(0, 50)),
    st.none() | st.integers(0, 12),
    st.booleans(),
)
def test_whatever_the_overlay_the_budget_and_the_maximum_hold_and_sizes_are_odd(paths, replicas, failures, most, one):
    result = place(paths, replicas, failures, path_max=most, one_pack=one)
    assert sum(result.by_path) == replicas
    assert set(result.sizes) == {node for path in paths for node in path.nodes}
    assert all(size % 2 == 1 and size >= 1 for size in result.sizes.values())
    spent = sum(size - 1 for size in result.sizes.values())
    assert result.unused >= 0
    assert spent + result.stripped + result.unused == replicas
    for path in paths:
        assert most is None or sum(result.sizes[node] - 1 for node in path.nodes) <= most


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1000), st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_dealing_gives_all_and_nobody_a_whole_one_too_much_or_too_little(total: int, claims: list[float]):
    parts = deal(total, claims)
    assert sum(parts) == total
    assert all(abs(part - total * claim / sum(claims)) < 1 + 1e-6 for part, claim in zip(parts, claims, strict=True))


def test_no_node_gets_more_replicas_than_a_view_has_places():
    result = place([Path((1, 2, 3))], 10_000, {})
    assert result.sizes == {1: 255, 2: 255, 3: 255}
    assert result.unused == 10_000 - 3 * 254
