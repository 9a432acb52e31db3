"""Reaches of the replicas of a gateway's region, for each scope that the gateway may read.

Replicas are asked for empty pages: a page has the time of the oldest record (docs/protocol-options.md §12.2). One
request is under way to each replica, and nothing is asked unless somebody looks. A liar can say anything here. The
figure of the quorum holds all the same, since at least one of so many is honest. Not here: reading
(`bridge.reader.replay`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from bridge.contract import HISTORY_TOPIC, HistoryRequest, Send, Wire, number_of, read_page
from bridge.document import Overlay, ScopeSecret
from gateway.base import ReplicaSpan, ScopeSpan
from keys.errors import KeysError

ASK_EVERY_S = 10.0
ANSWER_S = 10.0  # a replica that is silent for so long is asked for the next scope
OURS = 1 << 63  # numbers of readings, which are times, are lower


@dataclass(slots=True)
class _Asked:
    """The questions to one replica."""

    waiting: deque[int]
    number: int = 0
    scope: int = 0
    at: float = 0.0


class HomeReaches:
    """The reaches in the region of the gateway `name`. `send`: sends a wire to a replica."""

    def __init__(self, name: str, send: Callable[[Send], object], clock: Callable[[], float]) -> None:
        self._name, self._send, self._clock = name, send, clock
        self._asked: dict[str, _Asked] = {}  # by replica of the home region
        self._told: dict[tuple[int, str], int] = {}  # by scope and replica: since when, in ms
        self._asked_at = 0.0
        self._last = OURS + int(clock() * 1000)

    def known_spans(self, overlay: Overlay, secrets: Sequence[ScopeSecret], up: Collection[str]) -> list[ScopeSpan]:
        """Returns what is known, and asks for what may have changed."""
        now = self._clock()
        view = overlay.views[overlay.certificate(self._name).region]
        epoch = overlay.policy.calendar.epoch_at(now)
        mine = [each for each in secrets if each.scope.history and overlay.may_read(self._name, each.scope, epoch)]
        numbers = [each.scope.number for each in mine]
        self._told = {key: told for key, told in self._told.items() if key[0] in numbers and key[1] in view.members}
        self._ask_replicas([member for member in view.members if member in up], numbers, now)
        needed = max(view.faults + 1, view.threshold)
        spans = []
        for secret in mine:
            assert secret.scope.history is not None
            oldest_ms = int((now - secret.scope.history.seconds) * 1000)
            replicas = tuple(
                self._span(secret.scope.number, member, member in up, oldest_ms) for member in view.members
            )
            since = sorted(each.first_ms for each in replicas if each.first_ms)
            first_ms = since[needed - 1] if len(since) >= needed else 0
            spans.append(
                ScopeSpan(secret.clear_filter, view.name, secret.scope.history.days, needed, first_ms, replicas)
            )
        return spans

    def _span(self, scope: int, replica: str, is_up: bool, oldest_ms: int) -> ReplicaSpan:
        if not is_up:
            return ReplicaSpan(replica, 0, "away")
        told = self._told.get((scope, replica))
        if told is None:
            return ReplicaSpan(replica, 0, "has not answered yet")
        return ReplicaSpan(replica, max(told, oldest_ms) if told else 0, "" if told else "has nothing")

    def _ask_replicas(self, replicas: Sequence[str], scopes: Sequence[int], now: float) -> None:
        if not 0 <= now - self._asked_at < ASK_EVERY_S:
            self._asked_at = now
            self._asked = {each: self._asked.get(each, _Asked(deque())) for each in replicas}
            for asked in self._asked.values():
                asked.waiting = deque(scopes)
        for replica, asked in self._asked.items():
            if not asked.number or not 0 <= now - asked.at < ANSWER_S:
                self._ask_next(replica, asked, now)

    def _ask_next(self, replica: str, asked: _Asked, now: float) -> None:
        asked.number = 0
        if asked.waiting:
            self._last += 1
            asked.number, asked.scope, asked.at = self._last, asked.waiting.popleft(), now
            request = HistoryRequest(asked.number, asked.scope)  # of no span: nothing but how far it reaches
            self._send(Send(replica, Wire(HISTORY_TOPIC, request.encode())))

    def takes(self, replica: str, payload: bytes) -> bool:
        """Takes a page; returns False for one of a reading."""
        try:
            number = number_of(payload)
            if number < OURS:
                return False
            asked = self._asked.get(replica)
            if asked is not None and number == asked.number:
                self._told[asked.scope, replica] = read_page(payload)[0].since_ms
                self._ask_next(replica, asked, self._clock())
        except KeysError:
            return False  # the node says who sent it
        return True
