"""What a tracker is asked to follow, what it knows of one entity, and when each is looked at again."""

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

NUMBERS_MAX = 64  # (token, topic) of one witness whose highest number is remembered; what is older than one that is
# forgotten is no news. An honest witness uses a dozen
UNOPENED_MAX = 64  # sealed traces of one witness that wait for their key
KEYS_MAX = 32  # of one entity: each witness has its own, and a liar sends what opens nothing
ANSWERS_MAX = 16  # to questions of one witness in `GAUGE_EVERY_S`: an honest one asks two or three times


@dataclass(frozen=True, slots=True)
class Follow:
    """Track an entity from now on, or all that a pattern names; of two for the same the later interest counts."""

    entity: str
    interest: Interest = EVERYTHING


@dataclass(frozen=True, slots=True)
class Unfollow:
    """Track an entity no longer, or those whom nothing but this pattern named."""

    entity: str


@dataclass(frozen=True, slots=True)
class Observed:
    """A trace that holds. `time_ms`: its broker's clock; of what a majority says, ours; of what an entity with several
    witnesses says of itself, its own. `fields` of what a majority says: see `witnessing.Belief`."""

    entity: str
    kind: TraceKind
    time_ms: int
    number: int
    fields: Mapping[str, Any]


@dataclass(slots=True)
class Source:
    """One witness of an entity. What it fills is its own."""

    key: bytes = field(default=b"", repr=False)  # that opened what it said last
    # The highest number of each token's key on each topic, and when it was said: topics overtake each other.
    numbers: OrderedDict[tuple[bytes, str], tuple[int, int]] = field(default_factory=OrderedDict)
    forgotten_ms: int = -1  # no number that was forgotten was said later
    unopened: deque[Trace] = field(default_factory=lambda: deque(maxlen=UNOPENED_MAX))
    answered: deque[float] = field(default_factory=lambda: deque(maxlen=ANSWERS_MAX))

    def is_news(self, key: tuple[bytes, str], trace: Trace) -> bool:
        """Whether a trace neither came already nor is of a key that may have been forgotten."""
        known = self.numbers.get(key)
        return trace.time_ms > self.forgotten_ms if known is None else trace.number > known[0]

    def heard(self, key: tuple[bytes, str], trace: Trace) -> None:
        """A trace that holds. Who was silent longest is forgotten."""
        self.numbers[key] = trace.number, trace.time_ms
        self.numbers.move_to_end(key)
        if len(self.numbers) > NUMBERS_MAX:
            self.forgotten_ms = max(self.forgotten_ms, self.numbers.popitem(last=False)[1][1])


@dataclass(slots=True)
class Followed:
    """One entity that we track."""

    interest: Interest
    by_name: bool = True  # asked for so; else a pattern named it
    # What nodes answered, by node, and as what the entity registered: a node that lies names a topic where nobody
    # speaks. The first on which a majority of the witnesses is heard is `proven`, and the only one from then on.
    candidates: dict[str, Advertisement] = field(default_factory=dict)
    claimed_ms: int = -1  # when it registered so
    heard_on: dict[bytes, set[int]] = field(default_factory=dict)  # by topic: witnesses whose traces hold
    wishes: dict[bytes, tuple[float, bytes]] = field(default_factory=dict)  # what we said last, by topic
    proven: bool = False
    heard: bool = False  # a trace that we could open
    known: bool = False  # a majority of its witnesses was heard lately
    lost: bool = False  # it was, and we said that we know nothing of it any more
    due: float = float("inf")  # when it is looked at
    since: float = 0.0  # we follow it
    request: bytes = b""
    ask_at: float = 0.0
    asked: int = 0
    panel: Panel = field(default_factory=Panel)
    keys: deque[bytes] = field(default_factory=lambda: deque(maxlen=KEYS_MAX), repr=False)  # the newest first
    sources: dict[int, Source] = field(default_factory=dict)


def topics_of(tracker: str, advertisement: Advertisement, interest: Interest) -> list[str]:
    """Returns the topics that a tracker listens to for what it wants of an entity."""
    topics = [trace_topic(advertisement.topic, each) for each in Interest if each in interest]
    return [*topics, gauge_topic(advertisement.topic), key_topic(tracker, advertisement.topic)]


class Looks:
    """When each of tens of thousands is looked at: the earliest first. Entries that `Followed.due` denies are stale."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []

    def put(self, entity: str, one: Followed, due: float, followed: dict[str, Followed]) -> None:
        """No later than `due`; earlier if that was said before."""
        if due >= one.due:
            return
        one.due = due
        heapq.heappush(self._heap, (due, entity))
        if len(self._heap) > 4 * len(followed) + 64:  # stale entries do not pile up
            self._heap = [(each.due, name) for name, each in followed.items()]
            heapq.heapify(self._heap)

    def first(self, followed: dict[str, Followed]) -> tuple[float, str] | None:
        """The next one and when, which stays."""
        while self._heap:
            due, entity = self._heap[0]
            one = followed.get(entity)
            if one is not None and one.due == due:
                return due, entity
            heapq.heappop(self._heap)
        return None

    def take(self, followed: dict[str, Followed], now: float) -> str | None:
        """Whose time has come; it has none until it is put again."""
        first = self.first(followed)
        if first is None or first[0] > now:
            return None
        heapq.heappop(self._heap)
        followed[first[1]].due = float("inf")
        return first[1]


def opened(followed: Followed, source: Source, trace: Trace) -> bytes | None:
    """The body of a trace, None as long as no key opens it."""
    if not trace.sealed:
        return trace.body
    for key in dict.fromkeys((source.key, *followed.keys)):
        body = try_key(trace, key) if key else None
        if body is not None:
            source.key = key
            return body
    return None


def try_key(trace: Trace, key: bytes) -> bytes | None:
    """The body of a sealed trace, None if this key is not its own."""
    try:
        return trace.opened(key)
    except BadContent:
        return None
