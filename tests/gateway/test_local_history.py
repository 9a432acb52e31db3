"""Histories of a broker without overlay, over real connections: what was comes first, then what is live, once each."""

from __future__ import annotations

import asyncio
import itertools
import signal
from pathlib import Path
from typing import Any

import pytest
from amqtt.plugins.base import BaseTopicPlugin

from gateway.base import StartError
from gateway.base.config import ConfigError, parse
from gateway.broker.edge_broker import EdgeBroker
from gateway.history import archive
from gateway.history.archive import Archive
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import (
    Properties,
    PubAck,
    Publish,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import LOOPBACK, Wire, on_loop, serving
from tests.gateway.history.test_keeper import refuse
from tests.gateway.test_durability import Broker
from tests.gateway.test_rights_first import come
from tests.gateway.test_rights_first import config as rights
from tests.gateway.test_rights_first import write as write_rights
from tests.support.files import edited
from tests.waits import until

KEPT = [{"filter": "plant/#", "days": 1, "gigabytes": 0.016}]


def config(directory: Path, **more: Any) -> dict[str, Any]:
    return {"data": str(directory), "history": KEPT, "sys_interval": 0, **more}


async def say(wire: Wire, numbers: Any, topic: str = "plant/a", qos: int = 1) -> None:
    for number in numbers:
        wire.publish(topic, b"%d" % number, qos)
    await wire.barrier()


async def take(wire: Wire, count: int) -> list[Publish]:
    """The next messages; those of QoS 1 are acknowledged."""
    messages: list[Publish] = []
    while len(messages) < count:
        packet = await wire.next()
        assert packet is not None, f"closed behind {len(messages)} messages"
        if isinstance(packet, Publish):
            messages.append(packet)
            if packet.qos == 1:
                wire.send(PubAck(packet.packet_id))
    return messages


def numbers(messages: list[Publish]) -> list[int]:
    return [int(message.payload) for message in messages]


def published(message: Publish) -> bool:
    """True for a message of the past, as MQTT 5 says it."""
    return "published" in dict(message.properties.user)


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@on_loop
async def test_the_past_comes_in_order_with_its_time_and_then_what_is_live(tmp_path: Path, version: Version) -> None:
    async with serving(config(tmp_path)) as broker:
        device = await Wire.connect(broker, "device")
        await say(device, range(5))
        await say(device, range(5, 8), topic="other/a")
        await say(device, range(8, 10), "plant/b", qos=0)
        late = await Wire.connect(broker, "late", version)
        assert await late.subscribe("$since/2h/plant/#", qos=1) == 1
        past = await take(late, 7)
        assert numbers(past) == [0, 1, 2, 3, 4, 8, 9]
        assert [message.qos for message in past] == [1] * 5 + [0] * 2
        if version == Version.V5:
            assert all(map(published, past))
        await until(lambda: not broker.exchange.history._rereading)  # type: ignore[union-attr]
        await say(device, [10])
        (live,) = await take(late, 1)
        assert live.payload == b"10"
        assert not published(live)


@on_loop
async def test_a_user_property_and_a_time_say_it_too(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        device, late = await Wire.connect(broker, "device"), await Wire.connect(broker, "late")
        await say(device, range(3))
        asked = Subscribe(1, (Subscription("plant/+", 0),), Properties(user=(("since", "1h"),)))
        late.send(asked)
        assert numbers(await take(late, 3)) == [0, 1, 2]
        assert await late.subscribe("$since/2099-01-01T00:00:00Z/plant/a") == 0
        assert await late.published() == []
        other = await Wire.connect(broker, "other")
        assert await other.subscribe("$since/2020-01-01T00:00:00Z/plant/a") == 0
        assert numbers(await take(other, 3)) == [0, 1, 2]


@on_loop
async def test_groups_and_what_is_no_time_are_refused_and_a_broker_without_history_refuses_all(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        wire = await Wire.connect(broker, "late")
        for refused in ("$share/g/$since/2h/plant/#", "$since/2h/$share/g/plant/#", "$since/never/plant/#"):
            assert await wire.subscribe(refused) == ReasonCode.TOPIC_FILTER_INVALID
    async with serving({"data": str(tmp_path / "other")}) as broker:
        wire = await Wire.connect(broker, "late")
        assert await wire.subscribe("$since/2h/plant/#") == ReasonCode.TOPIC_FILTER_INVALID


@on_loop
async def test_wills_predicates_expiry_and_no_local(tmp_path: Path) -> None:
    async with serving(config(tmp_path, subscriptions={"predicates": True})) as broker:
        will = Will("plant/will", b"7", 1, False)
        device = await Wire.connect(broker, "device", will=will)
        device.publish("plant/a", b"1", 1, properties={"message_expiry_s": 3600})
        device.publish("plant/a", b"2", 1, properties={"user": (("room", "hall"),)}, retain=True)
        await device.barrier()
        own = await Wire.connect(broker, "own")
        await say(own, [3])
        device.cut()
        await until(lambda: "device" not in broker.lifecycle.clients)
        assert await own.subscribe("$since/1h/plant/#", no_local=True, retain_handling=2) == 0
        past = await take(own, 3)
        assert numbers(past) == [1, 2, 7]
        assert 3500 < (past[0].properties.message_expiry_s or 0) <= 3600
        assert not past[1].retain
        some = await Wire.connect(broker, "some")
        assert await some.subscribe("$since/1h/plant/#?payload>2", retain_handling=2) == 0
        assert numbers(await take(some, 2)) == [3, 7]


@on_loop
async def test_what_expired_meanwhile_stays_away(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        device = await Wire.connect(broker, "device")
        device.publish("plant/a", b"1", 1, properties={"message_expiry_s": 60})
        await say(device, [2])
        history = broker.exchange.history
        assert history is not None
        now = history._clock
        history._clock = lambda: now() + 61
        late = await Wire.connect(broker, "late")
        await late.subscribe("$since/1h/plant/#")
        assert numbers(await take(late, 1)) == [2]


@on_loop
async def test_rights_are_asked_of_each_message(tmp_path: Path) -> None:
    """Attack: a user who may subscribe to a wide filter reads in the past what its rights hide live."""
    path = tmp_path / "security.json"
    write_rights(path, alice="topic readwrite #", eve="topic read public/#")
    kept = [{"filter": "+/level", "days": 1, "gigabytes": 0.016}]
    async with serving(rights(path, data=str(tmp_path / "data"), history=kept)) as broker:
        alice, eve = await come(broker, "alice"), await come(broker, "eve")
        await say(alice, [1, 2], "secret/level")
        await say(alice, [3], "public/level")
        assert await eve.subscribe("$since/1h/secret/level") == ReasonCode.NOT_AUTHORIZED
        assert await eve.subscribe("$since/1h/+/level") == 0
        assert numbers(await take(eve, 1)) == [3]
        assert await eve.published() == []


class Slow(BaseTopicPlugin):  # type: ignore[misc]
    """Decides behind a turn of the event loop, as plugins that ask a database do."""

    async def topic_filtering(self, *, session: Any = None, topic: str | None = None, action: Any = None) -> bool:
        await asyncio.sleep(0)
        return topic != "plant/secret"


@on_loop
async def test_plugins_that_take_their_time_are_asked_of_each_message(tmp_path: Path) -> None:
    async with serving(config(tmp_path, plugins={f"{__name__}.Slow": {}})) as broker:
        device = await Wire.connect(broker, "device")
        for number in range(10):
            name = "plant/secret" if number % 3 == 0 else "plant/a"
            broker.exchange.inject(Message(name, b"%d" % number, 1))
        await device.barrier()
        late = await Wire.connect(broker, "late")
        assert await late.subscribe("$since/1h/plant/#", qos=1) == 1
        assert numbers(await take(late, 6)) == [1, 2, 4, 5, 7, 8]
        await say(device, [10])
        assert numbers(await take(late, 1)) == [10]


@on_loop
async def test_the_past_survives_a_restart_and_a_history_that_is_configured_no_more_is_erased(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        await say(await Wire.connect(broker, "device"), range(4))
    texts = b"".join(path.read_bytes() for path in (tmp_path / "history").iterdir())
    assert b"plant/a" not in texts, "sealed at rest"
    async with serving(config(tmp_path)) as broker:
        await say(await Wire.connect(broker, "device"), range(4, 6))
        late = await Wire.connect(broker, "late")
        await late.subscribe("$since/1h/plant/#", qos=1)
        assert numbers(await take(late, 6)) == [0, 1, 2, 3, 4, 5]
    async with serving({"data": str(tmp_path)}):
        await until(lambda: not list((tmp_path / "history").glob("*.segment")))


@on_loop
async def test_a_publisher_that_fills_the_disk_loses_its_own_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: one user publishes without end, to push the publications of others out of the history."""
    monkeypatch.setattr(archive, "SEGMENT_BYTES", 1 << 20)
    path = tmp_path / "security.json"
    write_rights(path, alice="topic readwrite #", eve="topic readwrite #")
    async with serving(rights(path, data=str(tmp_path / "data"), history=KEPT)) as broker:
        alice, eve = await come(broker, "alice"), await come(broker, "eve")
        await say(alice, range(5))
        for number in range(40):
            eve.publish("plant/eve", b"%d" % number + b" " * 500_000)
            await eve.barrier()
        late = await come(broker, "alice", clean_start=True)
        assert await late.subscribe("$since/1h/plant/#", qos=1) == 1
        first = await take(late, 5 + 20)
        assert numbers(first)[:5] == [0, 1, 2, 3, 4]
        assert int(first[5].payload) > 5
        size = sum(file.stat().st_size for file in (tmp_path / "data" / "history").iterdir())
        assert size < 24_000_000


@on_loop
async def test_a_full_disk_stops_the_history_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(config(tmp_path)) as broker:
        device, live = await Wire.connect(broker, "device"), await Wire.connect(broker, "live")
        await live.subscribe("plant/#", qos=1)
        monkeypatch.setattr(Archive, "write", refuse)
        await say(device, range(3))
        assert numbers(await take(live, 3)) == [0, 1, 2]
        history = broker.exchange.history
        assert history is not None
        await until(lambda: history.lost == 3)
        assert "full" in history.history_states()[0].refused
        shown = {metric.name: metric for metric in broker.operation.collect()}
        assert shown["veilmq_history_lost"].samples[0].value == 3
        assert shown["veilmq_history_bytes"].samples[0].labels == {"scope": "plant/#"}


@pytest.mark.parametrize("page", [200, 1 << 14])
@on_loop
async def test_the_seam_under_load_has_neither_gap_nor_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Two publishers on one topic go on, while readers begin in the past; each reader gets what a live one gets, in
    the same order.
    """
    monkeypatch.setattr("gateway.history.local.PAGE_BYTES", page)
    async with serving(config(tmp_path)) as broker:
        history = broker.exchange.history
        assert history is not None
        devices = [await Wire.connect(broker, f"device{number}") for number in range(2)]
        live = await Wire.connect(broker, "live", Version.V311)
        await live.subscribe("plant/#", qos=1)
        counter = iter(range(400))

        async def publish(wire: Wire) -> None:
            while some := list(itertools.islice(counter, 5)):
                await say(wire, some)

        load = [asyncio.create_task(publish(device)) for device in devices]
        taking = [asyncio.create_task(take(live, 400))]
        for number, version in enumerate([Version.V311, Version.V5] * 2):
            await until(lambda least=40 * (1 + number): history._sequence > least)
            reader = await Wire.connect(broker, f"late{number}", version)
            await reader.subscribe("$since/1h/plant/#", qos=1)
            taking.append(asyncio.create_task(take(reader, 400)))
        taken = await asyncio.gather(*taking)
        await asyncio.gather(*load)
        whole = numbers(taken[0])
        assert len(set(whole)) == 400
        for each in taken[1:]:
            assert numbers(each) == whole
        past = [published(message) for message in taken[2]]
        assert past == sorted(past, reverse=True), "what was comes before what is live"
        assert 40 < sum(past) < 400


async def read(broker: Broker, name: str, into: list[int]) -> None:
    """Has a client read the past."""
    reader = broker.client(name)
    reader.on_publish = lambda message: into.append(int(message.payload))
    await reader.connect()
    reader.subscribe("$since/1h/plant/#", 1, on_answer=lambda _: None)


@on_loop
async def test_kill_9_leaves_an_unbroken_beginning(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    with edited(tmp_path / "edge.yaml") as content:
        content["history"] = KEPT
    await broker.start()
    device, early, got = broker.client("device"), list[int](), list[int]()
    await device.connect()
    for number in range(600):
        device.publish("plant/a", b"%d" % number, 1)
    await until(lambda: device.load == (0, 0, 0))
    await read(broker, "early", early)
    await until(lambda: len(early) == 600)  # from the disk, so that they are there
    for number in range(600, 900):
        device.publish("plant/a", b"%d" % number, 1)
    await until(lambda: device.load != (0, 0, 0))
    broker.end(signal.SIGKILL)
    await device.close()
    await broker.start()
    await read(broker, "late", got)
    await until(lambda: len(got) >= 600)
    assert got == list(range(len(got)))
    broker.end(signal.SIGTERM)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"history": [*KEPT, {"filter": "plant/a", "days": 1, "gigabytes": 1}]}, "have topics in common"),
        ({"history": [{"filter": "$SYS/#", "days": 1, "gigabytes": 1}]}, "begins with $"),
        ({"history": [{"filter": "a/#/b", "days": 1, "gigabytes": 1}]}, "history.0.filter"),
        ({"history": [{"filter": "a/#", "days": 0, "gigabytes": 1}]}, "history.0.days"),
        ({"history": [{"filter": "a/#", "days": 1, "gigabytes": 0.001}]}, "history.0.gigabytes"),
        ({"history": KEPT, "overlay": {"identity": "id", "overlay": "o.json"}}, "the owner gives scopes a history"),
    ],
)
def test_a_history_that_makes_no_sense_is_refused_in_one_line(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace("$", r"\$")) as refused:
        parse({"data": "data", **said})
    assert "\n" not in str(refused.value)


@on_loop
async def test_a_history_without_a_directory_is_refused_at_the_start() -> None:
    broker = EdgeBroker(parse({"history": KEPT, "listeners": LOOPBACK}))
    with pytest.raises(StartError, match="give --data"):
        await broker.start()
