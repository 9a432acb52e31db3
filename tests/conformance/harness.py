"""Runs rows: an EdgeBroker on an event loop in a thread, and blocking sockets for the peers.

Each row gets a broker of its own (a millisecond), so that no session or retained message of one row is seen
by another. The broker's clock can be put forward; nothing sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from gateway.base.config import parse
from gateway.broker.edge_broker import EdgeBroker
from tests.conformance.hearing import Expected, MismatchError, connack, expect, goodbye
from tests.conformance.packets import Who
from tests.conformance.rows import V5, Cut, Ended, Hear, Open, Pass, Row, Say, Upgrade

#: How long an answer that is due may take on a busy machine.
ANSWER_S = 4.0
T = TypeVar("T")

LISTENERS = {"default": {"bind": "127.0.0.1:0"}, "ws": {"bind": "127.0.0.1:0", "type": "ws"}}


class SteeredBroker(EdgeBroker):
    """A broker whose clock the rows put forward."""

    skew_s = 0.0

    def now(self) -> float:
        return super().now() + self.skew_s


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(ANSWER_S)

    def call(self, work: Callable[[], T]) -> T:
        async def once() -> T:
            return work()

        return self.run(once())

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(ANSWER_S)
        self.loop.close()


@contextlib.contextmanager
def serving(loop: Loop, config: dict[str, Any]) -> Iterator[SteeredBroker]:
    content = {"listeners": LISTENERS, "allow_anonymous": True, "sys_interval": 0, **config}

    async def start() -> SteeredBroker:
        broker = SteeredBroker(parse(content))
        await broker.start()
        return broker

    broker = loop.run(start())
    try:
        yield broker
    finally:
        loop.run(broker.shutdown())


class Connection:
    """One peer's socket; `packet` reads by the remaining length."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._read = b""

    @classmethod
    def to(cls, port: int) -> Connection:
        sock = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock)

    def send(self, data: bytes, size: int) -> None:
        with contextlib.suppress(ConnectionError):  # what the broker thinks of it shows in its answer
            if not size:
                self.socket.sendall(data)
            for at in range(0, len(data), size) if size else ():
                self.socket.sendall(data[at : at + size])
                time.sleep(0)

    def _more(self) -> bool:
        try:
            data = self.socket.recv(65_536)
        except ConnectionError:
            return False
        except TimeoutError:
            raise MismatchError(
                f"nothing more within {ANSWER_S:g} s after {self._read.hex(' ') or 'silence'}"
            ) from None
        self._read += data
        return bool(data)

    def has(self, count: int) -> bool:
        """Waits for so many bytes; False if the connection ends before."""
        while len(self._read) < count:
            if not self._more():
                return False
        return True

    def exactly(self, count: int) -> bytes:
        if not self.has(count):
            raise MismatchError(f"the connection ended after {self._read.hex(' ') or 'nothing'}")
        data, self._read = self._read[:count], self._read[count:]
        return data

    def up_to(self, end: bytes) -> bytes:
        while end not in self._read:
            if not self._more():
                raise MismatchError(f"the connection ended after {self._read!r}")
        return self.exactly(self._read.index(end) + len(end))

    def packet(self) -> bytes:
        head = self.exactly(2)
        while head[-1] & 0x80:
            head += self.exactly(1)
        length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(head[1:]))
        return head + self.exactly(length)

    def rest(self) -> bytes:
        """What comes until the end of the connection, which must come."""
        while self._more():
            pass
        return self._read

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class WebSocket(Connection):
    """The same after a handshake: what is in the server's frames (RFC 6455 §5.2)."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._raw = Connection(sock)

    def _more(self) -> bool:
        if not self._raw.has(2):
            return False
        head = self._raw.exactly(2)
        length = head[1]
        if length == 126:
            length = int.from_bytes(self._raw.exactly(2), "big")
        payload = self._raw.exactly(length)
        if head[0] == 0x88:  # close: answer it, and let the server end the connection
            self._raw.send(b"\x88\x80\0\0\0\0", 0)
            self._raw.rest()
            return False
        if head[0] != 0x82:
            raise MismatchError(f"frame {head[0]:#x} is not one whole binary frame")
        self._read += payload
        return True


class Exchange:
    """One run of a row in one version."""

    def __init__(self, loop: Loop, broker: SteeredBroker, version: int) -> None:
        self._loop, self._broker, self._version = loop, broker, version
        self._who: dict[str, Who] = {}
        self._connections: dict[str, Connection] = {}

    def run(self, row: Row) -> None:
        """Raises MismatchError, with the step at which it happened."""
        try:
            for place, step in enumerate(row.steps):
                try:
                    self._step(step)
                except (MismatchError, IndexError) as error:
                    raise MismatchError(f"step {place} of {len(row.steps)}, {step}: {error}") from None
        finally:
            for connection in self._connections.values():
                connection.socket.close()

    def _step(self, step: Any) -> None:
        match step:
            case Open(peer, version, listener):
                if peer in self._connections:
                    self._connections[f"{peer} before {len(self._connections)}"] = self._connections[peer]
                self._connections[peer] = Connection.to(self._broker.port(listener))
                self._who.setdefault(peer, Who(peer, version or self._version))
            case Say(peer, packets, size):
                who = self._who[peer]
                data = b"".join(one if isinstance(one, bytes) else one(who) for one in packets)
                self._connections[peer].send(data, size)
            case Hear(peer, expected, any_order):
                self._hear(peer, list(expected), any_order)
            case Upgrade(peer, request, inside):
                plain = self._connections[peer]
                plain.send(request, 0)
                came = plain.up_to(b"\r\n\r\n")
                if not all(part in came.lower() for part in inside):
                    raise MismatchError(f"the answer to the handshake is {came!r}")
                self._connections[peer] = WebSocket(plain.socket)
            case Ended(peer, code, refusal):
                if refusal is not None and self._who[peer].version == V5:
                    expect(self._connections[peer].packet(), connack(refusal), self._who[peer])
                if code is not None and self._who[peer].version == V5:
                    expect(self._connections[peer].packet(), goodbye(code), self._who[peer])
                if rest := self._connections[peer].rest():
                    raise MismatchError(f"{rest.hex(' ')} before the end of the connection")
            case Cut(peer):
                self._connections[peer].reset()
                self._until_gone(peer)
            case Pass(seconds):
                self._loop.call(lambda: self._pass(seconds))

    def _hear(self, peer: str, expected: list[Expected], any_order: bool) -> None:
        who, connection = self._who[peer], self._connections[peer]
        while expected:
            raw = connection.packet()
            if not any_order:
                expect(raw, expected.pop(0), who)
                continue
            for one in expected:
                try:
                    expect(raw, one, who)
                except MismatchError:
                    continue
                expected.remove(one)
                break
            else:
                raise MismatchError(f"{peer} heard {raw.hex(' ')}, which is none of {len(expected)} expected")

    def _until_gone(self, peer: str) -> None:
        deadline = time.monotonic() + ANSWER_S
        while self._loop.call(lambda: dict(self._broker.clients()).get(peer)):
            if time.monotonic() > deadline:
                raise MismatchError(f"the broker still holds the connection of {peer}")

    def _pass(self, seconds: float) -> None:
        self._broker.skew_s += seconds
        self._broker.do_due_work(self._broker.now())


def run_row(loop: Loop, row: Row, version: int) -> None:
    """One row against a fresh broker. Raises MismatchError."""
    with serving(loop, row.config) as broker:
        Exchange(loop, broker, version).run(row)
