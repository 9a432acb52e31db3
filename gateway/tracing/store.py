"""The store of tracing on disk: a discovery node's advertisements, the registered entities, sealed, and a
tracker's history of observations.

A SQLite file, bounded by rows and age; of the entity with most observations the oldest go first. A lost last second
costs nothing that cannot be asked for again, so commits do not wait for the device; what is committed outlives a kill.
Not here: when a broker commits (`writing`), which statements are believed (`bridge`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from bridge.base import OperatorError
from bridge.traces import RememberedEntity, TraceKind
from bridge.tracking import Observed
from gateway.base import PrivateFileError, private_directory
from keys.delegation import Advertisement
from keys.errors import KeysError

CHANGES = (TraceKind.JOIN, TraceKind.ALLS_WELL, TraceKind.FAILED, TraceKind.DISCONNECT)
HISTORY_MAX = 1_000_000
"""Observations kept; beyond it the entity with most loses its oldest."""
HISTORY_AGE_S = 30 * 86_400.0
SEALED_FOR = b"veilmq/1 entities at rest"
TRIM_EVERY = 1_000  # observations between two looks at these bounds
TRIM_PARTS = 10  # entities at most that lose some at one look
_SCHEMA = """
CREATE TABLE IF NOT EXISTS advertisements (
    topic BLOB PRIMARY KEY, not_after_ms INTEGER NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entities (topic BLOB PRIMARY KEY, sealed BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS observations (
    id INTEGER PRIMARY KEY, entity TEXT NOT NULL, kind INTEGER NOT NULL, time_ms INTEGER NOT NULL,
    number INTEGER NOT NULL, fields TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS observations_of ON observations (entity, id);
CREATE INDEX IF NOT EXISTS observations_at ON observations (time_ms);
"""


class TraceStoreError(OperatorError):
    """The file cannot be used: a line, cause and cure."""


@dataclass(frozen=True, slots=True)
class SeenTrace:
    """A remembered observation."""

    entity: str
    kind: TraceKind
    time_ms: int
    fields: dict[str, Any]


class TraceStore:
    """A file with one process that writes, and one thread at a time."""

    def __init__(self, path: Path, secret: bytes = b"") -> None:
        """Open or make it, private to its owner. `secret`: what records of entities are sealed under; whoever has the
        file alone reads none of them. Raises TraceStoreError."""
        self._path = path
        self._cipher = AESGCM(HKDF(hashes.SHA256(), 32, None, SEALED_FOR).derive(secret))
        self._since_trim = 0
        try:
            private_directory(path.parent)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(_SCHEMA)
        except (PrivateFileError, OSError, sqlite3.Error) as error:
            raise TraceStoreError(f"{path}: {error}; correct it, or remove the file to begin anew") from None

    def close(self) -> None:
        self._db.close()

    # ----------------------------------------------------------------------------------------- advertisements

    def advertisements(self, now_ms: int) -> Iterator[Advertisement]:
        """Those that still count, oldest first; the others are dropped. Raises TraceStoreError."""
        self._execute("DELETE FROM advertisements WHERE not_after_ms < ?", (now_ms,))
        found = []
        for (data,) in self._execute("SELECT data FROM advertisements"):
            try:
                found.append(Advertisement.decode(data))
            except KeysError:
                continue  # damaged: the entity will ask for a new topic
        yield from sorted(found, key=lambda advertisement: advertisement.created_ms)

    # ------------------------------------------------------------------------------------------------ entities

    def write(
        self,
        advertisements: Mapping[bytes, Advertisement | None],
        entities: Mapping[bytes, RememberedEntity | None],
    ) -> None:
        """Writes both by trace topic in one transaction; None: it is forgotten. Raises TraceStoreError."""
        kept = [(topic, ad.not_after_ms, ad.encode()) for topic, ad in advertisements.items() if ad is not None]
        forgotten = [(topic,) for topic, advertisement in advertisements.items() if advertisement is None]
        here = [(topic, self._sealed_record(topic, record)) for topic, record in entities.items() if record is not None]
        gone = [(topic,) for topic, record in entities.items() if record is None]
        try:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT OR REPLACE INTO advertisements VALUES (?, ?, ?)", kept)
            self._db.executemany("DELETE FROM advertisements WHERE topic = ?", forgotten)
            self._db.executemany("INSERT OR REPLACE INTO entities VALUES (?, ?)", here)
            self._db.executemany("DELETE FROM entities WHERE topic = ?", gone)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise TraceStoreError(f"{self._path}: {error}; check the disk, or remove the file to begin anew") from None

    def remembered(self) -> Iterator[RememberedEntity]:
        """Those that open and are whole; the others are dropped. Raises TraceStoreError."""
        for topic, sealed in self._execute("SELECT topic, sealed FROM entities"):
            try:
                yield RememberedEntity.decode(self._cipher.decrypt(sealed[:12], sealed[12:], topic))
            except (InvalidTag, KeysError, ValueError):
                self._execute("DELETE FROM entities WHERE topic = ?", (topic,))

    def _sealed_record(self, topic: bytes, record: RememberedEntity) -> bytes:
        nonce = os.urandom(12)
        return nonce + self._cipher.encrypt(nonce, record.encode(), topic)

    # ------------------------------------------------------------------------------------------- observations

    def observe(self, seen: Observed) -> None:
        """Raises TraceStoreError."""
        fields = json.dumps(dict(seen.fields), ensure_ascii=False, separators=(",", ":"))
        row = (seen.entity, int(seen.kind), seen.time_ms, seen.number, fields)
        self._execute("INSERT INTO observations (entity, kind, time_ms, number, fields) VALUES (?, ?, ?, ?, ?)", row)
        self._since_trim += 1
        if self._since_trim >= TRIM_EVERY:
            self._trim(seen.time_ms)

    def history(self, entity: str | None = None, limit: int = 1_000) -> list[SeenTrace]:
        """The newest observations, of an entity or of all, oldest of them first. Raises TraceStoreError."""
        where, values = ("WHERE entity = ?", [entity]) if entity is not None else ("", [])
        query = f"SELECT entity, kind, time_ms, fields FROM observations {where} ORDER BY id DESC LIMIT ?"  # noqa: S608
        rows = self._execute(query, (*values, limit))
        return [_seen(*row) for row in reversed(rows)]

    def newest_changes(self, limit: int = 100_000) -> list[SeenTrace]:
        """The newest observations of who went and who came, oldest of them first. Raises TraceStoreError."""
        kinds = ", ".join(str(int(kind)) for kind in CHANGES)
        query = (
            f"SELECT entity, kind, time_ms, fields FROM observations WHERE kind IN ({kinds}) ORDER BY id DESC LIMIT ?"  # noqa: S608
        )
        return [_seen(*row) for row in reversed(self._execute(query, (limit,)))]

    def latest(self) -> list[SeenTrace]:
        """The last observation of each entity and kind, by entity. Raises TraceStoreError."""
        rows = self._execute(
            "SELECT entity, kind, time_ms, fields FROM observations WHERE id IN "
            "(SELECT max(id) FROM observations GROUP BY entity, kind) ORDER BY entity, id",
            (),
        )
        return [_seen(*row) for row in rows]

    def _trim(self, now_ms: int) -> None:
        self._since_trim = 0
        self._execute("DELETE FROM observations WHERE time_ms < ?", (now_ms - int(HISTORY_AGE_S * 1000),))
        ((count,),) = self._execute("SELECT count(*) FROM observations")
        least = -(-(count - HISTORY_MAX) // TRIM_PARTS)
        while (excess := count - HISTORY_MAX) > 0:
            first, *others = self._execute(
                "SELECT entity, count(*) AS kept FROM observations GROUP BY entity ORDER BY kept DESC LIMIT 2"
            )
            entity, most = first
            number = min(excess, most, max(least, most - others[0][1] if others else most))
            self._execute(
                "DELETE FROM observations WHERE id IN "
                "(SELECT id FROM observations WHERE entity = ? ORDER BY id LIMIT ?)",
                (entity, number),
            )
            count -= number

    def _execute(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        try:
            return self._db.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise TraceStoreError(f"{self._path}: {error}; check the disk, or remove the file to begin anew") from None


def _seen(entity: str, kind: int, time_ms: int, fields: str) -> SeenTrace:
    return SeenTrace(entity, TraceKind(kind), time_ms, json.loads(fields))
