"""Sessions of bridges on disk, including sessions of bridges that are no longer configured.

A bridge has a session at the local broker so that messages wait for it. A bridge that is renamed or taken out of the
configuration leaves its session, in which messages go on to wait, within the bounds of a session.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from gateway.clients import INTERNAL
from gateway.data import StoreError, store_error
from gateway.sessions.database import DATABASE, Changes, SessionDatabase

PREFIX = f"{INTERNAL}bridge/"
"""Prefix of client ids of bridges; the bridge's name follows."""
_WAITING = "SELECT client, (SELECT count(*) FROM deliveries WHERE session = sessions.id) FROM sessions"


def waiting_for_bridges(directory: Path) -> dict[str, int]:
    """Returns the number of messages waiting for each bridge with a session, by its name. A broker may run meanwhile.

    Raises StoreError.
    """
    path = directory / DATABASE
    if not path.exists():
        return {}
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            rows = db.execute(_WAITING).fetchall()
    except sqlite3.Error as error:
        raise store_error(error, directory) from None
    return {client.removeprefix(PREFIX): count for client, count in rows if client.startswith(PREFIX)}


def forget_bridge(directory: Path, name: str) -> int:
    """Removes the session of a bridge with the messages that wait in it, and returns their number.

    Raises StoreError if a broker uses the directory, or there is no such session.
    """
    waiting = waiting_for_bridges(directory)
    if name not in waiting:
        known = ", ".join(sorted(waiting)) or "none"
        raise StoreError(f"{directory}: no bridge {name} has a session there; those that have: {known}")
    database = SessionDatabase(directory)
    try:
        gone = [row[0] for row in database.load().sessions if row[1] == PREFIX + name]
        database.commit(Changes(gone_sessions=gone))
        database.load()  # drops rows that belong to no session
    finally:
        database.close()
    return waiting[name]
