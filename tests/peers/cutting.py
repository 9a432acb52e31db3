"""A proxy between two ends that loses one MQTT packet and the connection with it, at a step that is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType

PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 3, 4, 5, 6, 7
NAMES = {PUBLISH: "PUBLISH", PUBACK: "PUBACK", PUBREC: "PUBREC", PUBREL: "PUBREL", PUBCOMP: "PUBCOMP"}
STEPS = {1: (PUBLISH, PUBACK), 2: (PUBLISH, PUBREC, PUBREL, PUBCOMP)}
"""Packets of a handshake by QoS, in either direction (MQTT 5.0 §4.3)."""


class Cutter:
    """Proxy to one port of loopback, in a thread. `lose` names the type of the next packet that does not arrive."""

    def __init__(self, target: int) -> None:
        self._target, self._lost_type = target, 0
        self.port = self.cuts = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def lose(self, packet_type: int) -> None:
        """Loses the next packet of the type, and cuts both connections."""
        self._lost_type = packet_type

    def __enter__(self) -> Cutter:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self) -> None:
        async def start() -> asyncio.Server:
            return await asyncio.start_server(self._connected, "127.0.0.1", 0)

        server = self._loop.run_until_complete(start())
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        ways = (self._pass(reader, far_writer), self._pass(far_reader, writer))
        tasks = [asyncio.ensure_future(way) for way in ways]
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for each in (writer, far_writer):
            each.transport.abort()

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                packet = await _packet(source)
                if self._lost_type and packet[0] >> 4 == self._lost_type:
                    self._lost_type = 0
                    self.cuts += 1
                    return
                sink.write(packet)
                await sink.drain()


async def _packet(source: asyncio.StreamReader) -> bytes:
    """Reads one MQTT packet (MQTT 5.0 §2.1.4)."""
    head = bytearray(await source.readexactly(2))
    length, shift = head[1] & 0x7F, 7
    while head[-1] & 0x80:
        head += await source.readexactly(1)
        length |= (head[-1] & 0x7F) << shift
        shift += 7
    return bytes(head) + await source.readexactly(length)
