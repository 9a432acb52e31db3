"""Record of a client in the broker, and the times at which clients need attention.

A `Client` joins the protocol state (`mqtt5/session.py`), the view of amqtt's plugins (`plugin.EdgeSession`) and the
network connection, if there is one. No decisions here.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from gateway.base import TURN_S, FairTurns
from gateway.mqtt5.delivery import Journal
from gateway.mqtt5.flows import NONE
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Packet, Publish
from gateway.mqtt5.session import ServerSession, SessionSubscription
from gateway.mqtt5.types import ReasonCode
from gateway.plugins import EdgeSession

if TYPE_CHECKING:
    from gateway.clients.bounds import Pace
    from gateway.clients.overlay_port import Done


INTERNAL = "$veilmq/"
"""Prefix of client ids and listeners of parts of this process: bridges, the page. Refused to all others."""


FINAL_REFUSALS = frozenset(
    {
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.TOPIC_NAME_INVALID,
        ReasonCode.PACKET_TOO_LARGE,
        ReasonCode.PAYLOAD_FORMAT_INVALID,
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    }
)
"""Refusals, of this broker and of the overlay, that a repetition cannot cure. A client below MQTT 5 then gets an
acknowledgement: otherwise it would repeat the message after each connect, for ever, and send nothing behind it.
"""


class OwedAck:
    """Acknowledgement the broker owes a client; `code` None: undecided. `answers`: how many answers are awaited. `run`:
    all publications that are decided together, if they are several; `publish` is the first. `is_routed`: receivers here
    have the publication. `is_repeated`: they had it before it came now.
    """

    __slots__ = ("_worst", "answers", "code", "is_repeated", "is_routed", "publish", "run")

    def __init__(self, publish: Publish, code: int | None = None, run: Sequence[Publish] = ()) -> None:
        self.publish, self.code, self.run = publish, code, run
        self.answers, self._worst = 1, 0
        self.is_routed = self.is_repeated = False

    def answer(self, code: int) -> None:
        """Counts the answer of a store or overlay: `code` accepts or refuses the message.

        A refusal that repeating may cure decides at once: nothing that its client sent behind the message may be taken
        before it is repeated (MQTT-4.6.0-2).
        """
        self._worst = max(self._worst, code)
        self.answers -= 1
        if self.answers <= 0 or (code >= ReasonCode.UNSPECIFIED_ERROR and code not in FINAL_REFUSALS):
            self.code = self._worst

    @property
    def is_good_so_far(self) -> bool:
        """True while no answer refuses the message."""
        return self._worst < ReasonCode.UNSPECIFIED_ERROR

    @property
    def refuses(self) -> bool:
        """True if the code is a refusal without a form below MQTT 5: the connection ends, and the client repeats."""
        code = self.code
        return code is not None and code >= 0x80 and code not in FINAL_REFUSALS


class PeerMessage(Message):
    """Publication to a member of the overlay whose acknowledgement is awaited."""

    __slots__ = ("on_ack",)

    on_ack: Done


class ClientConnection(Protocol):
    """Network connection of a client, as all modules but its own see it (`sockets/connection.py`)."""

    closed: bool
    is_overlay: bool
    listener: str
    reauthentication: Any
    held_until: float

    @property
    def address(self) -> str: ...
    @property
    def peer(self) -> tuple[str, int] | None: ...
    @property
    def is_held(self) -> bool: ...
    @property
    def is_waiting(self) -> bool: ...
    async def challenge(self, data: bytes) -> Packet: ...
    async def room(self) -> bool: ...
    def write(self, data: bytes) -> None: ...
    def write_all(self, packets: Sequence[bytes]) -> None: ...
    def hold_bytes(self, batch: int) -> bool: ...
    def release_bytes(self, batch: int) -> None: ...
    def pause(self, why: int) -> None: ...
    def resume(self, why: int) -> None: ...
    def read_on(self) -> None: ...
    def next_held(self) -> Publish | None: ...
    def take_held(self) -> None: ...
    @property
    def held_publications(self) -> int: ...
    def probe_host(self, within_s: float) -> None: ...
    def close(self, farewell: bytes = b"", lingers: bool = False) -> None: ...
    def abort(self) -> None: ...


class StoredSession(Journal, Protocol):
    """Session on disk, as all modules but the store see it (`sessions/store.py`)."""

    id: int
    client: Client

    def row(self) -> tuple[object, ...]: ...
    def hold_later_bytes(self) -> None: ...


class Client:
    """Record of a client id. `filters`: its filters in the router; `alive` is False once the session has ended."""

    __slots__ = (
        "acks",
        "alive",
        "bridge",
        "connection",
        "filters",
        "goodbye",
        "hold_again_at",
        "holds",
        "is_behind",
        "is_refused",
        "pace",
        "peer",
        "plain",
        "record",
        "seen_at",
        "session",
        "undecided",
        "view",
        "wake_at",
    )

    def __init__(self, session: ServerSession, view: EdgeSession) -> None:
        self.session, self.view = session, view
        self.connection: ClientConnection | None = None
        self.peer: str | None = None
        # The name of the broker whose bridge the client is, "" if it gave none; None: no bridge.
        self.bridge: str | None = None
        # The client's publication that waits for other clients, of any connection; later ones do not overtake it.
        self.undecided: asyncio.Future[None] | None = None
        # The rate at which the client may publish; None: unlimited.
        self.pace: Pace | None = None
        # 0 (3.1.1) or 1 (MQTT 5) where a QoS 0 message needs nothing of the session: no alias, no size limit.
        self.plain: int | None = None
        # The stored session (`store.py`), if any.
        self.record: StoredSession | None = None
        self.acks: deque[OwedAck] | tuple[()] = ()
        # True if `acks` has a refusal that the client's version cannot express (`OwedAck.refuses`).
        self.is_refused = False
        self.filters: dict[str, SessionSubscription] = NONE
        # Do publishers wait while its queue is long, is it so now, and when at the earliest again (`holding.py`).
        self.holds, self.is_behind, self.hold_again_at = True, False, 0.0
        self.alive = True
        self.goodbye = (False, "connection lost")
        self.seen_at = 0.0
        self.wake_at: float | None = None

    @property
    def client_id(self) -> str:
        return self.session.client_id

    def owe(self, owed: OwedAck) -> None:
        """Appends an acknowledgement to `acks`. Most clients never have a queue."""
        if isinstance(self.acks, tuple):
            self.acks = deque()
        self.acks.append(owed)
        self.is_refused = self.is_refused or owed.refuses

    def decide(self, owed: OwedAck, code: int) -> None:
        """Adds an answer to an acknowledgement that this client is owed, and notes a refusal. What is decided stays."""
        if owed.code is None:
            owed.answer(code)
            self.is_refused = self.is_refused or owed.refuses

    def __repr__(self) -> str:
        return f"Client({self.client_id!r})"


class Undecided:
    """Will that is due and that a plugin has not yet allowed or refused."""

    __slots__ = ("decision", "is_back")

    def __init__(self) -> None:
        self.decision: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_back = False


STALE_ENTRIES = 1_024
"""Stale entries are cleared out when there are so many more entries than clients."""
COLLECT_S = 0.05
"""Seconds for which due clients are collected at least, so that thousands cost one wake-up."""


class Deadlines:
    """Timer of all clients. Calls `due(client, now)` when a client's session needs it: keep-alive, will delay, expiry.

    A heap and a single timer for all clients. A message moves a keep-alive deadline only in the session, not here: an
    entry coming too early is put back at its new time.
    """

    def __init__(
        self, now: Callable[[], float], due: Callable[[Client, float], float | None], turns: FairTurns
    ) -> None:
        """`due` does all work that is due and returns the client's next time, or None."""
        self._now, self._due, self._turns = now, due, turns
        self._heap: list[tuple[float, int, Client]] = []
        self._serial = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_ticking = False

    def wake(self, client: Client, at: float | None, clients: int) -> None:
        """Sets the time of a client to `at` or later; an earlier entry of the client stays and is put back."""
        if at is None or (client.wake_at is not None and client.wake_at <= at):
            return
        client.wake_at = at
        heapq.heappush(self._heap, (at, next(self._serial), client))
        if len(self._heap) > 2 * clients + STALE_ENTRIES:
            self._heap = [entry for entry in self._heap if entry[2].wake_at == entry[0] and entry[2].alive]
            heapq.heapify(self._heap)
        self._arm()

    def attend_due_clients(self, now: float, clients: int, ends: float = inf) -> None:
        """Attends to all clients whose time has come. Called by the timer, and by tests with their own time. `ends`:
        when to stop, by `perf_counter`.
        """
        while self._heap and self._heap[0][0] <= now:
            at, _, client = heapq.heappop(self._heap)
            if client.wake_at != at or not client.alive:
                continue
            client.wake_at = None
            following = self._due(client, now)
            if following is not None:
                self.wake(client, max(following, now + COLLECT_S), clients)
            if perf_counter() > ends:
                break
        self._arm()

    def _arm(self) -> None:
        if not self._heap or self._is_ticking:
            return
        at = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        delay_s = max(at - self._now(), 0.0) + COLLECT_S
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        """Attends to some clients in a turn: a hundred thousand whose wills fall due together keep nobody waiting."""
        self._timer = None
        now, self._is_ticking = self._now(), True
        self.attend_due_clients(now, len(self._heap), perf_counter() + TURN_S)
        self._is_ticking = bool(self._heap) and self._heap[0][0] <= now
        if self._is_ticking:
            self._turns.call("", self._fire)
        else:
            self._arm()

    def stop(self) -> None:
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
