"""Replay: one reading of a history from replicas that may lie, by the machine of live readers.

Each replica of a region is asked separately, in pages; positions are equal at all of them. A publication of f +
1 replicas goes, with all copies, to a *judge* whose clock is the time of sealing: the machine of a gateway or of an
ingest job. So past publications are judged as in their time: epochs, views, trees, rights and order alike. At the end
come laps for publications that reached replicas meanwhile, until a lap is short: then live publications go on from
there. `readings` knows the readers.

*Eras* are the versions of the overlay of a span, each with the time of adoption (docs/protocol-options.md §12.3).
Replicas list versions with times. A version counts if f + 1 replicas name the version, from the f + 1st of their times
on: liars can neither invent a version nor move a time beyond those of honest replicas. Each document bears the owner's
signature.

Source: docs/protocol-options.md §12.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import NamedTuple, Protocol

from bridge.contract import (
    HISTORY_TOPIC,
    PAGE_BYTES_MOST,
    Blame,
    Body,
    Count,
    Doubted,
    Effect,
    HistoryPage,
    HistoryPosition,
    HistoryRequest,
    Received,
    Send,
    UserProperties,
    Wanted,
    Wire,
    before,
    earliest,
    era_of,
    read_page,
    tag_of,
)
from bridge.document import Overlay, OverlayError, Scope
from bridge.wire import AHEAD_S, PROPERTY_SHOWN
from bridge.wire import pieces as content
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, KeyHeader, header_of, to_property
from keys.errors import BadFrame, KeysError, OurFault

DOCUMENT_BYTES_MAX = 16 << 20  # of an overlay file, decompressed: as everywhere
VALUES_MAX = 1 << 19  # in it: more would take far more memory than the file


def agreed_eras(told: Mapping[str, Sequence[tuple[int, bytes]]], faults: int) -> list[tuple[int, bytes]]:
    """Returns the eras named by f + 1 replicas, each with a time in ms, in order of time.

    `told`: the list of each replica. A version listed twice counts from the first time.
    """
    times: dict[bytes, list[int]] = {}
    for eras in told.values():
        first: dict[bytes, int] = {}
        for time_ms, digest in eras:
            first.setdefault(digest, time_ms)
        for digest, time_ms in first.items():
            times.setdefault(digest, []).append(time_ms)
    return sorted((sorted(each)[faults], digest) for digest, each in times.items() if len(each) > faults)


def of_span(eras: Sequence[tuple[int, bytes]], from_ms: int, until_ms: int) -> list[tuple[int, bytes]]:
    """Returns the eras of a span: the era at the beginning, and all later ones."""
    lasting = [era for era in eras if era[0] <= from_ms]
    return [*lasting[-1:], *(era for era in eras if from_ms < era[0] <= until_ms)]


def loaded(document: bytes, owner: bytes, time_ms: int) -> Overlay:
    """Returns the overlay of a document, compressed. Raises OverlayError unless the owner signed it."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(document, DOCUMENT_BYTES_MAX)
        if unpacking.unconsumed_tail or sum(map(plain.count, (b",", b"[", b"{"))) > VALUES_MAX:
            raise OverlayError("a document of an era that is too large")
        parsed = json.loads(plain)
    except (zlib.error, ValueError, RecursionError) as error:
        raise OverlayError(f"a document of an era cannot be read: {error}") from None
    if not isinstance(parsed, dict):
        raise OverlayError("a document of an era is no object")
    return Overlay.from_document(parsed, time_ms, owner)


def following(before: Overlay | None, after: Overlay, now: float) -> Overlay:
    """Returns an era's overlay at a member adopting now, after the era before."""
    if before is None:
        return after.as_of(now)
    if after.policy.version == before.policy.version:
        return before.hears(after.swap_news, now).endorsed(after.endorsements, now).as_of(now)
    return after.following(before, now)


WAIT_S = 5.0  # for one page of one replica: beyond that it is asked once more, since what was sent may be lost
TRIES = 2  # for one page: then the replica is left behind, if the others suffice
PATIENCE_S = 30.0  # for one replica in all: so much may a liar delay a reading by answering late
KEY_WAIT_S = 5.0  # for an epoch key of then, before what it sealed counts as unopened
LAP_S = 2.0  # a lap shorter than this is the last but one
SEAM_S = 2.0  # of another region's reading: so long live publications are kept before the last lap begins
STEPS_MAX = 10_000  # ticks of the judge between two records: more would be a defect
SOURCE_KEYS_MAX = 4_096  # data keys of one replica whose shares are at hand; the oldest go
START = before(0)
BATCHED_BYTES = PAGE_BYTES_MOST // 2  # a replica is asked for more when less than this of its last page is left


class _Record(NamedTuple):
    position: HistoryPosition
    body: Body
    key_id: bytes


@dataclass(slots=True)
class _Page:
    """The records of a page that were not taken apart yet. `upto`: as the page says."""

    bodies: deque[Body]
    upto: HistoryPosition


@dataclass(slots=True)
class _Source:
    """A replica with its records that were not taken yet. Each is taken apart when its turn comes, and not before: of a
    page at once that would hold up whatever comes live.
    """

    head: _Record | None = None  # the next record
    pages: deque[_Page] = field(default_factory=deque)  # behind it
    queued_bytes: int = 0  # of both
    at: HistoryPosition = START  # of the record that was taken apart last
    keys: dict[bytes, UserProperties] = field(default_factory=dict)
    asked: int = 0  # the number of the request under way; 0: none
    request: bytes = b""
    after: HistoryPosition = START  # where its next page begins
    is_end: bool = False
    row: int = 0  # the latest row that it named at the beginning of this lap
    behind: int = 0  # the row behind which it is asked in this lap
    named_row: bool = False
    started_ms: int = 0
    waited_s: float = 0.0
    late_since: float = 0.0  # since when we wait for it; 0: we do not
    eras: Sequence[tuple[int, bytes]] | None = None

    def waited(self, now: float) -> float:
        """Returns how long progress has waited for this replica, in seconds."""
        return self.waited_s + (now - self.late_since if self.late_since else 0.0)

    def goes_on(self, at: HistoryPosition) -> None:
        """Begins to ask behind a position."""
        self.after = self.at = at

    def look_at_next(self, until_ms: int, publishers: Sequence[bytes]) -> None:
        """Takes the next record apart, if there is one. Raises KeysError for one that was not asked for."""
        while self.head is None and self.pages:
            page = self.pages[0]
            if not page.bodies:
                self.at = self.pages.popleft().upto
                continue
            body = page.bodies.popleft()
            header = header_of(body.header)
            tag = tag_of(body.topic, body.header)
            position = HistoryPosition(header.time_ms, header.publisher, header.sequence, tag)
            if not self.at < position <= page.upto or position.time_ms >= until_ms:
                raise _out_of_order()
            if publishers and position.publisher not in publishers:
                raise _out_of_order()
            self.at, self.head = position, _Record(position, body, header.key_id)

    def take_record(self) -> _Record:
        """Takes out the next record."""
        assert self.head is not None
        record, self.head = self.head, None
        self.queued_bytes -= _size(record.body)
        return record


class ReplayStage(Enum):
    """Stages of a replay."""

    ERAS = auto()
    DOCUMENTS = auto()
    RECORDS = auto()
    DONE = auto()


class Judge(Protocol):
    """The machine of a reader that judges past publications as live ones. `now`: the clock of the reading."""

    def adopt_era(self, overlay: Overlay, now: float) -> list[Effect]:
        """Takes the next era; the first one before anything else."""

    def take_copy(self, event: Received, now: float) -> list[Effect]:
        """Takes a copy of a publication, with its key."""

    def keys_changed(self, now: float) -> list[Effect]:
        """Goes on with epoch keys that came."""

    def tick(self, now: float) -> list[Effect]:
        """Lets time pass."""

    @property
    def next_deadline(self) -> float | None:
        """The time at which `tick` is wanted; None if nothing waits."""


class Replay:
    """A reading of one scope from `since_s` on. `numbers` numbers the requests, `judge` takes the publications."""

    def __init__(
        self,
        overlay: Overlay,
        name: str,
        judge: Judge,
        scope: Scope,
        since_s: float,
        numbers: Callable[[], int],
        publishers: tuple[bytes, ...] = (),
        until_ms: int = 0,
        region: int | None = None,
        ways: int = 1,
    ) -> None:
        """Takes `publishers`: the only ones that are read; none: all. `until_ms`: where the reading ends, exclusive; 0:
        at the present, after laps. `region`: whose replicas are asked; None: those of our own. `ways`: how many ways
        there are to each of them (`far_asking`).
        """
        self.overlay, self._name, self._judge = overlay, name, judge
        home = overlay.certificate(name).region
        self.home = home if region is None else region
        self._seam_s = 0.0 if self.home == home else SEAM_S
        self._tries, self._patience_s = TRIES + ways - 1, PATIENCE_S + WAIT_S * (ways - 1)
        self.scope, self.since_s = scope, since_s
        self._numbers = numbers
        self._publishers = publishers
        self._sources: dict[str, _Source] = {}  # those that we wait for
        self._left: dict[str, float] = {}  # those that are left behind, and how long they made us wait
        self._up: set[str] = set()
        self.stage = ReplayStage.ERAS
        self._eras: deque[tuple[int, bytes]] = deque()  # to come
        self._documents: dict[bytes, Overlay] = {}
        self._then: Overlay | None = None  # the era in force at the judge
        self.clock = since_s
        """The time of the last read record."""
        self.has_begun = False
        """True when the judge may have taken something."""
        self._lap_from = 0.0
        self._until_ms = until_ms
        self.laps = 0
        self.is_last = until_ms > 0
        """True in the last lap: what comes live from now on is kept for its end."""
        self._blocked_at: float | None = None
        self._keys_until: float | None = None
        self._at: float | None = None
        self.has_more = False
        """True when `go_on` is wanted: a turn takes one publication, and links are served in between."""
        self._resumes = 0.0  # when the next lap may begin
        self._is_held = False
        self._deniers: set[str] = set()
        self.is_denied = False
        """True if f + 1 replicas say that we may not read this."""

    # --------------------------------------------------------------------------------------------- events

    def ask_eras(self, up: Sequence[str], now: float) -> list[Effect]:
        """Asks the replicas with a link for their eras."""
        self._up = set(up)
        self._sources = {peer: _Source() for peer in self.overlay.replicas(self.home)}
        self._lap_from, self._until_ms = now, self._until_ms or int((now + AHEAD_S) * 1000)
        effects = [effect for peer in self._sources for effect in self._ask_replica(peer, now)]
        self._blocked_at, self._at = now, now + WAIT_S
        return effects

    def take_page(self, event: Received, now: float) -> list[Effect]:
        """Takes a page for which `answers` is True."""
        source = self._sources[event.peer]
        try:
            page, bodies = read_page(event.wire.payload)
            source.asked = 0
            if page.is_refused:
                return self._denied(event.peer, now)
            if source.late_since:
                source.waited_s += now - source.late_since
                source.late_since = 0.0
            self._take_page(event.peer, source, page, bodies)
            if source.waited_s >= self._patience_s and self._suffice([event.peer]):
                return [*self._left_behind(event.peer, now), *self._advance(now)]
        except KeysError as error:
            return [*self._misfit(event.peer, error), *self._advance(now)]
        return [] if self.has_more else self._advance(now)

    def answers(self, peer: str, number: int) -> bool:
        """Returns True if this reading sent the replica a request of that number."""
        return peer in self._sources and self._sources[peer].asked == number

    def is_alike(self, scope: Scope, since_s: float) -> bool:
        """Returns True if a reading of the scope and time may join: nothing was delivered yet."""
        is_same = self.scope.number == scope.number and abs(self.since_s - since_s) < 1.0
        return is_same and not self.has_begun

    def hold_reading(self, is_held: bool, now: float) -> list[Effect]:
        """Stops while nobody has room for what would be delivered, or goes on."""
        self._is_held = is_held
        return [] if is_held else self._advance(now)

    def link_up(self, peer: str, now: float) -> list[Effect]:
        """Asks a replica again: wires under way are lost."""
        self._up.add(peer)
        if peer in self._left and self.stage is ReplayStage.RECORDS and self._left[peer] < self._patience_s:
            self._sources[peer] = self._joining(peer)
        source = self._sources.get(peer)
        if source is None or self.stage is ReplayStage.DONE:
            return []
        source.asked = 0
        return self._ask_replica(peer, now) + self._advance(now)

    def link_down(self, peer: str) -> None:
        self._up.discard(peer)
        if peer in self._sources:
            self._sources[peer].asked = 0

    def adopt_overlay(self, overlay: Overlay, now: float) -> list[Effect]:
        """Takes another version of the overlay in force, which is the last era from now on."""
        self.overlay = overlay
        for peer in [peer for peer in self._sources if peer not in overlay.members]:
            del self._sources[peer]
        return self._advance(now)

    def keys_changed(self, now: float) -> list[Effect]:
        """Continues with epoch keys that came."""
        self._keys_until = None
        if not self.has_begun:
            return []
        return self._sifted(self._judge.keys_changed(self.clock), now) + self._advance(now)

    def go_on(self, now: float) -> list[Effect]:
        """Takes the next turn; nothing unless `has_more`."""
        return self._advance(now) if self.has_more else []

    def tick(self, now: float) -> list[Effect]:
        if self._at is None or self._at > now:
            return []
        self._at = None
        if self._keys_until is not None and self._keys_until <= now:
            self._keys_until = None
        effects: list[Effect] = []
        if self._blocked_at is not None and now >= self._blocked_at + WAIT_S:
            effects += self._impatient(now)
        return effects + self._advance(now)

    @property
    def next_deadline(self) -> float | None:
        return self._at

    # --------------------------------------------------------------------------------------------- asking

    def _ask_replica(self, peer: str, now: float) -> list[Effect]:
        """Asks a replica for the next page, era list or document."""
        source = self._sources[peer]
        if source.asked or peer not in self._up or source.is_end or now < self._resumes:
            return []
        if self.stage is ReplayStage.ERAS and source.eras is None:
            request = HistoryRequest(self._numbers(), from_ms=int(self.since_s * 1000), eras=True)
        elif self.stage is ReplayStage.DOCUMENTS:
            wanted = [digest for _, digest in self._eras if digest not in self._documents]
            if not wanted or all(digest != wanted[0] for _, digest in source.eras or ()):
                return []
            request = HistoryRequest(self._numbers(), digest=wanted[0])
        elif self.stage is ReplayStage.RECORDS and source.queued_bytes < BATCHED_BYTES:
            from_ms = max(0, int(self.since_s * 1000))
            span = from_ms, self._until_ms, source.after, source.behind
            request = HistoryRequest(self._numbers(), self.scope.number, *span, publishers=self._publishers)
        else:
            return []
        source.asked, source.request = request.number, request.encode()
        return [Send(peer, Wire(HISTORY_TOPIC, source.request))]

    def _take_page(self, peer: str, source: _Source, page: HistoryPage, bodies: Sequence[Body]) -> None:
        """Takes a page into the queue of the replica. Raises BadFrame for a page beyond the request."""
        if page.eras is not None:
            source.eras = page.eras
            return
        if page.document is not None:
            lacking = [era for era in self._eras if era[1] not in self._documents]
            if lacking:
                try:
                    era = loaded(page.document, self.overlay.owner, lacking[0][0])
                except OverlayError as error:
                    raise BadFrame(str(error)) from None
                if era_of(era) != lacking[0][1]:
                    raise BadFrame(f"{peer} gave another era than it was asked for")
                self._documents[era_of(era)] = era
            return
        if self.stage is not ReplayStage.RECORDS:
            return
        if source.started_ms and page.started_ms != source.started_ms:
            source.named_row = True
            source.row = 0  # it began anew: its rows may be others
        source.started_ms = page.started_ms
        if not source.named_row:
            source.named_row, source.row = True, page.row
        for header, shares in page.keys:
            key = to_property(header)
            source.keys[_key_id(header)] = ((PROPERTY_KEY, key), (PROPERTY_SHARES, to_property(shares)))
        while len(source.keys) > SOURCE_KEYS_MAX:
            del source.keys[next(iter(source.keys))]
        if page.upto < source.after:
            raise _out_of_order()
        source.pages.append(_Page(deque(bodies), page.upto))
        source.queued_bytes += sum(map(_size, bodies))
        source.after, source.is_end = page.upto, page.is_end

    # ------------------------------------------------------------------------------------------- progress

    def _advance(self, now: float) -> list[Effect]:
        """Goes on as far as what came allows, by one turn at most."""
        effects: list[Effect] = []
        self.has_more = False
        if self.stage is ReplayStage.ERAS:
            if any(source.eras is None for source in self._sources.values()) or not self._suffice():
                return effects + self._block(now, [p for p, s in self._sources.items() if s.eras is None])
            self._learn_eras(now)
        if self.stage is ReplayStage.DOCUMENTS:
            lacking = [digest for _, digest in self._eras if digest not in self._documents]
            if lacking:
                for peer in self._sources:
                    if not any(source.asked for source in self._sources.values()):
                        effects += self._ask_replica(peer, now)
                return effects + self._block(now, [p for p, s in self._sources.items() if s.asked])
            effects += self._start_first_era(now)
        if self.stage is ReplayStage.RECORDS:
            effects += self._records(now)
        return effects

    def _learn_eras(self, now: float) -> None:
        faults = self.overlay.views[self.home].faults
        told = {peer: source.eras or () for peer, source in self._sources.items()}
        eras = of_span(agreed_eras(told, faults), int(self.since_s * 1000), int(now * 1000))
        self._eras, self.stage = deque(eras), ReplayStage.DOCUMENTS
        self._documents[era_of(self.overlay)] = self.overlay

    def _start_first_era(self, now: float) -> list[Effect]:
        """Begins under the first era, and asks for records."""
        self.stage, self._blocked_at = ReplayStage.RECORDS, None
        effects = self._next_eras(self.clock)
        if not self.has_begun:
            effects += self._enter(self.overlay)
        for source in self._sources.values():
            source.goes_on(before(int(self.since_s * 1000)))
        return effects + [effect for peer in self._sources for effect in self._ask_replica(peer, now)]

    def _next_eras(self, at: float) -> list[Effect]:
        """Adopts the eras begun by a time. The first era is in force from the beginning."""
        effects: list[Effect] = []
        while self._eras and (not self.has_begun or self._eras[0][0] / 1000 <= at):
            time_ms, digest = self._eras.popleft()
            self.clock = max(time_ms / 1000, self.clock) if self.has_begun else self.clock
            effects += self._enter(following(self._then, self._documents[digest], self.clock))
        return effects

    def _enter(self, overlay: Overlay) -> list[Effect]:
        """Puts an era in force at the judge; in an era without us the present overlay stands in."""
        if self._name not in overlay.members or self.home not in overlay.views:
            overlay = self.overlay  # we, or the region, came later; what other members were then is lost to us
        self._then, self.has_begun = overlay, True
        return self._sifted(self._judge.adopt_era(overlay, self.clock), self.clock)

    def _records(self, now: float) -> list[Effect]:
        """Takes the next publication, and asks for more."""
        effects: list[Effect] = []
        if self._is_held:
            self._at = None
        elif self._keys_until is not None:
            self._at = self._keys_until
        else:
            effects += self._next_record(now)
        for peer in self._sources:
            effects += self._ask_replica(peer, now)
        return effects

    def _next_record(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for peer, source in list(self._sources.items()):
            try:
                source.look_at_next(self._until_ms, self._publishers)
            except KeysError as error:
                effects += self._misfit(peer, error)
        first = self._first()
        lacking = [peer for peer, source in self._sources.items() if self._is_late(source, first)]
        if lacking or not self._suffice():
            return effects + self._block(now, lacking)
        if first is None:
            return effects + self._lap_over(now)
        self._blocked_at = self._at = None
        self.has_more = True
        return effects + self._take_record(first, now)

    def _first(self) -> HistoryPosition | None:
        """Returns the next position of any replica."""
        return min((source.head.position for source in self._sources.values() if source.head is not None), default=None)

    def _take_record(self, position: HistoryPosition, now: float) -> list[Effect]:
        """Takes all copies of one publication, if enough replicas vouch."""
        copies: dict[str, _Record] = {}
        for peer, source in self._sources.items():
            if source.head is not None and source.head.position == position:
                copies[peer] = source.take_record()
        effects = self._pass_time(position.time_ms / 1000, now)
        assert self._then is not None
        told: dict[tuple[str, bytes], list[str]] = {}
        for peer, record in copies.items():
            told.setdefault((record.body.topic, record.body.header), []).append(peer)
        for peers in told.values():
            if not self._then.honest_among(self.home, peers):
                effects.append(Count("unvouched"))
                continue
            for peer in peers:
                source, record = self._sources[peer], copies[peer]
                try:
                    wire = _wire(record, source.keys.get(record.key_id, ()))
                except (KeysError, OurFault) as error:
                    effects.append(Blame(peer, False, str(error)))
                    continue
                effects += self._sifted(self._judge.take_copy(Received(peer, wire, True), self.clock), now)
        return effects

    def _pass_time(self, until: float, now: float) -> list[Effect]:
        """Lets time pass for the judge, era by era."""
        effects: list[Effect] = []
        for _ in range(STEPS_MAX):
            due = earliest(
                self._eras[0][0] / 1000 if self._eras else None,
                self._then.next_closing if self._then is not None else None,
                self._judge.next_deadline,
            )
            if due is None or due > until:
                break
            self.clock = max(self.clock, due)
            effects += self._next_eras(self.clock)
            if self._then is not None and (later := self._then.as_of(self.clock)) is not self._then:
                effects += self._enter(later)
            effects += self._sifted(self._judge.tick(self.clock), now)
        self.clock = max(self.clock, until)
        return effects

    def _lap_over(self, now: float) -> list[Effect]:
        """Begins the next lap, for records since the start of the last lap; or ends the reading."""
        self._blocked_at = None
        effects = self._pass_time(now, now) if self.is_last else []
        if self.is_last:
            self.stage = ReplayStage.DONE
            return [*effects, *self._give_up_waits(now)]
        self.is_last = now - self._lap_from < LAP_S
        self.laps += 1
        self._lap_from, self._until_ms = now, int((now + AHEAD_S) * 1000)
        for source in self._sources.values():
            source.behind, source.named_row = source.row, False
            source.goes_on(before(int(self.since_s * 1000)))
            source.is_end = False
        self._resumes = now + self._seam_s if self.is_last else now
        self._at = self._resumes
        return effects

    def _give_up_waits(self, now: float) -> list[Effect]:
        """Lets the judge give up waiting publications: no copy goes to the live machine."""
        return self._pass_time(now + 2 * WAIT_S + 1.0, now)

    def _sifted(self, effects: Sequence[Effect], now: float) -> list[Effect]:
        """Returns the judge's effects without requests to replicas: pages have everything anyway. What misfits is
        counted apart: no link is charged for it, since the page that came just now may be of another replica.
        """
        found: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send):
                continue
            if isinstance(effect, Count) and effect.name == "refused":
                found.append(Count("history_misfit", effect.amount, effect.label))
                continue
            if isinstance(effect, Wanted | Doubted) and self._keys_until is None:
                self._keys_until = now + KEY_WAIT_S
            found.append(effect)
        return found

    # ------------------------------------------------------------------------------------------- patience

    def _suffice(self, without: Sequence[str] = ()) -> bool:
        """Returns True if f + 1 replicas and k of the region are still asked, also without some."""
        view = self.overlay.views[self.home]
        mine = [peer for peer in self._sources if peer in view.members and peer not in without]
        return len(mine) >= max(view.faults + 1, view.threshold)

    def _block(self, now: float, lacking: Sequence[str]) -> list[Effect]:
        if self._blocked_at is None:
            self._blocked_at = now
        self._at = min(self._at or self._blocked_at + WAIT_S, self._blocked_at + WAIT_S)
        for source in map(self._sources.__getitem__, lacking):
            source.late_since = source.late_since or now
        return [effect for peer in lacking for effect in self._ask_replica(peer, now)]

    def _impatient(self, now: float) -> list[Effect]:
        """Asks late replicas again; leaves those behind that have no link or are late for long, if the others
        suffice.
        """
        self._blocked_at = now
        first = self._first()
        late = [peer for peer, source in self._sources.items() if self._is_late(source, first)]
        effects: list[Effect] = []
        if self._suffice(late):
            for peer in late:
                source = self._sources[peer]
                is_long = source.waited(now) >= self._patience_s or now - source.late_since >= self._tries * WAIT_S
                if peer not in self._up or is_long:
                    effects += self._left_behind(peer, now)
                elif source.asked:
                    effects.append(Send(peer, Wire(HISTORY_TOPIC, source.request)))  # the first answer counts
            return effects
        for peer in [peer for peer in self._left if peer in self._up and self._left[peer] != inf]:
            self._sources[peer] = self._joining(peer)
        for peer in late:
            self._sources[peer].asked = 0  # request or page may be lost
            effects += self._ask_replica(peer, now)
        return effects

    def _is_late(self, source: _Source, first: HistoryPosition | None) -> bool:
        """Returns True if progress waits for the replica. `first`: the next position of any replica."""
        if self.stage is ReplayStage.ERAS:
            return source.eras is None
        if self.stage is ReplayStage.DOCUMENTS:
            return bool(source.asked)
        has_some = source.head is not None or source.pages
        return not has_some and not source.is_end and (first is None or source.after < first)

    def _left_behind(self, peer: str, now: float) -> list[Effect]:
        self._left[peer] = self._sources.pop(peer).waited(now)
        return [Count("history_slow", 1, peer)]

    def _joining(self, peer: str) -> _Source:
        """Returns a replica left behind, to be asked again from the present position."""
        waited_s = self._left.pop(peer)
        at = before(int(self.clock * 1000))
        return _Source(after=at, at=at, eras=(), waited_s=waited_s, named_row=True)

    def _denied(self, peer: str, now: float) -> list[Effect]:
        """Notes a refusal; with f + 1 refusals, hence an honest one, the reading ends."""
        self._deniers.add(peer)
        self._leave(peer)
        self.is_denied = len(self._deniers) > self.overlay.views[self.home].faults
        if self.is_denied:
            self.stage, self._at = ReplayStage.DONE, None
        return [Count("history_denied"), *self._advance(now)]

    def _misfit(self, peer: str, error: KeysError) -> list[Effect]:
        """Suspects a replica whose page is none that it was asked for."""
        self._leave(peer)
        return [Count("history_misfit", 1, "page"), Blame(peer, False, str(error))]

    def _leave(self, peer: str) -> None:
        """Asks a replica nothing more in this reading."""
        del self._sources[peer]
        self._left[peer] = inf

    # --------------------------------------------------------------------------------------------- its end

    @property
    def is_done(self) -> bool:
        return self.stage is ReplayStage.DONE


def _wire(record: _Record, key: UserProperties) -> Wire:
    """Returns the live wire of a record."""
    body = record.body
    signed: UserProperties = ((PROPERTY_HEADER, to_property(body.header)),)
    if body.attributes:
        signed += ((PROPERTY_SHOWN, to_property(body.attributes)),)
    return content.wire(body.topic, header_of(body.header), signed + key, body.pieces)


def _size(body: Body) -> int:
    return len(body.header) + sum(map(len, body.pieces.values()))


def _key_id(header: bytes) -> bytes:
    return KeyHeader.decode(header).key_id


def _out_of_order() -> BadFrame:
    return BadFrame("a page of the history that is out of order, or beyond what was asked for")
