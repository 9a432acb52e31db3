"""Clients of a soak on one event loop: flows of numbered publications, receivers that keep books, an idle herd.

Each keeps its session and repeats by the book (MQTT-4.4.0-1). Nothing here knows VeilMQ but its codec.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.packets import (
    ConnAck,
    Connect,
    Packet,
    PingReq,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    Version,
)

AGAIN_S = 0.5
ANSWER_S = 60.0
PING_S = 20.0
WINDOW = 10
"""Publications of a flow that are unfinished at once, below the least `receive_maximum`."""
EXPIRY_S = 86_400


class Line:
    """A client that connects again for as long as it runs. Subclasses say what it does with packets."""

    def __init__(self, port: int, client_id: str, version: Version) -> None:
        self.port, self.client_id, self.version = port, client_id, version
        self.connections, self.lost_sessions, self.is_up = 0, 0, False
        self._writer: asyncio.StreamWriter | None = None

    def send(self, *packets: Packet) -> None:
        if self._writer is not None:
            self._writer.write(b"".join(encode(packet, self.version) for packet in packets))

    def cut(self) -> None:
        """Loses the connection without DISCONNECT."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await self._connected()
            self.is_up, self._writer = False, None
            await asyncio.sleep(AGAIN_S)

    async def _connected(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writer, decoder = writer, Decoder(self.version, role="client")
        try:
            stays = Properties(session_expiry_s=EXPIRY_S) if self.version == Version.V5 else Properties()
            self.send(Connect(self.client_id, self.version, clean_start=False, properties=stays))
            while True:
                async with asyncio.timeout(PING_S if self.is_up else ANSWER_S) as waiting:
                    data = await reader.read(65_536)
                if not data:
                    return
                for packet in decoder.feed(data):
                    self._answer(packet)
                if decoder.error is not None:
                    raise AssertionError(f"{self.client_id}: {decoder.error}")
        except TimeoutError:
            if not (self.is_up and waiting.expired()):
                raise
            self.send(PingReq())
        finally:
            writer.transport.abort()

    def _answer(self, packet: Packet) -> None:
        if isinstance(packet, ConnAck):
            if packet.code:
                self.cut()
                return
            self.connections += 1
            self.is_up = True
            self.lost_sessions += self.connections > 1 and not packet.session_present
            self.begin(packet.session_present)
        else:
            self.take(packet)

    def begin(self, has_session: bool) -> None:
        """Says what a new connection begins with."""

    def take(self, packet: Packet) -> None:
        """Deals with a packet that is no CONNACK."""


class Flow(Line):
    """A publisher of numbers on one topic: `window` at once, `rate` a second at most."""

    def __init__(self, port: int, topic: str, version: Version, qos: int, rate: float) -> None:
        super().__init__(port, f"soak-{topic.replace('/', '-')}", version)
        self.topic, self.qos, self.rate = topic, qos, rate
        self.unfinished: dict[int, tuple[int, Packet]] = {}
        self.sent, self.refused = 0, set[int]()
        self.acknowledged = set[int]()

    def begin(self, has_session: bool) -> None:
        packets = [packet for _, packet in self.unfinished.values()]
        for packet in packets:
            if isinstance(packet, Publish):
                packet.dup = True
        self.send(*(one for one in packets if isinstance(one, PubRel)))
        self.send(*(one for one in packets if isinstance(one, Publish)))

    def publish(self, payload: bytes, number: int) -> None:
        packet_id = next(one for one in range(1 + number % 60_000, 65_536) if one not in self.unfinished)
        packet = Publish(self.topic, payload, self.qos, packet_id=packet_id)
        self.unfinished[packet_id] = (number, packet)
        self.send(packet)

    def take(self, packet: Packet) -> None:
        if not isinstance(packet, PubAck | PubRec | PubComp) or packet.packet_id not in self.unfinished:
            return
        number, _ = self.unfinished[packet.packet_id]
        if packet.code >= 0x80 and not isinstance(packet, PubComp):
            self.refused.add(number)
            del self.unfinished[packet.packet_id]
        elif isinstance(packet, PubRec):
            self.acknowledged.add(number)
            self.unfinished[packet.packet_id] = (number, release := PubRel(packet.packet_id))
            self.send(release)
        else:
            self.acknowledged.add(number)
            del self.unfinished[packet.packet_id]

    async def probe(self, receivers: Iterable[Receiver]) -> None:
        """Publishes 0 until each receiver has heard it: subscriptions hold from end to end."""
        end = time.monotonic() + 90
        while not all(0 in one.books.get(self.topic, ()) for one in receivers):
            assert time.monotonic() < end, f"{self.topic} does not arrive"
            if self.is_up and not self.unfinished:
                self.publish(b"0", 0)
            await asyncio.sleep(0.3)

    async def press(self, stopped: asyncio.Event) -> None:
        """Publishes 1, 2, … until `stopped`."""
        while not stopped.is_set():
            if self.is_up and len(self.unfinished) < WINDOW:
                self.sent += 1
                self.publish(b"%d" % self.sent, self.sent)
            await asyncio.sleep(1 / self.rate)


class Receiver(Line):
    """A subscriber at QoS 2 with a kept session. `books`: topic -> numbers as they came."""

    def __init__(self, port: int, client_id: str, version: Version, filters: tuple[str, ...]) -> None:
        super().__init__(port, client_id, version)
        self.filters, self.books, self.delivered = filters, dict[str, list[int]](), 0
        self._unreleased = set[int]()
        self.subscribed = False

    def begin(self, has_session: bool) -> None:
        if not has_session:
            self._unreleased.clear()
            self.send(Subscribe(1, tuple(Subscription(one, 2) for one in self.filters)))

    def take(self, packet: Packet) -> None:
        if isinstance(packet, SubAck):
            self.subscribed = all(code <= 2 for code in packet.codes)
        elif isinstance(packet, Publish):
            if packet.qos < 2 or packet.packet_id not in self._unreleased:
                self.books.setdefault(packet.topic, []).append(int(packet.payload))
                self.delivered += 1
            if packet.qos == 2:
                self._unreleased.add(packet.packet_id)
                self.send(PubRec(packet.packet_id))
            elif packet.qos == 1:
                self.send(PubAck(packet.packet_id))
        elif isinstance(packet, PubRel):
            self._unreleased.discard(packet.packet_id)
            self.send(PubComp(packet.packet_id))


def faults(qos: int, acknowledged: set[int], came: list[int]) -> Iterator[str]:
    """Yields what is wrong with one flow at one receiver: lost, out of order, at QoS 2 twice. 0 is a probe."""
    numbers = [one for one in came if one]
    first = list(dict.fromkeys(numbers))
    if lost := sorted(acknowledged - set(first) - {0}):
        yield f"{len(lost)} lost, the first {lost[0]}"
    if first != sorted(first):
        yield f"out of order: {next(b for a, b in itertools.pairwise(first) if b < a)} behind a later one"
    if qos == 2 and len(first) != len(numbers):
        yield f"{len(numbers) - len(first)} twice"


@dataclass
class Herd:
    """Idle clients of clean and kept sessions by turns, which a storm cuts all and connects again in steps."""

    port: int
    size: int
    step: int = 50
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)
    refused: int = 0

    async def storm(self) -> float:
        """Cuts all and connects all again; returns the seconds until the last has its CONNACK."""
        begins = time.monotonic()
        self.cut()
        for start in range(0, self.size, self.step):
            numbers = range(start, min(start + self.step, self.size))
            came = await asyncio.gather(*(self._connect(number) for number in numbers))
            self._writers += [one for one in came if one is not None]
            self.refused += came.count(None)
        return time.monotonic() - begins

    async def _connect(self, number: int) -> asyncio.StreamWriter | None:
        version = Version.V5 if number % 2 else Version.V311
        packet = Connect(f"herd-{number}", version, clean_start=number % 4 < 2, keep_alive_s=0)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(encode(packet, version))
                await reader.readexactly(4)
                return writer
        return None

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
