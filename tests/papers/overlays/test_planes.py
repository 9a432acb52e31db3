"""The overlay and workload of the experiments with planes, against what can be counted another way."""

from __future__ import annotations

from bridge.topology import RowTable, subscribe_all
from papers.experiments.draws import Draws
from papers.overlays.planes import SYMBOLS, Flooded, Market, caterpillar, mean_lengths


def test_the_papers_size() -> None:
    scot = caterpillar()
    inner = [region for region in range(scot.regions) if len(scot.neighbours(region)) > 1]
    assert (len(scot.brokers), scot.regions, len(inner)) == (75, 15, 5)
    assert len(scot.tree_links) + len(scot.region_links) == 220


def test_ways_over_bits_are_those_of_routing_tables() -> None:
    scot = caterpillar(2, 2, 3)
    market = Market(scot, 12, Draws("market", 1))
    tables = {place: RowTable(scot, place) for place in scot.brokers}
    for name, host in enumerate(market.hosts):
        subscribe_all(scot, tables, name, scot.brokers[host])
    for symbol in range(0, SYMBOLS, 7):
        matching = [name for name, host in enumerate(market.hosts) if _wants(market, name, symbol)]
        for at, place in enumerate(scot.brokers):
            found = tables[place].targets(matching)
            assert sorted(market.regions(symbol, at, -1)) == sorted(found.regions)
            assert market.planes(symbol, place[1]) == found.planes
            assert bool(market.local[symbol].get(at)) == found.is_local
            for before in found.regions:
                assert set(market.regions(symbol, at, before)) == set(found.regions) - {before}


def _wants(market: Market, name: int, symbol: int) -> bool:
    """Drawn again, as the market drew it."""
    draws = Draws("market", 1)
    for _ in market.hosts:
        draws.randrange(len(market.brokers))
    firsts = [draws.randrange(SYMBOLS) for _ in market.hosts]
    return (symbol - firsts[name]) % SYMBOLS < 10


def test_even_links_make_floods_as_short_as_the_two_steps() -> None:
    scot = caterpillar()
    clustered, flooded = mean_lengths(scot, Flooded(scot, Draws("f"), lasting=0.0, passing=0.0))
    assert clustered == flooded
    uneven = mean_lengths(scot, Flooded(scot, Draws("f")))[1]
    assert uneven > flooded


def test_identifiers_reach_every_origin_over_their_last_hops() -> None:
    scot = caterpillar(3, 1, 3)
    flooded = Flooded(scot, Draws("f"))
    everybody = (1 << len(scot.brokers)) - 1
    reached, waiting = set[int](), [(4, everybody)]
    while waiting:
        at, origins = waiting.pop()
        reached |= {at} if origins >> at & 1 else set()
        waiting += flooded.next_hops(at, origins & ~(1 << at)).items()
    assert reached == set(range(len(scot.brokers)))
