"""What a new subscription gets of retained values that are still on their way over the overlay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import pytest

from bridge.base import overlaps
from bridge.contract import Publication
from gateway.base import turns
from gateway.broker import retained_sending
from gateway.mqtt5.packets import PingReq, PingResp, PubAck, Publish, SubAck, Subscribe, Subscription, Version
from tests.gateway.harness import Wire, on_loop, serving
from tests.gateway.test_broker_overlay import FakeOverlay
from tests.gateway.turned import Turned

SCOPE = "far/#"


class SlowOverlay(FakeOverlay):
    """Its scope is neither accepted nor settled before the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted, self.settled = True, False
        self._accept: list[Callable[[], None]] = []
        self._settle: list[Callable[[], None]] = []

    def publish_run(self, client_id: str, run: object, done: object) -> int:
        return 0

    def publish(self, client_id: str, publication: Publication, done: Callable[[int], None]) -> bool:
        return False

    def when_accepted(self, topic_filters: Sequence[str], done: Callable[[], None]) -> bool:
        if self.accepted or not any(overlaps(SCOPE, each) for each in topic_filters):
            return False
        self._accept.append(done)
        return True

    def unsettled(self, topic_filters: Sequence[str]) -> list[str]:
        return [] if self.settled or not any(overlaps(SCOPE, each) for each in topic_filters) else [SCOPE]

    def when_settled(self, scopes: Collection[str], done: Callable[[], None]) -> bool:
        if self.settled or SCOPE not in scopes:
            return False
        self._settle.append(done)
        return True

    def accept(self) -> None:
        self.accepted = True
        for done in self._accept:
            done()

    def settle(self) -> None:
        self.settled = True
        for done in self._settle:
            done()


def stored(broker: Any, topic: str, payload: bytes, retain: bool = True) -> None:
    broker.local.deliver_stored(Publication(topic, payload, 1, retain))


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn of the event loop is over because the machine has other work."""
    for module in (turns, retained_sending):
        monkeypatch.setattr(module, "TURN_S", 600.0)
    monkeypatch.setattr(turns, "READS_S", 600.0)


async def got(wire: Wire) -> list[tuple[str, bytes, bool]]:
    """Topics, payloads and RETAIN flags until a PINGRESP."""
    publishes = [packet for packet in await wire.barrier() if isinstance(packet, Publish)]
    wire.send(*(PubAck(each.packet_id) for each in publishes if each.qos))
    return [(each.topic, each.payload, each.retain) for each in publishes]


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@on_loop
async def test_values_that_come_are_retained_messages_to_new_subscriptions_and_live_to_older_ones(
    version: Version,
) -> None:
    overlay = SlowOverlay()
    async with serving(overlay=overlay) as broker:
        overlay.settled = True
        old = await Wire.connect(broker, "old", version)
        await old.subscribe("far/#", 1)
        overlay.settled = False
        new = [await Wire.connect(broker, f"new{number}", version) for number in range(3)]
        for wire in new:
            await wire.subscribe("far/+", 1)
        stored(broker, "far/1", b"long ago")
        stored(broker, "far/2", b"")
        stored(broker, "far/3", b"overtaken", retain=False)
        broker.local.deliver_local(Publication("far/4", b"now", 1, True))
        for wire in new:
            assert await got(wire) == [("far/1", b"long ago", True), ("far/4", b"now", False)]
        assert [payload for _, payload, retain in await got(old) if not retain] == [
            b"long ago", b"", b"overtaken", b"now",
        ]  # fmt: skip
        overlay.settle()
        for wire in new:
            assert await got(wire) == [], "nothing twice"
        stored(broker, "far/5", b"missed while a link was down")
        assert await got(new[0]) == [("far/5", b"missed while a link was down", False)]


@pytest.mark.parametrize(
    ("options", "topic_filter", "wanted"),
    [
        ({"retain_handling": 0}, "far/1", True), ({"retain_handling": 1}, "far/1", True),
        ({"retain_handling": 2}, "far/1", False), ({}, "$share/g/far/1", False),
        ({"retain_as_published": True}, "#", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_here", [True, False])
@on_loop
async def test_retain_handling_and_shared_subscriptions(
    options: dict[str, Any], topic_filter: str, wanted: bool, is_here: bool
) -> None:
    overlay = SlowOverlay()
    async with serving(overlay=overlay) as broker:
        if is_here:
            broker.local.deliver_local(Publication("far/1", b"old", 1, True))
        new = await Wire.connect(broker, "new")
        assert await new.subscribe(topic_filter, 1, **options) == 1
        if not is_here:
            stored(broker, "far/1", b"old")
        else:
            assert await got(new) == [], "it may be out of date"
        overlay.settle()
        assert await got(new) == ([("far/1", b"old", True)] if wanted else [])


@on_loop
async def test_a_value_that_changes_or_goes_during_the_wait_is_not_told_as_it_was() -> None:
    overlay = SlowOverlay()
    async with serving(overlay=overlay) as broker:
        for topic in ("far/live", "far/stored", "far/cleared", "far/same", "near/1"):
            broker.local.deliver_local(Publication(topic, b"old", 1, True))
        new = await Wire.connect(broker, "new")
        await new.subscribe("#", 1)
        assert await got(new) == [("near/1", b"old", True)], "what is local does not wait"
        broker.local.deliver_local(Publication("far/live", b"new", 1, True))
        stored(broker, "far/stored", b"new")
        stored(broker, "far/cleared", b"")
        assert await got(new) == [("far/live", b"new", False), ("far/stored", b"new", True)]
        overlay.settle()
        assert await got(new) == [("far/same", b"old", True)]


@on_loop
async def test_who_was_sent_an_old_value_hears_that_it_is_gone() -> None:
    """Replicas were slower than anybody waits: nobody may go on with a value that was cleared long ago."""
    overlay = SlowOverlay()
    async with serving(overlay=overlay) as broker:
        broker.local.deliver_local(Publication("far/1", b"old", 1, True))
        new = await Wire.connect(broker, "new")
        await new.subscribe("far/1", 1)
        for done in overlay._settle:  # nobody waits any longer, and values may still come
            done()
        assert await got(new) == [("far/1", b"old", True)]
        stored(broker, "far/1", b"")
        assert await got(new) == [("far/1", b"", False)]


@on_loop
async def test_a_subscription_that_is_made_again_keeps_what_it_is_owed() -> None:
    overlay = SlowOverlay()
    async with serving(overlay=overlay) as broker:
        broker.local.deliver_local(Publication("far/1", b"here", 1, True))
        new, left = await Wire.connect(broker, "new"), await Wire.connect(broker, "left")
        await new.subscribe("far/+", 1)
        await new.subscribe("far/+", 0, retain_handling=1)
        await left.subscribe("far/+", 1)
        left.cut()
        stored(broker, "far/2", b"came")
        overlay.settle()
        assert await got(new) == [("far/2", b"came", True), ("far/1", b"here", True)]


@on_loop
async def test_neither_pings_nor_local_topics_wait_for_the_suback_of_others() -> None:
    overlay = SlowOverlay()
    overlay.accepted = False
    async with serving(overlay=overlay) as broker:
        wire = await Wire.connect(broker, "hub")
        for number in range(1, 31):
            wire.send(Subscribe(number, (Subscription(f"far/{number}"),)))
        wire.send(Subscribe(31, (Subscription("near/#"),)), PingReq(), Publish("near/1", b"x", 1, packet_id=99))
        answers = [await wire.next() for _ in range(4)]
        assert [type(each) for each in answers] == [SubAck, PingResp, Publish, PubAck]
        assert isinstance(answers[0], SubAck)
        assert answers[0].packet_id == 31
        overlay.accept()
        ids = [packet.packet_id for packet in await wire.barrier() if isinstance(packet, SubAck)]
        assert ids == list(range(1, 31))


@on_loop
async def test_who_subscribes_without_end_while_nothing_is_accepted_is_not_read_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.broker.subscribing.UNANSWERED_MAX", 3)
    overlay = SlowOverlay()
    overlay.accepted = False
    async with serving(overlay=overlay) as broker:
        wire, other = await Wire.connect(broker, "greedy"), await Wire.connect(broker, "other")
        for number in range(1, 100):
            wire.send(Subscribe(number, (Subscription(f"far/{number}"),)))
        await other.barrier()
        client = broker.lifecycle.clients["greedy"]
        assert client.connection is not None
        assert client.connection.is_held
        assert len(overlay._accept) == 4
        overlay.accept()
        await wire.barrier()
        assert len(client.filters) == 99


def counted(monkeypatch: pytest.MonkeyPatch, *names: str) -> Turned:
    """Returns a counter of the calls of these functions of the sender."""
    turned = Turned()

    def call(made: Callable[..., Any], *asked: Any) -> Any:
        turned.add()
        return made(*asked)

    for name in names:
        monkeypatch.setattr(retained_sending, name, partial(call, getattr(retained_sending, name)))
    return turned


@pytest.mark.attack(194)
@on_loop
async def test_a_value_that_comes_is_not_compared_with_all_filters_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a client of thousands of filters; each value that came was compared with all of them at once."""
    overlay = SlowOverlay()
    async with serving(overlay=overlay) as broker:
        bad = await Wire.connect(broker, "bad")
        for number in range(200):
            await bad.subscribe(f"far/{number}/+" if number % 2 else f"far/{number}/x")
        await bad.subscribe("far/#")
        turned = counted(monkeypatch, "matches", "split_share")
        for number in range(100):
            stored(broker, f"far/{number}/x", b"%d" % number)
        assert turned.done <= 4 * 100, "of two filters that match each"
        came = await got(bad)
        assert sorted(came) == sorted([(f"far/{n}/x", b"%d" % n, True) for n in range(100)] * 2), "once for each filter"
        turned.stop()


@pytest.mark.attack(194)
@on_loop
async def test_a_subscription_looks_at_no_other_one_that_expects_values() -> None:
    """Attack: thousands of SUBSCRIBEs of a filter each went through all filters that expect values, each time."""
    overlay, looks = SlowOverlay(), Turned()

    class Looked(set[str]):
        def __bool__(self) -> bool:
            looks.add()
            return len(self) > 0

    async with serving(overlay=overlay) as broker:
        bad = await Wire.connect(broker, "bad")
        for number in range(50):
            await bad.subscribe(f"far/{number}")
        client = broker.lifecycle.clients["bad"]
        for one in broker.lifecycle.subscribing.retained._of(client).values():
            one.owed = Looked(one.owed)
        await bad.subscribe("far/new")
        assert looks.done == 0
        looks.stop()


@pytest.mark.attack(194)
@on_loop
async def test_what_a_client_is_owed_when_scopes_settle_is_looked_for_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a client of thousands of filters of a scope, and of one that matches all that others retained: all was
    looked at in the turn of the event loop in which the scope settled.
    """
    monkeypatch.setattr(turns, "TURN_S", 0.0)  # each look at the clock ends a turn
    monkeypatch.setattr(retained_sending, "LOOKS_AT_ONCE", 10)
    overlay = SlowOverlay()
    async with serving(overlay=overlay) as broker:
        for number in range(300):
            broker.local.deliver_local(Publication(f"near/{number}", b"x", 0, True))
        bad = await Wire.connect(broker, "bad")
        for number in range(100):
            await bad.subscribe(f"far/{number}")
        turned = counted(monkeypatch, "matches")
        await bad.subscribe("#")
        assert len([each for each in await got(bad) if each[0].startswith("near/")]) == 300
        turned.done = turned.most = 0
        sends, retained = Turned(), broker.lifecycle.subscribing.retained

        send = retained._send_pending

        def sent(*asked: Any) -> Any:
            sends.add()
            return send(*asked)

        monkeypatch.setattr(retained, "_send_pending", sent)
        overlay.settle()
        for _ in range(1_000):
            await bad.barrier()
            if sends.done == 101 and not retained._following:
                break
        assert sends.done == 101
        assert sends.most <= 2, "filters in a turn"
        assert turned.done == 300
        assert turned.most <= 12, "retained messages in a turn"
        assert not retained._expected
        turned.stop()
        sends.stop()
