"""The history of a broker without overlay: local publications in an archive, and clients that read it again.

The archive, its bounds and its keeper are those of a replica; the readings are those of a gateway (`rereading`), whose
questions this log answers in place of a node. Not here: who may subscribe and receive, which the broker asks.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bridge.base import matches, overlaps
from bridge.contract import (
    Count,
    Deliver,
    Event,
    HistoryPosition,
    HistoryRecord,
    HistoryRequest,
    HoldReading,
    Numbered,
    Publication,
    ReadAgain,
    ReadAgainDone,
    ReadAgainLive,
    Recall,
    Recalled,
    Record,
    Reread,
    StopReading,
    before,
    packed,
    size_of,
    unpacked,
)
from bridge.document import History
from gateway.base.figures import HistoryState, ScopeSpan
from gateway.history.keeper import KEEP_EVERY_S, HistoryKeeper
from gateway.history.rereading import Give, Rereading
from keys.errors import KeysError
from keys.frames import Reader, text

FRESH_S = 0.02
"""The longest time that a publication waits for others to be written with it."""
FRESH_MAX, FRESH_BYTES_MAX = 1_024, 1 << 20
"""Publications, and their bytes, that are written together; then they wait no longer."""
PAGE_BYTES = 1 << 14
"""Read from the disk at once, so that a reading never holds the event loop for long."""
NO_TAG, NO_KEY = bytes(8), b""


@dataclass(slots=True, eq=False)
class _Part:
    """A reading of one scope: the span in ms, the position read last, and records whose ms may go on."""

    scope: int
    owner: str
    from_ms: int
    until_ms: int
    after: HistoryPosition
    carried: list[HistoryRecord] = field(default_factory=list)
    is_held: bool = False


class LocalHistory:
    """The history of a broker's own publications. Every method belongs to the event loop's thread.

    `histories`: by filter; no two of the filters overlap. `key`: returns the store's 32 secret bytes.
    """

    def __init__(
        self,
        directory: Path,
        key: Callable[[], bytes],
        histories: Mapping[str, History],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._scopes = {topic_filter: _number(topic_filter) for topic_filter in histories}
        self._days = {topic_filter: history.days for topic_filter, history in histories.items()}
        self._filters = {number: topic_filter for topic_filter, number in self._scopes.items()}
        by_number = {number: histories[topic_filter] for topic_filter, number in self._scopes.items()}
        self._clock = clock
        self._keeper = HistoryKeeper(directory, key, lambda: by_number, self._recalled, self._count_effect, clock)
        self._rereading = Rereading("", self._take_request, clock)
        self._fresh: list[HistoryRecord] = []
        self._fresh_bytes = 0
        self._writing: asyncio.TimerHandle | None = None
        self._tidying: asyncio.TimerHandle | None = None
        self._last_ms = self._sequence = 0
        self._parts: dict[int, _Part] = {}  # by number of the reading's part
        self._turns: dict[str, int] = {}  # by owner, when a page of it was read last
        self._turn = 0
        self._reading: int | None = None  # the part of which a page is on its way
        self.lost = 0
        """Publications that are missing in the history, since the disk refused them or they fit no record."""

    @property
    def has_history(self) -> bool:
        """True if clients may read a history."""
        return bool(self._scopes)

    def start(self) -> None:
        """Erases what is too old, and what no history is configured for, now and from time to time."""
        self._keeper.tidy()
        self._tidying = asyncio.get_running_loop().call_later(KEEP_EVERY_S, self.start)

    def close(self) -> None:
        """Writes all pending records, ends readings, and closes the files."""
        self._parts.clear()
        for timer in filter(None, (self._tidying, self._writing)):
            timer.cancel()
        self._write_fresh()
        self._keeper.close()

    def history_states(self) -> list[HistoryState]:
        """Returns how far each history reaches."""
        return self._keeper.history_states(self._scopes.items())

    def spans(self) -> list[ScopeSpan]:
        """Returns how far each history reaches, for people who look at it."""
        return [
            ScopeSpan(one.scope, "", self._days[one.scope], 0, 0, (one.span("this broker"),))
            for one in self.history_states()
        ]

    def _count_effect(self, count: Count) -> None:
        self.lost += count.amount

    # ------------------------------------------------------------------------------------------- writing

    def record_publication(self, publication: Publication, publisher: str, owner: str) -> None:
        """Takes a publication that local clients get now. `publisher`: the client id; `owner`: the user or address
        whose share of the disk it takes.
        """
        topic = publication.topic
        topic_filter = next((each for each in self._scopes if matches(each, topic)), None)
        if topic_filter is None:
            return
        self._last_ms = max(self._last_ms, int(self._clock() * 1000))
        publication = replace(publication, time_ms=self._last_ms)
        if not size_of(publication):
            self.lost += 1
            return
        self._sequence += 1
        position = HistoryPosition(self._last_ms, _party(owner), self._sequence, NO_TAG)
        body = text(publisher) + packed(topic, [Numbered(self._sequence, publication)]).payload
        self._fresh.append(HistoryRecord(self._scopes[topic_filter], position, NO_KEY, body))
        self._fresh_bytes += len(body)
        if len(self._fresh) >= FRESH_MAX or self._fresh_bytes >= FRESH_BYTES_MAX:
            self._write_fresh()
        elif self._writing is None:
            self._writing = asyncio.get_running_loop().call_later(FRESH_S, self._write_fresh)
        if self._rereading:
            self._rereading.take_published(replace(publication, owner=publisher), topic_filter)

    def _write_fresh(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if self._fresh:
            fresh, self._fresh, self._fresh_bytes = tuple(self._fresh), [], 0
            self._keeper.write_record(Record(fresh, ()))

    # ------------------------------------------------------------------------------------------- reading

    def read_again(
        self,
        topic_filter: str,
        since_ms: int,
        give: Give,
        has_room: Callable[[], bool],
        done: Callable[[], None],
        owner: str,
    ) -> Callable[[], None]:
        """Reads the past of a filter for a local client; `done` is called when nothing of it is left. Returns a
        function ending the reading. `owner`: the user of the client, or the address of a nameless one. The owner of
        what `give` gets is the client id that published it.
        """
        scopes = [(number, each) for each, number in self._scopes.items() if overlaps(each, topic_filter)]
        if not scopes:
            asyncio.get_running_loop().call_soon(done)
            return lambda: None
        return self._rereading.begin_reading(topic_filter, scopes, since_ms, give, has_room, done, owner)

    def _take_request(self, event: Event) -> None:
        """Takes what the readings ask of a node."""
        match event:
            case ReadAgain(part, scope, since_ms, owner):
                # What is published from now on has a later ms: it is live for this reading, the rest is past.
                self._write_fresh()
                self._last_ms = until_ms = max(self._last_ms, int(self._clock() * 1000)) + 1
                self._parts[part] = _Part(scope, owner, since_ms, until_ms, before(since_ms))
                self._rereading.effect(ReadAgainLive(part))
                self._read_on()
            case StopReading(part):
                self._parts.pop(part, None)
            case HoldReading(part, is_held) if part in self._parts:
                self._parts[part].is_held = is_held
                self._read_on()

    def _read_on(self) -> None:
        """Reads the next page: of the owner who has waited longest, among clients with room."""
        if self._reading is not None:
            return
        ready = [number for number, part in self._parts.items() if not part.is_held]
        if not ready:
            return
        number = min(ready, key=lambda each: self._turns.get(self._parts[each].owner, 0))
        part = self._parts.pop(number)
        self._parts[number] = part  # behind others of its owner
        owners = {each.owner for each in self._parts.values()}
        self._turn += 1
        self._turns = {owner: at for owner, at in self._turns.items() if owner in owners} | {part.owner: self._turn}
        self._reading = number
        request = HistoryRequest(
            number, part.scope, part.from_ms, part.until_ms, after=part.after, most_bytes=PAGE_BYTES
        )  # fmt: skip
        self._keeper.recall(Recall("", request))

    def _recalled(self, event: Event) -> None:
        """Takes a page. Of one ms all records are needed before they have an order: the last ms waits for the next."""
        assert isinstance(event, Recalled)
        number, self._reading = event.request.number, None
        part = self._parts.get(number)
        if part is not None:
            records = [*part.carried, *event.records]
            is_over = event.upto is None
            last_ms = part.until_ms if is_over else records[-1].position.time_ms
            part.carried = [] if is_over else [each for each in records if each.position.time_ms == last_ms]
            ripe = [each for each in records if each.position.time_ms < last_ms]
            ripe.sort(key=lambda each: (each.position.time_ms, each.position.sequence))
            self._rereading.effect(Reread((number,), tuple(self._opened_records(part, ripe))))
            if event.upto is not None:
                part.after = event.upto
            else:
                self._parts.pop(number, None)
                self._rereading.effect(ReadAgainDone(number, True))
        self._read_on()

    def _opened_records(self, part: _Part, records: list[HistoryRecord]) -> Iterator[Deliver]:
        """Yields the publications of records, without expired and damaged ones."""
        now = self._clock()
        for record in records:
            position = record.position
            try:
                frame = Reader(record.body)
                publisher = frame.text()
                for each in unpacked(frame.take_rest(), position.sequence):
                    if isinstance(each, KeysError):
                        continue
                    publication = each.publication.with_expiry_left(now)
                    if publication is None:
                        continue
                    publication = replace(publication, owner=publisher)
                    name = position.publisher.hex()
                    yield Deliver(name, position.sequence, publication, scope=self._filters[part.scope])
            except KeysError:
                continue


def _number(topic_filter: str) -> int:
    """Returns the number of a scope in the archive: no order of the configuration changes it."""
    return int.from_bytes(hashlib.sha256(topic_filter.encode()).digest()[:4])


def _party(owner: str) -> bytes:
    """Returns the 16 bytes under which the archive counts an owner's share."""
    return hashlib.sha256(owner.encode()).digest()[:16]
