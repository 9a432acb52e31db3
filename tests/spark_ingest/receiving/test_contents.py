"""Content modes at a receiver: pieces become whole rows, what does not come is asked for, liars are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.wire.pulling import PULL_TOPIC, PullRequest
from keys.envelope import Mode
from spark_ingest.receiving.collector import SpoolCollector
from tests.spark_ingest.region import NOW, Link, Overlay, Publisher, Sealed, Wire, records

CARRIED = {Mode.COPIES: ((0,), (0,), (0,)), Mode.ONE: ((), (0,), ()), Mode.BLOCKS: ((0,), (1,), (2,))}
MODES = list(CARRIED)


def setup(mode: Mode) -> tuple[Sealed, Link]:
    overlay = Overlay()
    overlay.change(mode=mode)
    return Publisher(overlay).seal("plant/a", bytes(1000)), Link(overlay)


def asks(collector: SpoolCollector, now: float) -> list[tuple[str, tuple[int, ...]]]:
    collector.do_due_work(now)
    sends = collector.take_asks()
    assert all(send.wire.topic == PULL_TOPIC for send in sends)
    return [(send.peer, PullRequest.decode(send.wire.payload).parts) for send in sends]


@pytest.mark.parametrize("mode", MODES)
def test_what_each_replica_carries_makes_one_row(mode: Mode) -> None:
    sealed, link = setup(mode)
    for place, indexes in enumerate(CARRIED[mode], 1):
        link.send(place, sealed.part(place, *indexes))
    (record,) = records(link.write())
    assert (record.sealed, record.reason) == (sealed.content, None)
    assert len(link.acknowledged) == 3
    assert not asks(link.collector, NOW + 60)
    assert not link.collector.is_asking


@pytest.mark.parametrize("mode", MODES)
def test_what_is_only_announced_is_asked_for_and_then_written_once(mode: Mode) -> None:
    sealed, link = setup(mode)
    for place in (2, 3):
        link.send(place, sealed.part(place))
    assert not link.write()
    assert not link.acknowledged
    wanted = (0, 1) if mode is Mode.BLOCKS else (0,)
    assert asks(link.collector, NOW + 0.05) == [("r2", wanted)]
    assert asks(link.collector, NOW + 0.2) == [("r3", wanted)]
    link.send(3, sealed.part(3, *wanted, with_key=False), NOW + 0.3)
    (record,) = records(link.write())
    assert (record.sealed, record.reason) == (sealed.content, None)
    assert len(link.acknowledged) == 3
    assert not asks(link.collector, NOW + 60)


@pytest.mark.parametrize("mode", [Mode.ONE, Mode.BLOCKS])
def test_what_nobody_has_is_spooled_with_the_reason_and_whole_should_it_come(mode: Mode) -> None:
    sealed, link = setup(mode)
    for place in (1, 2, 3):
        link.send(place, sealed.part(place))
    for step in range(200):
        asks(link.collector, NOW + step / 10)
    (record,) = records(link.write())
    assert record.reason is not None
    assert record.reason.startswith("content")
    assert len(link.acknowledged) == 3
    assert link.collector.figures["content_given_up", ""] == 1
    for place, indexes in enumerate(CARRIED[mode], 1):
        link.send(place, sealed.part(place, *indexes), NOW + 30)
    (record,) = records(link.write())
    assert (record.sealed, record.reason) == (sealed.content, None)


def test_a_wrong_block_is_counted_and_others_make_the_row() -> None:
    sealed, link = setup(Mode.BLOCKS)
    wrong = sealed.part(1, 0)
    link.send(1, replace(wrong, payload=bytes(len(wrong.payload))))
    none = sealed.part(2, 1)
    link.send(2, Wire(none.topic, none.payload, properties=(*none.properties[:-1], ("vmq-part", "7"))))
    for place in (2, 3):
        link.send(place, sealed.part(place, place - 1))
    (record,) = records(link.write())
    assert record.sealed == sealed.content
    assert link.collector.figures["refused_content", "r1"] == 1
    assert link.collector.figures["refused_BadFrame", "r2"] == 1
