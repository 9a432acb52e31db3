"""The figures of the secret-forwarding paper: small runs against what must hold, the cheap ones at full size."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise

import pytest

from bridge.sim.dispersion import Tree, apart, delivered, hops_between, on_the_way, summary, zipf_weights
from bridge.sim.draws import Draws
from bridge.sim.experiments import Figure
from bridge.sim.retransmissions import TRIED_AGAIN_EVERY, Network, by_need, compared
from bridge.sim.secret_forwarding import FIGURES, tree_shares
from bridge.sim.socialtrace import frame_bytes, play
from bridge.topology.placement import SHARING_MIN
from keys.sharetree import Hop, encode_shares, first_split, resplit

Sizes = dict[str, object]
SMALL: dict[str, Sizes] = {
    "3": {"counts": (3,)},
    "4": {"counts": (3,)},
    "7": {},
    "8": {"counts": (3, 10), "rounds": 3},
    "9": {"brokers": 40},
    "10": {"interactions": 3_000, "users": 2_000, "brokers": 40},
    "11": {"brokers": 60, "bad": (1, 8), "runs": 3, "clusterings": (0.5,), "interactions": 20_000},
}


def silent(_: float) -> None:
    pass


def small(number: str, seed: int = 1, progress: Callable[[float], None] = silent) -> Figure:
    sizes = dict(SMALL[number])
    if number == "8":
        ticks = count()
        sizes["clock"] = lambda: next(ticks) / 1000
    return FIGURES[number](seed, progress, **sizes)


def rows(figure: Figure, **wanted: float | str) -> list[dict[str, float | str]]:
    named = [dict(zip(figure.columns, row, strict=True)) for row in figure.rows]
    return [row for row in named if all(row[name.replace("_", " ")] == value for name, value in wanted.items())]


@pytest.mark.parametrize("number", SMALL)
def test_every_figure_is_whole_the_same_for_a_seed_and_says_how_far_it_is(number: str):
    told: list[float] = []
    figure = small(number, progress=told.append)
    assert figure == small(number)
    assert (figure.experiment, figure.number) == ("secret-forwarding", number)
    assert all(len(row) == len(figure.columns) for row in figure.rows)
    assert len(set(figure.columns)) == len(figure.columns)
    assert all(len(series.xs) == len(series.ys) > 0 for series in figure.series)
    assert figure.notes
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)


def test_all_figures_of_the_paper_are_there():
    assert set(FIGURES) == set(SMALL) == {"3", "4", "7", "8", "9", "10", "11"}


@pytest.mark.parametrize("number", ["10", "11"])
def test_another_seed_is_another_run(number: str):
    assert small(number, seed=1).rows != small(number, seed=2).rows


def test_figures_3_and_4_algorithm_2_alone_loses_nothing():
    for number, scheme in (("3", "Algorithm 1, one column each"), ("4", "network coding")):
        figure = small(number)
        assert all(row["reads"] == row["stops"] == 0 for row in rows(figure, scheme="Algorithm 2"))
        worst = rows(figure, scheme=scheme, n=3.0, virtual_nodes=3.0)[0]
        assert worst["reads"] == pytest.approx({"3": 24 / 27, "4": 6 / 27}[number])


def test_figure_7_shares_grow_by_the_replicas_and_a_fifth_of_the_keys_makes_a_fifth_of_the_traffic():
    figure = small("7")
    subscriber = figure.series[0].ys
    assert all(after == 3 * before for before, after in pairwise(subscriber))
    assert all(row["ratio"] == pytest.approx(5) for row in rows(figure))
    by_fanout = [row["whole tree"] for row in rows(figure, virtual_nodes=5.0)]
    assert by_fanout == sorted(set(by_fanout))


def test_shares_of_a_tree_and_their_bytes_are_those_of_real_splits():
    hops = [Hop(region, 1, 2, 3) for region in range(1, 5)]
    level = first_split(bytes(32), hops[0], bytes(32))
    sent = 0
    for depth, hop in enumerate(hops[1:], 2):
        sent += len(level)
        own = [share for share in level if share.places[-1] == 1]
        frame = len(encode_shares(own))
        assert frame_bytes(depth - 1) == 3 * -(-4 * frame // 3)
        assert tree_shares(depth - 1, 1) == sent + len(level)
        assert delivered(depth - 2) == len(level)
        assert on_the_way(depth - 2) == sent + len(level)
        level = [part for share in level for part in resplit(share, bytes(32), hop, bytes(32))]
    assert tree_shares(2, 5) == 3 + 5 * 9 + 5 * 9


def test_figure_8_reports_what_the_clock_says():
    figure = small("8")
    assert all(row["split ms"] == row["recombine ms"] == pytest.approx(1) for row in rows(figure))
    assert [(row["key bits"], row["n"], row["k"]) for row in rows(figure)] == [
        (128, 3, 2), (128, 10, 6), (256, 3, 2), (256, 10, 6),
    ]  # fmt: skip


def test_figure_9_at_full_size_has_the_orders_of_magnitude_of_the_paper():
    figure = FIGURES["9"](1, silent)

    def mean(fanout: float, alpha: float, convention: str) -> tuple[float, float, float]:
        row = next(row for row in rows(figure, alpha=alpha, convention=convention) if row["fan-out"] == fanout)
        return float(row["mean hops"]), float(row["median shares"]), float(row["mean shares"])

    near = "near the root, r^(h+1) delivered"
    hops, median, shares = mean(2, 0.5, near)
    assert hops == pytest.approx(10, abs=0.5)
    assert 80_000 / 3 < median < 80_000 * 3
    assert shares == pytest.approx(4.96e6, rel=0.01)
    assert mean(2, 2, "near the root, two brokers, r^(h+1)")[2] == pytest.approx(860, rel=0.3)
    assert mean(5, 0.5, near)[2] < 0.01 * shares  # the paper's -99 %
    assert mean(5, 1, "near the root, two brokers, r^(h+1)")[2] == pytest.approx(939.3, abs=0.05)


def test_hops_and_weights_of_a_small_tree_by_hand():
    tree = Tree.complete(4, 2)  # 0 over 1 and 2, 1 over 3
    assert tree.distances() == [[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 3], [2, 1, 3, 0]]
    assert tree.path(3, 2) == [3, 1, 0, 2]
    assert tree.path(1, 1) == [1]
    assert tree.depth_first() == [0, 1, 3, 2]
    assert zipf_weights([2, 0, 1], 1.0) == pytest.approx([3 / 11, 2 / 11, 6 / 11])
    histogram = hops_between(tree.distances(), [0.25] * 4)
    assert histogram == pytest.approx({0: 4 / 16, 1: 6 / 16, 2: 4 / 16, 3: 2 / 16})
    assert summary(apart(histogram), delivered).mean == pytest.approx((6 * 9 + 4 * 27 + 2 * 81) / 12)
    assert summary(histogram, delivered).median == 9


def test_an_irregular_tree_is_a_tree_with_the_fanout_on_average():
    tree = Tree.irregular(400, 3, Draws("irregular"))
    children = [tree.parents.count(v) for v in range(tree.parents[-1])]  # the last one may be cut short
    assert all(parent < v for v, parent in enumerate(tree.parents))
    assert all(1 <= number <= 5 for number in children)
    assert sum(children) / len(children) == pytest.approx(3, abs=0.5)


def test_figure_10_fewer_keys_save_shares_and_a_repository_saves_most():
    table = rows(small("10"), alpha=0.5)
    in_band = [float(row["GB"]) for row in table]
    assert in_band == sorted(in_band, reverse=True)
    assert table[0]["keys per interaction"] == 1
    assert 0.1 <= float(table[-1]["keys per interaction"]) < 0.9
    assert float(table[-1]["key a publisher: saved %"]) > float(table[-1]["saved %"]) > 10
    assert all(float(row["repository: GB"]) < float(row["GB"]) / 3 for row in table)


def test_a_trace_with_one_pair_of_friends_renews_its_key_exactly_every_m_messages():
    by_pair, by_publisher = play(Draws("pair"), silent, 100, 1, 1, 1, 5, 0.5)
    assert [by_pair.month(m).keys for m in (1, 3, 10)] == [100, 34, 10]
    assert by_publisher.month(7) == by_pair.month(7)
    assert by_pair.month(10).shares == 10 * 3


def test_loads_of_brokers_are_those_of_all_paths_walked():
    network = Network(30, 3, 1.0, 1_000)
    walked = [0.0] * 30
    for a, weight in enumerate(network.weights):
        for b, other in enumerate(network.weights):
            for v in network.tree.path(a, b):
                walked[v] += 1_000 * weight * other
    assert network.loads == pytest.approx(walked)


def test_figure_11_at_full_size_exceeds_the_papers_2_5_million_where_the_paper_does():
    figure = FIGURES["11"](1, silent, alphas=(1.0,), clusterings=(0.5,), bad=(15,), runs=20)
    by_name = {str(row["failover"]): float(row["retransmissions"]) for row in rows(figure)}
    assert 2.5e6 < by_name["off"] < 4e6
    assert by_name["three everywhere"] < by_name["off"] / 500
    assert by_name["by need, one pack"] < by_name["uniform"] / 10
    assert by_name["by need, one pack"] < by_name["by need, packs add up"] < by_name["uniform"]


def test_failover_needs_three_replicas_and_tries_a_silent_one_again_now_and_then():
    network = Network(30, 3, 0.5, 100_000)
    assert network.retransmissions([0]) == network.loads[0]
    assert network.retransmissions([0], {0: 1}) == network.loads[0]
    with_failover = network.retransmissions([0], {0: SHARING_MIN})
    assert network.loads[0] / TRIED_AGAIN_EVERY * 0.9 < with_failover < network.loads[0] / TRIED_AGAIN_EVERY + 5


def test_placement_by_need_finds_the_bad_brokers_that_traffic_meets():
    network = Network(60, 5, 0.5, 1_000)
    paths = network.observed(Draws("seen"), 300)
    sizes = by_need(paths, [0, 2], 4, one_pack=True)
    assert {v for v, size in sizes.items() if size >= SHARING_MIN} == {0, 2}


def test_all_strategies_meet_the_same_bad_brokers():
    network = Network(60, 5, 0.5, 10_000)
    found = compared(network, 60, 1.0, 120, 2, 1)  # everybody is bad, and everybody can get three
    assert found["uniform"] == found["three everywhere"]
    assert all(found["off"][run] == pytest.approx(sum(network.loads)) for run in range(2))
