"""Admission of connections to the console: their number, their origins, and the time for each next request.

HTTP is aiohttp's; this stands before it. A connection without a new complete request in time is closed, even if half
a request came; when there are too many, the address with most loses its oldest. So a client that only opens
connections neither takes files that MQTT needs, nor keeps others out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import cast

from bridge.base import Belongings
from gateway.base.config_console import CONNECTIONS_MAX
from gateway.sockets.door import origin_of

HERE = "here"
"""Origin of the connections of this machine."""
OF_ADDRESS_MAX = 32
"""Connections of one IPv4 address or IPv6 /64. This machine is not counted: a proxy may stand there for many."""
HEADER_S = 10.0
"""Seconds from the connection to the end of its first header."""
IDLE_S = 60.0
"""Seconds from a request's answer, which has to be read meanwhile, to the end of the next header."""


class ConsoleDoor:
    """Register of all connections of a console. `make`: makes aiohttp's end of a connection."""

    def __init__(self, make: Callable[[], asyncio.Protocol]) -> None:
        self._make = make
        self._open: dict[asyncio.BaseTransport, Visit] = {}
        self._idle: dict[Visit, None] = {}  # idle connections, in the order in which they became idle
        self._of_origin: Belongings[str, Visit] = Belongings()  # the oldest of each origin first

    def __len__(self) -> int:
        return len(self._open)

    def __call__(self) -> asyncio.Protocol:
        """Makes a connection: the factory of `create_server`."""
        return Visit(self, self._make())

    def enter_visit(self, visit: Visit, transport: asyncio.BaseTransport) -> bool:
        """Counts a new connection; returns True if it may stay."""
        peer = transport.get_extra_info("peername")
        origin = origin_of(peer[0]) if isinstance(peer, tuple) else None
        if origin is not None and len(self._of_origin.things_of(origin)) >= OF_ADDRESS_MAX:
            return False
        visit.origin = origin or HERE
        if len(self._open) >= CONNECTIONS_MAX:
            gone = self._of_origin.oldest_of_more(visit.origin) or self._oldest_idle(visit.origin)
            if gone is None:
                return False
            gone.cut()
        self._of_origin.add(visit.origin, visit)
        self._open[transport] = visit
        self._wait_for_request(visit, HEADER_S)
        return True

    def _oldest_idle(self, origin: str) -> Visit | None:
        """Returns the idle connection that waited longest: of this origin, or of any for an origin without one."""
        has_own = bool(self._of_origin.things_of(origin))
        return next((visit for visit in self._idle if visit.origin == origin or not has_own), None)

    def leave_visit(self, visit: Visit, transport: asyncio.BaseTransport) -> None:
        """Removes a connection from the count."""
        if self._open.pop(transport, None) is None:
            return
        visit.stop_timer()
        self._idle.pop(visit, None)
        self._of_origin.drop_thing(visit.origin, visit)

    @contextlib.contextmanager
    def without_timer(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """Stops the connection's timer while a request is answered, which has bounds of its own."""
        visit = self._open.get(transport) if transport is not None else None
        if visit is not None:
            visit.stop_timer()
            self._idle.pop(visit, None)
        try:
            yield
        finally:
            if transport in self._open and visit is not None:
                self._wait_for_request(visit, IDLE_S)

    def _wait_for_request(self, visit: Visit, within_s: float) -> None:
        self._idle[visit] = None
        visit.start_timer(within_s)


class Visit(asyncio.Protocol):
    """Connection to the console: passes everything on to aiohttp, unless it may not stay."""

    def __init__(self, door: ConsoleDoor, inner: asyncio.Protocol) -> None:
        self._door, self._inner = door, inner
        self._transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_in = False
        self.origin = HERE

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._is_in = self._door.enter_visit(self, transport)
        if self._is_in:
            self._inner.connection_made(transport)
        else:
            self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_in and self._transport is not None:
            self._door.leave_visit(self, self._transport)
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._is_in else None

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def cut(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            if self._is_in:
                self._door.leave_visit(self, self._transport)
                self._is_in = False
                self._inner.connection_lost(None)
            cast(asyncio.WriteTransport, self._transport).abort()

    def start_timer(self, within_s: float) -> None:
        """Ends the connection after `within_s` seconds, unless the timer is stopped."""
        self._timer = asyncio.get_running_loop().call_later(within_s, self.cut)

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
