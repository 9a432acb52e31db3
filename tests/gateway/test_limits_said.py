"""Every bound of `limits`: when it is reached, its metric counts and the log names the bound and whom it hit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from gateway.base.limits import Limits
from gateway.broker.draining import all_gone
from gateway.broker.edge_broker import EdgeBroker
from gateway.clients import Client, PeerMessage
from gateway.mqtt5.actions import ServerOffer
from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Connect, Properties, Publish, Version
from gateway.mqtt5.session import ServerSession
from gateway.plugins import EdgeSession
from gateway.sockets.connection import MqttConnection
from tests.gateway.clients.test_bounds import FullTransport, fake, reached
from tests.gateway.harness import Wire, serving
from tests.waits import until

Reach: TypeAlias = Callable[[EdgeBroker], Awaitable[None]]
REACHING: dict[str, tuple[dict[str, Any], Reach]] = {}
"""By the name of a bound: limits that are easily reached, and who reaches them."""
COUNTED_AS = {"publish_burst": "publish_rate"}
AWAY = {"session_expiry_s": 100}


def reaches(bound: str, **limits: Any) -> Callable[[Reach], Reach]:
    def enter(reach: Reach) -> Reach:
        REACHING[bound] = limits, reach
        return reach

    return enter


@reaches("connections", connections=1)
@reaches("connections_per_address", connections_per_address=1)
async def _connects_twice(broker: EdgeBroker) -> None:
    for _ in range(2):
        await fake(broker, "192.0.2.7")
    for connection in list(broker.lifecycle.connections):
        connection.connection_lost(None)


@reaches("half_open", half_open=1)
@reaches("connect_timeout_s", connect_timeout_s=0.01)
async def _stays_silent(broker: EdgeBroker) -> None:
    first, _ = await Wire.open(broker), await Wire.open(broker)
    await first.closed()


@reaches("login_failures", login_failures=1)
async def _guesses(broker: EdgeBroker) -> None:
    for _ in range(2):
        if broker.lifecycle.failures.may_try("192.0.2.7"):
            broker.lifecycle.failures.failed("192.0.2.7")


@reaches("connect_bytes", connect_bytes=256)
async def _introduces_itself_at_length(broker: EdgeBroker) -> None:
    wire = await Wire.open(broker)
    wire.send(Connect("c", username="u" * 300))
    await wire.closed()


@reaches("packet_bytes", packet_bytes=300)
async def _sends_much(broker: EdgeBroker) -> None:
    wire = await Wire.connect(broker, "c")
    wire.publish("t", bytes(300))
    await wire.closed()


@reaches("sessions", sessions=1)
@reaches("session_expiry_s", session_expiry_s=10)
@reaches("keep_alive_max_s", keep_alive_max_s=5)
async def _comes_twice(broker: EdgeBroker) -> None:
    for name in "cd":
        await Wire.connect(broker, name, keep_alive_s=60, properties=AWAY)


@reaches("subscriptions", subscriptions=1)
@reaches("subscription_bytes", subscription_bytes=256)
@reaches("topic_bytes", topic_bytes=100)
@reaches("topic_levels", topic_levels=2)
@reaches("topic_control_characters", topic_control_characters=False)
async def _subscribes(broker: EdgeBroker) -> None:
    wire = await Wire.connect(broker, "c")
    for topic_filter in ("a/b/c", "\x01", "d" * 200, "e" * 200):
        await wire.subscribe(topic_filter)


@reaches("user_properties", user_properties=1)
async def _decorates(broker: EdgeBroker) -> None:
    wire = await Wire.connect(broker, "c")
    wire.publish("t", properties={"user": (("k", "v"),) * 2})
    await wire.barrier()


@reaches("topic_aliases", topic_aliases=2)
async def _abbreviates(broker: EdgeBroker) -> None:
    wire = await Wire.connect(broker, "c")
    wire.send(Publish("t", b"", properties=Properties(topic_alias=3)))
    await wire.closed()


@reaches("receive_maximum", receive_maximum=1)
async def _leaves_flows_open(broker: EdgeBroker) -> None:
    wire = await Wire.connect(broker, "c")
    for _ in range(2):
        wire.publish("t", qos=2)
    await wire.closed()


@reaches("publish_rate", publish_rate=0.01, publish_burst=1)
@reaches("publish_burst", publish_rate=0.01, publish_burst=1)
async def _hurries(broker: EdgeBroker) -> None:
    wire = await Wire.connect(broker, "c")
    wire.publish("t")
    wire.publish("t")
    await until(lambda: broker.exchange.reached.counts["publish_rate"])


@reaches("in_flight", in_flight=1)
@reaches("queue_messages", in_flight=1, queue_messages=1)
@reaches("queue_bytes", in_flight=1, queue_bytes=2_000)
async def _never_acknowledges(broker: EdgeBroker) -> None:
    slow, pub = await Wire.connect(broker, "slow", properties=AWAY), await Wire.connect(broker, "pub")
    await slow.subscribe("t", 1)
    for _ in range(2):
        pub.publish("t", bytes(900), 1)
    await until(lambda: broker.operation.observe().queued_messages)
    slow.cut()  # nobody waits for it any longer
    await until(lambda: not dict(broker.clients())["slow"])
    for _ in range(2):
        pub.publish("t", bytes(900), 1)
    await pub.barrier()


@reaches("hold_s", hold_s=0.05, in_flight=1, queue_messages=2)
async def _is_waited_for(broker: EdgeBroker) -> None:
    slow = await Wire.connect(broker, "slow")
    await slow.subscribe("t", 1)
    pub = await Wire.connect(broker, "pub")
    for _ in range(5):
        pub.publish("t", qos=1)
    await until(lambda: broker.exchange.holding.waiting)
    await until(lambda: broker.exchange.reached.counts["hold_s"])


@reaches("member_in_flight", member_in_flight=1)
@reaches("member_queue_messages", member_in_flight=1, member_queue_messages=1)
@reaches("member_queue_bytes", member_in_flight=1, member_queue_bytes=2_000)
async def _is_a_member_that_takes_nothing(broker: EdgeBroker) -> None:
    client = Client(ServerSession("r1", broker.lifecycle.terms.of_peers), EdgeSession())
    client.peer = "r1"
    client.session.take_connect(Connect("r1"), ServerOffer(), broker.now())
    broker.lifecycle.peers["r1"] = client
    for _ in range(4):
        broker.local.send_to_peer("r1", "t", bytes(900), (), lambda code: None)
    del broker.lifecycle.peers["r1"]
    assert all(isinstance(one.message, PeerMessage) for one in client.session.waiting)


@reaches("write_bytes", write_bytes=65_536)
@reaches("stalled_s", stalled_s=0.01)
async def _reads_nothing(broker: EdgeBroker) -> None:
    connection = MqttConnection(broker.lifecycle, broker._flusher, "default", False, False)
    transport = FullTransport()
    transport.connection = connection
    connection.connection_made(transport)
    connection.data_received(encode(Connect("deaf"), Version.V5))
    await until(lambda: transport.writes)
    connection.pause_writing()
    await until(lambda: transport.ended == "aborted" or broker.limits.stalled_s > 1)
    connection.connection_lost(None)


@reaches("retained_messages", retained_messages=1)
@reaches("retained_bytes", retained_bytes=1_500)
async def _retains(broker: EdgeBroker) -> None:
    wire = await Wire.connect(broker, "c")
    for topic in "ab":
        wire.publish(topic, bytes(900), retain=True)
    await wire.barrier()


@reaches("shutdown_s", shutdown_s=0.05)
async def _never_leaves(broker: EdgeBroker) -> None:
    transport = FullTransport()
    MqttConnection(broker.lifecycle, broker._flusher, "default", False, False).connection_made(transport)
    await all_gone(broker.lifecycle.connections, broker.lifecycle.reached, broker.limits.shutdown_s)
    for connection in list(broker.lifecycle.connections):
        connection.connection_lost(None)


@pytest.mark.parametrize("bound", Limits.model_fields)
def test_a_bound_that_is_reached_is_counted_and_said_once(bound: str, caplog: pytest.LogCaptureFixture) -> None:
    limits, reach = REACHING[bound]
    name = COUNTED_AS.get(bound, bound)

    async def check() -> None:
        async with serving({"limits": limits, "sys_interval": 0}) as broker:
            assert reached(broker, name) == 0
            await asyncio.wait_for(reach(broker), 5)
            assert reached(broker, name) >= 1

    with caplog.at_level(logging.WARNING, "veilmq.limits"):
        asyncio.run(check())
    said = [record for record in caplog.records if getattr(record, "limit", "") == name]
    assert len(said) == 1, caplog.text
    assert said[0].levelno == logging.WARNING
    assert getattr(said[0], "who", "")
