"""What connections share: the broker as they see it, and the writing of many connections in one go.

`Later` is what could not be finished at once: reading and what came behind it wait until it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from gateway.base import Limits
from gateway.clients import Client, Reached
from gateway.mqtt5.packets import Connect, Packet, Publish
from gateway.mqtt5.session import Action
from gateway.operation import Traffic

if TYPE_CHECKING:
    from gateway.broker.connection import MqttConnection

#: Above so many bytes that all connections have read in one turn of the event loop, what they caused is written before
#: more is read: only then do receivers that are slow say so. Stops many senders in one turn from filling memory.
TURN_BYTES = 1 << 20

# Why reading is paused; any of them is enough.
BUSY, UNACKNOWLEDGED, UNREAD, CLOSING, DRAINING = 1, 2, 4, 8, 16

Later: TypeAlias = Coroutine[Any, Any, None]


class Core(Protocol):
    """What a connection needs of the broker. `Later`: reading and later actions wait until it is done."""

    limits: Limits
    reached: Reached
    traffic: Traffic

    def now(self) -> float: ...
    def opened(self, connection: MqttConnection) -> bool: ...
    def connecting(self, connection: MqttConnection, connect: Connect) -> Later: ...
    def received(self, client: Client, packets: Sequence[Packet], now: float) -> list[Action]: ...
    def published(self, client: Client, publish: Publish) -> Later | None: ...
    def perform(self, client: Client, action: Action) -> Later | None: ...
    def lost(self, connection: MqttConnection, error: Exception | None) -> None: ...


class Flusher:
    """Connections with something to write, flushed together once per turn of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._dirty: list[MqttConnection] = []
        self._read_bytes = 0

    def read(self, size: int) -> None:
        """A connection has read so many bytes and done what they say."""
        self._read_bytes += size
        if self._read_bytes > TURN_BYTES:
            self.flush()

    def add(self, connection: MqttConnection) -> None:
        if not self._dirty:
            self._loop.call_soon(self.flush)
        self._dirty.append(connection)

    def flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        self._read_bytes = 0
        for connection in dirty:
            connection.flush()
