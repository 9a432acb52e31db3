"""The owner's scopes and rights as they change under stored publications: former scopes, and this member's own rights.

`FormerScopes` remembers scopes the owner removed, added or divided. Publications left on disk were stored by the
scopes of their time; the chain of each record is known only once it is read. So after a change new publications wait
behind everything left on disk before the change, in any scope, and nothing is overtaken. A protected publication never
goes in clear: this module remembers which former scopes were plain. Both facts are on disk (`Keep`), for a change
while this gateway was down. `scope_placement` gives each record its scope.

`OwnRights` says on which topics of a scope this member may publish. Rights are checked before sealing: replicas and
readers would refuse other publications, and suspect this member. Answers on a scope are remembered until the next
review (`sealing`).
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.contract import Keep, Publication
from bridge.document import Overlay, RecordRights, ScopeSecret
from keys.envelope import Mode
from keys.errors import KeysError
from keys.frames import Reader, number, text
from keys.records import Records

FORMER_MAX = 1024
"""Former scopes of which it is known that they were plain or sealed; publications of others never go in clear."""
ROW = b"c"  # the name of the row


class FormerScopes:
    """The former scopes of a gateway. `secrets` are the scopes in which it publishes now."""

    def __init__(self, secrets: Iterable[ScopeSecret]) -> None:
        self._present = _plain(secrets)
        self._changes = 0
        self._former: dict[str, bool] = {}  # clear filters of scopes that are gone -> whether all of them were plain
        self._behind = 0  # what is left up to this number was stored before the last change
        self._is_open = False  # that number is below the next one that is stored
        self._newest = 0
        self._written = b""
        self._told: tuple[int, int] | None = None  # of what the row was made last

    def adopt_scopes(self, secrets: Iterable[ScopeSecret]) -> None:
        """Adopts the scopes of another version of the overlay."""
        self._change(self._present, _plain(secrets))

    def _change(self, before: dict[str, bool], present: dict[str, bool]) -> None:
        if before == present:
            return
        self._changes += 1
        for clear, plain in before.items():
            self._former[clear] = plain and self._former.pop(clear, True)
        while len(self._former) > FORMER_MAX:
            del self._former[next(iter(self._former))]
        self._present = present
        self._behind, self._is_open = max(self._behind, self._newest), not self._newest

    def was_plain(self, clear_filter: str) -> bool:
        """Returns True if a former scope was plain, so that its stored publications were meant to go in clear."""
        return self._former.get(clear_filter, False)

    def stored(self, first: int, last: int) -> None:
        """Notes that the next numbers, `first` to `last`, are stored."""
        if self._is_open:
            self._behind, self._is_open = max(self._behind, first - 1), False
        self._newest = max(self._newest, last)

    def is_behind(self, left: int | None) -> bool:
        """Returns True if new publications must wait. `left` is the first number left on disk."""
        if left is None or (left > self._behind and not self._is_open):
            self._behind, self._is_open = 0, False
        return self._behind > 0 or self._is_open

    # ------------------------------------------------------------------------------------------- over restarts

    def changed_rows(self) -> list[Keep]:
        """Returns the row, if it changed since the last call."""
        now = self._behind, self._changes
        if now == self._told or not self._newest or self._is_open:  # or nothing is stored by these scopes yet
            return []
        self._told = now
        scopes = {**self._present, **self._former}
        told = [number(clear in self._present, 1) + number(plain, 1) + text(clear) for clear, plain in scopes.items()]
        row = number(self._behind, 8) + b"".join(told)
        if row == self._written:
            return []
        self._written = row
        return [Keep(((ROW, row),))]

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Restores the row of a former process; skips a damaged row."""
        for name, row in rows:
            if name == ROW:
                try:
                    behind, before, former = _read(row)
                except (KeysError, ValueError):
                    continue
                self._former.update(former)
                self._behind, self._written = behind, row
                self._change(before, self._present)


def _plain(secrets: Iterable[ScopeSecret]) -> dict[str, bool]:
    return {secret.clear_filter: secret.scope.mode is Mode.PLAIN for secret in secrets if not secret.scope.retiring}


def _read(row: bytes) -> tuple[int, dict[str, bool], dict[str, bool]]:
    reader = Reader(row)
    behind = reader.number(8)
    kinds: tuple[dict[str, bool], dict[str, bool]] = ({}, {})
    while reader.position < len(row):
        kind, plain = kinds[reader.number(1) == 0], bool(reader.number(1))
        kind[reader.text()] = plain
    return behind, kinds[0], kinds[1]


class OwnRights:
    """The rights of the member `name`."""

    def __init__(self, overlay: Overlay, name: str) -> None:
        self._name = name
        self.adopt_overlay(overlay)

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Adopts another version of the overlay."""
        self._overlay = overlay
        self.forget_answers()

    def forget_answers(self) -> None:
        """Forgets remembered answers at a review: an epoch may have begun."""
        # By wire filter, whether it may go in clear, and whether a retiring scope counts.
        self._some: dict[tuple[str, bool, bool], bool] = {}
        self._records: dict[str, RecordRights] = {}  # by wire filter

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

    def may_hold_record(self, secret: ScopeSecret, topic: str, now: float) -> bool:
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
            rights = self._overlay.rights_in(self._name, scope, self._overlay.policy.calendar.epoch_at(now))
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
        epoch = self._overlay.policy.calendar.epoch_at(now)
        if wire_topic is None:
            return self._overlay.may_publish_in(self._name, scope, epoch)
        return self._overlay.may_publish(self._name, wire_topic, epoch)
