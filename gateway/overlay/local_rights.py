"""Rights of a gateway to publish and to read for its clients, and log lines about refused publications.

A refused publication neither stays local nor goes out in clear. A subscription is refused where nothing can reach it:
in scopes the gateway may neither read nor publish in, and in scopes whose right to read it lost while it ran. A
gateway that may only publish serves subscriptions with publications of its own clients. Not here: sizes
(`broker_overlay`), rights of other members (`bridge.wire.admission`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bridge.base import covers, matches, overlaps
from bridge.document import Overlay, ScopeSecret
from bridge.node import GatewayNode
from gateway.base.log_events import LogEvent
from keys.envelope import Mode

log = logging.getLogger("veilmq.links")

RIGHTS_MAX = 65_536
"""Topics whose right to be published is remembered until something changes: a client that invents names."""
SAY_EVERY_S = 10.0
"""Between two log lines on refusals of one kind: a device repeats them with each publication."""
PUBLISH, READ = "publish", "read"


@dataclass(frozen=True, slots=True)
class ScopeRights:
    """The rights of this gateway in a single scope now. `scope`: its clear filter; `number`: as all members know it.

    `lost`: rights that ended while the process ran. `refused`: rights for want of which a client was refused since the
    last change.
    """

    scope: str
    publish: bool
    read: bool
    lost: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    number: int = 0


class LocalRights:
    """The rights of the gateway `name`. `overlay`: the overlay in force; `plain`: clear filters of `share_plain`;
    `protected`: clear filters of `protect`.
    """

    def __init__(
        self,
        overlay: Callable[[], Overlay],
        clock: Callable[[], float],
        plain: Sequence[str],
        name: str = "",
        protected: Sequence[str] = (),
    ) -> None:
        self._overlay, self._clock, self._name = overlay, clock, name
        self._plain, self._protected = tuple(plain), tuple(protected)
        self._known: dict[str, bool] = {}
        self._epoch = -1
        self._said_at: dict[LogEvent, float] = {}
        self._is_reviewed = False
        self._held: set[tuple[str, str]] = set()  # (clear filter of a scope, right) at the last review
        self._lost: set[tuple[str, str]] = set()
        self._refused: set[tuple[str, str]] = set()

    def forget_answers(self) -> None:
        """Forgets all answers after a change of the overlay."""
        self._known.clear()
        self._refused.clear()

    def may_publish(self, gateway: GatewayNode, topic: str) -> bool:
        """Returns whether the policy allows publications on the topic now; answers are remembered."""
        now = self._clock()
        epoch = self._overlay().policy.calendar.epoch_at(now)
        if epoch != self._epoch or len(self._known) >= RIGHTS_MAX:
            self._known.clear()
            self._epoch = epoch
        allowed = self._known.get(topic)
        if allowed is None:
            allowed = gateway.may_publish(topic, now) and self._is_sealed_or_plain(gateway, topic)
            if not allowed and all(self._known.values()):  # said once an epoch, not for every topic
                LogEvent.NO_RIGHT_TO_PUBLISH.say(log)
            if not allowed and (secret := gateway.secret_for(topic)) is not None:
                self._refused.add((secret.clear_filter, PUBLISH))
            self._known[topic] = allowed
        return allowed

    def may_subscribe(self, gateway: GatewayNode, topic_filter: str) -> bool:
        """Returns False if the filter lies wholly in a scope and no publication of it can reach a local client."""
        scopes = [secret for secret in gateway.secrets if overlaps(secret.clear_filter, topic_filter)]
        around = [secret for secret in scopes if covers(secret.clear_filter, topic_filter)]
        if not around:
            return bool(scopes) or not any(covers(each, topic_filter) for each in self._protected)
        if any(self._has(secret, READ) for secret in scopes):
            return True
        lost = any((secret.clear_filter, READ) in self._lost for secret in around)
        allowed = not lost and any(self._has(secret, PUBLISH) for secret in scopes)
        if not allowed:
            self._refused.update((secret.clear_filter, READ) for secret in around)
        return allowed

    def review(self, gateway: GatewayNode) -> bool:
        """Compares the rights with those at the last review; returns True if a right to read ended or is the first
        review, so that present subscriptions need a look.
        """
        is_first, self._is_reviewed = not self._is_reviewed, True
        held = {
            (secret.clear_filter, right)
            for secret in gateway.secrets
            for right in (PUBLISH, READ)
            if self._has(secret, right)
        }
        ended = self._held - held
        self._lost = (self._lost | ended) - held
        self._held = held
        return is_first or any(right == READ for _, right in ended)

    def standing(self, gateway: GatewayNode) -> tuple[ScopeRights, ...]:
        """Returns the rights in each scope that this gateway knows, by clear filter."""
        self.review(gateway)
        numbers = {secret.clear_filter: secret.scope.number for secret in gateway.secrets}
        return tuple(
            ScopeRights(
                clear,
                (clear, PUBLISH) in self._held,
                (clear, READ) in self._held,
                tuple(right for right in (PUBLISH, READ) if (clear, right) in self._lost),
                tuple(right for right in (PUBLISH, READ) if (clear, right) in self._refused - self._held),
                number,
            )
            for clear, number in sorted(numbers.items())
        )

    def _has(self, secret: ScopeSecret, right: str) -> bool:
        overlay = self._overlay()
        scope = overlay.scope_named(secret.scope.filter)
        if scope is None:
            return False
        epoch = overlay.policy.calendar.epoch_at(self._clock())
        if right == READ:
            return overlay.may_read(self._name, scope, epoch)
        return overlay.may_publish_in(self._name, scope, epoch)

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
