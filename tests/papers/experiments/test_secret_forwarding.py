"""The figures of the secret-forwarding paper: small runs against what must hold, the cheap ones at full size."""

from __future__ import annotations

from itertools import pairwise

import pytest

from keys.sharetree import Hop, encode_shares, first_split, resplit
from papers.experiments.dispersion import delivered, on_the_way
from papers.experiments.secret_forwarding import FIGURES, tree_shares
from papers.experiments.socialtrace import frame_bytes
from tests.papers.experiments.helpers import SECRETS, rows, small


@pytest.mark.parametrize("number", SECRETS)
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
    assert set(FIGURES) == set(SECRETS) == {"3", "4", "7", "7-latency", "8", "9", "10", "11"}


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
