"""Whether publishers say that our clock is off; and what is held until it is believed."""

from __future__ import annotations

import pytest

from bridge.reader.intake import FRESH_S
from spark_ingest.receiving.heard import BACKLOG_S, HeardTimes
from tests.spark_ingest.region import NOW, Link, Overlay, Publisher, records

A, B, C = b"a", b"b", b"c"
LIVE_S = 40


def heard_of(*publishers: bytes, every_s: float, age_s: float) -> HeardTimes:
    """Of `LIVE_S` seconds, from replicas that do not tell the time."""
    heard = HeardTimes()
    heard.vouched = False
    for publisher in publishers:
        for second in range(LIVE_S):
            sealed = NOW - age_s + second * every_s
            heard.dated(publisher, int(sealed * 1000), NOW + second)
    return heard


@pytest.mark.parametrize(("age_s", "way"), [(400.0, "older"), (-400.0, "younger")])
def test_what_is_live_and_off_by_the_same_for_most_is_our_clock(age_s: float, way: str) -> None:
    heard = heard_of(A, B, every_s=1.0, age_s=age_s)
    assert f"2 of 2 gateways publish is 400 s {way}" in str(heard.doubt)
    heard.fresh.add(C)
    assert heard.doubt is not None
    heard.fresh.add(A)
    assert heard.doubt is None, "most publish what is fresh"


def test_a_backlog_is_not_our_clock() -> None:
    assert heard_of(A, B, every_s=4.0, age_s=86_400).doubt is None
    assert heard_of(A, every_s=(2 * (LIVE_S - 1) + BACKLOG_S) / (LIVE_S - 1) - 0.01, age_s=86_400).doubt is not None


def test_replicas_that_vouch_for_our_clock_are_believed() -> None:
    heard = heard_of(A, every_s=1.0, age_s=400)
    heard.vouched = True
    assert heard.doubt is None
    assert HeardTimes().doubt is None


def setup() -> tuple[Publisher, Link]:
    overlay = Overlay()
    publisher, link = Publisher(overlay), Link(overlay)
    link.collector.vouch(False)
    return publisher, link


def test_in_doubt_nothing_that_looks_like_a_replay_is_acknowledged_and_it_is_a_row_when_something_fresh_came() -> None:
    publisher, link = setup()
    link.publish(publisher.seal("plant/a", time=NOW - FRESH_S - 100))
    link.publish(publisher.seal("plant/a", time=NOW - FRESH_S - 99), places=(1,))
    for second in range(3):
        link.collector.do_due_work(NOW + 60 * second)
    assert not link.write()
    assert not link.acknowledged
    link.publish(publisher.seal("plant/a", time=NOW + 120), now=NOW + 120)
    link.collector.do_due_work(NOW + 121)
    assert [record.reason for record in records(link.write())] == [None, None, None]
    assert len(link.acknowledged) == link.sent


def test_what_was_held_is_set_apart_when_replicas_vouch_for_our_clock() -> None:
    publisher, link = setup()
    link.publish(publisher.seal("plant/a", time=NOW - FRESH_S - 1))
    link.collector.do_due_work(NOW + 60)
    assert not link.write()
    link.collector.vouch(True)
    link.collector.do_due_work(NOW + 61)
    assert [str(record.reason).partition(":")[0] for record in records(link.write())] == ["stale"]
    assert len(link.acknowledged) == link.sent


def test_in_doubt_nothing_has_expired() -> None:
    publisher, link = setup()
    link.publish(publisher.seal("plant/a", time=NOW - FRESH_S - 100, deadline_ms=int((NOW - FRESH_S) * 1000)))
    assert not link.acknowledged
    assert not link.collector.figures["expired", ""]
