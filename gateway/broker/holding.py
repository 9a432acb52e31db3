"""Publishers wait for receivers that are connected and have a long queue: what is acknowledged is not dropped then.

A receiver whose queue is half full is *behind*, where its listener says `when_full: hold`. A publication of QoS 1 or 2
that it would get waits, before it is routed and acknowledged; other receivers of it wait with it. As the receiver
acknowledges, as many publications go on as fit, in the order in which they came. So its queue is filled to the half by
publishers.

What nobody can hold back is queued at once: wills, publications of plugins and of the overlay. The queue of a receiver
that is behind stretches for them (`SessionLimits.stretch_*`), and whoever publishes them waits afterwards: a plugin in
its call, the overlay with its acknowledgement to the replicas (`burdened`).

A receiver is given up when a publication has waited `limits.hold_s` for it and it has not, in as long, taken what one
takes that reads (`PACE_MESSAGES`, `PACE_BYTES`). Then it drops the oldest again, and nobody waits for it for `RESPITE`
times as long, so that one that is stuck, or drips, costs each of its publishers at most that share of the time. How
long the line behind it is does not count: one that reads loses nothing because many wait. A receiver without a
connection holds up nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import TypeAlias

from gateway.base import Limits
from gateway.clients import Client, DeliveryPlan, Reached
from gateway.operation import Traffic
from gateway.sockets.flushing import Later

RESPITE = 6
"""A receiver that was given up holds up nobody for so many times `hold_s`."""

PACE_MESSAGES = 100.0
PACE_BYTES = float(1 << 20)
"""Either of these a second, over `hold_s`: a receiver that takes less while others wait is as good as stuck."""

Obstacles: TypeAlias = Callable[[set[Client]], list[Client]]
"""Receivers of which something must wait for one, without those for which it has waited; none: it may go."""


class _Held:
    """What waits: until when, and what is done then. No task each: five hundred publishers that wait for one receiver
    are an ordinary day."""

    __slots__ = ("done", "go", "obstacles", "passed")

    def __init__(self, obstacles: Obstacles, go: Callable[[], Later | None]) -> None:
        self.obstacles, self.go = obstacles, go
        self.passed = set[Client]()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Turn:
    """One time that something waits, for one of some receivers; `woken`: by the first of them that has room."""

    __slots__ = ("held", "since", "woken")

    def __init__(self, held: _Held, since: float) -> None:
        self.held, self.since = held, since
        self.woken: _Behind | None = None


class _Behind:
    """One receiver that is behind, and what waits for it."""

    __slots__ = ("bytes_before", "client", "let_through", "messages_before", "paced_at", "timer", "waiting")

    def __init__(self, client: Client, now: float) -> None:
        self.client = client
        self.waiting: deque[_Turn] = deque()
        self.let_through = 0  # woken, and not yet in its queue
        self.timer: asyncio.TimerHandle | None = None
        self.begin(now)

    def begin(self, now: float) -> None:
        """Count anew what it takes."""
        figures = self.client.session.figures
        self.paced_at = now
        self.messages_before, self.bytes_before = figures.taken, figures.taken_bytes

    def keeps_up(self, hold_s: float) -> bool:
        """Whether it has taken what one takes in `hold_s` that reads."""
        figures = self.client.session.figures
        messages, held_bytes = figures.taken - self.messages_before, figures.taken_bytes - self.bytes_before
        return messages >= PACE_MESSAGES * hold_s or held_bytes >= PACE_BYTES * hold_s


class Holding:
    """Of one broker. Everything about a client is asked and told by identity."""

    def __init__(self, limits: Limits, reached: Reached, traffic: Traffic, now: Callable[[], float]) -> None:
        self.limits = limits
        self._reached, self._traffic, self._now = reached, traffic, now
        self.behind: dict[Client, _Behind] = {}
        self._burdened: set[Client] = set()
        self._woken: list[_Turn] = []

    @property
    def waiting(self) -> int:
        """Publications that wait now."""
        return sum(len(one.waiting) for one in self.behind.values())

    # ------------------------------------------------------------------------------------------ of receivers

    def queued(self, client: Client) -> None:
        """A message was queued for a connected client: it may be behind from now on."""
        if client.is_behind or not client.holds or not _is_half_full(client) or self._now() < client.hold_again_at:
            return
        client.is_behind = True
        self.behind[client] = _Behind(client, self._now())

    def taken(self, client: Client) -> None:
        """A client that is behind has acknowledged something, or others went on: as many go on as there is room for."""
        behind = self.behind[client]
        if behind.keeps_up(self.limits.hold_s):
            behind.begin(self._now())
        limits = client.session.limits
        room = limits.queue_messages // 2 - len(client.session.waiting) - behind.let_through
        if 2 * client.session.held_bytes >= limits.queue_bytes:
            return
        while room > 0 and behind.waiting:
            room -= self._wake(behind)
        if not behind.waiting and not _is_half_full(client):
            self.lift(client)

    def lift(self, client: Client) -> None:
        """Nobody waits for this client any more: it has caught up, has gone, or is given up."""
        behind = self.behind.pop(client, None)
        client.is_behind = client.session.is_stretched = False
        self._burdened.discard(client)
        if behind is None:
            return
        if behind.timer is not None:
            behind.timer.cancel()
        while behind.waiting:
            self._wake(behind)

    def _wake(self, behind: _Behind) -> bool:
        turn = behind.waiting.popleft()
        if turn.woken is not None:
            return False
        turn.woken = behind
        behind.let_through += 1
        if not self._woken:  # not at once: what the receiver's own queue gave is not written yet
            asyncio.get_running_loop().call_soon(self._go_on)
        self._woken.append(turn)
        return True

    def _go_on(self) -> None:
        turns, self._woken = self._woken, []
        for turn in turns:
            assert turn.woken is not None
            turn.woken.let_through -= 1
            self._look(turn.held)
        for client in {turn.woken.client for turn in turns if turn.woken is not None}:
            if client.is_behind:
                self.taken(client)  # not all that waits takes room: acknowledgements to the overlay do not

    def _review(self, client: Client, behind: _Behind) -> None:
        """Give it up, or ask again when that is due at the earliest: one timer for each receiver."""
        behind.timer = None
        if not behind.waiting:
            return
        left_s = max(behind.waiting[0].since, behind.paced_at) + self.limits.hold_s - self._now()
        if left_s > 0:
            behind.timer = asyncio.get_running_loop().call_later(left_s, self._review, client, behind)
            return
        self._reached.note("hold_s", client.client_id)
        client.hold_again_at = self._now() + RESPITE * self.limits.hold_s
        self.lift(client)

    # --------------------------------------------------------------------------------------- of publications

    def obstacle(
        self, plan: DeliveryPlan[Client], qos: int, sender: Client | None, passed: set[Client]
    ) -> list[Client]:
        """Receivers of which a publication must wait for one; none: it may go. A sender never waits for itself, since
        it would not read."""
        for target in plan.targets:
            client = target.client
            if client.is_behind and client is not sender and client not in passed and target.qos and qos:
                return [client]
        for group in plan.groups:
            there = [member for member in group.members if member.connection is not None]
            if there and all(one.is_behind and one is not sender and one not in passed for one in there):
                return there
        return []

    def hold(self, obstacles: Obstacles, go: Callable[[], Later | None]) -> asyncio.Future[None]:
        """Call `go` when nothing is in the way, which is asked again after each receiver that was, since subscriptions
        change. The future is done when `go` is, and what it could not finish at once."""
        self._traffic.held += 1
        held = _Held(obstacles, go)
        self._look(held)
        return held.done

    def hold_publication(
        self, plan: Callable[[], DeliveryPlan[Client]], qos: int, sender: Client, go: Callable[[], Later | None]
    ) -> asyncio.Future[None]:
        """`hold`, for receivers of a plan that is asked again."""
        return self.hold(lambda passed: self.obstacle(plan(), qos, sender, passed), go)

    def _look(self, held: _Held) -> None:
        receivers = held.obstacles(held.passed)
        if not receivers:
            _finish(held)
            return
        held.passed.update(receivers)
        turn = _Turn(held, self._now())
        for receiver in receivers:
            behind = self.behind[receiver]
            behind.waiting.append(turn)
            if behind.timer is None:
                self._review(receiver, behind)

    async def until_taken(self, client: Client) -> None:
        """Return when the client is no longer behind, for what is sent to it alone."""
        await self.until_all_taken((client,))

    def burden(self, client: Client) -> None:
        """One that is behind gets what nobody could hold back: its queue stretches for it."""
        client.session.is_stretched = True
        self._burdened.add(client)

    def burdened(self) -> Collection[Client]:
        """Who was `burden`ed since this was last asked, and is still behind."""
        burdened, self._burdened = self._burdened, set()
        return burdened

    def until_all_taken(
        self, receivers: Collection[Client], go: Callable[[], None] = lambda: None
    ) -> asyncio.Future[None]:
        """Call `go` when each of these has room once, or is given up."""

        def obstacles(passed: set[Client]) -> list[Client]:
            return [one for one in receivers if one.is_behind and one not in passed][:1]

        return self.hold(obstacles, go)


def _finish(held: _Held) -> None:
    done = held.done
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
    if task.cancelled():
        done.cancel()
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(None)


def _is_half_full(client: Client) -> bool:
    session = client.session
    limits = session.limits
    return 2 * len(session.waiting) >= limits.queue_messages or 2 * session.held_bytes >= limits.queue_bytes
