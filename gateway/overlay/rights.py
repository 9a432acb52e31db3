"""Whether local clients may publish on a topic of the overlay now, as the policy and our configuration say.

Asked for every publication, so answers are remembered until the epoch ends or the overlay changes. Not here: whether
a topic is the overlay's at all, and what becomes of a publication that is refused (`driver`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bridge.base import matches
from bridge.document import Overlay
from bridge.node import GatewayNode
from keys.envelope import Mode

log = logging.getLogger("veilmq.links")

RIGHTS_MAX = 65_536  # topics whose right to be published is remembered until something changes


class Rights:
    """See the module. `plain`: filters whose topics the configuration sends in clear."""

    def __init__(self, plain: Sequence[str]) -> None:
        self._plain = tuple(plain)
        self._known: dict[str, bool] = {}
        self._epoch = -1

    def clear(self) -> None:
        """The overlay has changed."""
        self._known.clear()

    def may_publish(self, gateway: GatewayNode, topic: str, overlay: Overlay, now: float) -> bool:
        epoch = overlay.policy.calendar.at(now)
        if epoch != self._epoch or len(self._known) >= RIGHTS_MAX:
            self._known.clear()
            self._epoch = epoch
        allowed = self._known.get(topic)
        if allowed is None:
            allowed = gateway.publisher.sealer.may_publish(topic, now) and self._is_sealed_or_plain(gateway, topic)
            if not allowed and all(self._known.values()):  # said once an epoch, not for every topic
                log.warning("refused a publication: the overlay's policy gives us no right to its protected topic now")
            self._known[topic] = allowed
        return allowed

    def _is_sealed_or_plain(self, gateway: GatewayNode, topic: str) -> bool:
        """Whether the scope still does with the topic what our configuration says."""
        secret = gateway.publisher.sealer.secret_for(topic)
        if secret is None or secret.scope.mode is not Mode.PLAIN:
            return secret is not None
        return any(matches(f, topic) for f in self._plain)
