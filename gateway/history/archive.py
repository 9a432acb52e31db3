"""The archive: all segments of a replica's histories, their bounds, and the eras.

A catalogue has the key of each segment, sealed under the store's, the times, the latest row and the bytes of each
publisher. So a start opens one file and reads no record, however many there are; a page opens few files. The key of a
segment is erased before the file. A scope with too many bytes loses the oldest records of the greediest publisher.
Threads, and full disks, are the work of `keeper`.
"""

from __future__ import annotations

import heapq
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bridge.base import OperatorError
from bridge.contract import (
    HistoryKey,
    HistoryPosition,
    HistoryRecord,
    HistoryRequest,
    Recall,
    Recalled,
    RecordEra,
    before,
)
from bridge.document import History
from gateway.base import private_directory
from gateway.history.segments import NONCE_BYTES, ROW_BYTES, Found, Segment, erase_segment

SEGMENT_BYTES = 16 << 20  # a segment is closed then, or after a part of the days
PARTS = 16  # of the days in one segment: what is older than the days is erased so much later at most
READ_ROWS_FIRST, READ_ROWS = 8, 512  # read from a segment at once: each time twice as many
OPEN_MAX = 16  # files that are open for reading; those unused longest are closed
ERAS_MAX = 4_096  # of an overlay whose owner signs without end, the oldest go
_TABLES = """
CREATE TABLE IF NOT EXISTS segments (
    id INTEGER PRIMARY KEY, scope INTEGER, key BLOB, first_ms INTEGER, last_ms INTEGER, row INTEGER, closed INTEGER
);
CREATE TABLE IF NOT EXISTS owned (segment INTEGER, publisher BLOB, bytes INTEGER, PRIMARY KEY (segment, publisher));
CREATE TABLE IF NOT EXISTS eras (time INTEGER, digest BLOB);
CREATE TABLE IF NOT EXISTS documents (digest BLOB PRIMARY KEY, document BLOB);
"""


class HistoryError(OperatorError):
    """A history that cannot be opened: a line, cause and cure."""


@dataclass(slots=True)
class _Known:
    """Entry of the catalogue for one segment."""

    id: int
    scope: int
    key: bytes = field(repr=False)
    first_ms: int = 0
    last_ms: int = 0
    row: int = 0
    is_closed: bool = False
    owned: dict[bytes, int] = field(default_factory=dict)
    bytes: int = 0
    """The sum of `owned`: all segments are added up at each write."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Span of a history: number of the scope, oldest and newest time in ms, bytes."""

    scope: int
    first_ms: int
    last_ms: int
    bytes: int


class Archive:
    """The histories of one replica, in a directory. Every method belongs to one thread."""

    def __init__(self, directory: Path, key: bytes) -> None:
        """Opens or makes the archive. `key`: of the store, 32 secret bytes. Raises HistoryError."""
        self._directory, self._cipher = directory, AESGCM(key)
        try:
            private_directory(directory)
            (directory / "catalogue.db").touch(0o600)
            self._catalogue = sqlite3.connect(directory / "catalogue.db", isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode=TRUNCATE", "synchronous=FULL", "secure_delete=ON"):
                self._catalogue.execute(f"PRAGMA {pragma}")
            self._catalogue.executescript(_TABLES)
            self._load()
        except (sqlite3.Error, OSError, InvalidTag) as error:
            raise HistoryError(
                f"{directory}: the history cannot be opened ({error}); restore it, or remove it to begin anew"
            ) from None
        self._reading: OrderedDict[int, Segment] = OrderedDict()

    def _load(self) -> None:
        self._segments: dict[int, _Known] = {}
        self._writing: dict[int, Segment] = {}  # by scope: the file that is appended to
        for number, scope, sealed, first_ms, last_ms, row, closed in self._catalogue.execute("SELECT * FROM segments"):
            key = self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], b"%d" % number)
            self._segments[number] = _Known(number, scope, key, first_ms, last_ms, row, bool(closed))
        for number, publisher, size in self._catalogue.execute("SELECT * FROM owned"):
            if (known := self._segments.get(number)) is not None:
                known.owned[publisher] = size
                known.bytes += size
        for known in self._segments.values():
            if not known.is_closed:
                file = self._writing[known.scope] = Segment(self._path(known), known.scope, known.key)
                known.first_ms, known.last_ms, known.row, known.owned = file.about()
                known.bytes = sum(known.owned.values())
        self._row = max((known.row for known in self._segments.values()), default=0)
        for path in self._directory.glob("*.segment"):  # of a crash between key and file
            if int(path.stem) not in self._segments:
                erase_segment(path)

    def _path(self, known: _Known) -> Path:
        return self._directory / f"{known.id}.segment"

    # ------------------------------------------------------------------------------------------- writing

    def write(
        self, records: Iterable[HistoryRecord], keys: Iterable[HistoryKey], histories: Mapping[int, History], now: float
    ) -> None:
        """Appends records and keys of scopes that have a history, by their numbers. Raises sqlite3.Error, OSError."""
        by_scope: dict[int, tuple[list[HistoryRecord], list[HistoryKey]]] = {}
        for record in records:
            by_scope.setdefault(record.scope, ([], []))[0].append(record)
        for key in keys:
            by_scope.setdefault(key.scope, ([], []))[1].append(key)
        for scope, (fresh, told) in by_scope.items():
            if scope in histories:
                self._write_records(scope, fresh, told)
                self._keep_bounds(scope, histories[scope], now)

    def _write_records(self, scope: int, records: Sequence[HistoryRecord], keys: Sequence[HistoryKey]) -> None:
        known = self._open_for(scope)
        rows = [(self._row + at, record) for at, record in enumerate(records, 1)]
        self._writing[scope].write(rows, keys)
        self._row += len(rows)
        known.row = self._row
        for record in records:
            time_ms, publisher = record.position[:2]
            known.first_ms = min(known.first_ms or time_ms, time_ms)
            known.last_ms = max(known.last_ms, time_ms)
            size = len(record.body) + ROW_BYTES
            known.owned[publisher] = known.owned.get(publisher, 0) + size
            known.bytes += size

    def _open_for(self, scope: int) -> _Known:
        """Returns the segment for new records, made if there is none: first the key, then the file."""
        for known in self._segments.values():
            if known.scope == scope and not known.is_closed:
                return known
        number = max(self._segments, default=0) + 1
        known = _Known(number, scope, os.urandom(32))
        nonce = os.urandom(NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, known.key, b"%d" % number)
        self._catalogue.execute("INSERT INTO segments VALUES (?,?,?,0,0,0,0)", (number, scope, sealed))
        self._segments[number] = known
        self._writing[scope] = Segment(self._path(known), scope, known.key)
        return known

    def _keep_bounds(self, scope: int, history: History, now: float) -> None:
        """Closes a full segment, and erases old segments and records beyond the bytes."""
        known = self._open_for(scope)
        span_ms = history.seconds * 1000 / PARTS
        if known.bytes >= SEGMENT_BYTES or known.last_ms - known.first_ms >= span_ms:
            self._close(known)
        oldest_ms = (now - history.seconds) * 1000
        mine = [each for each in self._segments.values() if each.scope == scope]
        for each in [each for each in mine if each.is_closed and each.last_ms < oldest_ms]:
            self._erase(each)
        while (
            sum(each.bytes for each in self._segments.values() if each.scope == scope) > history.megabytes * 1_000_000
        ):
            self._shed(scope)

    def _close(self, known: _Known) -> None:
        file = self._writing.pop(known.scope)
        file.empty_log()
        file.close()
        known.is_closed = True
        self._catalogue.execute("BEGIN")
        self._catalogue.execute(
            "UPDATE segments SET first_ms=?, last_ms=?, row=?, closed=1 WHERE id=?",
            (known.first_ms, known.last_ms, known.row, known.id),
        )
        owned = [(known.id, publisher, size) for publisher, size in known.owned.items()]
        self._catalogue.executemany("INSERT OR REPLACE INTO owned VALUES (?,?,?)", owned)
        self._catalogue.execute("COMMIT")

    def _shed(self, scope: int) -> None:
        """Erases the oldest of the publisher that has most of a scope."""
        mine = [each for each in self._segments.values() if each.scope == scope]
        total: dict[bytes, int] = {}
        for each in mine:
            for publisher, size in each.owned.items():
                total[publisher] = total.get(publisher, 0) + size
        greediest = max(total, key=total.__getitem__)
        oldest = min((each for each in mine if greediest in each.owned), key=lambda each: each.id)
        if not oldest.is_closed:
            self._close(oldest)
        if oldest.owned.keys() == {greediest}:
            self._erase(oldest)
            return
        self._file(oldest).drop_publisher(greediest)
        oldest.bytes -= oldest.owned.pop(greediest)
        self._catalogue.execute("DELETE FROM owned WHERE segment=? AND publisher=?", (oldest.id, greediest))

    def _erase(self, known: _Known) -> None:
        """Erases a segment, the key first: the rest of the file is noise then."""
        self._catalogue.execute("DELETE FROM segments WHERE id=?", (known.id,))
        self._catalogue.execute("DELETE FROM owned WHERE segment=?", (known.id,))
        del self._segments[known.id]
        if (file := self._reading.pop(known.id, None)) is not None:
            file.close()
        if not known.is_closed:
            self._writing.pop(known.scope).close()
        erase_segment(self._path(known))

    def erase_outdated(self, histories: Mapping[int, History], now: float) -> None:
        """Erases old segments, and scopes without a history now. Raises sqlite3.Error, OSError."""
        for known in list(self._segments.values()):
            history = histories.get(known.scope)
            if history is None or known.last_ms < (now - history.seconds - history.seconds / PARTS) * 1000:
                self._erase(known)
        for scope in {known.scope for known in self._segments.values() if not known.is_closed}:
            self._keep_bounds(scope, histories[scope], now)

    def erase_all(self) -> None:
        """Erases everything: this is no replica any more."""
        for known in list(self._segments.values()):
            self._erase(known)

    def write_era(self, era: RecordEra) -> None:
        """Keeps an era, unless it lasts already. Raises sqlite3.Error."""
        last = self._catalogue.execute("SELECT digest FROM eras ORDER BY rowid DESC LIMIT 1").fetchone()
        if last is None or last[0] != era.digest:
            self._catalogue.execute("INSERT INTO eras VALUES (?,?)", (era.time_ms, era.digest))
            self._catalogue.execute("DELETE FROM eras WHERE rowid <= (SELECT max(rowid) FROM eras) - ?", (ERAS_MAX,))
            self._catalogue.execute("DELETE FROM documents WHERE digest NOT IN (SELECT digest FROM eras)")
        self._catalogue.execute("INSERT OR REPLACE INTO documents VALUES (?,?)", (era.digest, era.document))

    # ------------------------------------------------------------------------------------------- reading

    def read(self, recall: Recall) -> Recalled:
        """Returns the page that was asked for. Raises sqlite3.Error."""
        peer, request = recall.peer, recall.request
        if request.eras:
            eras = self._catalogue.execute("SELECT time, digest FROM eras ORDER BY time, digest").fetchall()
            lasting = [at for at, era in enumerate(eras) if era[0] <= request.from_ms]
            return Recalled(peer, request, eras=eras[lasting[-1] if lasting else 0 :])
        if request.digest:
            found = self._catalogue.execute("SELECT document FROM documents WHERE digest=?", (request.digest,))
            return Recalled(peer, request, document=(found.fetchone() or (b"",))[0])
        records: list[HistoryRecord] = []
        keys: dict[bytes, HistoryKey] = {}
        size, upto = 0, None
        for known, each in self._merged(recall):
            if records and each.position == records[-1].position:
                continue  # it came again after a restart
            body = self._file(known).body_of(each.position)
            if body is None:
                continue
            if records and size + len(body) > request.most_bytes:
                upto = records[-1].position
                break
            size += len(body)
            records.append(HistoryRecord(known.scope, each.position, each.key_id, body))
            if each.key_id and each.key_id not in keys and (key := self._file(known).key_of(each.key_id)) is not None:
                keys[each.key_id] = key
                size += len(key.header) + len(key.shares)
        mine = [known for known in self._segments.values() if known.scope == request.scope and known.owned]
        since_ms = min((known.first_ms for known in mine), default=0)
        return Recalled(peer, request, tuple(records), tuple(keys.values()), upto, self._row, since_ms)

    def _merged(self, recall: Recall) -> Iterable[tuple[_Known, Found]]:
        """Yields the records of all segments that a request is about, in order; each file is opened when its turn
        comes.
        """
        request = recall.request
        after = max(request.after, before(max(request.from_ms, recall.oldest_ms)))
        waiting = [
            known
            for known in self._segments.values()
            if known.scope == request.scope
            and known.last_ms >= after.time_ms
            and known.first_ms < request.until_ms
            and known.row > request.row
        ]
        waiting.sort(key=lambda known: -known.first_ms)
        heads: list[tuple[HistoryPosition, int, bytes, Found]] = []
        sources: dict[tuple[int, bytes], Iterator[Found]] = {}
        while waiting or heads:
            while waiting and (not heads or waiting[-1].first_ms <= heads[0][0].time_ms):
                known = waiting.pop()
                for publisher in known.owned.keys() & request.publishers if request.publishers else (b"",):
                    places = sources[known.id, publisher] = self._places(known, after, request, publisher)
                    if (first := next(places, None)) is not None:
                        heapq.heappush(heads, (first.position, known.id, publisher, first))
            if not heads:
                continue
            _, number, publisher, found = heapq.heappop(heads)
            yield self._segments[number], found
            if (following := next(sources[number, publisher], None)) is not None:
                heapq.heappush(heads, (following.position, number, publisher, following))

    def _places(
        self, known: _Known, after: HistoryPosition, request: HistoryRequest, publisher: bytes
    ) -> Iterator[Found]:
        rows = READ_ROWS_FIRST  # few large records fill a page, of small ones many do
        while True:
            found = self._file(known).places(after, request.until_ms, request.row, rows, publisher)
            yield from found
            if len(found) < rows:
                return
            after, rows = found[-1].position, min(2 * rows, READ_ROWS)

    def _file(self, known: _Known) -> Segment:
        if not known.is_closed:
            return self._writing[known.scope]
        file = self._reading.pop(known.id, None)
        if file is None:
            file = Segment(self._path(known), known.scope, known.key)
        self._reading[known.id] = file
        if len(self._reading) > OPEN_MAX:
            self._reading.popitem(last=False)[1].close()
        return file

    def reach(self) -> list[Reach]:
        """Returns how far each history reaches."""
        found: dict[int, Reach] = {}
        for known in self._segments.values():
            if not known.owned:
                continue
            of = found.get(known.scope, Reach(known.scope, known.first_ms, known.last_ms, 0))
            found[known.scope] = Reach(
                known.scope, min(of.first_ms, known.first_ms), max(of.last_ms, known.last_ms), of.bytes + known.bytes
            )
        return sorted(found.values(), key=lambda reach: reach.scope)

    def close(self) -> None:
        for file in (*self._reading.values(), *self._writing.values()):
            file.close()
        self._catalogue.close()
