"""Database of the broker's state of its clients: sessions, subscriptions, messages on their way, retained messages.

Synchronous and single-writer; `gateway/sessions/store.py` decides the content and time of writes. When a call of
`commit` returns, its changes are on disk (SQLite in WAL mode with synchronous FULL: a fsync for a whole group). A
group is few statements however many rows it has: each statement hands the interpreter lock over, and the event loop
wants it. Payloads are stored as they came; the directory and its files are open to their owner only.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from gateway.base import lock_exclusively, private_directory
from gateway.base.log_events import LogEvent
from gateway.data import StoreError, in_a_line, open_database, store_error
from gateway.sessions.clock_marks import ClockMark, shift_s

log = logging.getLogger("veilmq.broker")

LAYOUT = 4
ROWS_MAX = 1000
"""Rows of one INSERT: keeps it below SQLite's bound of 32,766 parameters."""
DATABASE = "sessions.sqlite3"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY, client TEXT NOT NULL, user TEXT, anonymous INTEGER NOT NULL, version INTEGER NOT NULL,
    expiry_s INTEGER NOT NULL, connected INTEGER NOT NULL, will_at REAL, ends_at REAL,
    will_topic TEXT, will_payload BLOB, will_qos INTEGER, will_retain INTEGER, will_properties BLOB,
    token_groups TEXT);
CREATE TABLE IF NOT EXISTS subscriptions (
    session INTEGER NOT NULL, filter TEXT NOT NULL, qos INTEGER NOT NULL, no_local INTEGER NOT NULL,
    retain_as_published INTEGER NOT NULL, retain_handling INTEGER NOT NULL, identifier INTEGER NOT NULL,
    predicate TEXT NOT NULL DEFAULT '', PRIMARY KEY (session, filter)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY, packet BLOB NOT NULL, expires_at REAL, publisher TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS deliveries (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, message INTEGER NOT NULL, qos INTEGER NOT NULL,
    retain INTEGER NOT NULL, identifiers TEXT, packet_id INTEGER NOT NULL, stage INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS received (flow INTEGER PRIMARY KEY, topic TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS retained (
    topic TEXT PRIMARY KEY, packet BLOB NOT NULL, expires_at REAL, publisher TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clock (id INTEGER PRIMARY KEY, now REAL NOT NULL, wall REAL NOT NULL);
CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""

_UPGRADES = (
    "ALTER TABLE subscriptions ADD COLUMN predicate TEXT NOT NULL DEFAULT '';",  # 1 to 2
    "ALTER TABLE received ADD COLUMN topic TEXT NOT NULL DEFAULT '';",  # 2 to 3
    "ALTER TABLE sessions ADD COLUMN token_groups TEXT;",  # 3 to 4
)
_TABLES = ("sessions", "subscriptions", "messages", "deliveries", "received", "retained", "kept")

_TIMES = (("sessions", "will_at"), ("sessions", "ends_at"), ("messages", "expires_at"), ("retained", "expires_at"))

Rows: TypeAlias = list[tuple[Any, ...]]

WAITING, IN_FLIGHT, RELEASED = 0, 1, 2
"""Stages of an outbound flow (`deliveries.stage`)."""


@dataclass(slots=True)
class Changes:
    """Changes of a group: rows to insert or replace, in the order of the table's columns, and keys to delete.

    Deletions are made first, except that a session's deletion takes its subscriptions and flows along. `received`:
    QoS 2 messages whose PUBREL has not come, as session << 16 | packet identifier, with the topic if the message is
    to be retained. `kept`: the overlay's memory of its deliveries, which the store does not interpret.
    """

    sessions: Rows = field(default_factory=list)
    subscriptions: Rows = field(default_factory=list)
    messages: Rows = field(default_factory=list)
    deliveries: Rows = field(default_factory=list)
    received: Rows = field(default_factory=list)
    retained: Rows = field(default_factory=list)
    kept: Rows = field(default_factory=list)
    gone_sessions: list[int] = field(default_factory=list)
    gone_subscriptions: list[tuple[int, str]] = field(default_factory=list)
    gone_messages: list[int] = field(default_factory=list)
    gone_deliveries: list[int] = field(default_factory=list)
    gone_received: list[int] = field(default_factory=list)
    gone_retained: list[str] = field(default_factory=list)
    gone_kept: list[bytes] = field(default_factory=list)
    mark: ClockMark | None = None


@dataclass(slots=True)
class Content:
    """Content of the database, as rows in the order of the tables' columns; deliveries in order of their id."""

    sessions: Rows
    subscriptions: dict[int, Rows]
    messages: dict[int, tuple[Any, ...]]
    deliveries: dict[int, Rows]
    received: dict[int, dict[int, str]]
    retained: Rows
    last_id: int
    kept: Rows = field(default_factory=list)


class SessionDatabase:
    """Database file below the data directory, locked against a second broker."""

    def __init__(self, directory: Path) -> None:
        """Opens or makes the file. Raises StoreError in a line."""
        self._directory = directory
        with in_a_line(directory):
            private_directory(directory)
            self._lock = lock_exclusively(directory / "sessions.lock")
        path = directory / DATABASE
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = open_database(path)
            layout = self._db.execute("PRAGMA user_version").fetchone()[0]
            if not 0 <= layout <= LAYOUT:
                raise StoreError(f"{path}: layout {layout} is not known to this version; upgrade veilmq")
            upgrade = "".join(_UPGRADES[layout - 1 :]) if layout else ""
            self._db.executescript(f"BEGIN IMMEDIATE; {upgrade} {_SCHEMA} PRAGMA user_version = {LAYOUT}; COMMIT;")
        except sqlite3.Error as error:
            os.close(self._lock)
            raise store_error(error, directory) from None
        except StoreError:
            os.close(self._lock)
            raise

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)

    def load(self) -> Content:
        """Returns the whole content. Raises StoreError."""
        db = self._db
        try:
            # Rows that belong to no session, and messages without a delivery.
            db.execute("DELETE FROM deliveries WHERE session NOT IN (SELECT id FROM sessions)")
            db.execute("DELETE FROM subscriptions WHERE session NOT IN (SELECT id FROM sessions)")
            db.execute("DELETE FROM received WHERE flow >> 16 NOT IN (SELECT id FROM sessions)")
            db.execute("DELETE FROM messages WHERE id NOT IN (SELECT message FROM deliveries)")
            content = Content(
                sessions=db.execute("SELECT * FROM sessions ORDER BY id").fetchall(),
                subscriptions={},
                messages={row[0]: row for row in db.execute("SELECT * FROM messages")},
                deliveries={},
                received={},
                retained=db.execute("SELECT * FROM retained").fetchall(),
                last_id=0,
                kept=db.execute("SELECT * FROM kept").fetchall(),
            )
            for row in db.execute("SELECT * FROM subscriptions"):
                content.subscriptions.setdefault(row[0], []).append(row)
            for row in db.execute("SELECT * FROM deliveries ORDER BY id"):
                content.deliveries.setdefault(row[1], []).append(row)
            for flow, topic in db.execute("SELECT flow, topic FROM received"):
                content.received.setdefault(flow >> 16, {})[flow & 0xFFFF] = topic
            highest = "SELECT max(id) FROM (SELECT max(id) AS id FROM {} UNION ALL SELECT max(id) FROM {} UNION ALL {})"
            query = highest.format("messages", "deliveries", "SELECT max(id) FROM sessions")
            content.last_id = db.execute(query).fetchone()[0] or 0
        except sqlite3.Error as error:
            raise store_error(error, self._directory) from None
        return content

    def set_right(self, now: float) -> None:
        """Moves stored times if the clock of the former run was wrong. Before `load`; raises StoreError."""
        db = self._db
        try:
            mark = db.execute("SELECT now, wall FROM clock").fetchone()
            shift = 0.0 if mark is None else shift_s(ClockMark(*mark), now)
            if not shift:
                return
            with db:
                db.execute("BEGIN IMMEDIATE")
                for table, column in _TIMES:
                    db.execute(f"UPDATE {table} SET {column} = {column} + ?", (shift,))  # noqa: S608  names are ours
                db.execute("INSERT OR REPLACE INTO clock VALUES (1, ?, ?)", (now, now))
        except sqlite3.Error as error:
            raise store_error(error, self._directory) from None
        LogEvent.STORED_TIMES_MOVED.say(log, shift)

    def commit(self, changes: Changes) -> None:
        """Writes all changes in a single transaction, on disk on return. Raises StoreError; then nothing was
        changed.
        """
        db = self._db
        try:
            with db:
                db.execute("BEGIN IMMEDIATE")
                self._delete(changes)
                for table in _TABLES:
                    _insert(db, table, getattr(changes, table))
                if changes.mark is not None:
                    db.execute("INSERT OR REPLACE INTO clock VALUES (1, ?, ?)", changes.mark)
        except sqlite3.Error as error:
            raise store_error(error, self._directory) from None

    def _delete(self, changes: Changes) -> None:
        db = self._db
        _delete_listed(db, "deliveries", "id", changes.gone_deliveries)
        _delete_listed(db, "messages", "id", changes.gone_messages)
        _delete_listed(db, "received", "flow", changes.gone_received)
        _delete_listed(db, "retained", "topic", changes.gone_retained)
        if changes.gone_kept:
            db.executemany("DELETE FROM kept WHERE key = ?", [(key,) for key in changes.gone_kept])
        if changes.gone_subscriptions:
            db.executemany("DELETE FROM subscriptions WHERE session = ? AND filter = ?", changes.gone_subscriptions)
        _delete_listed(db, "sessions", "id", changes.gone_sessions)
        _delete_listed(db, "subscriptions", "session", changes.gone_sessions)
        for session in changes.gone_sessions:
            db.execute("DELETE FROM received WHERE flow BETWEEN ? AND ?", (session << 16, session << 16 | 0xFFFF))


def _insert(db: sqlite3.Connection, table: str, rows: Rows) -> None:
    for start in range(0, len(rows), ROWS_MAX):
        page = rows[start : start + ROWS_MAX]
        places = ",".join([f"({','.join('?' * len(page[0]))})"] * len(page))
        values: Sequence[Any] = [value for row in page for value in row]
        db.execute(f"INSERT OR REPLACE INTO {table} VALUES {places}", values)  # noqa: S608  names are ours


def _delete_listed(db: sqlite3.Connection, table: str, column: str, keys: Collection[int | str]) -> None:
    if keys:
        query = f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))"  # noqa: S608  names are ours
        db.execute(query, (json.dumps(list(keys)),))
