"""A segment: one file of the history of a scope, with records in the order of their positions.

    records  position, row, id of the data key, sealed body          keys  id, sealed header and shares

A SQLite database with a write-ahead log. Bodies and keys are sealed with AES-256-GCM under the segment's own key, kept
by the archive: without the key a file is noise. Positions are in clear; a replica sees positions anyway.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bridge.contract import HistoryKey, HistoryPosition, HistoryRecord
from keys.frames import sized

ROW_BYTES = 96  # of a record beside its body, with the pages of the tree: measured
NONCE_BYTES, TAG_BYTES = 12, 16
_TABLES = """
CREATE TABLE IF NOT EXISTS records (
    time INTEGER, publisher BLOB, sequence INTEGER, tag BLOB, row INTEGER NOT NULL, key BLOB NOT NULL,
    body BLOB NOT NULL, PRIMARY KEY (time, publisher, sequence, tag)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS authors ON records (publisher, time);
CREATE TABLE IF NOT EXISTS keys (key BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
"""
_PLACES = (
    "SELECT time, publisher, sequence, tag, row, key FROM records WHERE (time, publisher, sequence, tag) > (?,?,?,?) "
    "AND time < ? AND row > ? ORDER BY time, publisher, sequence, tag LIMIT ?"
)
_PLACES_OF_ONE = _PLACES.replace("WHERE", "INDEXED BY authors WHERE publisher = ? AND time >= ? AND")


class Found(NamedTuple):
    """A record of a segment, without its body."""

    position: HistoryPosition
    row: int
    key_id: bytes


class Segment:
    """One open file. `scope`: its number; `key`: 32 secret bytes."""

    def __init__(self, path: Path, scope: int, key: bytes) -> None:
        """Opens or makes the file. Raises sqlite3.Error, OSError."""
        self.path, self._scope, self._cipher = path, scope, AESGCM(key)
        path.touch(0o600)
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON", "cache_size=-512"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.executescript(_TABLES)

    def write(self, rows: Iterable[tuple[int, HistoryRecord]], keys: Iterable[HistoryKey]) -> None:
        """Appends records with their rows, and keys, in one transaction; of two the longer stays. Raises
        sqlite3.Error.
        """
        sealed = [
            (*record.position, row, record.key_id, self._sealed_value(_place(record.position), record.body))
            for row, record in rows
        ]
        told = [(key.key_id, self._sealed_value(key.key_id, sized(key.header) + key.shares)) for key in keys]
        self._database.execute("BEGIN")
        try:
            self._database.executemany(
                "INSERT INTO records VALUES (?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET row=excluded.row, "
                "body=excluded.body WHERE length(excluded.body) > length(body)",
                sealed,
            )
            self._database.executemany(
                "INSERT INTO keys VALUES (?,?) ON CONFLICT DO UPDATE SET body=excluded.body "
                "WHERE length(excluded.body) > length(body)",
                told,
            )
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK") if self._database.in_transaction else None
            raise

    def places(self, after: HistoryPosition, until_ms: int, row: int, most: int, publisher: bytes = b"") -> list[Found]:
        """Returns where records are behind a position and a row, sealed before a time, in order: so many at most.
        `publisher`: of this one alone. Raises sqlite3.Error.
        """
        one = (publisher, after.time_ms) if publisher else ()
        query = _PLACES_OF_ONE if publisher else _PLACES
        found = self._database.execute(query, (*one, *after, until_ms, row, most))
        return [Found(HistoryPosition(*place), number, key_id) for *place, number, key_id in found]

    def body_of(self, position: HistoryPosition) -> bytes | None:
        """Returns the body of a record; None if it is damaged, or gone. Raises sqlite3.Error."""
        row = self._database.execute(
            "SELECT body FROM records WHERE (time, publisher, sequence, tag) = (?,?,?,?)", position
        ).fetchone()
        return None if row is None else self._open_value(_place(position), row[0])

    def key_of(self, key_id: bytes) -> HistoryKey | None:
        """Returns a data key; None if it is not here, or damaged. Raises sqlite3.Error."""
        row = self._database.execute("SELECT body FROM keys WHERE key = ?", (key_id,)).fetchone()
        plain = None if row is None else self._open_value(key_id, row[0])
        if plain is None:
            return None
        size = int.from_bytes(plain[:2])
        return HistoryKey(self._scope, key_id, plain[2 : 2 + size], plain[2 + size :])

    def about(self) -> tuple[int, int, int, dict[bytes, int]]:
        """Returns the least and greatest time in ms, the latest row, and bytes by publisher. Raises sqlite3.Error."""
        times = self._database.execute("SELECT min(time), max(time), max(row) FROM records").fetchone()
        sums = self._database.execute(
            "SELECT publisher, sum(length(body) + ?) FROM records GROUP BY publisher", (ROW_BYTES,)
        )
        return times[0] or 0, times[1] or 0, times[2] or 0, dict(sums.fetchall())

    def drop_publisher(self, publisher: bytes) -> None:
        """Erases all of a publisher. Raises sqlite3.Error."""
        self._database.execute("DELETE FROM records WHERE publisher = ?", (publisher,))
        self._database.execute("VACUUM")
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def empty_log(self) -> None:
        """Empties the write-ahead log: nothing is written here any more. Raises sqlite3.Error."""
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._database.close()

    def _sealed_value(self, place: bytes, plain: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain, place)

    def _open_value(self, place: bytes, sealed: bytes) -> bytes | None:
        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], place)
        except InvalidTag:
            return None


def erase_segment(path: Path) -> None:
    """Removes the file of a segment with its write-ahead log. Raises OSError."""
    for suffix in ("-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _place(position: HistoryPosition) -> bytes:
    return position.encode()
