"""Publishers wait for receivers that are connected and have a long queue: what is acknowledged is not dropped then.

A receiver whose queue is half full is *behind*, where its listener says `when_full: hold`. A publication of QoS 1 or 2
that it would get waits, before it is routed and acknowledged; other receivers of it wait with it. As the receiver
acknowledges, as many publications go on as fit, in the order in which they came. So its queue is filled to the half by
publishers, and the rest is for what nobody can hold back: wills, publications of plugins and of the overlay.

No publication waits longer than `limits.hold_s` for a receiver. Then that receiver is given up: it drops the oldest
again, and nobody waits for it for `RESPITE` times as long, so that one that is stuck costs each of its publishers at
most that share of the time. A receiver without a connection holds up nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from gateway.base import Limits
from gateway.clients import Client, DeliveryPlan, Reached, Target
from gateway.operation import Traffic

RESPITE = 6
"""A receiver that was given up holds up nobody for so many times `hold_s`."""


class _Behind:
    """One receiver that is behind, and the publications that wait for it, each with the time since when."""

    __slots__ = ("let_through", "timer", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[float, asyncio.Future[_Behind]]] = deque()
        self.let_through = 0  # woken, and not yet in its queue
        self.timer: asyncio.TimerHandle | None = None


class Holding:
    """Of one broker. Everything about a client is asked and told by identity."""

    def __init__(self, limits: Limits, reached: Reached, traffic: Traffic, now: Callable[[], float]) -> None:
        self.limits = limits
        self._reached, self._traffic, self._now = reached, traffic, now
        self.behind: dict[Client, _Behind] = {}

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
        self.behind[client] = _Behind()

    def taken(self, client: Client) -> None:
        """A client that is behind has acknowledged something: as many publications go on as there is room for."""
        behind = self.behind[client]
        limits = client.session.limits
        room = limits.queue_messages // 2 - len(client.session.waiting) - behind.let_through
        if 2 * client.session.held_bytes >= limits.queue_bytes:
            return
        while room > 0 and behind.waiting:
            room -= self._wake(behind)
        if not behind.waiting and not _is_half_full(client):
            self.lift(client)
        else:
            self._look_later(client, behind)

    def lift(self, client: Client) -> None:
        """Nobody waits for this client any more: it has caught up, has gone, or is given up."""
        behind = self.behind.pop(client, None)
        client.is_behind = False
        if behind is None:
            return
        if behind.timer is not None:
            behind.timer.cancel()
        while behind.waiting:
            self._wake(behind)

    def _wake(self, behind: _Behind) -> bool:
        _, future = behind.waiting.popleft()
        if future.done():
            return False
        future.set_result(behind)
        behind.let_through += 1
        return True

    def _look_later(self, client: Client, behind: _Behind) -> None:
        """One timer for each receiver: for the publication that has waited longest."""
        if behind.timer is not None:
            behind.timer.cancel()
            behind.timer = None
        if behind.waiting:
            left_s = max(0.0, behind.waiting[0][0] + self.limits.hold_s - self._now())
            behind.timer = asyncio.get_running_loop().call_later(left_s, self._give_up, client)

    def _give_up(self, client: Client) -> None:
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

    async def until_free(self, plan: Callable[[], DeliveryPlan[Client]], qos: int, sender: Client | None) -> None:
        """Return when the publication may be routed. `plan` is asked again, since subscriptions change."""
        passed = set[Client]()
        self._traffic.held += 1
        while receivers := self.obstacle(plan(), qos, sender, passed):
            passed.update(receivers)
            future: asyncio.Future[_Behind] = asyncio.get_running_loop().create_future()
            for receiver in receivers:
                behind = self.behind[receiver]
                behind.waiting.append((self._now(), future))
                if behind.timer is None:
                    self._look_later(receiver, behind)
            (await future).let_through -= 1

    async def until_taken(self, client: Client) -> None:
        """Return when the client is no longer behind, for what is sent to it alone."""
        await self.until_free(lambda: _alone(client), 1, None)


def _is_half_full(client: Client) -> bool:
    session = client.session
    limits = session.limits
    return 2 * len(session.waiting) >= limits.queue_messages or 2 * session.held_bytes >= limits.queue_bytes


def _alone(client: Client) -> DeliveryPlan[Client]:
    target: Target[Client] = Target(client, 1, False, (), False, ())
    return DeliveryPlan(b"", (), (target,), ())
