"""Waits of publishers for connected receivers with a long queue: an acknowledged publication is then not dropped.

A receiver whose queue is half full (in bytes: with messages in flight) is *behind*, if its listener has `when_full:
hold`. A publication of QoS 1 or 2 for it waits, before it is routed and acknowledged; its other receivers wait too.
As the receiver acknowledges, as many publications go on as fit, in the order in which they came. So publishers fill
its queue to the half.

Publications that cannot be held back are queued at once: wills, publications of plugins and of the overlay. The queue
of a receiver that is behind stretches for them (`SessionLimits.stretch_*`), and their publisher waits afterwards: a
plugin in its call, the overlay with its acknowledgement to the replicas (`burdened`). The overlay waits up to
`hold_s` until the receiver has caught up, then not at all: unrelated clients wait behind it.

A receiver is given up when a publication has waited `limits.hold_s` for it and the receiver has not, in as long,
acknowledged a whole window (`in_flight`, or half of `queue_bytes` where messages are large). A receiver reading does
so, however long each round trip takes. After that it drops the oldest again, and no publisher waits for it for
`RESPITE` times as long, so that a stuck receiver costs each of its publishers at most sharing of the time. The number
of waiting publishers does not count, or a receiver reading would lose its next messages. A receiver without a
connection holds up no publisher.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from time import perf_counter
from typing import NamedTuple, TypeAlias

from gateway.base import TURN_S, FairTurns, Limits
from gateway.clients import Client, DeliveryPlan, Reached
from gateway.operation import Traffic
from gateway.sockets.flushing import Later

RESPITE = 6
"""A receiver that was given up holds up no publisher for so many times `hold_s`."""

Obstacles: TypeAlias = Callable[[set[Client]], list[Client]]
"""Returns receivers for one of which a publication must wait, without those for which it has waited; none: it may
go.
"""


class _Held:
    """Held publication: its obstacles and the callback that releases it. `is_brief`: does not wait long for a slow
    receiver. Not a task each: five hundred publishers waiting for a receiver are usual.
    """

    __slots__ = ("done", "go", "is_brief", "obstacles", "passed", "sender")

    def __init__(
        self, obstacles: Obstacles, go: Callable[[], Later | None], is_brief: bool, sender: Client | None
    ) -> None:
        self.obstacles, self.go, self.is_brief, self.sender = obstacles, go, is_brief, sender
        self.passed = set[Client]()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def publications(self) -> int:
        """The number of publications, with followers on the publisher's connection."""
        connection = None if self.sender is None else self.sender.connection
        return 1 if connection is None else 1 + connection.held_publications


class _Turn:
    """A wait of a held publication, for one of some receivers; `woken`: by the first receiver with room. `room`: the
    number of publications with a reserved place.
    """

    __slots__ = ("held", "room", "since", "woken")

    def __init__(self, held: _Held, since: float) -> None:
        self.held, self.since, self.room = held, since, 0
        self.woken: _Behind | None = None


class Backlog(NamedTuple):
    """Messages a receiver has not acknowledged, including those that expired before it: an expiry is no sign of
    life.
    """

    messages: int
    held_bytes: int

    @classmethod
    def of_client(cls, client: Client) -> Backlog:
        session = client.session
        figures = session.figures
        messages = session.outbound.in_flight + len(session.waiting) + figures.dropped_expired
        return cls(messages, session.held_bytes + figures.expired_waiting_bytes)


class _Behind:
    """Receiver that is behind, the publications that wait for it, and its acknowledgements since it last acknowledged a
    window, at `paced_at`. `slow_at`: from then on no brief wait is for it.
    """

    __slots__ = (
        "acknowledged",
        "acknowledged_bytes",
        "client",
        "is_letting_in",
        "let_through",
        "paced_at",
        "slow_at",
        "timer",
        "waiting",
    )

    def __init__(self, client: Client, now: float) -> None:
        self.client = client
        self.waiting: deque[_Turn] = deque()
        self.let_through = 0  # woken, and not yet in its queue
        self.is_letting_in = False  # one of them goes on now
        self.timer: asyncio.TimerHandle | None = None
        self.slow_at = math.inf
        self.paced_at, self.acknowledged, self.acknowledged_bytes = now, 0, 0

    def count_acknowledged(self, before: Backlog, now: float) -> None:
        """Counts the acknowledgements of a read of the receiver, which had `before` unacknowledged."""
        session, after = self.client.session, Backlog.of_client(self.client)
        self.acknowledged += before.messages - after.messages
        self.acknowledged_bytes += before.held_bytes - after.held_bytes
        is_window = self.acknowledged >= session.outbound.window_max
        if (
            is_window or 2 * self.acknowledged_bytes >= session.limits.queue_bytes
        ):  # half of `queue_bytes` is all that it was sent
            self.paced_at, self.acknowledged, self.acknowledged_bytes = now, 0, 0

    def forget_gone(self) -> None:
        """Drops leading turns no longer wait: another member of a group had room, or the wait was cancelled."""
        while self.waiting and (self.waiting[0].woken is not None or self.waiting[0].held.done.done()):
            self.waiting.popleft()


class Holding:
    """Waits of a broker. Clients are compared by identity."""

    def __init__(
        self, limits: Limits, reached: Reached, traffic: Traffic, now: Callable[[], float], turns: FairTurns
    ) -> None:
        self.limits, self._turns = limits, turns
        self._reached, self._traffic, self._now = reached, traffic, now
        self.behind: dict[Client, _Behind] = {}
        self._burdened: set[Client] = set()
        self._woken: list[_Turn] = []

    @property
    def waiting(self) -> int:
        """The number of publications waiting now."""
        return sum(len(one.waiting) for one in self.behind.values())

    # ------------------------------------------------------------------------------------------ of receivers

    def given(self, client: Client) -> None:
        """Notes that a message was queued for a connected client, or a large one sent: the client may be behind from
        now on.
        """
        if client.is_behind or not client.holds or not _is_half_full(client) or self._now() < client.hold_again_at:
            return
        client.is_behind, limits = True, client.session.limits
        if len(client.session.waiting) > limits.queue_messages or client.session.held_bytes > limits.queue_bytes:
            client.session.is_stretched = True  # before it connected anew
        self.behind[client] = _Behind(client, self._now())

    def note_read(self, client: Client, before: Backlog) -> None:
        """Notes a single read of a client that is behind, and had `before` unacknowledged."""
        self.behind[client].count_acknowledged(before, self._now())
        self.let_in(client)

    def let_in(self, client: Client) -> None:
        """Lets as many publications go on as there is room for."""
        behind = self.behind[client]
        if _is_heavy(client):
            return
        room = self._room(behind)
        while room > 0 and behind.waiting:
            room -= self._wake(behind, behind.waiting.popleft(), room)
        if not behind.waiting and not behind.let_through and not _is_half_full(client):
            self.lift(client)

    def _room(self, behind: _Behind) -> int:
        """Returns the number of free places in the queue of a slow receiver."""
        session = behind.client.session
        return max(1, session.limits.queue_messages // 2) - len(session.waiting) - behind.let_through

    def has_room(self, client: Client) -> bool:
        """True if a slow receiver lets publications in, and the queue has a free place."""
        behind = self.behind[client]
        return behind.is_letting_in and not _is_heavy(client) and self._room(behind) > 0

    def lift(self, client: Client) -> None:
        """Ends all waits for this client: it has caught up, has gone, or is given up."""
        behind = self.behind.pop(client, None)
        client.is_behind = client.session.is_stretched = False
        self._burdened.discard(client)
        if behind is None:
            return
        if behind.timer is not None:
            behind.timer.cancel()
        for turn in behind.waiting:
            self._wake(behind, turn)
        behind.waiting.clear()

    def _wake(self, behind: _Behind, turn: _Turn, room: int = 1) -> int:
        """Lets a publication and followers go on, within `room`. Returns the number of places taken."""
        if turn.woken is not None:
            return 0
        turn.woken = behind
        turn.room = min(room, turn.held.publications)
        behind.let_through += turn.room
        if not self._woken:  # not at once: bytes from the receiver's own queue are not written yet
            asyncio.get_running_loop().call_soon(self._go_on)
        self._woken.append(turn)
        return turn.room

    def _go_on(self) -> None:
        turns, self._woken = self._woken, []
        receivers, too_early, ends = set[Client](), list[tuple[Client, _Turn]](), perf_counter() + TURN_S
        for number, turn in enumerate(turns, 1):
            behind = turn.woken
            assert behind is not None
            behind.let_through -= turn.room
            client = behind.client
            receivers.add(client)
            is_same = self.behind.get(client) is behind  # else it was given up, or is there anew: nobody waits twice
            if is_same and _is_heavy(client) and not turn.held.is_brief:  # what went before it was large
                too_early.append((client, turn))
            else:
                behind.is_letting_in = True
                self._look_again(turn.held)
                behind.is_letting_in = False
            if number < len(turns) and perf_counter() > ends:
                # Hundreds of publishers, each with a thousand publications behind the one that waits.
                self._woken = [*turns[number:], *self._woken]
                self._turns.call("", self._go_on)
                break
        for client, turn in reversed(too_early):
            if (again := self.behind.get(client)) is not None:
                self._queue_turn(again, turn, in_front=True)
            else:  # given up at this moment
                self._look_again(turn.held)
        for client in receivers:
            if client.is_behind:
                self.let_in(client)  # acknowledgements to the overlay wait too, and take no room

    def _review_receiver(self, behind: _Behind) -> None:
        """Gives the receiver up, or sets the timer to the earliest time to do so: a timer for each receiver."""
        behind.timer = None
        behind.forget_gone()
        if not behind.waiting:
            return
        now, client = self._now(), behind.client
        ends_at = max(behind.waiting[0].since, behind.paced_at) + self.limits.hold_s
        if now >= ends_at:
            self._reached.note_bound("hold_s", client.client_id)
            client.hold_again_at = now + RESPITE * self.limits.hold_s
            self.lift(client)
            return
        if now >= behind.slow_at:
            brief = [turn for turn in behind.waiting if turn.held.is_brief]
            behind.waiting = deque(turn for turn in behind.waiting if not turn.held.is_brief)
            for turn in brief:
                self._wake(behind, turn)
        left_s = (ends_at if now >= behind.slow_at else min(ends_at, behind.slow_at)) - now
        behind.timer = asyncio.get_running_loop().call_later(left_s, self._review_receiver, behind)

    # --------------------------------------------------------------------------------------- of publications

    def obstacle(
        self,
        plan: DeliveryPlan[Client],
        qos: int,
        sender: Client,
        passed: set[Client],
        may: Callable[[Client], bool],
    ) -> list[Client]:
        """Returns receivers for one of which a publication must wait; none: it may go. A sender never waits for itself,
        since it would not read. `may`: True for clients that may receive it.
        """

        def stands_in_the_way(client: Client) -> bool:
            return client.is_behind and client is not sender and client not in passed

        for target in plan.targets:
            if target.qos and qos and stands_in_the_way(target.client) and may(target.client):
                return [target.client]
        for group in plan.groups:
            there = [one for one in group.members if one.connection is not None and may(one)]
            if there and all(map(stands_in_the_way, there)):
                return there
        return []

    def hold_publication(
        self,
        obstacles: Obstacles,
        go: Callable[[], Later | None],
        receivers: list[Client],
        sender: Client | None = None,
        is_brief: bool = False,
    ) -> asyncio.Future[None]:
        """Calls `go` when no receiver is in the way, at first one of `receivers`; `obstacles` is asked again after each
        wait, since subscriptions change. The future is done when `go` and its unfinished rest are. `sender`: `go`
        passes publications that its connection holds behind this one, too.
        """
        self._traffic.held += 1
        held = _Held(obstacles, go, is_brief, sender)
        self._wait_for(held, receivers)
        return held.done

    def _look_again(self, held: _Held) -> None:
        self._wait_for(held, held.obstacles(held.passed))

    def _wait_for(self, held: _Held, receivers: list[Client]) -> None:
        if not receivers:
            _finish(held)
            return
        held.passed.update(receivers)
        turn = _Turn(held, self._now())
        for receiver in receivers:
            self._queue_turn(self.behind[receiver], turn)

    def _queue_turn(self, behind: _Behind, turn: _Turn, in_front: bool = False) -> None:
        if in_front:
            turn.woken = None
            behind.waiting.appendleft(turn)
        else:
            behind.forget_gone()
            behind.waiting.append(turn)
        if behind.timer is None:
            self._review_receiver(behind)

    async def until_taken(self, client: Client) -> None:
        """Returns when the client is no longer behind, for messages to it alone."""
        await self.until_all_taken((client,))

    def burden(self, client: Client) -> None:
        """Stretches the queue of a receiver that is behind, for a publication that could not be held back."""
        client.session.is_stretched = True
        self._burdened.add(client)

    def burdened(self) -> Collection[Client]:
        """Returns the clients that were `burden`ed since the last call, and are still behind."""
        burdened, self._burdened = self._burdened, set()
        return burdened

    def until_all_taken(
        self, receivers: Collection[Client], go: Callable[[], None] = lambda: None, is_brief: bool = False
    ) -> asyncio.Future[None]:
        """Calls `go` when each of these has had room once, or is given up; `is_brief`: or is slow."""

        def obstacles(passed: set[Client]) -> list[Client]:
            there = [one for one in receivers if one.is_behind and one not in passed]
            if not is_brief:
                return there[:1]
            if (now := self._now()) >= slow_at:
                return []
            for behind in (self.behind[one] for one in there):  # one of them may be behind anew
                behind.slow_at = min(behind.slow_at, slow_at)
            return [one for one in there if now < self.behind[one].slow_at][:1]

        slow_at = self._now() + self.limits.hold_s
        return self.hold_publication(obstacles, go, obstacles(set()), is_brief=is_brief)


def _finish(held: _Held) -> None:
    done = held.done
    if done.done():  # the wait was cancelled
        return
    try:
        later = held.go()
    except Exception as error:  # noqa: BLE001 -- told to whoever waits
        done.set_exception(error)
        return
    if later is None:
        done.set_result(None)
    else:
        asyncio.get_running_loop().create_task(later).add_done_callback(partial(_tell, done))


def _tell(done: asyncio.Future[None], task: asyncio.Task[None]) -> None:
    if done.done():
        return
    if task.cancelled():
        done.cancel()
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(None)


def _is_half_full(client: Client) -> bool:
    return 2 * len(client.session.waiting) >= client.session.limits.queue_messages or _is_heavy(client)


def _is_heavy(client: Client) -> bool:
    return 2 * client.session.held_bytes >= client.session.limits.queue_bytes
