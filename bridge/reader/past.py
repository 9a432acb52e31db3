"""The collector of past publications in a gateway: the judge of a `replay` for clients, gaps and long absences.

Secrets are those of now with the scopes of each era. Not here: pages and eras (`replay`), who reads (`readings`).
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract import Effect, Received
from bridge.document import Overlay, Scope, ScopeSecret
from bridge.reader.collector import Collector
from bridge.reader.kept import Rows
from bridge.reader.streams import Stream, StreamId
from keys.epochs import ScopeKeys


class PastCollector:
    """A `replay.Judge` that delivers what it takes.

    `rows`: of a former process, whose streams go on here; none for a reading from nothing, which delivers also
    publications of this gateway. `region`: whose replicas are asked; None: our own.
    """

    def __init__(
        self,
        name: str,
        scope: Scope,
        secrets: Sequence[ScopeSecret],
        keys: ScopeKeys,
        rows: Rows = (),
        region: int | None = None,
    ) -> None:
        self._name, self._scope, self._keys, self._rows, self._region = name, scope, keys, rows, region
        self.secrets = secrets
        """Of now: another list when rights changed."""
        self._collector: Collector | None = None

    def adopt_era(self, overlay: Overlay, now: float) -> list[Effect]:
        """Takes the next era. The first one makes the collector."""
        secrets = [secret for secret in (_of_then(each, overlay) for each in self.secrets) if secret is not None]
        if self._collector is not None:
            return self._collector.adopt_overlay(overlay, secrets, now)
        self._collector = Collector(
            overlay, self._name, secrets, self._keys, own_too=not self._rows, region=self._region
        )
        effects = self._collector.restore(self._rows, now) if self._rows else []
        self._collector.subscriptions.resume_scope(self._scope.stream, now)
        return effects

    def take_copy(self, event: Received, now: float) -> list[Effect]:
        assert self._collector is not None
        return self._collector.take_wire(event, now)

    def keys_changed(self, now: float) -> list[Effect]:
        assert self._collector is not None
        return self._collector.keys_changed(now)

    def tick(self, now: float) -> list[Effect]:
        assert self._collector is not None
        return self._collector.tick(now)

    @property
    def next_deadline(self) -> float | None:
        return None if self._collector is None else self._collector.next_deadline

    def streams(self) -> list[tuple[StreamId, Stream]]:
        """Returns the delivered numbers by author, for the live collector."""
        return [] if self._collector is None else self._collector.streams_of(self._scope.stream)

    def changed_streams(self) -> list[tuple[StreamId, Stream]]:
        """Returns the streams with deliveries since the last call, and drops other rows."""
        if self._collector is None:
            return []
        kept = self._collector.kept
        changed = list(kept.streams.items())
        kept.streams.clear()
        kept.changed.clear()
        return changed


def _of_then(secret: ScopeSecret, overlay: Overlay) -> ScopeSecret | None:
    """Returns our secret with the scope of an era; None for an era without the scope."""
    scope = overlay.scope_numbered(secret.scope.number)
    return None if scope is None else ScopeSecret(scope, secret.clear_filter, secret.token_key)
