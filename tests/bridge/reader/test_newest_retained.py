"""What is retained on a topic, at a subscriber that has just come: the newest, once, within bounds."""

from __future__ import annotations

import pytest

from bridge.reader.awaiting_keys import KEPT_OVERHEAD_BYTES
from bridge.reader.newest_retained import RETAINED_LIVE_S, RETAINED_WAIT_S, Joining, order_of
from bridge.reader.streams import Held
from bridge.wire.admission import Admission
from tests.bridge.helpers import craft
from tests.sim.world import NOW, make_world

WORLD = make_world({1: 3}, [], {"a": 1, "b": 1})


def held(publisher: str, sequence: int, sealed: float, topic: str = "plant/t", arrived: float = NOW) -> Held:
    wire = craft(WORLD, publisher, topic, sequence=sequence, now=sealed, key_id=b"k" * 16, content=b"c", retain=True)
    admitted = Admission(WORLD.overlay, replica=True).publication(dict(wire.properties)["vmq"], wire.topic, arrived)
    return Held(admitted, wire.payload, topic, arrived)


def test_only_what_was_sealed_a_while_ago_may_be_old():
    assert not Joining.may_be_old(held("a", 1, NOW - RETAINED_LIVE_S + 0.1))
    assert Joining.may_be_old(held("a", 1, NOW - RETAINED_LIVE_S - 0.1))


def test_after_the_wait_the_newest_of_each_topic_is_taken_up():
    joining = Joining()
    assert joining.next_deadline is None
    offered = [joining.offer(h) for h in (
        held("a", 1, NOW - 50), held("b", 9, NOW - 60), held("a", 2, NOW - 40), held("b", 1, NOW - 99, "plant/u"),
    )]  # fmt: skip
    assert offered == [True, False, True, True]
    assert joining.next_deadline == NOW + RETAINED_WAIT_S
    assert joining.due(NOW + RETAINED_WAIT_S - 0.1) == []
    due = joining.due(NOW + RETAINED_WAIT_S)
    assert [(h.topic, h.admitted.header.sequence) for h in due] == [("plant/t", 2), ("plant/u", 1)]
    assert joining.next_deadline is None


def test_later_offers_do_not_prolong_the_wait():
    joining = Joining()
    joining.offer(held("a", 1, NOW - 50))
    joining.offer(held("a", 2, NOW - 40, arrived=NOW + 0.4))
    assert len(joining.due(NOW + RETAINED_WAIT_S)) == 1


def test_what_was_overtaken_while_it_waited_is_dropped():
    joining = Joining()
    joining.offer(held("a", 1, NOW - 50))
    joining.delivered("plant/t", order_of(held("b", 1, NOW)))
    assert joining.due(NOW + RETAINED_WAIT_S) == []
    assert not joining.offer(held("a", 1, NOW - 50))


def test_a_flooder_of_topics_displaces_only_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.reader.newest_retained.WAITING_BYTES", 6 * KEPT_OVERHEAD_BYTES - 1)
    joining = Joining()
    joining.offer(held("a", 1, NOW - 50))
    for n in range(20):
        joining.offer(held("b", n + 1, NOW - 50, f"open/{n}"))
    due = joining.due(NOW + RETAINED_WAIT_S)
    assert len(due) == 5
    assert due[0].topic == "plant/t"
    assert joining.next_deadline is None


def test_only_the_same_under_another_epoch_key_was_sealed_anew():
    joining = Joining()
    assert not joining.sealed_anew("t", "site", b"21", (7, 0))
    assert not joining.sealed_anew("t", "site", b"21", (7, 0)), "published twice, told twice"
    assert joining.sealed_anew("t", "site", b"21", (8, 0))
    assert joining.sealed_anew("t", "site", b"21", (8, 1))
    assert not joining.sealed_anew("t", "other", b"21", (9, 0))
    assert not joining.sealed_anew("t", "other", b"22", (10, 0))
    assert not joining.sealed_anew("u", "other", b"22", (11, 0))
