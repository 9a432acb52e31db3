"""Scopes with new local subscribers, whose retained values are still under way from the replicas.

Replicas send retained values after a subscription of the gateway, without an end mark. A scope is *settled* `SETTLE_S`
after a quorum acknowledged the subscription, or `QUIET_S` after the last retained value, `MOST_S` at the latest. Copies
in this gateway may be out of date until then, since changes were not sent here. Waiting subscribers go on after
`GIVE_UP_S` without a quorum. Values may arrive for `MOST_S` after the quorum and after the last value: they are older
than new subscriptions. Not here: SUBACK (`accepting`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from bridge.base import overlaps

SETTLE_S = 0.55
QUIET_S = 0.3
MOST_S = 10.0
GIVE_UP_S = 3.0


@dataclass(slots=True)
class _Unsettled:
    """An unsettled scope. `due`: time of settling in the loop's seconds; None: without a quorum."""

    clear_filter: str
    wait_until: float
    due: float | None = None
    latest: float = 0.0
    until: float = inf  # values of before may come so long


class Settling:
    """The unsettled scopes of a gateway. `wanted`: clear filters of scopes with local subscribers, by wire filter;
    `accepted`: tells acknowledgement of a scope by a quorum."""

    def __init__(self, wanted: Callable[[], Mapping[str, str]], accepted: Callable[[str], bool]) -> None:
        self._wanted, self._accepted = wanted, accepted
        self._known: frozenset[str] = frozenset()
        self._unsettled: dict[str, _Unsettled] = {}
        self._waiting: list[tuple[frozenset[str], Callable[[], None]]] = []
        self._timer: asyncio.TimerHandle | None = None

    def look_at_scopes(self) -> None:
        """Notices new scopes, ended scopes and quorums."""
        now, wanted = asyncio.get_running_loop().time(), self._wanted()
        has_changed = wanted.keys() != self._known
        for scope in wanted.keys() - self._known:
            self._unsettled[scope] = _Unsettled(wanted[scope], now + GIVE_UP_S)
        for scope in self._unsettled.keys() - wanted.keys():
            del self._unsettled[scope]
        self._known = frozenset(wanted)
        for scope, one in self._unsettled.items():
            if one.due is None and self._accepted(scope):
                one.due, one.latest = now + SETTLE_S, now + MOST_S
                one.until = one.latest
                has_changed = True
        if has_changed:
            self._end_settled()

    def extend_wait(self, scope: str) -> None:
        """Extends the wait for a scope after a retained value."""
        one = self._unsettled.get(scope)
        if one is not None and one.due is not None:
            now = asyncio.get_running_loop().time()
            one.due = min(one.latest, max(one.due, now + QUIET_S))
            one.until = now + MOST_S

    def unsettled(self, topic_filters: Sequence[str]) -> list[str]:
        """Returns clear filters of unsettled scopes with a topic in common with the given filters."""
        if not self._unsettled:
            return []
        scopes = [one.clear_filter for one in self._unsettled.values()]
        return [scope for scope in scopes if any(overlaps(scope, each) for each in topic_filters)]

    def wait_until_settled(self, scopes: Collection[str], done: Callable[[], None]) -> bool:
        """Calls `done` once the scopes of these clear filters are settled, or after the longest wait. False: not."""
        if not self._is_waited_for(scopes):
            return False
        self._waiting.append((frozenset(scopes), done))
        return True

    def _is_waited_for(self, scopes: Collection[str]) -> bool:
        now = asyncio.get_running_loop().time()
        return any(
            one.clear_filter in scopes and (one.wait_until if one.due is None else one.due) > now
            for one in self._unsettled.values()
        )

    def _end_settled(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = loop.time()
        for scope in [s for s, one in self._unsettled.items() if one.until <= now]:
            del self._unsettled[scope]
        before, self._waiting = self._waiting, []
        ready = []
        for scopes, done in before:
            if self._is_waited_for(scopes):
                self._waiting.append((scopes, done))
            else:
                ready.append(done)
        times = [one.wait_until if one.due is None else one.due for one in self._unsettled.values()]
        times += [one.until for one in self._unsettled.values() if one.until < inf]
        if at := min((at for at in times if at > now), default=0.0):
            self._timer = loop.call_at(at, self._end_settled)
        for done in ready:
            done()

    def stop(self) -> None:
        """Ends all waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        before, self._waiting = self._waiting, []
        self._unsettled.clear()
        for _, done in before:
            done()
