"""Bridges that are to speak 3.1.1, in rings: two brokers of ours find each other and speak MQTT 5, a broker of others
in the ring does not. Each subscriber gets each message once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from amqtt.adapters import BufferReader
from amqtt.mqtt.connect import ConnectPacket

from gateway.bridging import Bridge
from gateway.broker import EdgeBroker
from gateway.mqtt5.bridge_clients import KIN, MARK
from gateway.mqtt5.encoding import encode
from gateway.mqtt5.packets import KIN_LEVEL, Connect, Properties, Version, Will
from tests.gateway.harness import Wire, on_loop, serving
from tests.gateway.test_bridged import STRANGE, Watcher, bridged, broker_for, got, published, toward, up

OLD = "3.1.1"
EDGES = [(OLD, OLD, OLD), ("5", OLD, OLD), (OLD, "5", OLD), (OLD, OLD, "5"), ("5", "5", OLD)]
"""Versions of the configuration: from a to the broker of others, from b to it, from a to b."""


@on_loop
async def test_a_veilmq_with_or_without_bridges_says_to_its_kin_what_it_is() -> None:
    async with serving() as plain, serving() as b, contextlib.AsyncExitStack() as stack:
        await bridged(stack, b, "b")
        for broker, told in ((plain, (KIN,)), (b, (KIN, (MARK, "b")))):
            wire = await Wire.connect(broker, is_kin=True, properties={"user": ((MARK, "a"),)})
            assert wire.connack is not None
            assert wire.connack.properties.user == told


@on_loop
async def test_a_broker_that_parses_before_it_looks_at_the_level_waits_for_no_more_bytes() -> None:
    offer = Properties(session_expiry_s=60, receive_maximum=256, user=((MARK, "a"),))
    data = encode(Connect("site-m", Version.V5, False, 60, "u", b"p", properties=offer, is_kin=True), Version.V5)
    packet = await ConnectPacket.from_stream(BufferReader(data))
    assert (packet.proto_level, packet.client_id, packet.username) == (KIN_LEVEL, "site-m", "u")


@on_loop
async def test_a_link_of_3_1_1_between_two_of_ours_speaks_mqtt_5_and_carries_properties() -> None:
    async with serving() as a, serving() as b, contextlib.AsyncExitStack() as stack:
        (bridge,) = await bridged(stack, a, "a", b=toward(b.port("default"), "both", OLD))
        await up([bridge])
        assert bridge._remote.has_marks
        at_b, writer = await Watcher.at(b), await Wire.connect(a)
        writer.publish("x/1", b"rich", 1, properties={"user": (("unit", "K"),), "message_expiry_s": 60})
        await at_b.until(b"rich")
        (one,) = [each for each in at_b.packets if each.payload == b"rich"]
        assert ("unit", "K") in one.properties.user
        assert one.properties.message_expiry_s == 60


@contextlib.asynccontextmanager
async def ring(versions: tuple[str, str, str], twice: bool = False) -> AsyncIterator[tuple[EdgeBroker, ...]]:
    """A ring of two brokers of ours and one of others. `twice`: with two links between ours."""
    to_a, to_b, ours = versions
    async with serving() as a, serving() as b, broker_for(STRANGE) as f, contextlib.AsyncExitStack() as stack:
        port = f.port("default")
        bridges = await bridged(stack, b, "b", f=toward(port, "both", to_b, 2))
        link = toward(b.port("default"), "both", ours, 2)
        links = {"b": link, "b2": link} if twice else {"b": link}
        bridges += await bridged(stack, a, "a", f=toward(port, "both", to_a, 2), **links)
        await up(bridges)
        yield a, b, f


async def dead(broker: EdgeBroker, payload: bytes) -> None:
    """A client that leaves a will."""
    dying = await Wire.connect(broker, "dying", will=Will("x/will", payload, 1))
    dying.cut()


@pytest.mark.parametrize("versions", EDGES)
@on_loop
async def test_a_ring_with_a_broker_of_others_brings_each_message_once(versions: tuple[str, str, str]) -> None:
    async with ring(versions) as brokers:
        watchers = [
            await Watcher.at(each, version=version) for each in brokers for version in (Version.V5, Version.V311)
        ]
        watchers += [await Watcher.at(each, "$share/g/x/#") for each in brokers]
        for broker, name in zip(brokers, "abf", strict=True):
            for qos in (0, 1, 2):
                await published(broker, f"{name}{qos}".encode(), qos)
            await published(broker, f"{name}r".encode(), 1, retain=True)
            await dead(broker, f"{name}w".encode())
        found = await got(brokers[0], *watchers)
    expected = sorted(f"{name}{what}".encode() for name in "abf" for what in "012rw")
    assert [sorted(each) for each in found] == [expected] * len(watchers)


@pytest.mark.parametrize("versions", EDGES)
@on_loop
async def test_two_links_for_redundancy_in_a_ring_bring_each_message_once(versions: tuple[str, str, str]) -> None:
    async with ring(versions, twice=True) as brokers:
        watchers = [await Watcher.at(each) for each in brokers]
        for broker, name in zip(brokers, "abf", strict=True):
            for qos in (0, 1, 2):
                await published(broker, f"{name}{qos}".encode(), qos, retain=qos == 1)
        found = await got(brokers[0], *watchers)
    expected = sorted(f"{name}{what}".encode() for name in "abf" for what in "012")
    assert [sorted(each) for each in found] == [expected] * 3


@pytest.mark.parametrize("direction", ["out", "in", "both"])
@on_loop
async def test_a_ring_of_three_of_ours_over_3_1_1_ends_by_marks_however_long_a_turn_takes(
    direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.bridging.circles.TWIN_S", -1.0)
    monkeypatch.setattr("gateway.bridging.twins.TWIN_S", -1.0)
    async with serving() as a, serving() as b, serving() as c, contextlib.AsyncExitStack() as stack:
        brokers, bridges = [a, b, c], list[Bridge]()
        for number, broker in enumerate(brokers):
            following: Any = toward(brokers[(number + 1) % 3].port("default"), direction, OLD)
            bridges += await bridged(stack, broker, "abc"[number], n=following)
        await up(bridges)
        watchers = [await Watcher.at(each) for each in brokers]
        await published(a, b"once", 1)
        found = await got(a, *watchers)
        if direction == "both":  # it comes by both sides at once, and only the memory of its content knows the second
            found = [each[:1] for each in found]
        assert found == [[b"once"]] * 3
        assert all(each.exchange.delivery.circles is not None for each in brokers)
