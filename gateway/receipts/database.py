"""The database of receipts: batches that this gateway sealed, and receipts that fit them.

Topics and hashes of payloads tell about content, so each row is sealed under a key of the store. Beyond `BYTES_MAX` the
oldest batches go, or the oldest receipts of a reader that has more bytes than all batches: none pushes out another.
Every method belongs to one thread; a command opens a database of its own.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bridge.base import OperatorError
from bridge.contract import KeepSealed, ReceiptCame

BYTES_MAX = 1 << 30
"""Size of all rows beyond which the oldest go; the file keeps its size, and new rows take the free room."""
GONE_PART = 20  # a twentieth of the rows goes
NONCE_BYTES = 12
RECEIPTS_PURPOSE = b"receipts"
"""The purpose of the key of the store under which rows are sealed."""
RESTORED_MAX = 16_384
"""Newest batches that a start reads: receipts of older ones, if they come so late, fit nothing."""
_TABLES = """
CREATE TABLE IF NOT EXISTS sealed (id INTEGER PRIMARY KEY, number INTEGER NOT NULL, row BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS sealed_numbers ON sealed (number);
CREATE TABLE IF NOT EXISTS receipts (
    id INTEGER PRIMARY KEY, reader TEXT NOT NULL, time INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    row BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS receipts_numbers ON receipts (last, first);
"""


class ReceiptsError(OperatorError):
    """Receipts that cannot be read, or that are not there: a line, cause and cure."""


class KnownReceipt(NamedTuple):
    """A receipt on disk. `row`: see `bridge.receipts.ReceiptRow`."""

    reader: str
    time_ms: int
    first: int
    last: int
    row: bytes


def receipts_file(data: Path) -> Path:
    """Returns the path of the database in a data directory."""
    return data / "receipts.sqlite3"


class ReceiptDatabase:
    """The receipts of a gateway. `key`: of the store, 32 secret bytes."""

    def __init__(self, path: Path, key: bytes) -> None:
        """Opens or makes the file. Raises ReceiptsError."""
        self._path, self._cipher = path, AESGCM(key)
        try:
            path.touch(0o600)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.executescript(_TABLES)
        except (sqlite3.Error, OSError) as error:
            raise ReceiptsError(f"{path}: receipts cannot be opened ({error}); restore or remove it") from None

    def close(self) -> None:
        self._db.close()

    def write(self, sealed: Iterable[KeepSealed], came: Iterable[ReceiptCame]) -> None:
        """Adds rows in one transaction, and keeps the file within its bound. Raises sqlite3.Error."""
        batches = [(each.number, self._sealed_row(each.row)) for each in sealed]
        receipts = [(r.reader, r.time_ms, r.first, r.last, self._sealed_row(r.row)) for r in came]
        with self._db:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO sealed (number, row) VALUES (?, ?)", batches)
            self._db.executemany(
                "INSERT INTO receipts (reader, time, first, last, row) VALUES (?, ?, ?, ?, ?)", receipts
            )
        self._keep_bound()

    def _keep_bound(self) -> None:
        pages, free, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        taken = (pages - free) * size
        if taken <= BYTES_MAX:
            return
        of_readers = dict(self._db.execute("SELECT reader, sum(length(row)) FROM receipts GROUP BY reader"))
        greediest = max(of_readers, key=of_readers.__getitem__, default="")
        with self._db:
            self._db.execute("BEGIN")
            if of_readers.get(greediest, 0) > taken - sum(of_readers.values()):
                self._db.execute(
                    "DELETE FROM receipts WHERE id IN (SELECT id FROM receipts WHERE reader = :reader ORDER BY id "
                    "LIMIT 1 + (SELECT count(*) FROM receipts WHERE reader = :reader) / :part)",
                    {"reader": greediest, "part": GONE_PART},
                )
            else:
                first, last = self._db.execute("SELECT min(id), max(id) FROM sealed").fetchone()
                self._db.execute("DELETE FROM sealed WHERE id <= ?", (first + (last - first) // GONE_PART,))
                self._db.execute("DELETE FROM receipts WHERE last < (SELECT min(number) FROM sealed)")

    def newest(self) -> list[bytes]:
        """Returns the rows of the newest batches, oldest first, as far as they open. Raises sqlite3.Error."""
        found = self._db.execute("SELECT row FROM sealed ORDER BY id DESC LIMIT ?", (RESTORED_MAX,)).fetchall()
        return [row for (sealed,) in reversed(found) if (row := self._opened_row(sealed)) is not None]

    def batches(self, first: int, last: int, limit: int) -> list[bytes]:
        """Returns rows of batches with numbers from `first` to `last`, the newest first. Raises sqlite3.Error."""
        asked = "SELECT row FROM sealed WHERE number BETWEEN ? AND ? ORDER BY number DESC LIMIT ?"
        found = self._db.execute(asked, (first, last, limit))
        return [row for (sealed,) in found if (row := self._opened_row(sealed)) is not None]

    def receipts(self, number: int) -> Iterator[KnownReceipt]:
        """Yields the receipts that may list a batch of this number, the oldest first. Raises sqlite3.Error."""
        asked = "SELECT reader, time, first, last, row FROM receipts WHERE last >= ? AND first <= ? ORDER BY id"
        for reader, time_ms, first, last, sealed in self._db.execute(asked, (number, number)):
            if (row := self._opened_row(sealed)) is not None:
                yield KnownReceipt(reader, time_ms, first, last, row)

    def readers(self) -> list[tuple[str, int, int, int]]:
        """Returns each reader with the number of its receipts, time and last number of the newest. Raises
        sqlite3.Error.
        """
        asked = "SELECT reader, count(*), max(time), max(last) FROM receipts GROUP BY reader ORDER BY reader"
        return list(self._db.execute(asked))

    def _sealed_row(self, row: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, row, None)

    def _opened_row(self, sealed: bytes) -> bytes | None:
        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None)
        except (InvalidTag, ValueError):
            return None
