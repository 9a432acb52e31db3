"""Why a client has no connection: said once in the log, not at every attempt."""

from __future__ import annotations

import logging

from bridge.base import OperatorError
from gateway.base.log_events import LogEvent
from gateway.mqtt5.types import ReasonCode

log = logging.getLogger("veilmq.client")
SAID_MAX = 16
NOT_MQTT5 = "does not speak MQTT 5: it would strip user properties; use an MQTT 5 broker"
CONNACK_OF_V3 = b"\x20\x02"
"""CONNACK with nothing but flags and code: MQTT 5 has a length of properties in it (MQTT 5.0 §3.2.2)."""


class ClientError(OperatorError):
    """Why there is no connection: one line, cause and cure. `code`: the peer's reason code, or 0x88."""

    def __init__(self, text: str, code: int = ReasonCode.SERVER_UNAVAILABLE) -> None:
        super().__init__(text)
        self.code = code


class Complaints:
    """What was said since the last connection; `SAID_MAX` different lines, a peer that invents more is not logged."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, text: str) -> None:
        if text not in self._said and len(self._said) < SAID_MAX:
            self._said.add(text)
            LogEvent.UNREACHABLE.say(log, text)

    def forget(self) -> None:
        """The connection stands."""
        self._said.clear()
