"""Rights of a gateway to publish, remembered by topic, and log lines about refused publications.

A refused publication neither stays local nor goes out in clear. Not here: sizes (`broker_overlay`), rights of other
members (`bridge.wire.admission`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from bridge.base import matches
from bridge.document import Overlay
from bridge.node import GatewayNode
from gateway.base.log_events import LogEvent
from keys.envelope import Mode

log = logging.getLogger("veilmq.links")

RIGHTS_MAX = 65_536
"""Topics whose right to be published is remembered until something changes: a client that invents names."""
SAY_EVERY_S = 10.0
"""Between two log lines on refusals of one kind: a device repeats them with each publication."""


class LocalRights:
    """The rights of one gateway. `overlay`: the overlay in force; `plain`: clear filters of `share_plain`."""

    def __init__(self, overlay: Callable[[], Overlay], clock: Callable[[], float], plain: Sequence[str]) -> None:
        self._overlay, self._clock, self._plain = overlay, clock, tuple(plain)
        self._known: dict[str, bool] = {}
        self._epoch = -1
        self._said_at: dict[LogEvent, float] = {}

    def forget(self) -> None:
        """Forgets all answers after a change of the overlay."""
        self._known.clear()

    def may_publish(self, gateway: GatewayNode, topic: str) -> bool:
        """Returns whether the policy allows publications on the topic now; answers are remembered."""
        now = self._clock()
        epoch = self._overlay().policy.calendar.at(now)
        if epoch != self._epoch or len(self._known) >= RIGHTS_MAX:
            self._known.clear()
            self._epoch = epoch
        allowed = self._known.get(topic)
        if allowed is None:
            allowed = gateway.may_publish(topic, now) and self._is_sealed_or_plain(gateway, topic)
            if not allowed and all(self._known.values()):  # said once an epoch, not for every topic
                LogEvent.NO_RIGHT_TO_PUBLISH.say(log)
            self._known[topic] = allowed
        return allowed

    def _is_sealed_or_plain(self, gateway: GatewayNode, topic: str) -> bool:
        """Returns whether scope and configuration agree on sealing of the topic."""
        secret = gateway.secret_for(topic)
        if secret is None or secret.scope.mode is not Mode.PLAIN:
            return secret is not None
        return any(matches(f, topic) for f in self._plain)

    def say_refused(self, event: LogEvent, client_id: str) -> None:
        """Writes the reason of a refused publication of the client, at most every `SAY_EVERY_S`."""
        now = self._clock()
        if abs(now - self._said_at.get(event, -SAY_EVERY_S)) >= SAY_EVERY_S:
            self._said_at[event] = now
            event.say(log, client_id)
