"""Database of the outbox: rows sealed under a local store key, numbers reserved in blocks, predecessors.

Synchronous and single-writer; `gateway/outbox/store.py` puts a writer thread and the event loop around it. When a call
returns, its rows are on disk (SQLite in WAL mode with synchronous FULL, so a single fsync for a whole batch). Topic
names are kept as keyed hashes only. The store key protects against an attacker who gets the database but not the
directory's key file. A restored backup repeats no sequence number, since each life begins its numbers by the clock.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sqlite3
import struct
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from bridge.contract import Chain, Publication
from gateway.data import StoreError, open_database, store_error
from gateway.data.database import open_facts, read_fact
from keys.message import SEALED_PROPERTIES

SEQUENCE_BLOCK = 1 << 16
"""Numbers reserved by one write. A crash burns the rest of the block, so that no number is used twice."""
MAX_TOPICS = 1_000_000
"""Stops ever new topic names from growing the table of predecessors; the oldest start a new chain."""
MS_NUMBERS = 1 << 10
"""Numbers for each millisecond of the clock: a million a second is more than any gateway uses, and scripts can show
them.
"""
TOPIC_CACHE = 65_536
PAGE_ROWS = 256
PAGE_BYTES = 1 << 20
"""A page is read and opened on the event loop: it may take some milliseconds, whatever the size of its rows."""
STATEMENT_ROWS = 128
"""Rows that one statement writes, five values each: below SQLite's old bound of 999."""
ROW_LAYOUT = 1

_HEAD = struct.Struct(">BI")
_OPTIONAL = (*SEALED_PROPERTIES, "expiry_s")
_BYTES = {field.name for field in fields(Publication) if "bytes" in str(field.type)}  # hexadecimal in JSON

_SCHEMA = """
CREATE TABLE IF NOT EXISTS lives (life INTEGER PRIMARY KEY, salt BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (
    sequence INTEGER PRIMARY KEY, previous INTEGER NOT NULL, life INTEGER NOT NULL,
    committed_ms INTEGER NOT NULL, sealed BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS topics (topic BLOB PRIMARY KEY, sequence INTEGER NOT NULL) WITHOUT ROWID;
DROP INDEX IF EXISTS topics_age;  -- of earlier versions: each commit wrote a page of it
"""


@dataclass(slots=True)
class StoredRow:
    """Publication on its way to the disk: `frame` is `encode_publication`, `commit` sets `previous`.

    `chain`: the ordered sequence the publication is part of, named by its scope. A row without a frame is bundled with
    others of its chain (`bundling`); `size` is then its share in bytes, and `run` has its publications, if they are
    several with numbers from `sequence` on. `sequences`: the numbers of the rows bundled into this row; `topics`: the
    topics, if there are several.
    """

    sequence: int
    chain: Chain
    qos: int
    frame: bytes
    publication: Publication
    size: int = 0
    sequences: tuple[int, ...] = ()
    topics: Collection[str] = ()
    previous: int = 0
    run: Sequence[Publication] = ()

    @property
    def publications(self) -> int:
        """The number of publications of devices in this row."""
        return len(self.run) or self.publication.records or 1


@dataclass(frozen=True, slots=True)
class Stored:
    """Row read back from disk. `size`: its bytes on disk."""

    sequence: int
    previous: int
    publication: Publication
    size: int


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in order of sequence. `following`: where to read on, None at the end. `damaged`: the last row left out."""

    rows: tuple[Stored, ...]
    following: int | None
    damaged: StoreError | None = None


class Outbox:
    """Database file of an outbox. `writer` methods and `reader` methods may be called from a thread each."""

    def __init__(self, path: Path, key: bytes, now_ms: int) -> None:
        """Opens or makes the file at `now_ms`. Raises StoreError."""
        self.path = path
        self._first = now_ms * MS_NUMBERS
        self._recent: OrderedDict[bytes, int] = OrderedDict()
        try:
            self._writer = open_facts(path)
            self._reader = open_database(path)
            self._begin_life(key)
        except sqlite3.Error as error:
            raise store_error(error, path.parent) from None

    def _begin_life(self, key: bytes) -> None:
        # Every life has its own row key, so numbers that a restored backup repeats never repeat a nonce.
        db = self._writer
        db.executescript(_SCHEMA)
        with db:
            db.execute("BEGIN IMMEDIATE")
            last = db.execute("SELECT coalesce(max(life), 0) FROM lives").fetchone()[0]
            self._life = read_fact(db, "life", last) + 1
            db.execute("INSERT OR REPLACE INTO facts VALUES ('life', ?)", (self._life,))
            # Lives rise with sequences: one look at the oldest row, instead of a walk over all of them.
            db.execute(
                "DELETE FROM lives WHERE life < coalesce((SELECT life FROM outbox ORDER BY sequence LIMIT 1), ?)",
                (self._life,),
            )
            db.execute("INSERT INTO lives VALUES (?, ?)", (self._life, secrets.token_bytes(16)))
        self._ciphers = {
            life: AESGCM(_derive(key, salt, b"row")) for life, salt in db.execute("SELECT life, salt FROM lives")
        }
        self._topic_mac = hmac.new(_derive(key, b"", b"topic"), digestmod="sha256")
        self._topic_count = int(db.execute("SELECT count(*) FROM topics").fetchone()[0])
        self._has_own_chains = db.execute("SELECT 1 FROM outbox LIMIT 1").fetchone() is not None  # perhaps

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    # ------------------------------------------------------------------------------------- writer

    def commit(
        self, rows: Sequence[StoredRow], gone: Iterable[int], reserve: bool, now_ms: int
    ) -> tuple[int, int] | None:
        """Inserts `rows`, deletes `gone` and reserves the block [first, end) that is returned, in a single
        transaction.

        Raises StoreError; then nothing was changed.
        """
        block = None
        count = self._topic_count
        try:
            with self._writer as db:
                db.execute("BEGIN IMMEDIATE")
                if rows:
                    count = self._insert(db, rows, now_ms)
                # After the inserts: an entry may be forgotten within the batch that brings it.
                _write(db, "DELETE FROM outbox WHERE sequence IN ({})", "?", [(sequence,) for sequence in gone])
                if reserve:
                    block = _reserve(db, self._first)
        except sqlite3.Error as error:
            self._recent.clear()  # it may name entries that were rolled back
            raise store_error(error, self.path.parent) from None
        self._topic_count = count
        return block

    def _insert(self, db: sqlite3.Connection, rows: Sequence[StoredRow], now_ms: int) -> int:
        """Returns how many topics have a predecessor on disk."""
        touched: dict[bytes, int] = {}
        count, values = self._topic_count, []
        cipher = self._ciphers[self._life]
        for row in rows:
            name = self._name_of(row.chain.name)
            chains = [self._previous(db, each) for each in (name, *self._own_chains(row))]
            # No predecessor with a greater number: not of its own topic's chain, nor of a damaged row.
            row.previous = max([each for each in chains if each < row.sequence], default=0)
            if row.qos:
                count += not self._recent[name]
                self._recent[name] = touched[name] = row.sequence
                self._recent.move_to_end(name)
            sealed = cipher.encrypt(_nonce(row.sequence), row.frame, _bound(row.sequence, row.previous))
            values.append((row.sequence, row.previous, self._life, now_ms, sealed))
        _write(db, "INSERT INTO outbox VALUES {}", "(?, ?, ?, ?, ?)", values)
        _write(db, "INSERT OR REPLACE INTO topics VALUES {}", "(?, ?)", list(touched.items()))
        while len(self._recent) > TOPIC_CACHE:
            self._recent.popitem(last=False)
        if count > MAX_TOPICS:
            excess = count - MAX_TOPICS * 15 // 16
            db.execute(
                "DELETE FROM topics WHERE topic IN (SELECT topic FROM topics ORDER BY sequence LIMIT ?)",
                (excess,),
            )
            count -= excess
            self._recent.clear()
        return count

    def _own_chains(self, row: StoredRow) -> list[bytes]:
        """Returns the chains of single topics a row must follow too. A publication stored while the scope of its topic
        was unknown is in a chain of that topic, and later rows of the scope's chain follow it. As a rule there is no
        such row, and topics are not looked up.
        """
        topics = row.topics or (row.publication.topic,)
        if row.chain.name in topics:
            self._has_own_chains = True
            return []
        return [self._name_of(topic) for topic in topics] if self._has_own_chains else []

    def _name_of(self, topic: str) -> bytes:
        mac = self._topic_mac.copy()  # hmac.digest would give the interpreter away: see `_write`
        mac.update(topic.encode())
        return mac.digest()[:16]

    def _previous(self, db: sqlite3.Connection, name: bytes) -> int:
        known = self._recent.get(name)
        if known is None:
            row = db.execute("SELECT sequence FROM topics WHERE topic = ?", (name,)).fetchone()
            known = self._recent[name] = int(row[0]) if row else 0
        return known

    # ------------------------------------------------------------------------------------- reader

    def totals(self) -> tuple[int, int]:
        """Returns number and bytes of all rows. Reads the whole table's pages, not its rows: 0.1 s a million. Raises
        StoreError.
        """
        count, size = self._row("SELECT count(*), coalesce(sum(length(sealed)), 0) FROM outbox") or (0, 0)
        return int(count), int(size)

    def page(self, start: int, skip: Callable[[int], bool]) -> Page:
        """Returns rows from sequence `start` on, without those that `skip` names. Raises StoreError if the disk cannot
        be read.

        A row that cannot be opened is left out and reported, so that it does not block all later rows.
        """
        rows: list[Stored] = []
        damaged, held, following = None, 0, None
        query = "SELECT sequence, previous, life, sealed FROM outbox WHERE sequence >= ? ORDER BY sequence LIMIT ?"
        try:
            cursor = self._reader.execute(query, (start, PAGE_ROWS))
            for seen, (sequence, previous, life, sealed) in enumerate(cursor, 1):
                if seen == PAGE_ROWS or held >= PAGE_BYTES:
                    following = sequence + 1
                if not skip(sequence):
                    held += len(sealed)
                    try:
                        publication = self._open_row(sequence, previous, life, sealed)
                        rows.append(Stored(sequence, previous, publication, len(sealed)))
                    except StoreError as error:
                        damaged = error
                if following is not None:
                    break
            cursor.close()  # an open one would keep the log from being written back
        except sqlite3.Error as error:
            raise store_error(error, self.path.parent) from None
        return Page(tuple(rows), following, damaged)

    def first_row(self, start: int) -> tuple[int, int] | None:
        """Returns sequence and time of storage (ms since the UNIX epoch) of the first row from `start` on; None if
        there is none. Raises StoreError.
        """
        query = "SELECT sequence, committed_ms FROM outbox WHERE sequence >= ? ORDER BY sequence LIMIT 1"
        row = self._row(query, start)
        return None if row is None else (int(row[0]), int(row[1]))

    def holds_row(self, sequence: int) -> bool:
        """Returns True if the row is on disk. Raises StoreError."""
        return self._row("SELECT 1 FROM outbox WHERE sequence = ?", sequence) is not None

    def last_of_chain(self, chain: str) -> int:
        """Returns the sequence of the last QoS >= 1 publication of a chain, 0 for none. Raises StoreError."""
        row = self._row("SELECT sequence FROM topics WHERE topic = ?", self._name_of(chain))
        return int(row[0]) if row else 0

    def _row(self, query: str, *values: int | bytes) -> tuple[Any, ...] | None:
        """Returns the only row of a query. Raises StoreError."""
        try:
            row: tuple[Any, ...] | None = self._reader.execute(query, values).fetchone()
        except sqlite3.Error as error:
            raise store_error(error, self.path.parent) from None
        return row

    def _open_row(self, sequence: int, previous: int, life: int, sealed: bytes) -> Publication:
        try:
            frame = self._ciphers[life].decrypt(_nonce(sequence), sealed, _bound(sequence, previous))
            return decode_publication(frame)
        except (InvalidTag, KeyError, ValueError):
            raise StoreError(
                f"outbox entry {sequence} in {self.path.parent} is damaged or of another store key; "
                "restore the directory from one backup as a whole"
            ) from None


# ------------------------------------------------------------------------------------------- rows


def encode_publication(publication: Publication) -> bytes:
    """Encodes every field of a clear publication: layout, length of the JSON object, JSON object, payload.

    Local storage under the store key, so the encoding need not be canonical, unlike frames of the wire.
    """
    p = publication
    found: dict[str, object] = {"topic": p.topic, "qos": p.qos, "time": p.time_ms}
    if p.retain:
        found["retain"] = True
    if p.records:
        found["records"] = p.records
    if p.in_clear is not None:
        found["in_clear"] = p.in_clear
    if p.properties:
        found["properties"] = p.properties
    for name in _OPTIONAL:
        if (value := getattr(p, name)) is not None:
            found[name] = value.hex() if isinstance(value, bytes) else value
    head = json.dumps(found, separators=(",", ":")).encode()
    return b"".join((_HEAD.pack(ROW_LAYOUT, len(head)), head, p.payload))


def decode_publication(row: bytes) -> Publication:
    """Decodes bytes of `encode_publication`; raises ValueError for any other input."""
    if len(row) < _HEAD.size:
        raise ValueError("row is too short")
    layout, size = _HEAD.unpack_from(row)
    end = _HEAD.size + size
    if layout != ROW_LAYOUT or end > len(row):
        raise ValueError("row has another layout")
    found = json.loads(row[_HEAD.size : end])
    return Publication(
        topic=found["topic"],
        payload=row[end:],
        qos=found["qos"],
        retain=found.get("retain", False),
        properties=tuple((name, value) for name, value in found.get("properties", ())),
        time_ms=found["time"],
        records=found.get("records", 0),
        in_clear=found.get("in_clear"),
        **{name: _plain(name, found.get(name)) for name in _OPTIONAL},
    )


def _plain(name: str, value: Any) -> Any:
    return bytes.fromhex(value) if name in _BYTES and value is not None else value


# ---------------------------------------------------------------------------------------- details


def _write(db: sqlite3.Connection, statement: str, place: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Runs `statement` with `place` in it for each of `rows`, in as few steps as possible.

    Each step gives the interpreter to the event loop, which, when busy, gives it back only after 5 ms: row by row a
    hundred publications would wait for half a second. Sizes are powers of two, so that SQLite's module finds its
    prepared statements.
    """
    at = 0
    while at < len(rows):
        count = min(STATEMENT_ROWS, 1 << (len(rows) - at).bit_length() - 1)
        values = [value for row in rows[at : at + count] for value in row]
        db.execute(statement.format(", ".join([place] * count)), values)
        at += count


def _reserve(db: sqlite3.Connection, at_least: int) -> tuple[int, int]:
    """Reserves the next block. Numbers of a life begin at its start: after a data directory was lost, or restored
    from a copy, no number is used again. A receiver would take publications with a repeated number for repetitions,
    and acknowledge them.
    """
    first = max(read_fact(db, "next_sequence", 1), at_least)
    db.execute("INSERT OR REPLACE INTO facts VALUES ('next_sequence', ?)", (first + SEQUENCE_BLOCK,))
    return first, first + SEQUENCE_BLOCK


def _derive(key: bytes, salt: bytes, purpose: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt, b"veilmq/1 store " + purpose).derive(key)


def _nonce(sequence: int) -> bytes:
    return sequence.to_bytes(12, "big")


def _bound(sequence: int, previous: int) -> bytes:
    return sequence.to_bytes(8, "big") + previous.to_bytes(8, "big")
