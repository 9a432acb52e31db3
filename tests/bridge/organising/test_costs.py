"""The paper's examples to the last number, and Eq 5 from Eqs 3 and 4."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bridge.organising.costs import delivery_cost, delivery_tree, indirect_cost, is_worth_it, mean_common

ONE = dict.fromkeys(range(10), 1.0)


def tree(*links: tuple[int, int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for a, b in links:
        found[a].append(b)
        found[b].append(a)
    return found


# ------------------------------------------------------------------------------------------------ Fig 2

COSTS = {(1, 2): 2.0, (1, 3): 2.0, (2, 3): 4.0}
PROCESSING = {1: 2.0, 2: 2.0, 3: 2.0}


def link(a: int, b: int) -> float:
    return COSTS[min(a, b), max(a, b)]


def test_figure_2_a_spanning_tree_of_cheap_links_costs_100_and_a_direct_link_80() -> None:
    cheap, direct = tree((1, 2), (1, 3)), tree((2, 3), (1, 2))
    assert 10 * delivery_cost(cheap, [2, 3], link, PROCESSING) == 100
    assert 10 * delivery_cost(direct, [2, 3], link, PROCESSING) == 80


def test_figure_2_the_tree_of_most_common_interest_costs_107_where_the_other_costs_80() -> None:
    """Nine of the ten concern B1 as well."""
    costs, processing = {(1, 2): 1.0, (1, 3): 1.0, (2, 3): 4.0}, {1: 2.0, 2: 2.0, 3: 2.0}

    def cost(a: int, b: int) -> float:
        return costs[min(a, b), max(a, b)]

    interest, cheap = tree((2, 3), (1, 2)), tree((1, 2), (1, 3))

    def total(overlay: dict[int, list[int]]) -> float:
        return 9 * delivery_cost(overlay, [2, 3, 1], cost, processing) + delivery_cost(
            overlay, [2, 3], cost, processing
        )

    assert total(interest) == 107
    assert total(cheap) == 80


# ------------------------------------------------------------------------------------------------ delivery


def test_what_nobody_wants_crosses_nothing_further() -> None:
    """Figure 1: B2 publishes what B5 wants; B3 and B4 only pass it on, B1 and B6 never see it."""
    overlay = tree((1, 2), (2, 3), (3, 4), (4, 5), (4, 6))
    assert sorted(map(sorted, delivery_tree(overlay, [2, 5]))) == [[2, 3], [3, 4], [4, 5]]
    assert delivery_tree(overlay, [2]) == []
    assert delivery_cost(overlay, [2], lambda a, b: 1.0, ONE) == 1.0


@given(st.integers(2, 12), st.randoms(use_true_random=False))
def test_a_delivery_tree_joins_all_who_want_it_and_ends_with_them(count: int, rng) -> None:  # type: ignore[no-untyped-def]
    overlay = tree(*[(rng.randrange(at), at) for at in range(1, count)])
    wanted = rng.sample(range(count), rng.randint(1, count))
    links = delivery_tree(overlay, wanted)
    joined = {wanted[0], *[end for one in links for end in one]}
    assert set(wanted) <= joined
    assert len(links) == len(joined) - 1
    for broker in joined - set(wanted):
        assert sum(broker in one for one in links) >= 2, "a leaf that nobody wants"


# ------------------------------------------------------------------------------------------------ Eqs 3 to 7

positive = st.floats(0.01, 100)


@given(positive, positive, positive, st.floats(0, 100), st.floats(0, 100), st.floats(0, 10), positive, positive)
def test_eq_5_follows_from_eqs_3_and_4(
    c_ij: float, c_ik: float, c_kj: float, i_ik: float, i_ij: float, p_i: float, p_j: float, p_k: float
) -> None:
    assume(i_ij > 0.01)
    phi = (i_ij + i_ik) / 3
    i_ikj = min(phi, i_ij, i_ik)
    now = i_ik * (p_i + c_ik + p_k) + i_ij * (p_i + c_ik + p_k + c_kj + p_j) - i_ikj * (p_i + c_ik + p_k)
    then = i_ik * (p_i + c_ik + p_k) + i_ij * (p_i + c_ij + p_j) - i_ikj * p_i
    indirect = indirect_cost([0, 1, 2], {1: i_ik, 2: i_ij}, phi, [c_ik, c_kj], [p_i, p_k, p_j])
    assert indirect is not None
    assume(abs(now - then) > 1e-6)
    assert is_worth_it(c_ij, indirect, i_ij) == (then < now)


def test_a_neighbour_is_as_far_as_its_link_and_the_unknown_is_not_judged() -> None:
    assert indirect_cost([0, 1], {}, 0.0, [3.0], [1.0, 1.0]) == 3.0
    assert indirect_cost([0, 1, 2], {2: 5.0}, 0.0, [3.0, 4.0], [1.0, 1.0, 1.0]) is None
    assert not is_worth_it(0.0, None, 5.0)
    assert not is_worth_it(0.0, 7.0, 0.0), "nothing in common"
    assert not is_worth_it(0.0, 7.0, None)


def test_what_those_between_want_anyway_costs_nothing() -> None:
    """If the broker between wants all of it, the way costs its last link; if it wants nothing, all of the way."""
    path, links, processing = [0, 1, 2], [3.0, 4.0], [1.0, 2.0, 1.0]
    assert indirect_cost(path, {1: 9.0, 2: 9.0}, 9.0, links, processing) == 4.0
    assert indirect_cost(path, {1: 0.0, 2: 9.0}, 9.0, links, processing) == 9.0


@pytest.mark.parametrize(("common", "own", "phi"), [({0: 10.0, 1: 4.0, 2: 6.0}, 10.0, 5.0), ({0: 10.0}, 10.0, 0.0)])
def test_phi_is_the_mean_over_the_neighbourhood(common: dict[int, float], own: float, phi: float) -> None:
    assert mean_common(common, own) == phi
