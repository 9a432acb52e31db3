"""Databases of a data directory: their errors in a line, connections whose commits are on disk, and a table of numbers.

The table of facts lies in the outbox's file. It has the layout of the file, the generation (`generation`), and numbers
of the outbox.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from bridge.base import OperatorError

LAYOUT = 1
FACT_MAX = 1 << 62
"""The largest valid value of a stored fact; no counter comes near it."""

_SCHEMA = "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"


class StoreError(OperatorError):
    """Error of a data directory that cannot be used or written: a line, cause and cure. MQTT reason `code`."""

    code = 0x80


class NoRoomError(StoreError):
    """Error of a store without room (a configured bound or the disk). MQTT reason code 0x97, Quota exceeded."""

    code = 0x97


def store_error(error: sqlite3.Error, directory: Path) -> StoreError:
    """Returns a one-line error for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return NoRoomError(f"data directory {directory}: disk is full; free some space")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(f"data directory {directory}: database is damaged; restore it or empty the directory")
    return StoreError(f"data directory {directory}: {error}; check the disk and the permissions")


def open_database(path: Path) -> sqlite3.Connection:
    """Opens a connection whose commits are on disk when they return. Raises sqlite3.Error."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    return db


def open_facts(path: Path) -> sqlite3.Connection:
    """Opens a connection to a database with a table of facts; makes both. Raises sqlite3.Error, and StoreError for a
    layout of a later version.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    db = open_database(path)
    try:
        db.execute(_SCHEMA)
        layout = read_fact(db, "layout", LAYOUT)
        if layout != LAYOUT:
            raise StoreError(f"{path}: layout {layout} is not known to this version; upgrade veilmq")
    except (sqlite3.Error, StoreError):
        db.close()
        raise
    return db


def read_fact(db: sqlite3.Connection, name: str, default: int) -> int:
    """Returns a stored number. Raises sqlite3.Error for an invalid value: SQLite finds no damage inside a value."""
    row = db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    value = row[0] if row else default
    if not isinstance(value, int) or not 0 <= value <= FACT_MAX:
        raise sqlite3.DatabaseError(f"the stored {name} is damaged")
    return value
