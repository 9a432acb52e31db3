"""Which new connections stay: how many in all, from one address, that have not said CONNECT, that failed to log in."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from gateway.base import Limits, behind_reads
from gateway.clients import Reached
from gateway.sockets.connection import MqttConnection


@lru_cache(maxsize=4_096)
def origin_of(host: str) -> str | None:
    """Whom an address is counted for: itself, or the /64 of IPv6. None: this machine, or no IP address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return origin_of(str(address.ipv4_mapped))
        return None if address.is_loopback else f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return None if address.is_loopback else str(address)


class Door:
    """All open connections: how many, from where, and which of them have not been accepted yet. `later` as
    `behind_reads`."""

    def __init__(
        self, limits: Limits, reached: Reached, later: Callable[[Callable[[], None]], None] = behind_reads
    ) -> None:
        self.limits, self._reached, self._later = limits, reached, later
        self._is_looking = False  # for room, soon
        # So many connections at once, where the machine gives files for fewer than `limits.connections`.
        self.most = limits.connections
        self._open: dict[MqttConnection, str | None] = {}
        self._by_origin: Counter[str] = Counter()
        self._half_open: dict[MqttConnection, None] = {}  # in the order in which they came

    @property
    def half_open(self) -> int:
        return len(self._half_open)

    def enter(self, connection: MqttConnection) -> bool:
        """Count a new connection; False if it may not stay.

        Above `half_open` the one that has waited longest is cut off instead, once everything that could be read was
        read: a flood of silent connections must not keep out clients that say CONNECT at once, and of thousands that
        come together most have said it before we look.
        """
        limits, reached = self.limits, self._reached
        if len(self._open) >= min(limits.connections, self.most):
            reached.note("connections", connection.address)
            return False
        peer = connection.peer
        origin = origin_of(peer[0]) if peer else None
        if origin is not None:
            if self._by_origin[origin] >= limits.connections_per_address:
                reached.note("connections_per_address", origin)
                return False
            self._by_origin[origin] += 1
        self._open[connection] = origin
        self._half_open[connection] = None
        if len(self._half_open) > limits.half_open and not self._is_looking:
            self._is_looking = True
            self._later(self._make_room)
        return True

    def _make_room(self) -> None:
        self._is_looking = False
        while len(self._half_open) > self.limits.half_open:
            oldest = next(iter(self._half_open))
            del self._half_open[oldest]
            self._reached.note("half_open", oldest.address)
            oldest.abort()

    def accepted(self, connection: MqttConnection) -> None:
        """Its CONNECT was."""
        self._half_open.pop(connection, None)

    def leave(self, connection: MqttConnection) -> None:
        self._half_open.pop(connection, None)
        origin = self._open.pop(connection, None)
        if origin is not None:
            self._by_origin[origin] -= 1
            if not self._by_origin[origin]:
                del self._by_origin[origin]


ORIGINS_MAX = 10_000
"""Addresses whose failed logins are remembered; the one that failed longest ago goes first."""


class Failures:
    """Failed logins by address: so many in a minute, then the address waits. Loopback is not counted.

    No more logins of one address are judged at once than may still fail: a guesser who sends a thousand passwords at
    once has no more of them looked at than one who sends them in turn. The others wait; a thousand devices behind one
    address that all know their passwords get in.
    """

    def __init__(self, limits: Limits, reached: Reached, now: Callable[[], float]) -> None:
        self.limits, self._reached, self._now = limits, reached, now
        self._failed: OrderedDict[str, tuple[float, float]] = OrderedDict()  # how many are left, as of when
        self._judged: Counter[str] = Counter()  # how many are, now
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def may_try(self, host: str | None) -> bool:
        """Whether a login from there is looked at."""
        origin = None if host is None else origin_of(host)
        if origin is None or self._may_fail(origin):
            return True
        self._reached.note("login_failures", origin)
        return False

    def _may_fail(self, origin: str) -> bool:
        return self._count(origin) + 1 <= self.limits.login_failures

    @contextlib.asynccontextmanager
    async def judging(self, host: str | None) -> AsyncIterator[bool]:
        """Waits for a turn to judge a login from there. Gives whether it is judged; what failed since may forbid it."""
        origin = None if host is None else origin_of(host)
        if origin is None:
            yield True
            return
        while self._may_fail(origin) and self._count(origin) + self._judged[origin] + 1 > self.limits.login_failures:
            await self._turn(origin)
        is_judged = self.may_try(host)
        self._judged[origin] += is_judged
        try:
            yield is_judged
        finally:
            self._judged[origin] -= is_judged
            if not self._judged[origin]:
                del self._judged[origin]
            self._wake(origin)

    async def _turn(self, origin: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(origin, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake(origin)  # it was our turn, and we do not take it
            raise

    def _wake(self, origin: str) -> None:
        """Gives the turn to the next who waits; it passes the turn on when it is judged or refused."""
        waiting = self._waiting.get(origin, deque())
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if not waiting:
            self._waiting.pop(origin, None)

    def failed(self, host: str | None) -> None:
        origin = None if host is None else origin_of(host)
        if origin is not None:
            self._failed[origin] = (self._count(origin) + 1, self._now())
            self._failed.move_to_end(origin)
            if len(self._failed) > ORIGINS_MAX:
                self._failed.popitem(last=False)

    def _count(self, origin: str) -> float:
        count, at = self._failed.get(origin, (0.0, 0.0))
        return max(0.0, count - (self._now() - at) * self.limits.login_failures / 60)
