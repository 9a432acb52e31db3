"""Bridges in pairs and rings: nothing circles, and every subscriber gets each message once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from gateway import bridged as module
from gateway.attached import Attached
from gateway.base import BridgeSettings, parse
from gateway.bridged import make_bridges
from gateway.bridging import Bridge
from gateway.bridging import retained as retained_state
from gateway.broker import EdgeBroker
from gateway.client import redial
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Connect, PubAck, Publish, PubRec, Version, Will
from gateway.mqtt5.types import MqttError, ReasonCode
from gateway.sockets.connection import MqttConnection
from tests.gateway.harness import Wire, on_loop, serving
from tests.ports import free_ports
from tests.waits import until

LAST = b"last"
ROUNDS = 4
"""Messages that follow the one looked at, each when all have the former: a circle would have turned as often."""
STRANGE = "3.1.1 between strangers"
VERSIONS = ["5", "3.1.1", STRANGE]
"""How two of ours are bridged. Over 3.1.1 they find each other and speak MQTT 5, unless they are strangers."""
DIRECTIONS = [("out", "out"), ("in", "in"), ("both", "both"), ("both", "out"), ("both", "in")]


def toward(port: int, direction: str, version: str = "5", qos: int = 1, **more: Any) -> BridgeSettings:
    topic = {"filter": "x/#", "direction": direction, "qos": qos}
    return BridgeSettings.model_validate(
        {"addresses": [f"127.0.0.1:{port}"], "version": version.partition(" ")[0], "topics": [topic], **more}
    )


@contextlib.asynccontextmanager
async def broker_for(version: str, config: dict[str, Any] | None = None) -> AsyncIterator[EdgeBroker]:
    """A broker of ours; for STRANGE one that behaves as of others: it refuses the level of our own bridges."""
    async with serving(config) as broker:
        admit = broker.lifecycle._admit

        def strict(connection: MqttConnection, connect: Connect) -> str | None:
            if connect.is_kin:
                raise MqttError("no such level", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)
            return admit(connection, connect)

        if version == STRANGE:
            broker.lifecycle._admit = strict  # type: ignore[method-assign]
        yield broker


async def bridged(
    stack: contextlib.AsyncExitStack, broker: EdgeBroker, name: str, data: Path | None = None, **ways: BridgeSettings
) -> list[Bridge]:
    bridges = make_bridges(ways, broker, None, name, data)
    for each in bridges:
        each.start()
        stack.push_async_callback(each.stop)
    return bridges


async def up(bridges: list[Bridge]) -> None:
    """All are connected, at both ends, and their filters are known."""

    def is_subscribed(bridge: Bridge) -> bool:
        wishes = [wish for end in (bridge._local, bridge._remote) for wish in end._wanted._wanted.values()]
        return all(wish.code is not None for wish in wishes)

    await until(lambda: all(one.standing().up and one._local.connected and is_subscribed(one) for one in bridges))


class Watcher:
    """A subscriber that notes what comes."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.packets: list[Publish] = []

    @classmethod
    async def at(cls, broker: EdgeBroker, topic_filter: str = "x/#", version: Version = Version.V5) -> Watcher:
        wire = await Wire.connect(broker, version=version)
        await wire.subscribe(topic_filter, 2)
        return cls(wire)

    @property
    def seen(self) -> list[bytes]:
        return [one.payload for one in self.packets]

    async def until(self, payload: bytes) -> None:
        async with asyncio.timeout(60):
            while payload not in self.seen:
                some = [packet for packet in await self.wire.barrier() if isinstance(packet, Publish)]
                self.packets += some
                answers = [PubAck(one.packet_id) if one.qos == 1 else PubRec(one.packet_id) for one in some if one.qos]
                self.wire.send(*answers)


async def got(broker: EdgeBroker, *watchers: Watcher) -> list[list[bytes]]:
    """Payloads that each got; what circles had time to turn."""
    for number in range(ROUNDS):
        payload = LAST + b"%d" % number
        await published(broker, payload, 1)
        for each in watchers:
            await each.until(payload)
    return [[payload for payload in each.seen if not payload.startswith(LAST)] for each in watchers]


async def published(broker: EdgeBroker, payload: bytes, qos: int, retain: bool = False) -> None:
    wire = await Wire.connect(broker)
    wire.publish("x/1", payload, qos, retain=retain)
    await wire.barrier()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("directions", DIRECTIONS)
@on_loop
async def test_two_brokers_with_a_bridge_to_each_other_pass_each_message_once(
    directions: tuple[str, str], version: str
) -> None:
    async with broker_for(version) as a, broker_for(version) as b, contextlib.AsyncExitStack() as stack:
        first = await bridged(stack, a, "a", b=toward(b.port("default"), directions[0], version))
        second = await bridged(stack, b, "b", a=toward(a.port("default"), directions[1], version))
        await up(first + second)
        at_a, at_b = await Watcher.at(a), await Watcher.at(b)
        shared = await Watcher.at(b, "$share/g/x/#")
        for qos in (0, 1):
            await published(a, b"%d" % qos, qos, retain=bool(qos))
        assert await got(a, at_a, at_b, shared) == [[b"0", b"1"]] * 3


@on_loop
async def test_a_will_and_qos_2_pass_once_too() -> None:
    async with serving() as a, serving() as b, contextlib.AsyncExitStack() as stack:
        first = await bridged(stack, a, "a", b=toward(b.port("default"), "both", qos=2))
        second = await bridged(stack, b, "b", a=toward(a.port("default"), "both", qos=2))
        await up(first + second)
        at_a, at_b = await Watcher.at(a), await Watcher.at(b)
        dying = await Wire.connect(a, "dying", will=Will("x/will", b"gone", 1))
        dying.publish("x/1", b"2", 2)
        await dying.barrier()
        dying.cut()
        assert await got(a, at_a, at_b) == [[b"2", b"gone"]] * 2


@pytest.mark.parametrize("versions", [("5",) * 3, ("5", STRANGE, "5"), ("5", "3.1.1", "5"), (STRANGE,) * 3])
@pytest.mark.parametrize("direction", ["out", "in", "both"])
@on_loop
async def test_a_ring_of_three_ends_where_it_began(direction: str, versions: tuple[str, str, str]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        ring = [await stack.enter_async_context(broker_for(STRANGE if STRANGE in versions else "")) for _ in range(3)]
        a, bridges = ring[0], list[Bridge]()
        for number, broker in enumerate(ring):
            following = ring[(number + 1) % 3].port("default")
            bridges += await bridged(stack, broker, "abc"[number], n=toward(following, direction, versions[number]))
        await up(bridges)
        watchers = [await Watcher.at(broker) for broker in ring]
        await published(a, b"once", 1)
        found = await got(a, *watchers)
        if direction == "both" and len(set(versions)) > 1:
            # It comes by both sides, and by one of them without marks: it ends, and somebody may get it twice.
            found = [each[:1] if len(each) == 2 else each for each in found]
        assert found == [[b"once"]] * 3


@pytest.mark.parametrize("retain", [False, True])
@on_loop
async def test_a_ring_through_a_broker_that_looks_at_no_marks_brings_each_message_once(retain: bool) -> None:
    async with serving() as a, serving() as b, serving() as foreign, contextlib.AsyncExitStack() as stack:
        port = foreign.port("default")
        bridges = await bridged(stack, b, "b", f=toward(port, "both"))
        bridges += await bridged(stack, a, "a", f=toward(port, "both"), b=toward(b.port("default"), "both"))
        await up(bridges)
        watchers = [await Watcher.at(each) for each in (a, b, foreign)]
        for number, broker in enumerate((a, b, foreign)):
            await published(broker, b"%d" % number, 1, retain)
        assert [sorted(each) for each in await got(a, *watchers)] == [[b"0", b"1", b"2"]] * 3


@pytest.mark.parametrize("version", VERSIONS)
@on_loop
async def test_two_bridges_to_one_broker_bring_each_message_once(version: str) -> None:
    async with broker_for(version) as a, broker_for(version) as b, contextlib.AsyncExitStack() as stack:
        port = b.port("default")
        both: dict[str, Any] = {"l1": toward(port, "both", version), "l2": toward(port, "both", version)}
        await up(await bridged(stack, a, "a", **both))
        at_a, at_b = await Watcher.at(a), await Watcher.at(b)
        await published(a, b"from a", 1)
        await published(b, b"from b", 1)
        assert [sorted(each) for each in await got(a, at_a, at_b)] == [[b"from a", b"from b"]] * 2


@on_loop
async def test_equal_messages_of_one_publisher_all_pass_a_pair_and_a_chain() -> None:
    async with contextlib.AsyncExitStack() as stack:
        a, b, c = [await stack.enter_async_context(broker_for(STRANGE)) for _ in range(3)]
        first = await bridged(stack, a, "a", b=toward(b.port("default"), "out", "3.1.1"))
        second = await bridged(stack, b, "b", c=toward(c.port("default"), "out", "3.1.1"))
        await up(first + second)
        at_c = await Watcher.at(c)
        for _ in range(5):
            await published(a, b"the same", 1)
        assert await got(a, at_c) == [[b"the same"] * 5]
    async with broker_for(STRANGE) as a, broker_for(STRANGE) as b, contextlib.AsyncExitStack() as stack:
        first = await bridged(stack, a, "a", b=toward(b.port("default"), "both", "3.1.1"))
        second = await bridged(stack, b, "b", a=toward(a.port("default"), "both", "3.1.1"))
        await up(first + second)
        at_a, at_b = await Watcher.at(a), await Watcher.at(b)
        for _ in range(3):
            await published(a, b"toggle", 1)
        assert await got(a, at_a, at_b) == [[b"toggle"] * 3] * 2


@contextlib.asynccontextmanager
async def mosquitto(directory: Path) -> AsyncIterator[int]:
    (port,), conf = free_ports(1), directory / "m.conf"
    conf.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n")
    process = subprocess.Popen(["mosquitto", "-c", str(conf)], stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.mark.tools
@pytest.mark.skipif(shutil.which("mosquitto") is None, reason="no mosquitto here; make tools")
@pytest.mark.parametrize("version", ["5", "3.1.1"])
@on_loop
async def test_a_ring_through_mosquitto_ends(version: str, tmp_path: Path) -> None:
    """a -> Mosquitto -> b -> a: over 3.1.1 no mark comes through."""
    async with (
        mosquitto(tmp_path) as foreign, serving() as a, serving() as b, contextlib.AsyncExitStack() as stack,
    ):  # fmt: skip
        out = await bridged(stack, a, "a", m=toward(foreign, "out", version))
        ways: dict[str, Any] = {"m": toward(foreign, "in", version), "a": toward(a.port("default"), "out", version)}
        await up(out + await bridged(stack, b, "b", **ways))
        at_a, at_b = await Watcher.at(a), await Watcher.at(b)
        for number in range(3):
            await published(a, b"%d" % number, 1)
        assert await got(a, at_a, at_b) == [[b"0", b"1", b"2"]] * 2


@on_loop
async def test_a_broker_of_3_1_1_without_private_bridges_echoes_and_the_echo_ends() -> None:
    async with serving() as a, serving() as b, contextlib.AsyncExitStack() as stack:
        plain = toward(b.port("default"), "both", "3.1.1", try_private=False)
        await up(await bridged(stack, a, "a", b=plain))
        at_a, at_b = await Watcher.at(a), await Watcher.at(b)
        for payload in (b"same", b"same", b"other"):
            await published(a, payload, 1)
        await published(b, b"theirs", 1)
        assert [sorted(each) for each in await got(a, at_a, at_b)] == [[b"other", b"same", b"same", b"theirs"]] * 2


class Tracing:
    """What a broker that traces says of constrained topics, as far as a bridge comes to it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def publishing(self, client_id: str, publish: Publish) -> bool:
        self.asked.append(publish.topic)
        return True

    def take_accepted(self, client_id: str, publish: Publish) -> bool:
        return False

    def take_arrival(self, publication: Any) -> bool:
        return False

    def admit(self, topic: str, client_id: str, *, publishes: bool) -> tuple[str, bool]:
        return topic, True

    def entity_event(self, event: Any) -> None: ...
    def ending(self) -> None: ...


@pytest.mark.parametrize("name", ["Constrained/Traces/Broker/SubscribeOnly/Suppress/Registration", "/Constrained/x"])
@on_loop
async def test_words_on_constrained_topics_of_an_ordinary_broker_are_not_taken_for_the_bridges_own(name: str) -> None:
    async with serving() as a, serving() as b, contextlib.AsyncExitStack() as stack:
        tracing = a.exchange.tracing = Tracing()  # type: ignore[assignment]
        everything = [{"filter": "#", "direction": "in"}, {"filter": "/#", "direction": "in"}]
        settings = BridgeSettings.model_validate(
            {"addresses": [f"127.0.0.1:{b.port('default')}"], "topics": everything}
        )
        await up(await bridged(stack, a, "a", b=settings))
        at_a, evil = await Watcher.at(a, "#"), await Wire.connect(b)
        for number in range(30):
            evil.publish(name, b"garbage", number % 2)
        evil.publish("x/1", b"good", 1)
        await evil.barrier()
        await at_a.until(b"good")
        assert at_a.seen == [b"good"]
        assert tracing.asked == ["x/1"]


def kept(broker: EdgeBroker) -> dict[str, bytes]:
    return {message.topic: message.payload for message in broker.exchange.retained.matching("#", broker.now())}


async def retain(broker: EdgeBroker, **values: bytes) -> None:
    """Values under the topics DIRECTION/NAME, written as direction_name, at QoS 0 and 1."""
    wire = await Wire.connect(broker)
    for name, payload in values.items():
        for qos in (0, 1):
            wire.publish(f"{name.replace('_', '/')}{qos}", payload, qos, retain=True)
    await wire.barrier()


@pytest.mark.parametrize("version", VERSIONS)
@on_loop
async def test_after_a_cut_both_have_the_same_retained_values_and_a_new_broker_gets_all(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained_state, "QUIET_S", 0.1)
    topics = [{"filter": f"{one}/#", "direction": one} for one in ("out", "in", "both")]
    async with serving() as a, contextlib.AsyncExitStack() as stack:
        async with broker_for(version) as b:
            port = b.port("default")
            settings = BridgeSettings.model_validate(
                {"addresses": [f"127.0.0.1:{port}"], "version": version.partition(" ")[0], "topics": topics}
            )
            bridges = await bridged(stack, a, "a", b=settings)
            await up(bridges)
            await retain(a, out_x=b"1", out_gone=b"1", both_a=b"1", both_gone=b"1")
            await retain(b, in_x=b"1", in_gone=b"1", both_b=b"1")
            await until(lambda: kept(a) == kept(b) and len(kept(a)) == 14)
            addresses, bridges[0]._remote._redial.address = bridges[0]._remote._redial.address, ("127.0.0.1", 9)
            own = bridges[0]._remote._redial._own
            bridges[0]._remote._redial._own = ("127.0.0.1", 9)
            bridges[0]._remote._out.transport.abort()  # type: ignore[union-attr]
            await until(lambda: not bridges[0]._local.connected)
            await retain(a, out_x=b"2", out_gone=b"", both_a=b"2", both_gone=b"")
            await retain(b, in_x=b"2", in_gone=b"", both_b=b"2")
            bridges[0]._remote._redial._own, bridges[0]._remote._redial.address = own, addresses
            expected = {f"{name}{qos}": b"2" for name in ("out/x", "in/x", "both/a", "both/b") for qos in (0, 1)}
            await until(lambda: kept(a) == kept(b) == expected)
        config = {"listeners": {"default": {"bind": f"127.0.0.1:{port}"}}}
        async with serving(config) as anew:
            sent = {topic: payload for topic, payload in expected.items() if topic[0] != "i"}
            await until(lambda: kept(anew) == sent)
            await until(lambda: bridges[0]._state.ends_at is None)
            assert kept(a) == expected, "a broker that began anew says nothing by what it lacks"


@pytest.mark.parametrize(("version", "qos"), [(STRANGE, 1), (STRANGE, 2), ("5", 1), ("5", 2)])
@on_loop
async def test_a_message_too_large_for_the_other_broker_is_kept_in_a_file_and_stops_nothing(
    version: str, qos: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(redial, "RETRY_FIRST_S", 0.01)
    small = {"limits": {"packet_bytes": 2_048}}
    async with serving() as a, broker_for(version, small) as b, contextlib.AsyncExitStack() as stack:
        bridges = await bridged(stack, a, "a", tmp_path, m=toward(b.port("default"), "out", version, qos))
        await up(bridges)
        at_b = await Watcher.at(b)
        for payload in (b"before", b"B" * 5_000, b"after"):
            await published(a, payload, qos)
        await at_b.until(b"after")
        assert at_b.seen == [b"before", b"after"]
        lines = (tmp_path / "refused" / "m.jsonl").read_text().splitlines()
        assert [(json.loads(line)["topic"], len(json.loads(line)["payload"])) for line in lines] == [("x/1", 6_668)]
        assert bridges[0].standing().refused == 1
        assert "5000 bytes" in caplog.text


@pytest.mark.parametrize(("version", "qos"), [("3.1.1", 0), ("3.1.1", 1), ("3.1.1", 2), ("5", 0), ("5", 1), ("5", 2)])
@on_loop
async def test_a_bridge_with_packet_bytes_sends_nothing_larger(version: str, qos: int, tmp_path: Path) -> None:
    async with serving() as a, serving() as b, contextlib.AsyncExitStack() as stack:
        way = toward(b.port("default"), "out", version, qos, packet_bytes=2_048)
        (bridge,) = await bridged(stack, a, "a", tmp_path, m=way)
        await up([bridge])
        at_b = await Watcher.at(b)
        for payload in (b"before", b"B" * 2_049, b"after"):
            await published(a, payload, qos)
        await at_b.until(b"after")
        assert at_b.seen == [b"before", b"after"]
        standing = bridge.standing()
        assert (standing.sent, standing.refused, bridge._remote.figures.connections) == (2, 1, 1)
        assert len((tmp_path / "refused" / "m.jsonl").read_text().splitlines()) == 1


def test_refused_messages_fill_two_files_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFUSED_BYTES", 1_000)
    home = module.BridgesHome(cast(Any, None), None, tmp_path)
    for _ in range(20):
        home.keep_refused("a/b", Publish("t", b"x" * 100), 0x95)
    files = sorted((tmp_path / "refused").iterdir())
    assert [path.name for path in files] == ["a%2Fb.former", "a%2Fb.jsonl"]
    assert all(path.stat().st_size <= 1_000 and path.stat().st_mode & 0o777 == 0o600 for path in files)
    assert "no data directory" in module.BridgesHome(cast(Any, None), None).keep_refused("m", Publish("t", b""), 0x95)


@on_loop
async def test_a_client_of_the_first_moment_finds_bridges_subscribed(tmp_path: Path) -> None:
    (nobody,) = free_ports(1)
    topics = [{"filter": f"{one}/#", "direction": "out", "qos": 1} for one in ("x", "y", "z")]
    config = {
        "data": str(tmp_path / "data"),
        "bridges": {"cloud": {"addresses": [f"127.0.0.1:{nobody}"], "topics": topics}},
    }
    attached = Attached(parse({"listeners": {"default": {"bind": "127.0.0.1:0"}}, **config}), None)
    try:
        async with serving(config, before_serving=attached.begin_parts) as broker:
            session = broker.lifecycle.clients["$veilmq/bridge/cloud"].session
            broker.exchange.delivery.route(Message("z/first", b"1", 1), None)
            assert len(session.waiting) + len(session.outbound.unacknowledged) == 1
            await until(lambda: not attached._bridges[0]._local.connected)
            broker.exchange.delivery.route(Message("x/second", b"2", 1), None)
            assert len(session.waiting) + len(session.outbound.unacknowledged) == 2
    finally:
        await attached.end_parts()
