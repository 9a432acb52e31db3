"""Rights to topics of receipts: who may publish on a topic may hear of it, and only the broker publishes there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.contract import HadRecord, ReceiptCame
from gateway.auth import dynamic
from gateway.base import RECEIPTS_ROOT
from gateway.broker.edge_broker import EdgeBroker
from gateway.mqtt5.packets import PubAck, Publish, PubRec, Version, Will
from gateway.mqtt5.types import ReasonCode
from gateway.overlay.receipt_topics import receipts_told
from tests.gateway.harness import Wire, on_loop, serving
from tests.gateway.test_rights_first import change, come, config, write
from tests.waits import until

REFUSED = ReasonCode.NOT_AUTHORIZED
HERS, OTHERS = f"{RECEIPTS_ROOT}plant/valve", f"{RECEIPTS_ROOT}plant/pump"
RIGHTS = {"ann": "topic readwrite #", "eve": "topic read #;topic read $veilmq/#;topic write plant/valve"}
NAMES = [HERS, OTHERS, RECEIPTS_ROOT[:-1], f"{RECEIPTS_ROOT}#"]
"""Topics below which a subscriber of receipts hears."""


def tell(broker: EdgeBroker, *topics: str) -> None:
    """Tells local clients that a reader had a message on each topic, as the overlay does."""
    records = tuple(HadRecord(number, topic, b"order", 5) for number, topic in enumerate(topics, 1))
    came = ReceiptCame("lab", 9, 1, len(topics), b"", records)
    for told in receipts_told(came, broker.local.local_filters()):
        broker.local.deliver_local(told)


@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@pytest.mark.parametrize(
    "asked",
    [
        OTHERS,
        f"{RECEIPTS_ROOT}+/pump",
        f"{RECEIPTS_ROOT}plant/+",
        f"{RECEIPTS_ROOT}plant/#",
        f"{RECEIPTS_ROOT}#",
        "$veilmq/+/plant/pump",
        "$veilmq/#",
        f"$share/g/{OTHERS}",
        f"$share/g/{RECEIPTS_ROOT}#",
        f"$since/PT1H/{OTHERS}",
    ],
)
@on_loop
async def test_who_may_not_publish_on_a_topic_hears_none_of_its_receipts(
    tmp_path: Path, asked: str, version: Version
) -> None:
    """Attack: a reader of everything asks for receipts of others, by each kind of filter."""
    path = tmp_path / "security.json"
    write(path, **RIGHTS)
    async with serving(config(path)) as broker:
        ann, eve = await come(broker, "ann", version), await come(broker, "eve", version)
        assert await ann.subscribe(f"{RECEIPTS_ROOT}#", 1) == 1
        await eve.subscribe(asked, 1)
        tell(broker, "plant/pump")
        assert [topic for topic, _ in await ann.published()] == [OTHERS]
        assert await eve.published() == []
        tell(broker, "plant/valve")
        heard = [topic for topic, _ in await eve.published()]
        assert heard in ([], [HERS])


@on_loop
async def test_the_code_of_each_filter_of_receipts(tmp_path: Path) -> None:
    path = tmp_path / "security.json"
    write(path, eve="topic read #;topic write plant/valve;topic write own/#")
    async with serving(config(path)) as broker:
        eve = await come(broker, "eve")
        for asked in (OTHERS, f"{RECEIPTS_ROOT}#", f"{RECEIPTS_ROOT}+/valve", f"{RECEIPTS_ROOT}plant/#"):
            assert await eve.subscribe(asked, 1) == REFUSED, asked
            assert await eve.subscribe(f"$share/g/{asked}", 1) == REFUSED, asked
        for asked in (HERS, f"$share/g/{HERS}", f"{RECEIPTS_ROOT}own/#", f"{RECEIPTS_ROOT}own/+"):
            assert await eve.subscribe(asked, 1) == 1, asked


@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@on_loop
async def test_a_right_to_publish_that_ends_ends_its_receipts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: Version
) -> None:
    monkeypatch.setattr(dynamic, "LOOK_S", 0.01)
    path = tmp_path / "security.json"
    write(path, **RIGHTS)
    async with serving(config(path)) as broker:
        eve = await come(broker, "eve", version)
        assert await eve.subscribe(HERS, 1) == 1
        tell(broker, "plant/valve")
        assert [topic for topic, _ in await eve.published()] == [HERS]
        await change(broker, path, eve="topic read #;topic read $veilmq/#")
        tell(broker, "plant/valve")
        assert await eve.published() == []


@pytest.mark.parametrize("topic", NAMES[:3])
@pytest.mark.parametrize("retain", [False, True])
@on_loop
async def test_nobody_but_the_broker_publishes_there(topic: str, retain: bool) -> None:
    """Attack: a client without any bound on its rights forges a receipt, in each way in which MQTT publishes."""
    async with serving() as broker:
        device = await Wire.connect(broker, "device")
        assert await device.subscribe(f"{RECEIPTS_ROOT}#", 1) == 1
        eve, old = await Wire.connect(broker, "eve"), await Wire.connect(broker, "old", Version.V311)
        eve.publish(topic, b"forged", 0, retain=retain)
        eve.publish(topic, b"forged", 1, retain=retain)
        assert (await eve.expect(PubAck)).code == REFUSED
        eve.publish(topic, b"forged", 2, retain=retain)
        assert (await eve.expect(PubRec)).code == REFUSED
        eve.publish(topic, b"forged", 1, retain=retain, properties={"topic_alias": 1})
        assert (await eve.expect(PubAck)).code == REFUSED
        eve.publish("", b"forged", 1, retain=retain, properties={"topic_alias": 1})
        assert (await eve.expect(PubAck)).code == REFUSED
        old.publish(topic, b"forged", 0, retain=retain)
        old.publish(topic, b"forged", 1, retain=retain)
        await old.expect(PubAck)  # 3.1.1 has no word for a refusal
        old.publish(topic, b"forged", 2, retain=retain)
        assert (await old.expect(PubRec)).packet_id
        for version in (Version.V5, Version.V311):
            will = Will(topic, b"forged", 1, retain)
            dying = await Wire.connect(broker, f"dying-{version}", version, will=will)
            dying.cut()
            await until(lambda name=f"dying-{version}": not dict(broker.clients()).get(name))
        assert await device.published() == []
        late = await Wire.connect(broker, "late")
        assert await late.subscribe(f"{RECEIPTS_ROOT}#", 1) == 1
        assert await late.published() == []


@on_loop
async def test_a_filter_of_the_whole_root_hears_receipts() -> None:
    async with serving() as broker:
        device = await Wire.connect(broker, "device")
        for asked in ("$veilmq/#", "$veilmq/+/plant/valve"):
            await device.subscribe(asked, 1)
            tell(broker, "plant/valve")
            (message,) = [each for each in await device.barrier() if isinstance(each, Publish)]
            assert (message.topic, message.properties.correlation_data, message.retain) == (HERS, b"order", False)
            device.send(PubAck(message.packet_id))


@on_loop
async def test_the_longest_topic_leaves_the_client_connected() -> None:
    """Attack: a topic of 65,535 bytes, with the root before it, is none that MQTT can carry."""
    async with serving() as broker:
        device = await Wire.connect(broker, "device")
        await device.subscribe(f"{RECEIPTS_ROOT}#", 1)
        tell(broker, "a" * 65_535, "/" * 65_000, "plant/valve")
        assert [topic for topic, _ in await device.published()] == [HERS]
