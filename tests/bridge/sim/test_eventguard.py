"""The EventGuard experiments on small networks: what must hold for the figures to mean anything."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.sim import eventguard, loads
from bridge.sim.draws import Draws, Zipf
from bridge.sim.eventguard import FIGURES, figure_4, figure_5, first_hop, unguarded, violated, wasted
from bridge.sim.experiments import Figure
from bridge.sim.firsthop import first_honest_node
from bridge.sim.forgery import Transit
from bridge.sim.loads import Costs, Reach, figure_6
from bridge.sim.pubsub import Network, Placement, Size, attackers, components, marked, one_way_ms
from bridge.sim.saturation import (
    GUARDS,
    OBSERVE_S,
    PRECISION,
    Server,
    Work,
    figure_saturation,
    latency_at,
    rises,
    saturating_rate,
    tree,
)

SMALL = Size(subscribers=128, publishers=4, topics=12, topics_a_publisher=3, topics_a_subscriber=2)
FEW = Size(subscribers=20, publishers=3, topics=5, topics_a_publisher=2, topics_a_subscriber=2)


SLOW = Costs(parse_us=300, verify_us=900, batched_verify_us=400)


def ignore(done: float) -> None:
    assert 0 < done <= 1


def network(seed: int = 1, size: Size = SMALL) -> Network:
    return Network(size, Draws("test", seed))


def line(figure: Figure, name: str) -> tuple[float, ...]:
    (ys,) = [series.ys for series in figure.series if series.name == name]
    return ys


# ---------------------------------------------------------------------------------------------- randomness


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


def test_links_have_the_papers_round_trips():
    draws = Draws("links")
    round_trips = [2 * one_way_ms(draws) for _ in range(20_000)]
    assert 24 <= min(round_trips) < 26
    assert 180 < max(round_trips) <= 184
    assert fmean(round_trips) == pytest.approx(74, abs=1.5)
    assert pstdev(round_trips) == pytest.approx(50, abs=1)


# ------------------------------------------------------------------------------------------------- network


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 64), st.integers(1, 64))
def test_a_path_goes_along_links_and_visits_nothing_twice(a: int, b: int):
    path = network().path(a, b)
    assert (path[0], path[-1]) == (a, b)
    assert len(set(path)) == len(path)
    assert all(max(u, v) // 2 == min(u, v) for u, v in pairwise(path))


def test_receptions_are_those_of_following_every_publication():
    net = network(size=FEW)
    counted = [0.0] * (net.nodes + 1)
    for home, topics in zip(net.publisher_at, net.publishes, strict=True):
        for topic in topics:
            for v in {home}.union(*(net.path(home, leaf) for leaf in net.leaves_of[topic])):
                counted[v] += 1 / len(topics)
    assert net.receptions() == pytest.approx(counted)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 1))
def test_clean_parts_give_what_walking_every_path_gives(seed: int, fraction: float):
    net = network(seed, FEW)
    bad = marked(attackers(net, Placement.SPARSE, Draws("bad", seed)), round(fraction * net.nodes), net.nodes)
    hit = total = 0.0
    for home, topics in zip(net.publisher_at, net.publishes, strict=True):
        for topic in topics:
            for leaf in net.leaves_of[topic]:
                total += 1 / len(topics)
                hit += any(bad[v] for v in net.path(home, leaf)) / len(topics)
    assert violated(net, bad) == pytest.approx(hit / total)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 1), st.sampled_from(list(Placement)))
def test_floods_are_those_of_following_every_forgery(seed: int, fraction: float, placement: Placement):
    net = network(seed, FEW)
    bad = marked(attackers(net, placement, Draws("bad", seed)), round(fraction * net.nodes), net.nodes)
    free = stopped = relayed = 0
    for source in (v for v in range(1, net.nodes + 1) if bad[v]):
        for leaves in net.leaves_of:
            paths = [net.path(source, leaf) for leaf in leaves]
            free += len(leaves) + sum(not bad[v] for v in set().union(*paths))
            stopped += leaves.count(source) + len({p[1] for p in paths if len(p) > 1 and not bad[p[1]]})
            ends = [next((v for v in path if not bad[v]), None) for path in paths]
            relayed += ends.count(None) + len({v for v in ends if v is not None})
    topics = net.size.topics
    assert unguarded(net, bad) == pytest.approx(free / topics)
    assert first_hop(net, bad, relayed=False) == pytest.approx(stopped / topics)
    assert first_hop(net, bad, relayed=True) == pytest.approx(relayed / topics)


@pytest.mark.parametrize("placement", list(Placement))
def test_every_node_turns_bad_once_and_clusters_are_few(placement: Placement):
    net = network()
    order = attackers(net, placement, Draws("order"))
    assert sorted(order) == list(range(1, net.nodes + 1))
    parts = set(components(net.nodes, marked(order, 20, net.nodes))) - {0}
    if placement is Placement.SPARSE:
        assert len(parts) > 5
    else:
        assert 1 <= len(parts) <= placement.value


# ----------------------------------------------------------------------------------------- attacks in earnest


def test_without_the_topic_key_nothing_is_read_or_altered():
    transit = Transit(Draws("attack"), guarded=True)
    assert not any(transit.attack().violated for _ in range(30))


def test_without_guards_the_same_attacks_succeed():
    transit = Transit(Draws("attack"), guarded=False)
    assert all(found.read and found.altered for found in (transit.attack() for _ in range(5)))


def test_an_attacker_with_the_topic_key_reads_but_does_not_alter():
    """The control: the attack on confidentiality works as soon as the key is there."""
    transit = Transit(Draws("attack"), guarded=True, insider=True)
    found = [transit.attack() for _ in range(5)]
    assert all(each.read and not each.altered for each in found)


def test_an_honest_replica_passes_on_all_that_is_true_and_nothing_forged():
    passed = first_honest_node(Draws("flood"), 10)
    assert (passed.tried, passed.forged) == (100, 0)
    assert (passed.published, passed.true) == (10, 10)
    assert passed.fraction == 0


def test_a_node_that_verifies_nothing_is_seen(monkeypatch: pytest.MonkeyPatch):
    """The control: with signatures unchecked, the inventions in the publisher's name go on."""
    monkeypatch.setattr("bridge.wire.admission.verify_header", lambda *_: None)
    assert first_honest_node(Draws("flood"), 3).forged > 0


# ------------------------------------------------------------------------------------------------- figures


def test_figure_4_rises_with_bad_nodes_and_guards_keep_it_at_zero():
    figure = figure_4(1, ignore, size=SMALL, runs=2)
    for name in ("N=16", "N=64", "N=128"):
        ys = line(figure, name)
        assert ys[0] == 0 < ys[4] < ys[-1] <= 1
        assert all(a <= b for a, b in pairwise(ys))
    assert set(line(figure, "EventGuard")) == {0.0}
    regions, nodes = line(figure, "VeilMQ, shares only"), line(figure, "N=128")
    assert all(a <= b for a, b in pairwise(regions))
    assert sum(regions[:4]) < sum(nodes[:4]), "two of three replicas are rarer than one node"


def test_figure_4_counts_what_a_broken_guard_lets_through(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(eventguard, "Transit", lambda draws, guarded: Transit(draws, guarded=guarded, insider=True))
    monkeypatch.setattr(eventguard, "SAMPLED_MESSAGES", 8)
    figure = figure_4(1, ignore, size=SMALL, runs=1)
    assert line(figure, "EventGuard")[-1] > 0


def test_figure_5_guards_waste_less_than_none_and_clusters_less_than_scattered_attackers():
    figure = figure_5(1, ignore, size=SMALL, runs=3)
    siena, sparse = line(figure, "Siena"), line(figure, "EventGuard-sparse")
    assert siena[0] == sparse[0] == 0
    for name in ("Siena", "EventGuard-sparse"):
        assert all(a < b for a, b in pairwise(line(figure, name)))
    for at in range(1, len(siena)):
        one, ten = line(figure, "EventGuard-cluster-1")[at], line(figure, "EventGuard-cluster-10")[at]
        assert one <= sparse[at] < siena[at]
        assert ten <= sparse[at]
        assert one <= line(figure, "cluster-1, relayed")[at]
    assert "passed on 0" in figure.notes[0]


def test_figure_5_shows_a_node_that_lets_floods_through():
    net = network()
    orders = {place: attackers(net, place, Draws("order")) for place in Placement}
    tight, leaky, open_ = (eventguard.flooded(net, orders, leak) for leak in (0.0, 0.1, 1.0))
    name = "EventGuard-sparse"
    assert tight[name][3] < leaky[name][3] < open_[name][3] == pytest.approx(tight["Siena"][3])


def test_bandwidth_without_floods_is_not_wasted():
    net = network()
    nobody = marked([], 0, net.nodes)
    assert wasted(net, nobody, net.receptions(), 0.0) == 0
    assert unguarded(net, nobody) == first_hop(net, nobody, relayed=True) == 0


def test_figure_6_moves_load_from_publishers_to_the_key_service():
    figure = figure_6(1, ignore, size=SMALL, runs=2)
    service, publisher, subscriber, some, everywhere = (series.ys for series in figure.series)
    assert service[0] == 0
    assert some[0] == everywhere[0] == pytest.approx(1)
    assert all(a < b for a, b in pairwise(service))
    assert all(a > b for a, b in pairwise(publisher))
    assert all(s < n for s, n in zip(subscriber, everywhere, strict=True))
    assert all(s <= e for s, e in zip(some, everywhere, strict=True))


def test_loads_add_up_by_hand():
    costs = Costs(seal_us=1, sign_us=10, verify_us=20, open_us=2, derive_us=3, statement_us=5, check_statement_us=7)
    size = Size(subscribers=8, publishers=2)
    found = loads.loads(1.0, Reach(nodes=3, subscribers=4, statement_nodes=2), size, costs)
    third = 1 / 3
    assert found == pytest.approx(
        (third * (14 + 20 + 3), third * 11 / 2, third * (4 * 22 + 10) / 8, third * (60 + 28) / 4, third * (60 + 56) / 4)
    )


# ---------------------------------------------------------------------------------------------- saturation


@pytest.mark.parametrize("work_s", [0.01, 0.001, 0.0003])
def test_saturation_finds_the_rate_of_a_single_server(work_s: float):
    server = Server(None, work_s, 0.0, last=True)
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
    servers = [Server(None, 0.001, 0.0, False), Server(0, 0.002, 0.050, False), Server(1, 0.003, 0.020, True)]
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
        saturating_rate([Server(None, 0.0, 0.0, True)], observe_s=0.001)


def test_guards_cost_throughput_and_latency_and_batches_give_some_back():
    figure = figure_saturation(1, ignore, costs=SLOW, trees=(0, 2), subscribers=4, runs=2)
    off, on, batched = (series.ys for series in figure.series)
    assert len(figure.series) == len(GUARDS)
    assert all(a < b < c for a, b, c in zip(on, batched, off, strict=True))
    for row in figure.rows:
        assert row[-1] > 0
        assert row[4] <= row[2] <= row[4] * (1 + PRECISION) + 2 / OBSERVE_S


# ----------------------------------------------------------------------------------------------------- all


@pytest.mark.parametrize(
    "run",
    [
        lambda seed: figure_4(seed, ignore, size=FEW, runs=1),
        lambda seed: figure_5(seed, ignore, size=FEW, runs=1),
        lambda seed: figure_6(seed, ignore, size=FEW, runs=1),
        lambda seed: figure_saturation(seed, ignore, costs=SLOW, trees=(2,), subscribers=2, runs=1),
    ],
    ids=list(FIGURES),
)
def test_a_seed_says_all(run: Callable[[int], Figure]):
    first = run(3)
    assert first == run(3) != run(4)
    assert all(len(row) == len(first.columns) for row in first.rows)
    assert all(len(series.xs) == len(series.ys) for series in first.series)
    assert first.experiment == "eventguard"
    assert FIGURES[first.number].__name__ == f"figure_{first.number}"
