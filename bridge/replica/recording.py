"""Recording at one replica: publications of scopes with a history are kept and handed out.

A record has the topic, header, attributes and pieces that a reader here would get; beside records stand headers of data
keys with our own shares. Later pieces and shares replace earlier ones. A reader with a right to the scope now gets
pages, in turns with other readers. The shell has the files (`Record`, `Recall`); `reader.replay` reads pages.

Source: docs/protocol-options.md §12.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Callable

from bridge.contract import (
    HISTORY_TOPIC,
    Budget,
    Count,
    Effect,
    HistoryKey,
    HistoryPage,
    HistoryPosition,
    HistoryRecord,
    HistoryRequest,
    Recall,
    Recalled,
    Received,
    Record,
    RecordEra,
    Send,
    Wire,
    encode_body,
    era_of,
    tag_of,
)
from bridge.document import Overlay, Scope
from bridge.replica.passing import Passing
from bridge.replica.resplitting import HeldKey
from bridge.replica.retained import DataKeyName
from bridge.topology import Routes
from bridge.wire import PROPERTY_SHOWN, Name, RoutingTable
from keys.envelope import from_property
from keys.errors import NotAuthorised
from keys.message import NO_KEY
from keys.sharetree import encode_shares

RECORD_S = 0.25  # so long what passed is gathered before it is written
GATHERED_BYTES = 4 << 20  # beyond that it is written at once
KEYLESS_MAX = 4_096  # data keys that records name and that have not come; the oldest are forgotten
REQUESTS_MAX = 8  # of one reader that wait; its oldest go: it has to ask again
PAGE_BYTES_PER_S, PAGE_BYTES_BURST = float(8 << 20), float(32 << 20)  # of pages to one reader
AGAIN_S = 0.25  # how often readers that have spent their bytes are looked at


class Recorder:
    """The recording of one replica.

    `passing` finds a publication that passed lately; `key` finds a data key by its name.
    """

    def __init__(
        self,
        overlay: Overlay,
        routes: Routes,
        routing: RoutingTable,
        passing: Callable[[Name], Passing | None],
        key: Callable[[DataKeyName], HeldKey | None],
    ) -> None:
        self._routes, self._routing, self._passing, self._key = routes, routing, passing, key
        self._overlay = overlay
        self._fresh: dict[Name, None] = {}  # what passed, or grew, since it was written last
        self._fresh_bytes = 0
        self.keyless: dict[DataKeyName, int] = {}
        """The data keys that records name and that have not come, with the number of their scope."""
        self._waiting: dict[str, deque[HistoryRequest]] = {}  # by reader; those who waited longest first
        self._budgets: dict[str, Budget] = {}
        self._is_reading = False
        self._write_at: float | None = None
        self._ask_at: float | None = None
        self._started_ms = 0
        self._is_era_due = any(scope.history is not None for scope in overlay.policy.scopes)
        self.next_deadline: float | None = 0.0 if self._is_era_due else None
        """When `tick` is wanted next; None if nothing is to be done."""

    # ------------------------------------------------------------------------------------------- keeping

    def note_publication(self, name: Name, size: int, now: float) -> None:
        """Notes a publication of a scope with a history, or further pieces of one."""
        self._fresh[name] = None
        self._fresh_bytes += size
        if self._fresh_bytes > GATHERED_BYTES:
            self._write_at = now
        elif self._write_at is None:
            self._write_at = now + RECORD_S
        self._set_deadline()

    def grew(self, held: HeldKey) -> list[Effect]:
        """Keeps a recorded key with all present shares."""
        scope = self._overlay.scope_named(held.header.scope)
        if scope is None:
            return []
        self.keyless.pop(held.name, None)
        return [Record((), (_kept(scope, held),))]

    def adopt_overlay(self, overlay: Overlay, now: float) -> list[Effect]:
        """Takes another version of the overlay, or other views or trees of it."""
        self._overlay = overlay
        self._budgets = {peer: budget for peer, budget in self._budgets.items() if peer in overlay.members}
        self._waiting = {peer: asked for peer, asked in self._waiting.items() if peer in overlay.members}
        return self._era(now)

    def _era(self, now: float) -> list[Effect]:
        self._is_era_due = False
        if not any(scope.history is not None for scope in self._overlay.policy.scopes):
            return []
        document = json.dumps(self._overlay.to_document(), sort_keys=True, separators=(",", ":")).encode()
        return [RecordEra(int(now * 1000), era_of(self._overlay), zlib.compress(document))]

    def tick(self, now: float) -> list[Effect]:
        """Writes gathered records, and answers readers with a budget again."""
        self._started_ms = self._started_ms or int(now * 1000)
        effects = self._era(now) if self._is_era_due else []
        if self._write_at is not None and self._write_at <= now:
            effects += self._write_records()
        if self._ask_at is not None and self._ask_at <= now:
            effects += self._begin_page(now)
        self._set_deadline()
        return effects

    def _write_records(self) -> list[Effect]:
        names, self._fresh, self._fresh_bytes, self._write_at = self._fresh, {}, 0, None
        records: list[HistoryRecord] = []
        keys: dict[DataKeyName, HistoryKey] = {}
        for name in names:
            passing = self._passing(name)
            if passing is None:
                continue
            records.append(_record(passing))
            header, scope = passing.header, passing.admitted.scope
            asked = header.publisher, scope.filter, header.key_id
            if header.key_id == NO_KEY or asked in keys:
                continue
            held = self._key(asked)
            if held is not None:
                held.is_recorded = True
                keys[asked] = _kept(scope, held)
            else:
                self.keyless[asked] = scope.number
                if len(self.keyless) > KEYLESS_MAX:
                    del self.keyless[next(iter(self.keyless))]
        return [Record(tuple(records), tuple(keys.values())), Count("recorded", len(records))] if records else []

    # ------------------------------------------------------------------------------------------ answering

    def take_request(self, event: Received, now: float) -> list[Effect]:
        """Takes a request of a reader of our region. Raises BadFrame, NotAuthorised."""
        peer, request = event.peer, HistoryRequest.decode(event.wire.payload)
        if self._routes.is_replica(peer) or self._routes.region_of(peer) != self._routes.region:
            raise NotAuthorised(f"{peer} is no reader of this region")
        return self.queue_request(peer, request, now)

    def queue_request(self, peer: str, request: HistoryRequest, now: float) -> list[Effect]:
        """Takes a request of a reader, also of another region; its pages are sent to it as if it had a link."""
        self._started_ms = self._started_ms or int(now * 1000)
        if not self.may_ask(peer, request, now):
            return [self._page(peer, HistoryPage(request.number, self._started_ms, is_refused=True)), _REFUSED]
        waiting = self._waiting.setdefault(peer, deque(maxlen=REQUESTS_MAX))
        waiting.append(request)
        effects = self._write_records() if self._fresh else []  # what passed before is in the answer
        effects += self._begin_page(now)
        self._set_deadline()
        return effects

    def may_ask(self, peer: str, request: HistoryRequest, now: float) -> bool:
        """Returns True if the reader has a right to the requested scope now, by the version in force."""
        asks_of_all = request.eras or request.digest
        scopes = [scope for scope in self._overlay.policy.scopes if scope.history is not None]
        return any(
            (asks_of_all or scope.number == request.scope) and self._routing.may_read(peer, scope, now)
            for scope in scopes
        )

    def _begin_page(self, now: float) -> list[Effect]:
        """Begins the next page, for the longest waiting reader with a budget."""
        self._ask_at = None
        if self._is_reading:
            return []
        for peer in list(self._waiting):
            budget = self._budgets.setdefault(peer, Budget(PAGE_BYTES_PER_S, PAGE_BYTES_BURST, now))
            if not budget.has_tokens(now):
                continue
            waiting = self._waiting.pop(peer)
            request = waiting.popleft()
            if waiting:
                self._waiting[peer] = waiting  # behind the others
            scope = self._overlay.scope_numbered(request.scope)
            days_s = scope.history.seconds if scope is not None and scope.history is not None else 0.0
            if not (request.eras or request.digest or days_s):
                continue
            self._is_reading = True
            return [Recall(peer, request, max(0, int((now - days_s) * 1000)) if days_s else 0)]
        if self._waiting:
            self._ask_at = now + AGAIN_S
        return []

    def recalled(self, event: Recalled, now: float) -> list[Effect]:
        """Sends the page that the shell read, and begins the next."""
        self._is_reading = False
        request, page = event.request, self._page_of(event)
        effects: list[Effect] = []
        if self._reaches(event.peer):
            sent = self._page(event.peer, page)
            self._budgets.setdefault(event.peer, Budget(PAGE_BYTES_PER_S, PAGE_BYTES_BURST, now)).spend(
                len(sent.wire.payload), now
            )
            records = Count("history_sent", len(page.bodies)) if page.bodies else None
            effects += [sent, *([records] if records else [])]
        if not self.may_ask(event.peer, request, now):  # its right ended while we read
            effects = [self._page(event.peer, HistoryPage(request.number, self._started_ms, is_refused=True)), _REFUSED]
        effects += self._begin_page(now)
        self._set_deadline()
        return effects

    def _reaches(self, peer: str) -> bool:
        """Returns True for a connected reader of our region, and for a reader of another region."""
        is_far = peer in self._overlay.members and self._routes.region_of(peer) != self._routes.region
        return is_far or peer in self._routes.up

    def _page_of(self, event: Recalled) -> HistoryPage:
        request = event.request
        if request.eras:
            return HistoryPage(request.number, self._started_ms, eras=tuple(event.eras))
        if request.digest:
            return HistoryPage(request.number, self._started_ms, document=event.document or b"")
        scope = self._overlay.scope_numbered(request.scope)
        calendar = self._overlay.policy.calendar
        rights: dict[int, bool] = {}
        bodies: list[bytes] = []
        named: set[bytes] = set()
        for record in event.records:
            epoch = calendar.epoch_at((record.position.time_ms + 0.5) / 1000)
            if epoch not in rights:
                rights[epoch] = scope is not None and self._overlay.may_read(event.peer, scope, epoch)
            if rights[epoch]:
                bodies.append(record.body)
                named.add(record.key_id)
        keys = tuple([(key.header, key.shares) for key in event.keys if key.key_id in named])
        last = event.records[-1].position if event.records else request.after
        upto = last if event.upto is None else event.upto
        is_end = event.upto is None
        return HistoryPage(
            request.number, self._started_ms, event.row, event.since_ms, upto, keys, tuple(bodies), is_end
        )

    @staticmethod
    def _page(peer: str, page: HistoryPage) -> Send:
        return Send(peer, Wire(HISTORY_TOPIC, page.encode()))

    def link_down(self, peer: str) -> None:
        """Forgets what a reader asked for."""
        self._waiting.pop(peer, None)

    def _set_deadline(self) -> None:
        deadlines = [at for at in (self._write_at, self._ask_at) if at is not None]
        self.next_deadline = min(deadlines, default=None)


_REFUSED = Count("history_refused")


def _record(passing: Passing) -> HistoryRecord:
    header, scope, frame = passing.header, passing.admitted.scope, passing.admitted.frame
    told = dict(passing.signed).get(PROPERTY_SHOWN)
    attributes = from_property(told) if told else b""
    position = HistoryPosition(header.time_ms, header.publisher, header.sequence, tag_of(passing.topic, frame))
    return HistoryRecord(
        scope.number, position, header.key_id, encode_body(passing.topic, frame, attributes, passing.pieces)
    )


def _kept(scope: Scope, held: HeldKey) -> HistoryKey:
    return HistoryKey(scope.number, held.header.key_id, held.header.encode(), encode_shares(list(held.shares.values())))
