"""Which of a gateway's local publications the overlay's policy lets it publish, and what the log says of the others.

Whatever is refused here neither stays local nor goes out in clear. Not here: sizes (`broker_overlay`), rights of others
(`bridge.wire.admission`).
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
    """What one gateway may publish. `overlay`: the one in force; `plain`: clear filters of `share_plain`."""

    def __init__(self, overlay: Callable[[], Overlay], clock: Callable[[], float], plain: Sequence[str]) -> None:
        self._overlay, self._clock, self._plain = overlay, clock, tuple(plain)
        self._known: dict[str, bool] = {}
        self._epoch = -1
        self._said_at: dict[LogEvent, float] = {}

    def forget(self) -> None:
        """The overlay is another one."""
        self._known.clear()

    def may_publish(self, gateway: GatewayNode, topic: str) -> bool:
        """Returns whether the policy allows it now; asked for every publication, so that answers are remembered."""
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
        """Whether the scope still does with the topic what our configuration says."""
        secret = gateway.secret_for(topic)
        if secret is None or secret.scope.mode is not Mode.PLAIN:
            return secret is not None
        return any(matches(f, topic) for f in self._plain)

    def say_refused(self, event: LogEvent, client_id: str) -> None:
        """Writes why a publication of the client was refused, unless the log has it of late."""
        now = self._clock()
        if abs(now - self._said_at.get(event, -SAY_EVERY_S)) >= SAY_EVERY_S:
            self._said_at[event] = now
            event.say(log, client_id)
