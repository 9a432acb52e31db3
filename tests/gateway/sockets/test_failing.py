"""An exception of ours is a refusal: a reason code, a log line, a counter, a finding. Nobody else notices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bridge.contract.machine import Publication
from bridge.topology import LinkWitness
from gateway.attached import _view
from gateway.base.config import parse
from gateway.broker.edge_broker import EdgeBroker
from gateway.health import DEGRADED, judge
from gateway.health.looking import Certificates
from gateway.mqtt5.packets import (
    ConnAck,
    Connect,
    Disconnect,
    PubAck,
    PubRec,
    SubAck,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import LOOPBACK, Wire, on_loop, serving
from tests.gateway.test_broker_overlay import FakeOverlay
from tests.waits import until

V3, V5 = Version.V311, Version.V5
UNSPECIFIED = ReasonCode.UNSPECIFIED_ERROR


class Broken(FakeOverlay):
    """An overlay with planted faults: in what is published below `broken/`, and in every subscription of it."""

    def publish_run(self, client_id: str, run: object, done: object) -> int:
        return 0

    def publish(self, client_id: str, publication: Publication, done: Callable[[int], None]) -> bool:
        if publication.topic.startswith("broken/"):
            raise IndexError("tuple index out of range")
        return super().publish(client_id, publication, done)

    def filter_subscribed(self, topic_filter: str, wanted: object = None) -> bool:  # type: ignore[override]
        super().filter_subscribed(topic_filter, wanted)
        return not topic_filter.startswith("broken/")


def findings(broker: EdgeBroker) -> list[str]:
    """What `veilmq status` prints."""
    settings = parse({"listeners": LOOPBACK, "allow_anonymous": True})
    report = judge(_view(settings, None, broker, (), Certificates(), LinkWitness()))
    return [each.text for each in report.findings if each.key == "defects" and each.level == DEGRADED]


def ids(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.id for each in caplog.records if each.exc_info]  # type: ignore[attr-defined]


@on_loop
async def test_a_publication_that_the_overlay_fails_on_is_refused_and_the_client_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(overlay=Broken()) as broker:
        assert findings(broker) == []
        wire, reader = await Wire.connect(broker, "dev", V5), await Wire.connect(broker, "reader")
        await reader.subscribe("#")
        one, two = wire.publish("broken/1", b"1", 1), wire.publish("broken/2", b"2", 2)
        wire.publish("broken/3", b"3", 0)
        near = wire.publish("near/4", b"4", 1)
        assert await wire.barrier() == [PubAck(one, UNSPECIFIED), PubRec(two, UNSPECIFIED), PubAck(near)]
        assert await reader.published() == [("near/4", b"4")]
        assert broker.operation.observe().traffic.defects.count == 3
        assert ids(caplog) == ["publication_failed"]
        (said,) = findings(broker)
        assert said.startswith("3 internal errors since the start")


@on_loop
async def test_a_client_of_3_1_1_is_told_by_the_end_of_its_connection() -> None:
    async with serving(overlay=Broken()) as broker:
        wire, other = await Wire.connect(broker, "dev", V3), await Wire.connect(broker, "other", V3)
        wire.publish("broken/1", b"1", 1)
        assert await wire.closed() == []
        assert await other.barrier() == []
        assert broker.operation.observe().traffic.defects.count == 1


@on_loop
async def test_a_will_that_the_overlay_fails_on_is_for_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(overlay=Broken()) as broker:
        reader = await Wire.connect(broker, "reader")
        await reader.subscribe("#")
        wire = await Wire.connect(broker, "dev", V5, will=Will("broken/will", b"gone"))
        wire.cut()
        await until(lambda: broker.operation.observe().traffic.defects.count == 1)
        assert await reader.published() == []
        assert ids(caplog) == ["publication_failed"]


@on_loop
async def test_a_subscription_that_the_overlay_cannot_take_is_refused_and_taken_back() -> None:
    overlay = Broken()
    async with serving(overlay=overlay) as broker:
        wire, other = await Wire.connect(broker, "dev", V5), await Wire.connect(broker, "other", V5)
        wire.send(Subscribe(7, (Subscription("near/#", 1), Subscription("broken/#", 1))))
        assert (await wire.expect(SubAck)).codes == (UNSPECIFIED, UNSPECIFIED)
        assert sorted(overlay.filters) == ["+broken/#", "+near/#", "-broken/#", "-near/#"]
        other.publish("near/1", b"1", 1)
        await other.expect(PubAck)
        assert await wire.published() == []
        wire.send(Subscribe(8, (Subscription("near/#", 1),)))
        assert (await wire.expect(SubAck)).codes == (1,)


@pytest.mark.parametrize("where", ["session", "exchange", "subscribing"])
@on_loop
async def test_any_other_exception_ends_one_connection_with_its_reason_code(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*arguments: Any, **named: Any) -> None:
        raise RuntimeError("planted")

    async with serving() as broker:
        wire, other = await Wire.connect(broker, "dev", V5), await Wire.connect(broker, "other", V5)
        client = broker.lifecycle.clients["dev"]
        with monkeypatch.context() as patched:
            if where == "session":
                patched.setattr(type(client.session), "take_packets", fails)
            elif where == "exchange":
                patched.setattr(broker.exchange.delivery, "forward", fails)
            else:
                patched.setattr(broker.lifecycle.subscribing, "subscribe", fails)
            wire.send(Subscribe(7, (Subscription("near/#", 1),)))
            wire.publish("near/1", b"1", 1)
            answers = await wire.closed()
        (bye,) = [each for each in answers if isinstance(each, Disconnect)]
        assert (bye.code, await other.barrier()) == (UNSPECIFIED, [])
        assert ids(caplog) == ["connection_failed"]
        assert len(findings(broker)) == 1
        again = await Wire.connect(broker, "dev", V5)
        assert await again.barrier() == []


@on_loop
async def test_a_connect_that_we_fail_on_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> None:
        raise RuntimeError("planted")

    async with serving() as broker:
        monkeypatch.setattr(broker.lifecycle, "_begin_session", fails)
        for version in (V5, V3):
            wire = await Wire.open(broker, version)
            wire.send(Connect("dev", version))
            (answer,) = await wire.closed()
            assert isinstance(answer, ConnAck)
            assert answer.code == (UNSPECIFIED if version == V5 else 3)  # 3.1.1: the server is unavailable
        assert broker.operation.observe().traffic.defects.count == 2
