"""Log lines an operator can audit: connections with their addresses, their ends with the cause, and refusals.

    event=connected client=door-3 user=nurse address=192.0.2.7:40112 version=V5 listener=default
    event="may not subscribe" client=door-3 user=nurse topic=ward/# times=12

Refusals get a line for each client and cause in `EVERY_S`, with the number since the last; never one a packet.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from gateway.base.log_events import LogEvent
from gateway.clients import Client, ClientConnection
from gateway.mqtt5.packets import Connect
from gateway.mqtt5.types import MqttError, ReasonCode
from gateway.sockets.connection import MqttConnection

log = logging.getLogger("veilmq.broker")

EVERY_S = 10.0
CAUSES_MAX = 4_096
"""Causes that are remembered; the cause logged longest ago is dropped first."""


class Audit:
    """Log of the connections and refusals of a broker."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._said: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def log_connected(self, client: Client, connection: ClientConnection) -> None:
        if log.isEnabledFor(logging.INFO):
            said: dict[str, Any] = {"version": client.session.version.name, "listener": connection.listener}
            LogEvent.CONNECTED.say(log, **_names(client, connection), **said)

    def disconnected(self, client: Client, connection: ClientConnection, is_clean: bool, reason: str) -> None:
        if log.isEnabledFor(logging.INFO):
            LogEvent.DISCONNECTED.say(log, **_names(client, connection), clean=is_clean, reason=reason)

    def not_accepted(self, connection: MqttConnection, connect: Connect, error: MqttError) -> None:
        """Logs a refused CONNECT by address, since a refused client may take any name."""
        host = connection.peer[0] if connection.peer is not None else connection.address
        said = {"address": connection.address, "client": connect.client_id, "user": connect.username}
        self._log_refusal(LogEvent.CLIENT_REFUSED, str(error), host, {**said, "code": f"0x{error.reason:02x}"})

    def may_not(self, what: str, client: Client, topic: str, code: int = ReasonCode.NOT_AUTHORIZED) -> None:
        """Logs a refused action of a client; `code`: the reason, as MQTT 5 has it."""
        said: dict[str, Any] = {"client": client.client_id, "user": client.view.username, "topic": topic}
        if code != ReasonCode.NOT_AUTHORIZED:
            said["code"] = f"0x{code:02x}"
        if client.connection is not None:
            said["address"] = client.connection.address
        self._log_refusal(LogEvent.CLIENT_MAY_NOT, what, client.client_id, said)

    def _log_refusal(self, event: LogEvent, what: str, who: str, said: dict[str, Any]) -> None:
        now, cause = self._now(), (event.text % what, who)
        at, unsaid = self._said.get(cause, (-EVERY_S, 0))
        if now - at < EVERY_S:
            self._said[cause] = (at, unsaid + 1)
            return
        self._said[cause] = (now, 0)
        self._said.move_to_end(cause)
        if len(self._said) > CAUSES_MAX:
            self._said.popitem(last=False)
        event.say(log, what, **said, times=unsaid + 1 if unsaid else "")


def _names(client: Client, connection: ClientConnection) -> dict[str, Any]:
    user = client.peer if client.peer is not None else client.view.username
    return {"client": client.client_id, "user": user, "address": connection.address}
