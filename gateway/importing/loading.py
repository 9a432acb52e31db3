"""Import of a `mosquitto.db` into a data directory of ours: retained messages, sessions and their queues.

All rows are written in a single transaction, into a directory holding no sessions yet. The broker reads the rows at
its next start like its own. Content without a counterpart becomes a note, a line each. Not here: the file's formats
(`mosquitto_db`, `mosquitto_sqlite`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bridge.base import TopicError, check_filter, check_name, split_share
from gateway.clients import INTERNAL
from gateway.data import StoreError
from gateway.importing.mosquitto_db import Database, DbError, StoredClient, StoredDelivery, StoredMessage, parse_db
from gateway.importing.mosquitto_sqlite import MAGIC, read_sqlite
from gateway.mqtt5.actions import KeptSession, SessionSubscription
from gateway.mqtt5.delivery import Queued
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Properties, Subscription, Version
from gateway.sessions import Changes, SessionDatabase
from gateway.sessions.database import WAITING
from gateway.sessions.rows import delivery_row, message_row, session_row, subscription_row

DB_BYTES_MAX = 4 << 30
"""Stops a wrong path, such as a disk image, from being read into memory."""
NEVER = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of an import: numbers of imported rows, and a note for each omission."""

    retained: int
    sessions: int
    subscriptions: int
    queued: int
    notes: tuple[str, ...]


def load_db(path: Path, data: Path, now: float, expiry_max_s: int, bridges: Mapping[str, str] | None = None) -> Loaded:
    """Imports the file at `path` into the directory `data`.

    `expiry_max_s` is the broker's `limits.session_expiry_s`. `bridges` maps the client id of each of Mosquitto's
    bridges in its own broker to the name of our bridge taking over the session. Raises DbError, StoreError.
    """
    try:
        if path.stat().st_size > DB_BYTES_MAX:
            raise DbError(f"{path}: larger than {DB_BYTES_MAX} bytes; is this a mosquitto.db?")
        with path.open("rb") as file:
            is_sqlite = file.read(len(MAGIC)) == MAGIC
        found = read_sqlite(path) if is_sqlite else parse_db(path.read_bytes())
    except OSError as error:
        raise DbError(f"{path}: {error.strerror or error}; name the file with --db") from None
    except DbError as error:
        raise DbError(f"{path}: {error}") from None
    database = SessionDatabase(data)
    try:
        present = database.load()
        if present.sessions or present.retained:
            raise StoreError(f"{data}: holds sessions or retained messages already; import into a new directory")
        writing = _Writing(found, now, expiry_max_s, bridges or {})
        changes = writing.changed_rows()
        database.commit(changes)
    finally:
        database.close()
    return writing.loaded(changes)


class _Writing:
    """The rows made from a file. Identifiers rise over all tables, as in the session store."""

    def __init__(self, found: Database, now: float, expiry_max_s: int, bridges: Mapping[str, str]) -> None:
        self._found, self._now, self._expiry_max_s, self._bridges = found, now, expiry_max_s, bridges
        self._last_id = 0
        self._ids: dict[int, int] = {}
        self._notes: list[str] = [*found.notes]

    def changed_rows(self) -> Changes:
        changes = Changes()
        for number in self._found.retained:
            stored = self._found.messages.get(number)
            if stored is not None and stored.topic.startswith("$"):
                continue  # figures of that broker
            message = self._message(stored, "a retained message")
            if message is not None and message.payload:
                message.retain = True
                changes.retained.append(message_row(message.topic, message))
        for client in self._found.clients.values():
            if client.client_id:
                self._client(changes, client)
        if self._found.half_received:
            self._notes.append(
                f"{len(self._found.half_received)} publications of QoS 2 were received by half: their publishers "
                "finish them with Mosquitto only"
            )
        return changes

    def loaded(self, changes: Changes) -> Loaded:
        return Loaded(
            retained=len(changes.retained),
            sessions=len(changes.sessions),
            subscriptions=len(changes.subscriptions),
            queued=len(changes.deliveries),
            notes=tuple(self._notes),
        )

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _message(self, stored: StoredMessage | None, what: str) -> Message | None:
        if stored is None:
            self._notes.append(f"{what} is named in the file and not held in it")
            return None
        try:
            check_name(stored.topic)
        except TopicError as error:
            self._notes.append(f"{what} is left out: {error}")
            return None
        if stored.expires_at is not None and stored.expires_at <= self._now:
            return None  # no client would get an expired message from either broker
        kept = stored.properties
        properties = Properties(
            payload_format=kept.payload_format,
            content_type=kept.content_type,
            response_topic=kept.response_topic,
            correlation_data=kept.correlation_data,
            user=kept.user,
        )
        return Message(
            stored.topic, stored.payload, stored.qos, stored.retain, properties, stored.expires_at, stored.publisher
        )

    def _client(self, changes: Changes, client: StoredClient) -> None:
        bridge = self._bridges.get(client.client_id)
        session = self._session(changes, client) if bridge is None else self._bridge(changes, bridge)
        if session is None:
            return
        for one in client.subscriptions:
            try:
                check_filter(split_share(one.filter)[1])
            except TopicError as error:
                self._notes.append(f"a subscription of {client.client_id} is left out: {error}")
                continue
            no_local = bridge is not None or bool(one.options & 4)
            options = Subscription(one.filter, one.qos, no_local, bool(one.options & 8), min(one.options >> 4 & 3, 2))
            changes.subscriptions.append(subscription_row(session, SessionSubscription(options, one.identifier)))
        for delivery in client.queued:
            self._queued(changes, client.client_id, session, delivery)

    def _session(self, changes: Changes, client: StoredClient) -> int | None:
        """Adds a client's session and returns the session's identifier; returns None if the session has ended."""
        expiry_s = min(client.expiry_s, self._expiry_max_s)
        if not expiry_s:
            return None
        ends_at = client.ends_at if client.ends_at and client.expiry_s != NEVER else self._now + expiry_s
        if ends_at <= self._now:
            return None
        is_v5 = client.expiry_s != NEVER or any(one.identifier or one.options for one in client.subscriptions)
        version = Version.V5 if is_v5 else Version.V311  # the file has no version; the next CONNECT sets it
        kept = KeptSession(version, expiry_s, None, None, ends_at)
        session = self._new_id()
        is_anonymous = client.username is None
        changes.sessions.append(session_row(session, client.client_id, client.username, is_anonymous, False, kept))
        if not client.subscriptions:
            self._notes.append(
                f"{client.client_id} has a session without a subscription: a shared one, or one made with Clean Start "
                "1, is not in a mosquitto.db; have the client subscribe anew"
            )
        return session

    def _bridge(self, changes: Changes, bridge: str) -> int:
        """Adds the local session of our bridge `bridge` and returns the session's identifier.

        The session never ends: Mosquitto 2.0 writes an expiry of 0 for a bridge's session and keeps the session.
        """
        session = self._new_id()
        kept = KeptSession(Version.V5, NEVER, None, None, None)
        changes.sessions.append(session_row(session, f"{INTERNAL}bridge/{bridge}", None, False, False, kept))
        return session

    def _queued(self, changes: Changes, client_id: str, session: int, one: StoredDelivery) -> None:
        message = self._message(self._found.messages.get(one.message), f"a queued message of {client_id}")
        if message is None or not one.qos:
            return
        if one.message not in self._ids:
            self._ids[one.message] = self._new_id()
            changes.messages.append(message_row(self._ids[one.message], message))
        queued = Queued(message, one.qos, one.retain, message.held_bytes, one.identifiers, None)
        changes.deliveries.append(delivery_row(self._new_id(), session, self._ids[one.message], queued, 0, WAITING))
