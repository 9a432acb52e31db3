"""State of a broker for the API, and operations on it, as plain data. No HTTP, no logins.

Every list is bounded by `limit`, since a broker may hold a million of anything.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from bridge.base import matches
from gateway.base.logs import fields_of
from gateway.broker import EdgeBroker
from gateway.clients import INTERNAL, Client
from gateway.mqtt5.message import Message
from gateway.mqtt5.types import ReasonCode

LIST_MAX = 1_000  # clients, subscriptions or messages in one answer
LOG_LINES = 500
PAYLOAD_SHOWN_BYTES = 4_096


class LogTail(logging.Handler):
    """Handler keeping the last lines of the log with all their fields but tracebacks, for the page."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: deque[dict[str, str]] = deque(maxlen=LOG_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        fields = {name: str(value) for name, value in fields_of(record).items() if name != "exception"}
        self.lines.append({**fields, "time": when})


class Shown:
    """State of a broker for the API. `status`: the content of `/status` (`gateway/health`)."""

    def __init__(self, broker: EdgeBroker, status: Callable[[], dict[str, Any]], prefix: str, log: LogTail) -> None:
        self.broker, self._status, self._prefix, self._log = broker, status, prefix, log

    def overview(self) -> dict[str, Any]:
        """Returns totals, and the state of the process."""
        snapshot = self.broker.operation.observe()
        return {
            "status": self._status(),
            "now": time.time(),
            "uptime_s": snapshot.uptime_s,
            "clients": snapshot.clients_connected,
            "sessions": snapshot.sessions,
            "subscriptions": snapshot.subscriptions,
            "retained": snapshot.retained_messages,
            "queued": snapshot.queued_messages,
            "received": snapshot.traffic.publish_received,
            "sent": snapshot.published,
            "dropped": snapshot.dropped,
        }

    def shown_overlay(self) -> dict[str, Any]:
        """Returns regions, links with their traffic, blamed members, and how far histories reach; of a broker without
        overlay the latter alone.
        """
        overlay: Any = self.broker.exchange.overlay
        if overlay is None:
            local = self.broker.exchange.history
            return {"histories": [] if local is None else [asdict(span) for span in local.spans()]}
        status = self._status()["overlay"]
        figures = overlay.figures.to_dict(**overlay.gauges())
        members = overlay.parts.keeping.overlay.members
        regions = [
            {"name": view.name, "members": list(view.members), "needed": view.threshold}
            for view in overlay.parts.keeping.overlay.latest.values()
        ]
        edges = [list(edge) for edge in overlay.parts.keeping.overlay.arrangement.edges]
        names = {view.region: view.name for view in overlay.parts.keeping.overlay.latest.values()}
        return {
            "name": status["name"],
            "role": status["role"],
            "standing": status,
            "regions": regions,
            "edges": [[names.get(a, str(a)), names.get(b, str(b))] for a, b in edges],
            "members": {name: member.certificate.role.value for name, member in members.items()},
            "links": figures["peers"],
            "suspected": figures["suspected"],
            "named": figures["named"],
            "histories": [asdict(span) for span in overlay.reaches()],
            "outbox": {"depth": figures.get("outbox_depth", 0), "bytes": figures.get("outbox_bytes", 0)},
        }

    # -------------------------------------------------------------------------------------------- clients

    def _clients(self) -> Iterator[Client]:
        for client in self.broker.lifecycle.clients.values():
            if client.peer is None and not client.client_id.startswith(INTERNAL):
                yield client

    def clients(self, limit: int, search: str = "") -> dict[str, Any]:
        """Returns sessions of clients, connected or kept."""
        found = [client for client in self._clients() if search in client.client_id]
        return {"total": len(found), "clients": [_client(client) for client in found[:limit]]}

    def client(self, client_id: str) -> dict[str, Any] | None:
        """Returns a single session, with its subscriptions; None if there is none."""
        client = self._found(client_id)
        if client is None:
            return None
        options = {
            topic_filter: {"qos": one.options.qos, "no_local": one.options.no_local, "identifier": one.identifier}
            for topic_filter, one in client.filters.items()
        }
        return {**_client(client), "filters": options}

    def _found(self, client_id: str) -> Client | None:
        return next((client for client in self._clients() if client.client_id == client_id), None)

    def disconnect(self, client_id: str) -> bool:
        """Closes the connection of a client (0x98, administrative action); returns False if there is none."""
        client = self._found(client_id)
        if client is None or client.connection is None:
            return False
        self.broker.lifecycle.dismiss(client, ReasonCode.ADMINISTRATIVE_ACTION)
        return True

    def forget_client(self, client_id: str) -> bool:
        """Ends a session with all its waiting messages; returns False if there is none."""
        client = self._found(client_id)
        if client is None:
            return False
        if client.connection is not None:
            self.broker.lifecycle.dismiss(client, ReasonCode.ADMINISTRATIVE_ACTION)
        for action in client.session.end_session() if client.alive else ():
            self.broker.lifecycle.perform(client, action)
        return True

    def subscriptions(self, limit: int, search: str = "") -> dict[str, Any]:
        """Returns filters of all clients: those that contain `search`, and all of the client with this id."""
        rows = (
            {"client": client.client_id, "filter": topic_filter, "qos": one.options.qos}
            for client in self._clients()
            for topic_filter, one in client.filters.items()
            if search in topic_filter or search == client.client_id
        )
        found = list(itertools.islice(rows, limit + 1))
        return {"more": len(found) > limit, "subscriptions": found[:limit]}

    # ------------------------------------------------------------------------------------------- messages

    def retained(self, topic_filter: str) -> Iterator[Message]:
        """Yields retained messages the filter matches; the caller checks rights, and counts."""
        return self.broker.exchange.retained.matching(topic_filter, self.broker.now())

    def clear_retained(self, topic: str) -> bool:
        if topic not in self.broker.exchange.retained:
            return False
        del self.broker.exchange.retained[topic]
        return True

    def entities(self, limit: int) -> list[dict[str, Any]]:
        """Returns the availability of local clients and of clients whose state crosses the overlay, from their
        topics.
        """
        found = []
        for message in itertools.islice(self.retained(f"{self._prefix}/+/+/availability"), limit):
            if matches(f"{self._prefix}/+/+/availability", message.topic):
                gateway, entity = message.topic.removeprefix(f"{self._prefix}/").split("/")[:2]
                found.append({"gateway": gateway, "entity": entity, "state": text_of(message.payload)})
        return found

    def fleet(self, group: str, limit: int) -> dict[str, Any]:
        """Returns the states of traced entities, by group; empty where `traces.fleet` is not configured."""
        tracing = self.broker.exchange.tracing
        return {} if tracing is None else tracing.fleet_view(group, limit)

    def log(self) -> list[dict[str, str]]:
        return list(self._log.lines)


def _client(client: Client) -> dict[str, Any]:
    session, connection = client.session, client.connection
    return {
        "client": client.client_id,
        "user": client.view.username,
        "connected": connection is not None,
        "address": connection.address if connection is not None else None,
        "listener": connection.listener if connection is not None else None,
        "version": session.version.name,
        "subscriptions": len(client.filters),
        "waiting": len(session.waiting),
        "in_flight": session.outbound.in_flight,
        "delivered": session.figures.delivered,
        "delivered_bytes": session.figures.delivered_bytes,
        "dropped": session.figures.dropped,
    }


def text_of(payload: bytes) -> str:
    """Returns a payload for a person: text if it is text, else hexadecimal; cut if it is long."""
    cut = payload[:PAYLOAD_SHOWN_BYTES]
    text = cut.decode("utf-8", "ignore" if len(payload) > len(cut) else "replace")
    if any((not c.isprintable() and c not in "\r\n\t") or c == "\ufffd" for c in text):
        text = cut.hex(" ")
    return text + (" ..." if len(payload) > len(cut) else "")


def message_json(message: Message) -> dict[str, Any]:
    """Returns a single message as the API shows it."""
    return {
        "topic": message.topic,
        "payload": text_of(message.payload),
        "bytes": len(message.payload),
        "qos": message.qos,
        "retain": message.retain,
    }
