"""Reader of the SQLite database of Mosquitto 2.1's plugin `mosquitto_persist_sqlite`, into records of `mosquitto_db`.

The file is opened for reading only. Columns of the type STRING have numeric affinity (sqlite.org, "Datatypes in
SQLite"): a topic such as `007` is stored as the number 7, and the original spelling is lost. Read here: schema 1.0
and 1.1, as Mosquitto 2.1.2 writes them.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from gateway.importing.mosquitto_db import (
    Database,
    DbError,
    StoredClient,
    StoredDelivery,
    StoredMessage,
    StoredSubscription,
    is_owed,
)
from gateway.mqtt5.packets import NO_PROPERTIES, Properties

MAGIC = b"SQLite format 3\0"
NEVER = 0xFFFF_FFFF
_INCOMING = 0


def read_sqlite(path: Path) -> Database:
    """Returns the content of a whole database. Raises DbError."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return _read(connection)
    except sqlite3.Error as error:
        raise DbError(f"is no database of Mosquitto 2.1 ({error}); name another file with --db") from None
    except (ValueError, TypeError, KeyError) as error:
        raise DbError(f"is damaged: {error}; copy it again while Mosquitto is stopped") from None


def _read(connection: sqlite3.Connection) -> Database:
    found = Database(version=1)
    rows = connection.execute(
        "SELECT store_id, expiry_time, topic, payload, source_id, qos, retain, properties FROM base_msgs"
    )
    for number, expires, topic, payload, publisher, qos, retain, properties in rows:
        if not isinstance(topic, str):
            found.notes.append(f"topic {topic} was stored as a number by SQLite; if it was spelt otherwise, mend it")
        found.messages[number] = StoredMessage(
            str(topic), _bytes(payload), min(int(qos), 2), bool(retain), str(publisher or ""), expires or None,
            _properties(properties),
        )  # fmt: skip
    found.retained = [number for (number,) in connection.execute("SELECT store_id FROM retains")]
    rows = connection.execute("SELECT client_id, username, session_expiry_interval, session_expiry_time FROM clients")
    for client_id, username, expiry_s, ends_at in rows:
        found.clients[client_id] = StoredClient(client_id, username, int(expiry_s) & NEVER, ends_at or None)
    rows = connection.execute(
        "SELECT client_id, topic, subscription_options, subscription_identifier FROM subscriptions"
    )
    for client_id, topic_filter, options, identifier in rows:
        if client_id in found.clients:
            found.clients[client_id].subscriptions.append(
                StoredSubscription(topic_filter, min(options & 3, 2), options & 0xFC, identifier or 0)
            )
    _queues(connection, found)
    return found


def _queues(connection: sqlite3.Connection, found: Database) -> None:
    rows = connection.execute(
        "SELECT client_id, store_id, direction, qos, retain, state, subscription_identifier FROM client_msgs"
        " ORDER BY client_id, cmsg_id"
    )
    for client_id, number, direction, qos, retain, state, identifier in rows:
        if direction == _INCOMING:
            found.half_received.append((client_id, number))
        elif is_owed(state) and client_id in found.clients:
            identifiers = (identifier,) if identifier else ()
            found.clients[client_id].queued.append(StoredDelivery(number, min(qos, 2), bool(retain), identifiers))


def _bytes(payload: Any) -> bytes:
    return payload.encode() if isinstance(payload, str) else bytes(payload or b"")


def _properties(text: Any) -> Properties:
    """Decodes properties of a PUBLISH from the plugin's JSON; binary data is in hexadecimal."""
    if not text:
        return NO_PROPERTIES
    values: dict[str, Any] = {}
    user: list[tuple[str, str]] = []
    for one in json.loads(text):
        if one["identifier"] == "user-property":
            user.append((one["name"], one["value"]))
        else:
            values[one["identifier"]] = one["value"]
    correlation = values.get("correlation-data")
    return Properties(
        payload_format=values.get("payload-format-indicator"),
        content_type=values.get("content-type"),
        response_topic=values.get("response-topic"),
        correlation_data=None if correlation is None else bytes.fromhex(correlation),
        user=tuple(user),
    )
