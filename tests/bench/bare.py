"""Bare brokers: programs that answer and pass on QoS 1 publications with as little Python as each design allows.

They know one subscriber, no topics, no rights and no bounds, so that no broker in Python may use them. Each says what
its design of the sockets costs alone: the floor of a message with one in flight, beside which `broker.py` puts ours.

    uvloop      a protocol on uvloop, as our broker has it
    asyncio     the protocol on asyncio's own loop
    buffered    a `BufferedProtocol` on uvloop: reads go into one buffer of all connections
    epoll       no event loop at all: epoll, `recv` and `send` of each readable socket
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Protocol

CONNACK, PINGRESP = b"\x20\2\0\0", b"\xd0\0"
CONNECT, PUBLISH_1, SUBSCRIBE, PINGREQ = 0x10, 0x32, 0x82, 0xC0
READ_BYTES = 1 << 18
EVENTS = 1024


class Writes(Protocol):
    """Something that takes bytes for one connection."""

    def write(self, data: bytes) -> None: ...


class Bare:
    """The rules of all bare brokers: the bytes that one read causes. Packets are whole, and shorter than 128 bytes."""

    def __init__(self, later: Callable[[Callable[[], None]], object]) -> None:
        self._later = later
        self._subscriber: Writes | None = None
        self._out: list[bytes] = []

    def read(self, data: bytes, source: Writes) -> None:
        first, at, size = data[0], 0, len(data)
        if first == PUBLISH_1 and size == 2 + data[1]:
            self._publish(data, source)
            return
        while at < size:
            first, end = data[at], at + 2 + data[at + 1]
            if first == PUBLISH_1:
                self._publish(data[at:end], source)
            elif first == CONNECT:
                source.write(CONNACK)
            elif first == SUBSCRIBE:
                self._subscriber = source
                source.write(b"\x90\3" + data[at + 2 : at + 4] + b"\1")
            elif first == PINGREQ:
                source.write(PINGRESP)
            at = end

    def _publish(self, data: bytes, source: Writes) -> None:
        behind = 4 + (data[2] << 8 | data[3])
        if self._subscriber is not None:
            if not self._out:
                self._later(self._flush)
            self._out.append(data)
        source.write(b"\x40\2" + data[behind : behind + 2])

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._subscriber is not None:
            self._subscriber.write(out[0] if len(out) == 1 else b"".join(out))


class _Connection(asyncio.Protocol):
    def __init__(self, bare: Bare) -> None:
        self._read = bare.read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert hasattr(transport, "write")
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._read(data, self._transport)


class _Buffered(asyncio.BufferedProtocol):
    buffer = bytearray(READ_BYTES)
    view = memoryview(buffer)

    def __init__(self, bare: Bare) -> None:
        self._read = bare.read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert hasattr(transport, "write")
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view

    def buffer_updated(self, nbytes: int) -> None:
        self._read(bytes(self.view[:nbytes]), self._transport)


class _Socket:
    """A connection of `epoll`. Bytes that the system does not take at once fail the run: none comes near that."""

    def __init__(self, sock: socket.socket) -> None:
        self.recv, self._send, self._sock = sock.recv, sock.send, sock

    def write(self, data: bytes) -> None:
        assert self._send(data) == len(data), "the buffer of a bare broker's socket is full"

    def close(self) -> None:
        self._sock.close()


def serve_protocol(port: int, kind: type[_Connection] | type[_Buffered] = _Connection) -> None:
    """Serves for ever on the event loop of the current policy."""

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        bare = Bare(loop.call_soon)
        server = await loop.create_server(lambda: kind(bare), "127.0.0.1", port)
        await server.serve_forever()

    asyncio.run(serve())


def serve_buffered(port: int) -> None:
    serve_protocol(port, _Buffered)


def serve_epoll(port: int) -> None:
    """Serves for ever without an event loop; what is put off runs when all readable sockets were read."""
    listener = socket.create_server(("127.0.0.1", port), backlog=EVENTS)
    poller, connections, later = select.epoll(), dict[int, _Socket](), list[Callable[[], None]]()
    poller.register(listener, select.EPOLLIN)
    bare = Bare(later.append)
    while True:
        for number, _ in poller.poll(-1, EVENTS):
            connection = connections.get(number)
            if connection is None:
                sock, _address = listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[sock.fileno()] = _Socket(sock)
                poller.register(sock, select.EPOLLIN)
                continue
            try:
                data = connection.recv(READ_BYTES)
            except ConnectionError:
                data = b""
            if data:
                bare.read(data, connection)
            else:
                connections.pop(number).close()
        for call in later:
            call()
        later.clear()
