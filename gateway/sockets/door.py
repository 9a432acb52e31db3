"""Admission of new connections: bounds on their number in all, from an address, before CONNECT, and on failed
logins.

Where all places are taken, the address with most connections loses one to an address with fewer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from bridge.base import Belongings
from gateway.base import Limits, behind_reads
from gateway.clients import Reached
from gateway.sockets.connection import MqttConnection


@lru_cache(maxsize=4_096)
def origin_of(host: str) -> str | None:
    """Returns the origin for which an address is counted: itself, or the /64 of IPv6. None: this machine, or no IP
    address.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return origin_of(str(address.ipv4_mapped))
        return None if address.is_loopback else f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return None if address.is_loopback else str(address)


HERE = "this machine"
"""Owner of the connections of this machine. A proxy may stand there for many: no other address takes a place of theirs.
"""


class Door:
    """Register of all open connections: their number, their origins, and those not accepted yet. `later`: see
    `behind_reads`.
    """

    def __init__(
        self, limits: Limits, reached: Reached, later: Callable[[Callable[[], None]], None] = behind_reads
    ) -> None:
        self.limits, self._reached, self._later = limits, reached, later
        self._is_looking = False  # True while a check for room is scheduled
        # Most connections at once, if the machine has files for fewer than `limits.connections`.
        self.most = limits.connections
        self._open: dict[MqttConnection, str] = {}  # with the origin of each
        self._of_origin: Belongings[str, MqttConnection] = Belongings()  # without those of this machine
        self._not_accepted: set[MqttConnection] = set()
        self._half_open: Belongings[str, MqttConnection] = Belongings()  # the same, by origin, the oldest first

    @property
    def half_open(self) -> int:
        return len(self._not_accepted)

    def enter_connection(self, connection: MqttConnection) -> bool:
        """Counts a new connection; returns False if it may not stay.

        Above `half_open` the address with most such connections loses the one that has waited longest instead, once
        all readable data was read. A flood of silent connections must not keep out clients sending CONNECT at once; of
        thousands coming together most have sent CONNECT before this check.
        """
        limits, reached = self.limits, self._reached
        peer = connection.peer
        origin = (origin_of(peer[0]) if peer else None) or HERE
        if origin != HERE and len(self._of_origin.things_of(origin)) >= limits.connections_per_address:
            reached.note_bound("connections_per_address", origin)
            return False
        if len(self._open) >= min(limits.connections, self.most):
            reached.note_bound("connections", connection.address)
            if (gone := self._gives_way(origin)) is None:
                return False
            self.leave_connection(gone)
            gone.abort()
        self._open[connection] = origin
        if origin != HERE:
            self._of_origin.add(origin, connection)
        self._not_accepted.add(connection)
        self._half_open.add(origin, connection)
        if len(self._not_accepted) > limits.half_open and not self._is_looking:
            self._is_looking = True
            self._later(self._drop_half_open)
        return True

    def _gives_way(self, origin: str) -> MqttConnection | None:
        """Returns the connection that ends for a new one: of the address with most the oldest, those that are not
        accepted first. None: no address has more than the new one's.
        """
        oldest = None if origin == HERE else self._of_origin.oldest_of_more(origin)
        if oldest is None:
            return None
        return next(iter(self._half_open.things_of(self._open[oldest])), oldest)

    def _drop_half_open(self) -> None:
        self._is_looking = False
        while len(self._not_accepted) > self.limits.half_open:
            oldest = self._half_open.oldest_of_most()
            self.take_accepted(oldest)
            self._reached.note_bound("half_open", oldest.address)
            oldest.abort()

    def take_accepted(self, connection: MqttConnection) -> None:
        """Takes a connection whose CONNECT was accepted out of the half-open ones."""
        if connection in self._not_accepted:
            self._not_accepted.discard(connection)
            self._half_open.drop_thing(self._open[connection], connection)

    def leave_connection(self, connection: MqttConnection) -> None:
        self.take_accepted(connection)
        origin = self._open.pop(connection, None)
        if origin is not None and origin != HERE:
            self._of_origin.drop_thing(origin, connection)


ORIGINS_MAX = 10_000
"""Addresses whose failed logins are remembered; the address that failed longest ago is dropped first."""


class Failures:
    """Failed logins by address: above a number in a minute the address waits. Loopback is not counted.

    No more logins of an address are judged at once than may still fail: a guesser sending a thousand passwords at once
    has no more of them checked than one that sends them in turn. The others wait; a thousand devices behind a single
    address that all know their passwords get in.
    """

    def __init__(self, limits: Limits, reached: Reached, now: Callable[[], float]) -> None:
        self.limits, self._reached, self._now = limits, reached, now
        self._failed: OrderedDict[str, tuple[float, float]] = OrderedDict()  # failures left, and their time
        self._judged: Counter[str] = Counter()  # logins being judged
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def may_try(self, host: str | None) -> bool:
        """True if a login from this host is checked."""
        origin = None if host is None else origin_of(host)
        if origin is None or self._may_fail(origin):
            return True
        self._reached.note_bound("login_failures", origin)
        return False

    def _may_fail(self, origin: str) -> bool:
        return self._present_count(origin) + 1 <= self.limits.login_failures

    @contextlib.asynccontextmanager
    async def judging(self, host: str | None) -> AsyncIterator[bool]:
        """Waits for a turn to judge a login from this host. Yields True if the login is judged; failures in the
        meantime may forbid it.
        """
        origin = None if host is None else origin_of(host)
        if origin is None:
            yield True
            return
        while (
            self._may_fail(origin)
            and self._present_count(origin) + self._judged[origin] + 1 > self.limits.login_failures
        ):
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
                self._wake(origin)  # passes on a turn that is not taken
            raise

    def _wake(self, origin: str) -> None:
        """Gives the turn to the next waiting login, which passes the turn on when it is judged or refused."""
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
            self._failed[origin] = (self._present_count(origin) + 1, self._now())
            self._failed.move_to_end(origin)
            if len(self._failed) > ORIGINS_MAX:
                self._failed.popitem(last=False)

    def _present_count(self, origin: str) -> float:
        count, at = self._failed.get(origin, (0.0, 0.0))
        return max(0.0, count - (self._now() - at) * self.limits.login_failures / 60)
