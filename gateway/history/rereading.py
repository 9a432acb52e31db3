"""Readings of histories for local clients: past publications first, then live ones, without gap or repetition.

A client's subscription enters the broker's router when the client has all of the past. Live publications come here in
the last moments before, and follow the past in order. Past publications wait here for a client without room. Not here:
the reading itself (`bridge.reader.readings`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from time import perf_counter
from typing import TypeAlias

from bridge.base import matches
from bridge.contract import (
    Deliver,
    Event,
    HoldReading,
    Publication,
    ReadAgain,
    ReadAgainDone,
    ReadAgainLive,
    Reread,
    StopReading,
    sealed_of,
)
from gateway.base import TURN_S, behind_reads

Give: TypeAlias = Callable[[Publication], "Coroutine[None, None, None] | None"]
"""Gives a publication to a client; or returns the rest of it, which has to wait for a plugin."""
PUBLISHED = "published"
"""The user property with the time of publication of a past message, in UTC."""
NAMES_MAX = 65_536  # of delivered publications, to drop repetitions at the seam; the oldest go
WAITING_MAX, WAITING_BYTES_MAX = 100_000, 8 << 20
"""Publications for one client without room, and their bytes; beyond either the oldest go. Stops a client that asks for
the past and takes nothing of it, while live publications go on behind.
"""
OVERHEAD_BYTES = 64  # of one waiting publication, beside its content and names
LOOK_S, LOOK_MOST_S = 0.001, 0.1
"""Until a client without room is looked at again: twice as long after each look in vain, so that one that takes nothing
costs little.
"""


@dataclass(slots=True, eq=False)
class _Reading:
    """A client's reading. `scopes`: by number of a part, the scope's number and the wire filter."""

    filter: str
    give: Give
    has_room: Callable[[], bool]
    done: Callable[[], None]
    scopes: dict[int, tuple[int, str]]
    waiting: deque[tuple[Publication, int]] = field(default_factory=deque)  # with bytes
    names: OrderedDict[tuple[str, int], None] = field(default_factory=OrderedDict)
    live: dict[str, int] = field(default_factory=dict)  # wire filter -> since when, in ms
    kept: deque[tuple[tuple[str, int] | None, Publication]] = field(default_factory=deque)  # live, for behind the past
    size: int = 0  # bytes of those that wait and are kept
    is_held: bool = False
    is_looked_at: bool = False
    look_s: float = LOOK_S
    asking: asyncio.Task[None] | None = None  # a plugin, about a publication that was taken out

    def add_waiting(self, publication: Publication) -> None:
        """Adds a publication that goes to the client as soon as there is room."""
        size = _size(publication)
        self.waiting.append((publication, size))
        self._grown(size)

    def keep_live(self, name: tuple[str, int] | None, publication: Publication) -> None:
        """Keeps a live publication until the past is over. `name`: publisher and number; None for one of our own."""
        self.kept.append((name, publication))
        self._grown(_size(publication))

    def _grown(self, size: int) -> None:
        self.size += size
        while self.size > WAITING_BYTES_MAX or len(self.waiting) + len(self.kept) > WAITING_MAX:
            if self.waiting:
                self.take_publication()
            else:
                self.size -= _size(self.kept.popleft()[1])

    def take_publication(self) -> Publication:
        """Takes out the oldest waiting publication."""
        publication, size = self.waiting.popleft()
        self.size -= size
        return publication

    def release_kept(self) -> None:
        """Lets what was kept wait behind the past, but for repetitions of the past."""
        kept, self.kept = self.kept, deque()
        for name, publication in kept:
            self.size -= _size(publication)
            if name is None or name not in self.names:
                self.add_waiting(publication)

    def drop_all(self) -> None:
        """Drops all that waits and is kept."""
        if self.asking is not None:
            self.asking.cancel()
        self.waiting.clear()
        self.kept.clear()
        self.size = 0


def _size(publication: Publication) -> int:
    names = len(publication.topic) + sum(len(name) + len(value) for name, value in publication.properties)
    return len(publication.payload) + names + OVERHEAD_BYTES


def _as_past(p: Publication) -> Publication:
    """Returns a publication with the time of publication, and no retain flag: `replace` takes six times as long."""
    told = (*p.properties, _published(p.time_ms))
    sealed = sealed_of(p)
    return Publication(
        p.topic, p.payload, p.qos, False, *sealed, told, p.expiry_s, p.time_ms, p.records, p.in_clear, p.owner
    )


@lru_cache(maxsize=64)  # publications of a batch have few times
def _published(time_ms: int) -> tuple[str, str]:
    """Returns the user property with a time of publication."""
    at = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return PUBLISHED, at.replace("+00:00", "Z")


class Rereading:
    """The readings of one gateway. `handle` takes events of the node; `name`: of this gateway."""

    def __init__(self, name: str, handle: Callable[[Event], object], clock: Callable[[], float]) -> None:
        self._name, self._handle, self._clock = name, handle, clock
        self._readings: dict[int, _Reading] = {}  # by number of a part
        self._draining: list[_Reading] = []  # all of the past is here, and not all of it found room yet
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._readings or self._draining)

    def begin_reading(
        self,
        topic_filter: str,
        scopes: Sequence[tuple[int, str]],
        since_ms: int,
        give: Give,
        has_room: Callable[[], bool],
        done: Callable[[], None],
        owner: str = "",
    ) -> Callable[[], None]:
        """Begins a reading of some scopes, each a number and a wire filter. Returns a function ending the reading.

        `owner`: whose readings take turns with those of others.
        """
        reading = _Reading(topic_filter, give, has_room, done, {})
        for scope in scopes:
            self._last += 1
            reading.scopes[self._last] = scope
            self._readings[self._last] = reading
        for part, (number, _) in list(reading.scopes.items()):
            self._handle(ReadAgain(part, number, since_ms, owner))

        def stop() -> None:
            for part in reading.scopes:
                self._readings.pop(part, None)
                self._handle(StopReading(part))
            reading.scopes.clear()
            reading.drop_all()
            if reading in self._draining:
                self._draining.remove(reading)

        return stop

    def effect(self, effect: Reread | ReadAgainLive | ReadAgainDone) -> None:
        """Takes an effect of the node."""
        match effect:
            case Reread(parts, delivers):
                for part in parts:
                    if (reading := self._readings.get(part)) is not None:
                        self._past(reading, delivers)
            case ReadAgainLive(part):
                if (reading := self._readings.get(part)) is not None:
                    reading.live.setdefault(reading.scopes[part][1], int(self._clock() * 1000))
            case ReadAgainDone(part):
                if (reading := self._readings.pop(part, None)) is not None:
                    del reading.scopes[part]
                    self._over(reading)

    def _past(self, reading: _Reading, delivers: Sequence[Deliver]) -> None:
        wanted: dict[str, bool] = {}  # a batch has few topics
        for deliver in delivers:
            publication = deliver.publication
            since = reading.live.get(deliver.scope)
            if deliver.publisher == self._name and since is not None and publication.time_ms >= since:
                continue  # our own: it came live
            is_wanted = wanted.get(publication.topic)
            if is_wanted is None:
                is_wanted = wanted[publication.topic] = matches(reading.filter, publication.topic)
            if not is_wanted:
                continue
            reading.names[deliver.publisher, deliver.sequence] = None
            reading.add_waiting(_as_past(publication))
        while len(reading.names) > NAMES_MAX:
            reading.names.popitem(last=False)
        self._pump(reading)

    def delivered(self, deliver: Deliver) -> None:
        """Takes a live publication of another member."""
        name = deliver.publisher, deliver.sequence
        for reading in {id(each): each for each in self._readings.values()}.values():
            if deliver.scope in reading.live and matches(reading.filter, deliver.publication.topic):
                reading.keep_live(name, deliver.publication)
        for reading in self._draining:
            if name not in reading.names and matches(reading.filter, deliver.publication.topic):
                reading.add_waiting(deliver.publication)

    def take_published(self, publication: Publication, scope: str) -> None:
        """Takes a publication of a local client."""
        for reading in {id(each): each for each in self._readings.values()}.values():
            if scope in reading.live and matches(reading.filter, publication.topic):
                reading.keep_live(None, publication)
        for reading in self._draining:
            if matches(reading.filter, publication.topic):
                reading.add_waiting(publication)

    def _over(self, reading: _Reading) -> None:
        if not reading.scopes:
            reading.release_kept()
            self._draining.append(reading)
        self._pump(reading)

    def _pump(self, reading: _Reading) -> None:
        """Gives the client as much as fits, for a turn; the end of the past ends the reading."""
        ends, is_turn_over = perf_counter() + TURN_S, False
        while reading.waiting and reading.asking is None and not is_turn_over and reading.has_room():
            reading.look_s = LOOK_S
            if (rest := reading.give(reading.take_publication())) is not None:
                reading.asking = asyncio.ensure_future(rest)
                reading.asking.add_done_callback(partial(self._answered, reading))
            is_turn_over = perf_counter() > ends
        is_full = bool(reading.waiting) or reading.asking is not None
        if is_full is not reading.is_held:
            reading.is_held = is_full
            for part in reading.scopes:
                asyncio.get_running_loop().call_soon(self._handle, HoldReading(part, is_full))
        if is_full and reading.asking is None and not reading.is_looked_at:
            reading.is_looked_at = True
            if is_turn_over:
                behind_reads(partial(self._look_at_reading, reading))
            else:
                asyncio.get_running_loop().call_later(reading.look_s, self._look_at_reading, reading)
                reading.look_s = min(2 * reading.look_s, LOOK_MOST_S)
        elif reading in self._draining and not is_full:
            self._draining.remove(reading)
            reading.done()

    def _answered(self, reading: _Reading, asking: asyncio.Task[None]) -> None:
        """Goes on behind the answer of a plugin: no later publication overtakes."""
        reading.asking = None
        if not asking.cancelled():
            asking.exception()  # a plugin that fails denies, and the log has it
            self._pump(reading)

    def _look_at_reading(self, reading: _Reading) -> None:
        reading.is_looked_at = False
        self._pump(reading)
