"""The state of a tracker for each followed entity, and the times at which each entity is checked again."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge.traces.kinds import EVERYTHING, Interest, TraceKind, gauge_topic, key_topic, trace_topic
from bridge.tracking.witnessing import Panel
from keys.delegation import Advertisement, Trace
from keys.errors import BadContent

NUMBERS_MAX = 64  # pairs (token, topic) of one witness whose highest number is remembered; a trace older than a
# forgotten pair is no news. An honest witness uses a dozen.
UNOPENED_MAX = 64  # sealed traces of one witness that wait for their key
KEYS_MAX = 32  # of one entity: each witness has its own, and a liar sends keys that open nothing
ANSWERS_MAX = 16  # to one witness in `GAUGE_EVERY_S`: an honest witness asks two or three times


@dataclass(frozen=True, slots=True)
class Follow:
    """A wish to track an entity from now on, or all entities a pattern names; for a name the latest interest
    counts.
    """

    entity: str
    interest: Interest = EVERYTHING


@dataclass(frozen=True, slots=True)
class Unfollow:
    """A wish to track an entity no longer, or all entities that only this pattern named."""

    entity: str


@dataclass(frozen=True, slots=True)
class Observed:
    """A valid trace. `time_ms`: by the clock of the trace's broker; ours for a majority's belief; the entity's for its
    own word at several witnesses. `fields` of a majority's belief: `witnessing.Belief`.
    """

    entity: str
    kind: TraceKind
    time_ms: int
    number: int
    fields: Mapping[str, Any]


@dataclass(slots=True)
class Source:
    """A witness of an entity, with tables of its own, so that a liar fills nobody else's."""

    key: bytes = field(default=b"", repr=False)  # the key that opened the last trace
    # The highest number of each token's key on each topic, and its time: topics overtake each other.
    numbers: OrderedDict[tuple[bytes, str], tuple[int, int]] = field(default_factory=OrderedDict)
    forgotten_ms: int = -1  # the latest time of all forgotten numbers
    unopened: deque[Trace] = field(default_factory=lambda: deque(maxlen=UNOPENED_MAX))
    answered: deque[float] = field(default_factory=lambda: deque(maxlen=ANSWERS_MAX))

    def is_news(self, key: tuple[bytes, str], trace: Trace) -> bool:
        """Returns True unless the trace came already, or is as old as a key that may have been forgotten."""
        known = self.numbers.get(key)
        return trace.time_ms > self.forgotten_ms if known is None else trace.number > known[0]

    def note_trace(self, key: tuple[bytes, str], trace: Trace) -> None:
        """Takes note of a valid trace. Forgets the key that was silent longest if there are more than
        `NUMBERS_MAX`.
        """
        self.numbers[key] = trace.number, trace.time_ms
        self.numbers.move_to_end(key)
        if len(self.numbers) > NUMBERS_MAX:
            self.forgotten_ms = max(self.forgotten_ms, self.numbers.popitem(last=False)[1][1])


@dataclass(slots=True)
class Followed:
    """An entity we track."""

    interest: Interest
    by_name: bool = True  # followed by its own name; False: a pattern named the entity
    # The answers of nodes, by node, and the entity's registration: a lying node names a topic where nobody
    # speaks. The first topic on which a majority of the witnesses is heard is `proven`, and alone from then on.
    candidates: dict[str, Advertisement] = field(default_factory=dict)
    claimed_ms: int = -1  # the time of that registration
    heard_on: dict[bytes, set[int]] = field(default_factory=dict)  # by topic: witnesses with valid traces
    wishes: dict[bytes, tuple[float, bytes]] = field(default_factory=dict)  # our last wish and its time, by topic
    proven: bool = False
    heard: bool = False  # a trace that we could open
    known: bool = False  # a majority of its witnesses was heard lately
    lost: bool = False  # `known` before, and reported as unknown since
    due: float = float("inf")  # the time of the next check
    since: float = 0.0  # the time at which we began to follow
    request: bytes = b""
    ask_at: float = 0.0
    asked: int = 0
    panel: Panel = field(default_factory=Panel)
    keys: deque[bytes] = field(default_factory=lambda: deque(maxlen=KEYS_MAX), repr=False)  # the newest first
    sources: dict[int, Source] = field(default_factory=dict)


def topics_of(tracker: str, advertisement: Advertisement, interest: Interest) -> list[str]:
    """Returns the topics a tracker listens to for its interest in an entity."""
    topics = [trace_topic(advertisement.topic, each) for each in Interest if each in interest]
    return [*topics, gauge_topic(advertisement.topic), key_topic(tracker, advertisement.topic)]


class Looks:
    """A queue of the times at which tens of thousands of entities are checked, earliest first. An entry differing from
    `Followed.due` is stale.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []

    def plan_check(self, entity: str, one: Followed, due: float, followed: dict[str, Followed]) -> None:
        """Plans a check of an entity no later than `due`; an earlier planned time stands."""
        if due >= one.due:
            return
        one.due = due
        heapq.heappush(self._heap, (due, entity))
        if len(self._heap) > 4 * len(followed) + 64:  # stale entries do not pile up
            self._heap = [(each.due, name) for name, each in followed.items()]
            heapq.heapify(self._heap)

    def first_check(self, followed: dict[str, Followed]) -> tuple[float, str] | None:
        """Returns the time and entity of the next check, which stays in the queue."""
        while self._heap:
            due, entity = self._heap[0]
            one = followed.get(entity)
            if one is not None and one.due == due:
                return due, entity
            heapq.heappop(self._heap)
        return None

    def take_entity(self, followed: dict[str, Followed], now: float) -> str | None:
        """Takes out an entity whose check is due. The entity has no planned check until the next `plan_check`."""
        first = self.first_check(followed)
        if first is None or first[0] > now:
            return None
        heapq.heappop(self._heap)
        followed[first[1]].due = float("inf")
        return first[1]


def opened(followed: Followed, source: Source, trace: Trace) -> bytes | None:
    """Returns the body of a trace; None as long as no key opens the trace."""
    if not trace.sealed:
        return trace.body
    for key in dict.fromkeys((source.key, *followed.keys)):
        body = try_key(trace, key) if key else None
        if body is not None:
            source.key = key
            return body
    return None


def try_key(trace: Trace, key: bytes) -> bytes | None:
    """Returns the body of a sealed trace; None if the key is another trace's."""
    try:
        return trace.opened_body(key)
    except BadContent:
        return None
