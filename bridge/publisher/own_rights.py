"""Rights to publish that the owner gave this member: on some topic of a scope, on one topic, on all topics of a batch.

They are checked before sealing: replicas and readers would refuse other publications, and suspect this member. Answers
on a scope are remembered until the next review (`sealing`). `sealing` finds the scope of a topic, `placing` handles
records that may not go.
"""

from __future__ import annotations

from bridge.contract import Publication
from bridge.document import Overlay, RecordRights, ScopeSecret
from keys.envelope import Mode
from keys.records import Records


class OwnRights:
    """The rights of the member `name`."""

    def __init__(self, overlay: Overlay, name: str) -> None:
        self._name = name
        self.adopt(overlay)

    def adopt(self, overlay: Overlay) -> None:
        """Adopts another version of the overlay."""
        self._overlay = overlay
        self.clear()

    def clear(self) -> None:
        """Forgets remembered answers at a review: an epoch may have begun."""
        # By wire filter, whether it may go in clear, and whether a retiring scope counts.
        self._some: dict[tuple[str, bool, bool], bool] = {}
        self._records: dict[str, RecordRights] = {}  # by wire filter

    def is_known_none(self, secret: ScopeSecret) -> bool:
        """Returns True if this member may publish nothing in the scope, as of the last review."""
        return self._some.get((secret.scope.filter, secret.scope.mode is Mode.PLAIN, False)) is False

    def some(self, secret: ScopeSecret, now: float, began: bool = False) -> bool:
        """Returns True if this member may publish on some topic of the scope. `began` marks publications sealed in the
        scope before, which a retiring scope also takes.
        """
        key = secret.scope.filter, secret.scope.mode is Mode.PLAIN, began
        known = self._some.get(key)
        if known is None:
            known = self._some[key] = self._authorised(secret, None, now, began)
        return known

    def topic(self, secret: ScopeSecret, topic: str, now: float) -> bool:
        """Returns True if this member may publish on a clear topic of the scope."""
        return self._authorised(secret, secret.wire_topic(topic), now, began=False)

    def record(self, secret: ScopeSecret, topic: str, now: float) -> bool:
        """Returns True if a batch of the scope may hold a record on this topic: a narrower scope may have taken the
        topic.
        """
        return self.some(secret, now) and self._of(secret, now).allow(secret.wire_topic(topic))

    def whole(self, secret: ScopeSecret, of: Publication, now: float, began: bool = False) -> bool:
        """Returns True if all records of a publication may go."""
        if not self.some(secret, now, began):
            return False
        rights = self._of(secret, now)
        if rights.is_all:
            return True
        topics = [topic.decode() for topic in Records.decode(of.payload).topics] if of.records else [of.topic]
        return all(rights.allow(secret.wire_topic(topic)) for topic in topics)

    def _of(self, secret: ScopeSecret, now: float) -> RecordRights:
        wire_filter = secret.scope.filter
        rights = self._records.get(wire_filter)
        if rights is None:
            scope = self._overlay.scope_named(wire_filter) or secret.scope
            rights = self._overlay.rights_in(self._name, scope, self._overlay.policy.calendar.at(now))
            self._records[wire_filter] = rights
        return rights

    def _authorised(self, secret: ScopeSecret, wire_topic: str | None, now: float, began: bool) -> bool:
        """Returns True if the policy allows publishing on a topic, or on some topic of the scope, in the present
        epoch.
        """
        scope = self._overlay.scope_named(secret.scope.filter)
        if scope is None or (scope.retiring and not began):
            return False
        if scope.mode is Mode.PLAIN and secret.scope.mode is not Mode.PLAIN:
            return False
        epoch = self._overlay.policy.calendar.at(now)
        if wire_topic is None:
            return self._overlay.may_publish_in(self._name, scope, epoch)
        return self._overlay.may_publish(self._name, wire_topic, epoch)
