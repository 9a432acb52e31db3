"""Common parts of connections: reasons to pause reading, and the writing of many connections in a single go.

`Later` is an unfinished coroutine: reading and later packets wait until it is done. `Waiting` is a future that others
finish, with the same effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from gateway.mqtt5.types import ReasonCode

if TYPE_CHECKING:
    from gateway.base import FairTurns, Limits
    from gateway.clients import Client, Reached
    from gateway.mqtt5.packets import Connect, Packet, Publish
    from gateway.mqtt5.session import Action
    from gateway.operation import Traffic

TURN_BYTES = 1 << 20
"""Bytes read by all connections in one turn of the event loop above which the resulting bytes are written before more
is read: only a write shows that a receiver is slow. Stops many senders in one turn from filling memory.
"""

# Why reading is paused; any of them is enough.
BUSY, UNACKNOWLEDGED, UNREAD, CLOSING, DRAINING, PARTS = 1, 2, 4, 8, 16, 32

CLIENTS_FAULT = frozenset(
    {
        ReasonCode.MALFORMED_PACKET,
        ReasonCode.PROTOCOL_ERROR,
        ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
        ReasonCode.TOPIC_ALIAS_INVALID,
        ReasonCode.PACKET_TOO_LARGE,
        ReasonCode.QUOTA_EXCEEDED,
    }
)
"""Faults that a client commits while it is still writing."""

Later: TypeAlias = Coroutine[Any, Any, None]
Waiting: TypeAlias = "asyncio.Future[None]"


class Core(Protocol):
    """Methods of the broker a connection needs. `Later`: reading and later actions wait until it is done."""

    limits: Limits
    reached: Reached
    traffic: Traffic
    turns: FairTurns

    def now(self) -> float: ...
    def owner(self, connection: Any) -> str:
        """Returns in whose turns the connection is read."""

    def admit_connection(self, connection: Any) -> bool: ...
    def connecting(self, connection: Any, connect: Connect) -> Later | None: ...
    def take_packets(self, client: Client, packets: Sequence[Packet], now: float) -> list[Action]: ...
    def took_alone(self, client: Client, acknowledged: Sequence[int], now: float) -> int: ...
    def took_publish(self, client: Client, topic: str, payload: bytes, now: float) -> bool: ...
    @property
    def is_costly(self) -> bool:
        """True if a publication may cost more than its delivery."""

    def route_publish(self, client: Client, publish: Publish) -> Later | Waiting | None: ...
    def passes_runs(self, client: Client) -> bool: ...
    def pass_run(self, client: Client, run: Sequence[Publish]) -> tuple[int, Waiting | None]: ...
    def waiting_bytes(self, client: Client) -> list[bytes]: ...
    def perform(self, client: Client, action: Action) -> Later | None: ...
    def take_connection_end(self, connection: Any, error: Exception | None) -> None: ...


class Flushed(Protocol):
    """Object with bytes to write."""

    def flush(self) -> None: ...


class Flusher:
    """Connections with something to write, flushed together once per turn of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._dirty: list[Flushed] = []
        self._read_bytes = 0

    def read(self, size: int) -> None:
        """Counts bytes a connection has read and processed."""
        self._read_bytes += size
        if self._read_bytes > TURN_BYTES:
            self.flush()

    def add_connection(self, connection: Flushed) -> None:
        if not self._dirty:
            self._loop.call_soon(self.flush)
        self._dirty.append(connection)

    def flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        self._read_bytes = 0
        for connection in dirty:
            connection.flush()


def end_writing(transport: Any) -> bool:
    """Tells the peer that nothing more comes, and goes on reading; False where the transport cannot (TLS,
    WebSocket), or the peer is gone.
    """
    can_end = getattr(transport, "can_write_eof", None)
    if can_end is None or not can_end():
        return False
    try:
        transport.write_eof()
    except OSError:  # reset by the peer, which the transport has not noticed yet
        return False
    return True
