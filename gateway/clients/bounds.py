"""Enforcement of the bounds no other module owns, and the count of how often each bound was reached.

`Reached` counts by the name of the bound in `limits` and logs it, but not once per offence. `Pace` is the token bucket
of a client's publications. `fits` checks topics. Bounds of a session (queues, flows) are kept in `mqtt5/delivery.py`,
which reports them to `Reached` (`SessionLimits.reached`), bounds of the retained store in `retained.py`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from gateway.base import Limits
from gateway.base.log_events import LogEvent
from gateway.mqtt5.packets import Connect, Publish, Version
from gateway.mqtt5.types import MqttError, ReasonCode

log = logging.getLogger("veilmq.limits")

LOG_EVERY_S = 10.0
"""Seconds between two lines of one bound: a flood must not fill the log too."""
PACE_S = 0.01
"""Seconds that a held publication waits at least, so that a low rate does not cost a wake-up for each."""
_CONTROL = re.compile("[\x01-\x1f\x7f-\x9f]")
"""Control characters, which a server may take or refuse (MQTT 5.0 §1.5.4)."""
_BY_REASON = {
    ReasonCode.RECEIVE_MAXIMUM_EXCEEDED: "receive_maximum",
    ReasonCode.PACKET_TOO_LARGE: "packet_bytes",
    ReasonCode.TOPIC_ALIAS_INVALID: "topic_aliases",
}
"""Bounds by the reason code with which a session ends when a client exceeds them."""


class Reached:
    """Counts of how often each bound was reached since the start."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.counts = dict.fromkeys(Limits.model_fields, 0)
        self._now = now
        self._logged: dict[str, tuple[float, int]] = {}

    def note_bound(self, bound: str, who: str = "", amount: int = 1) -> None:
        """Counts a reached bound; `who` (an address or client id) goes to the log."""
        self.counts[bound] += amount
        now, (at, before) = self._now(), self._logged.get(bound, (-LOG_EVERY_S, 0))
        if now - at < LOG_EVERY_S:
            return
        count = self.counts[bound]
        self._logged[bound] = (now, count)
        LogEvent.LIMIT_REACHED.say(log, bound, limit=bound, who=who, times=count - before, total=count)

    def note_reason(self, reason: int, who: str = "") -> None:
        """Counts the bound a reason code stands for, if any."""
        bound = _BY_REASON.get(ReasonCode(reason))
        if bound is not None:
            self.note_bound(bound, who)

    def check_publish(self, publish: Publish, limits: Limits, who: str) -> ReasonCode | None:
        """Returns the code that refuses a publication which exceeds a bound, or None. A refused publication goes
        nowhere.
        """
        bound, code = fits(publish.topic, limits), ReasonCode.TOPIC_NAME_INVALID
        if bound is None:
            if len(publish.properties.user) <= limits.user_properties:
                return None
            bound, code = "user_properties", ReasonCode.QUOTA_EXCEEDED
        self.note_bound(bound, who)
        return code

    def check_connect(self, connect: Connect, limits: Limits, session_expiry_max_s: int) -> None:
        """Raises MqttError for a CONNECT that is well-formed and exceeds a bound."""
        will = connect.will
        bound, code = None if will is None else fits(will.topic, limits), ReasonCode.TOPIC_NAME_INVALID
        most = max(len(connect.properties.user), len(will.properties.user) if will is not None else 0)
        if most > limits.user_properties:
            bound, code = "user_properties", ReasonCode.QUOTA_EXCEEDED
        if bound is not None:
            self.note_bound(bound, connect.client_id)
            raise MqttError(f"CONNECT exceeds limits.{bound}", code)
        asked_s = connect.properties.session_expiry_s
        if asked_s is not None and asked_s > session_expiry_max_s:
            self.note_bound("session_expiry_s", connect.client_id)  # less is granted, as CONNACK states
        longest_s = limits.keep_alive_max_s
        if longest_s and connect.version == Version.V5 and not 0 < connect.keep_alive_s <= longest_s:
            self.note_bound("keep_alive_max_s", connect.client_id)  # the same


class Pace:
    """Token bucket: `rate` publications a second, `burst` at once. Nothing is dropped: the sender waits."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at = float(burst), now

    def take_token(self, now: float) -> float:
        """Takes a single token and returns 0.0. Without a token, returns the seconds to wait before the next call."""
        if self._tokens < 1:
            self._tokens = min(self._burst, self._tokens + max(now - self._at, 0.0) * self._rate)
            self._at = now
            if self._tokens < 1:
                return max((1 - self._tokens) / self._rate, PACE_S)
        self._tokens -= 1
        return 0.0


def fits(topic: str, limits: Limits) -> str | None:
    """Returns the bound a topic name or filter exceeds, or None."""
    if topic.count("/") >= limits.topic_levels:
        return "topic_levels"
    # A character is four bytes at most: most names need not be encoded.
    if 4 * len(topic) > limits.topic_bytes and len(topic.encode()) > limits.topic_bytes:
        return "topic_bytes"
    if not limits.topic_control_characters and _CONTROL.search(topic):
        return "topic_control_characters"
    return None
