"""How much a tree of servers carries, against what can be said by hand."""

from __future__ import annotations

import pytest

from papers.attacks.saturation import (
    GUARDS,
    OBSERVE_S,
    PRECISION,
    SingleServer,
    Work,
    figure_saturation,
    latency_at,
    rises,
    saturating_rate,
    tree,
)
from papers.experiments.draws import Draws
from papers.experiments.loads import Costs
from tests.papers.experiments.helpers import SLOW, ignore


@pytest.mark.parametrize("work_s", [0.01, 0.001, 0.0003])
def test_saturation_finds_the_rate_of_a_single_server(work_s: float):
    server = SingleServer(None, work_s, 0.0, last=True)
    found = saturating_rate([server])
    slack = 3 / OBSERVE_S  # the backlog must grow by about one an observation
    assert (1 - PRECISION) / work_s <= found <= (1 + PRECISION) / work_s + slack


def test_a_tree_saturates_where_its_busiest_party_does():
    work = Work(publisher_s=0.0001, node_s=0.001, subscriber_s=0.0002, copy_s=0.00005)
    for nodes in (0, 2, 6):
        servers = tree(nodes, 8, work, Draws("tree"))
        busiest_s = max(server.work_s for server in servers)
        assert saturating_rate(servers) == pytest.approx(1 / busiest_s, rel=0.08)


def test_trees_are_complete_and_share_out_subscribers():
    work = Work(0.1, 1.0, 2.0, 0.01)
    servers = tree(6, 32, work, Draws("tree"))
    assert len(servers) == 1 + 6 + 32
    assert [server.source for server in servers[:7]] == [None, 0, 0, 1, 1, 2, 2]
    assert [sum(server.source == leaf for server in servers if server.last) for leaf in (3, 4, 5, 6)] == [8] * 4
    assert [server.work_s for server in servers[:4]] == pytest.approx([0.12, 1.02, 1.02, 1.08])
    assert {server.source for server in tree(0, 4, work, Draws("tree")) if server.last} == {0}
    with pytest.raises(ValueError, match="binary tree"):
        tree(5, 32, work, Draws("tree"))


def test_latency_is_links_and_work_while_nobody_waits():
    servers = [
        SingleServer(None, 0.001, 0.0, False),
        SingleServer(0, 0.002, 0.050, False),
        SingleServer(1, 0.003, 0.020, True),
    ]
    assert latency_at(servers, 10) == pytest.approx(0.076)


def test_five_rises_in_a_row_saturate_and_four_do_not():
    """Two messages come between observations and one leaves, until, the second time, all that wait leave at 4.5 s."""
    came = [step + offset / 10 for step in range(9) for offset in range(2)]
    slow = [0.5 + index for index in range(len(came))]
    assert rises(came, slow, 1.0)
    recovered = [left if left < 4.5 else max(at, 4.5) for at, left in zip(came, slow, strict=True)]
    assert not rises(came, recovered, 1.0)


def test_work_that_is_nothing_is_refused():
    with pytest.raises(ValueError, match="nothing to do"):
        saturating_rate([SingleServer(None, 0.0, 0.0, True)], observe_s=0.001)


def test_guards_cost_throughput_and_latency_and_batches_give_some_back():
    figure = figure_saturation(1, ignore, costs=SLOW, trees=(0, 2), subscribers=4, runs=2)
    off, on, batched = (series.ys for series in figure.series)
    assert len(figure.series) == len(GUARDS)
    assert all(a < b < c for a, b, c in zip(on, batched, off, strict=True))
    for row in figure.rows:
        assert row[-1] > 0
        assert row[4] <= row[2] <= row[4] * (1 + PRECISION) + 2 / OBSERVE_S


def test_work_is_what_each_party_does_with_guards_and_without():
    costs = Costs(
        parse_us=1,
        write_us=2,
        seal_us=4,
        sign_us=8,
        batched_sign_us=16,
        verify_us=32,
        batched_verify_us=64,
        open_us=128,
    )
    us = 1e-6
    assert Work.from_costs(costs, "off") == Work(0.0, 1 * us, 1 * us, 2 * us)
    for guards, publisher, node in (("on", 12, 33), ("batched", 20, 65)):
        work = Work.from_costs(costs, guards)
        found = (work.publisher_s, work.node_s, work.subscriber_s, work.copy_s)
        assert found == pytest.approx((publisher * us, node * us, (node + 128) * us, 2 * us))


def test_who_waits_in_line_is_late_by_the_work_before_it():
    """Two at a time: the second one waits for the first."""
    server = SingleServer(None, 0.04, 0.0, last=True)
    assert latency_at([server], 20, observe_s=0.05) == pytest.approx(0.04)
    assert latency_at([server], 26, observe_s=1.0) is None
