"""The judge of a job's readings: rows once, beside the live collector."""

from __future__ import annotations

from bridge.contract import Received, Wanted
from keys.derivation import Derivation
from spark_ingest.receiving import PastPublications, SpoolCollector
from tests.bridge.helpers import NOW, gateway, publish
from tests.sim.world import World, make_world

LATER = NOW + 90_000.0


def beside() -> tuple[World, SpoolCollector, PastPublications]:
    world = make_world({1: 3}, [], {"site": 1})
    live = SpoolCollector(world.overlay, 1)
    live.learn({name: Derivation(key).check_value for name, key in world.keys})
    past = PastPublications(live, None, 1)
    past.learn(live.granted.check_values)
    past.adopt_era(world.overlay, NOW)
    return world, live, past


def test_what_comes_both_ways_is_one_row_whichever_is_first() -> None:
    for is_past_first in (True, False):
        world, live, past = beside()
        for peer, wire in publish(gateway(world, "site"), "plant/t", b"a", sequence=1).items():
            live.receive(peer, wire, lambda: None, NOW)
            past.take_copy(Received(peer, wire, True), NOW)
        assert (live.ready, past.ready) == (1, 1)
        if is_past_first:
            group = past.take_group(10, None, LATER)
            assert group is not None
            past.note_written(group)
            assert live.take_group(10) is None
        else:
            group = live.take_group(10)
            assert group is not None
            live.note_written(group)
            assert past.take_group(10, None, LATER) is None
        assert live.figures["duplicates_dropped", ""] == 1


def test_a_past_row_was_received_now_and_published_then() -> None:
    world, _, past = beside()
    for peer, wire in publish(gateway(world, "site"), "plant/t", b"a", sequence=1).items():
        past.take_copy(Received(peer, wire, True), NOW)
    group = past.take_group(10, None, LATER)
    assert group is not None
    assert [(row.published_us, row.received_us) for row in group.records] == [(int(NOW * 1e6), int(LATER * 1e6))]


def test_a_missing_epoch_key_is_wanted_once_and_its_rows_come_with_it() -> None:
    world, live, past = beside()
    past.learn({})
    wanted = []
    for number in (1, 2):
        for peer, wire in publish(gateway(world, "site"), "plant/t", b"a", sequence=number).items():
            wanted += past.take_copy(Received(peer, wire, True), NOW)
    assert [type(effect) for effect in wanted] == [Wanted]
    assert past.ready == 0
    past.learn(live.granted.check_values)
    assert past.keys_changed(NOW) == []
    assert past.ready == 2
