"""What a tracker shows of the entities that it follows: one row each, made of the traces that came (B4).

An entity that says nothing stays as it was; `seen_ms` tells since when. Not here: the terminal (`traces`), where
traces come from (`client`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bridge.traces import STATES, TraceKind, group_of
from bridge.tracking import Observed

UNKNOWN = "unknown"
PATIENCE_S = 4.0  # before something is wrong: discovery nodes answer in a second
_HEALTH = {
    TraceKind.JOIN: "alive",
    TraceKind.ALLS_WELL: "alive",
    TraceKind.FAILURE_SUSPICION: "suspected",
    TraceKind.FAILED: "failed",
    TraceKind.DISCONNECT: "disconnected",
    TraceKind.REVERTING_TO_SILENT_MODE: "silent",
    TraceKind.UNKNOWN: UNKNOWN,
}
AWAY = ("failed", "disconnected")
_ORDER = ("failed", "disconnected", "suspected", UNKNOWN, "silent", "alive")


@dataclass(slots=True)
class TraceRow:
    """One entity. `state`: its own word; `health`: its broker's."""

    entity: str
    health: str = UNKNOWN
    state: str = ""
    since_ms: int = 0
    seen_ms: int = 0
    flaps: int = 0
    """How often it went, as far as was observed."""
    latency_ms: float | None = None
    loss_rate: float | None = None
    load: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "entity": self.entity, "health": self.health, "state": self.state, "since_ms": self.since_ms,
            "seen_ms": self.seen_ms, "latency_ms": self.latency_ms, "loss_rate": self.loss_rate, "load": self.load,
            "flaps": self.flaps,
        }  # fmt: skip


class FollowedRow(Protocol):
    """A tracker, as far as it says what is wrong."""

    @property
    def amiss(self) -> tuple[str, ...]: ...

    @property
    def is_connected(self) -> bool: ...

    def trouble(self, entity: str) -> str | None: ...


class Troubles:
    """What keeps a tracker from observing what it follows. Each is news once, while it lasts."""

    def __init__(self, tracker: FollowedRow, entities: Sequence[str], now: float) -> None:
        self._tracker, self._entities = tracker, list(entities)
        self._looks_at = now + PATIENCE_S
        self._known: set[str] = set()
        self._was_connected = self.are_all = False

    @property
    def are_any(self) -> bool:
        return bool(self._known)

    def news(self, now: float) -> list[str]:
        """Lines for people; nothing before something may be said."""
        self._was_connected = self._was_connected or self._tracker.is_connected
        if now < self._looks_at:
            return []
        found = list(self._tracker.amiss)
        if not self._tracker.is_connected:
            self.are_all = not self._was_connected
            found = found or ["no broker answers; is --gateway right?"]
        else:
            troubles = {entity: self._tracker.trouble(entity) for entity in self._entities}
            found += [f"{entity}: {why}" for entity, why in troubles.items() if why]
            self.are_all = all(troubles.values()) and bool(troubles)
        news = [line for line in found if line not in self._known]
        self._known = set(found)
        return news


class TraceBoard:
    """Rows by entity."""

    def __init__(self, entities: tuple[str, ...] = ()) -> None:
        self.rows = {entity: TraceRow(entity) for entity in entities}

    def take(self, seen: Observed) -> None:
        """What a trace changes."""
        row = self.rows.setdefault(seen.entity, TraceRow(seen.entity))
        row.seen_ms = max(row.seen_ms, seen.time_ms)
        health = _HEALTH.get(seen.kind)
        since_ms = seen.fields.get("since_ms")
        if health in AWAY and row.health not in (*AWAY, UNKNOWN):
            row.flaps += 1
        if health is not None and (health != row.health or since_ms is not None):
            row.health, row.since_ms = health, since_ms if isinstance(since_ms, int) else seen.time_ms
        if seen.kind in STATES:
            row.state = seen.kind.name
        elif seen.kind is TraceKind.LOAD_INFORMATION:
            row.load = dict(seen.fields)
        for name in ("latency_ms", "loss_rate"):
            if isinstance(seen.fields.get(name), int | float):
                setattr(row, name, seen.fields[name])

    def sorted(self) -> list[TraceRow]:
        """What needs somebody first, then by name."""
        return sorted(self.rows.values(), key=lambda row: (_ORDER.index(row.health), row.entity))

    def groups(self) -> dict[str, dict[str, int]]:
        """Entities by health, by what stands before the first colon of their names."""
        found: dict[str, dict[str, int]] = {}
        for row in self.rows.values():
            counts = found.setdefault(group_of(row.entity), {})
            counts[row.health] = counts.get(row.health, 0) + 1
        return dict(sorted(found.items()))

    def summary(self) -> dict[str, int]:
        """Entities by health."""
        counts: dict[str, int] = {}
        for row in self.rows.values():
            counts[row.health] = counts.get(row.health, 0) + 1
        return counts
