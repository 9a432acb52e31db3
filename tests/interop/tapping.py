"""A tap between clients and a broker, and what it tells of a client: a client's own reordering is no broker's fault."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.packets import ConnAck, Connect, Packet, PubAck, Publish, PubRec, PubRel


@dataclass
class Sent:
    """What a client sent and was answered. A moment counts packets of all connections of the client.

    `publishes`: number -> (connection, moment, packet identifier) of each of its PUBLISHes. `taken`: number -> moment
    of its first PUBACK or PUBREC that is no refusal. `refused`: numbers with one that is. `released`: identifiers
    -> moments of its PUBRELs. `connections`: CONNACKs of success; `ended`: connections that are over.
    """

    publishes: dict[int, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    taken: dict[int, int] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    released: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    connections: int = 0
    ended: int = 0
    moment: int = 0

    @property
    def disturbances(self) -> int:
        return len(self.refused) + self.ended

    def goes_before(self, later: int, earlier: int) -> bool:
        """Tells whether the client sent the later number before the earlier one on some connection, with the earlier
        one not taken by then.
        """
        for connection, moment, _ in self.publishes[later]:
            here = [at for where, at, _ in self.publishes[earlier] if where == connection]
            if self.taken.get(earlier, self.moment + 1) > moment and not any(at < moment for at in here):
                return True
        return False

    def is_anew(self, number: int) -> str:
        """Returns why the broker takes the number for two publications of QoS 2; empty if it must not."""
        copies = self.publishes[number]
        if len({packet_id for _, _, packet_id in copies}) > 1:
            return "published again under another packet identifier"
        taken = self.taken.get(number, self.moment)
        if any(taken < at < moment for _, moment, packet_id in copies for at in self.released[packet_id]):
            return "PUBLISH again after PUBREL"
        return ""


class Tap:
    """A listener that hands all bytes on to `target`, a port of a broker. `clients`: by client identifier."""

    def __init__(self, target: int = 0) -> None:
        self.target, self.port = target, 0
        self.clients: dict[str, Sent] = defaultdict(Sent)
        self.opened = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Breaks all connections."""
        for writer in self._open:
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Tap]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._hand_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        tapped = _Tapped(self)
        with contextlib.suppress(OSError):
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self.target)
            self._open.add(to_broker)
            ways = (
                asyncio.create_task(_copy(reader, to_broker, tapped.note_sent)),
                asyncio.create_task(_copy(from_broker, writer, tapped.note_answer)),
            )
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._open.discard(to_broker)
            to_broker.transport.abort()
        self._open.discard(writer)
        await _closed(writer)
        tapped.end()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes], None]) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            note(data)
            writer.write(data)


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Sends what is left, a DISCONNECT for one, and closes."""
    with contextlib.suppress(OSError):
        writer.close()
        await writer.wait_closed()


class _Tapped:
    """One connection: its packets, in both directions, become entries of its client."""

    def __init__(self, tap: Tap) -> None:
        tap.opened += 1
        self._tap, self._sent, self._number = tap, Sent(), tap.opened
        self._to_broker, self._from_broker = Decoder(None), Decoder(None)
        self._numbers: dict[int, int] = {}

    def note_sent(self, data: bytes) -> None:
        for packet in self._to_broker.feed(data):
            if isinstance(packet, Connect):
                self._sent = self._tap.clients[packet.client_id]
                self._from_broker = Decoder(packet.version, role="client")
            self._note(packet)

    def note_answer(self, data: bytes) -> None:
        for packet in self._from_broker.feed(data):
            self._note(packet)

    def _note(self, packet: Packet) -> None:
        sent = self._sent
        sent.moment += 1
        match packet:
            case ConnAck(code=0):
                sent.connections += 1
            case Publish(packet_id=packet_id, payload=payload):
                self._numbers[packet_id] = number = int(payload)
                sent.publishes[number].append((self._number, sent.moment, packet_id))
            case PubAck(packet_id=packet_id, code=code) | PubRec(packet_id=packet_id, code=code):
                if (taken := self._numbers.get(packet_id)) is None:
                    return  # of a publication on an earlier connection, which was not repeated on this one
                if code >= 0x80:
                    sent.refused.add(taken)
                else:
                    sent.taken.setdefault(taken, sent.moment)
            case PubRel(packet_id=packet_id):
                sent.released[packet_id].append(sent.moment)

    def end(self) -> None:
        self._sent.ended += 1
