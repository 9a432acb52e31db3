"""Log of reasons for a missing connection: each reason once, not at every attempt."""

from __future__ import annotations

import logging

from bridge.base import OperatorError
from gateway.base.log_events import LogEvent
from gateway.mqtt5.types import ReasonCode

log = logging.getLogger("veilmq.client")
SAID_MAX = 16  # reasons that are logged of one server until it is connected
NOT_MQTT5 = "does not speak MQTT 5: it would strip user properties; use an MQTT 5 broker"
CONNACK_OF_V3 = b"\x20\x02"
"""The head of a CONNACK with flags and code only; MQTT 5 adds a length of properties (MQTT 5.0 §3.2.2)."""


class ClientError(OperatorError):
    """A failed connection: a line, cause and cure. `code`: the peer's reason code, or 0x88."""

    def __init__(self, text: str, code: int = ReasonCode.SERVER_UNAVAILABLE) -> None:
        super().__init__(text)
        self.code = code


class Complaints:
    """The reasons logged since the last connection, at most `SAID_MAX`: stops a peer from filling the log."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def log_reason(self, text: str) -> None:
        if text not in self._said and len(self._said) < SAID_MAX:
            self._said.add(text)
            LogEvent.UNREACHABLE.say(log, text)

    def forget_reasons(self) -> None:
        """Forgets logged reasons, because a connection stands."""
        self._said.clear()
