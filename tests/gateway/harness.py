"""A broker and raw clients on one event loop, for tests that watch every packet. No sleeps: `barrier` waits
until the broker has answered a PINGREQ, which it does after everything that was sent before."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from gateway.base.config import parse
from gateway.broker.edge_broker import EdgeBroker
from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.packets import (
    ConnAck,
    Connect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Version,
)

P = TypeVar("P")
ANSWER_S = 5.0
LOOPBACK = {"default": {"bind": "127.0.0.1:0"}}


#: Clients of the broker that runs; cut when it ends.
_opened: list[Wire] = []


@contextlib.asynccontextmanager
async def serving(
    config: dict[str, Any] | None = None,
    *,
    overlay: Any = None,
    overlay_context: Any = None,
    before_serving: Callable[[EdgeBroker], None] | None = None,
    **more: Any,
) -> AsyncIterator[EdgeBroker]:
    """A started broker on a free loopback port; anonymous clients are let in unless the configuration says."""
    content = {"listeners": LOOPBACK, "allow_anonymous": True, **(config or {})}
    broker = EdgeBroker(parse(content), overlay=overlay, overlay_context=overlay_context, **more)
    broker.before_serving = before_serving
    await broker.start()
    try:
        yield broker
    finally:
        await broker.shutdown()
        cut_all()


def cut_all() -> None:
    """Lose every connection of this event loop, before it ends."""
    for wire in list(_opened):
        wire.cut()


class Wire:
    """A client that sends and receives packets, and nothing by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: Version) -> None:
        self.reader, self.writer, self.version = reader, writer, version
        self._decoder = Decoder(version, role="client")
        self._packets: list[Packet] = []
        self._next_id = 0
        self.connack: ConnAck | None = None

    @classmethod
    async def open(
        cls,
        broker: EdgeBroker,
        version: Version = Version.V5,
        listener: str = "default",
        context: ssl.SSLContext | None = None,
    ) -> Wire:
        """Connected by TCP (and TLS), with nothing sent yet."""
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port(listener), ssl=context)
        wire = cls(reader, writer, version)
        _opened.append(wire)
        return wire

    @classmethod
    async def connect(
        cls, broker: EdgeBroker, client_id: str = "", version: Version = Version.V5, **fields: Any
    ) -> Wire:
        """Connected by MQTT, whatever the CONNACK says (`connack`)."""
        listener, context = fields.pop("listener", "default"), fields.pop("context", None)
        wire = await cls.open(broker, version, listener, context)
        properties = Properties(**fields.pop("properties", {}))
        wire.send(Connect(client_id, version, properties=properties, **fields))
        wire.connack = await wire.expect(ConnAck)
        return wire

    def send(self, *packets: Packet) -> None:
        self.raw(b"".join(encode(packet, self.version) for packet in packets))

    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    def new_id(self) -> int:
        self._next_id = self._next_id % 65_535 + 1
        return self._next_id

    async def next(self) -> Packet | None:
        """The next packet, or None at the end of the connection."""
        while not self._packets:
            try:
                data = await asyncio.wait_for(self.reader.read(65_536), ANSWER_S)
            except ConnectionError:
                return None
            if not data:
                return None
            self._packets += self._decoder.feed(data)
            assert self._decoder.error is None, self._decoder.error
        return self._packets.pop(0)

    async def expect(self, kind: type[P]) -> P:
        packet = await self.next()
        assert isinstance(packet, kind), packet
        return packet

    async def closed(self) -> list[Packet]:
        """What comes until the broker closes the connection."""
        packets: list[Packet] = []
        while (packet := await self.next()) is not None:
            packets.append(packet)
        return packets

    async def barrier(self) -> list[Packet]:
        """What the broker has sent until it answers this PINGREQ."""
        self.send(PingReq())
        packets: list[Packet] = []
        while not isinstance(packet := await self.next(), PingResp):
            assert packet is not None, "closed"
            packets.append(packet)
        return packets

    async def subscribe(self, topic_filter: str, qos: int = 0, *, identifier: int = 0, **options: Any) -> int:
        """The code of the SUBACK; packets before it stay to be read."""
        ids = (identifier,) if identifier else ()
        subscription = Subscription(topic_filter, qos, **options)
        self.send(Subscribe(self.new_id(), (subscription,), Properties(subscription_ids=ids)))
        before: list[Packet] = []
        while not isinstance(packet := await self.next(), SubAck):
            assert packet is not None, "closed"
            before.append(packet)
        self._packets = before + self._packets
        return packet.codes[0]

    def publish(self, topic: str, payload: bytes = b"x", qos: int = 0, **fields: Any) -> int:
        packet_id = fields.pop("packet_id", 0) or (self.new_id() if qos else 0)
        properties = Properties(**fields.pop("properties", {}))
        self.send(Publish(topic, payload, qos, packet_id=packet_id, properties=properties, **fields))
        return packet_id

    async def published(self) -> list[tuple[str, bytes]]:
        """Topic and payload of the messages up to a barrier; QoS 1 is acknowledged."""
        messages = [packet for packet in await self.barrier() if isinstance(packet, Publish)]
        for message in messages:
            if message.qos == 1:
                self.send(PubAck(message.packet_id))
        return [(message.topic, message.payload) for message in messages]

    def cut(self) -> None:
        """Lose the connection without DISCONNECT."""
        if self in _opened:
            _opened.remove(self)
        self.writer.transport.abort()


class Leap:
    """The event loop's clock, which the test sets forward."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        ticking, self.ahead_s = loop.time, 0.0
        loop.time = lambda: ticking() + self.ahead_s  # type: ignore[method-assign]

    async def by(self, seconds: float) -> None:
        self.ahead_s += seconds
        for _ in range(10):
            await asyncio.sleep(0)


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """An asynchronous test as pytest runs it: on an event loop of its own."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run
