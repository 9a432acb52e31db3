"""What a tracker shows of the entities that it follows: one row each, made of the traces that came (B4).

An entity that says nothing stays as it was; `seen_ms` tells since when. Not here: the terminal (`traces`), where
traces come from (`client`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.traces import STATES, Observed, TraceKind

UNKNOWN = "unknown"
_HEALTH = {
    TraceKind.JOIN: "alive",
    TraceKind.ALLS_WELL: "alive",
    TraceKind.FAILURE_SUSPICION: "suspected",
    TraceKind.FAILED: "failed",
    TraceKind.DISCONNECT: "disconnected",
    TraceKind.REVERTING_TO_SILENT_MODE: "silent",
}
_ORDER = ("failed", "disconnected", "suspected", UNKNOWN, "silent", "alive")


@dataclass(slots=True)
class Row:
    """One entity. `state`: its own word; `health`: its broker's."""

    entity: str
    health: str = UNKNOWN
    state: str = ""
    since_ms: int = 0
    seen_ms: int = 0
    latency_ms: float | None = None
    loss_rate: float | None = None
    load: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "entity": self.entity, "health": self.health, "state": self.state, "since_ms": self.since_ms,
            "seen_ms": self.seen_ms, "latency_ms": self.latency_ms, "loss_rate": self.loss_rate, "load": self.load,
        }  # fmt: skip


class Board:
    """Rows by entity."""

    def __init__(self, entities: tuple[str, ...] = ()) -> None:
        self.rows = {entity: Row(entity) for entity in entities}

    def take(self, seen: Observed) -> None:
        """What a trace changes."""
        row = self.rows.setdefault(seen.entity, Row(seen.entity))
        row.seen_ms = max(row.seen_ms, seen.time_ms)
        health = _HEALTH.get(seen.kind)
        if health is not None and health != row.health:
            row.health, row.since_ms = health, seen.time_ms
        if seen.kind in STATES:
            row.state = seen.kind.name
        elif seen.kind is TraceKind.LOAD_INFORMATION:
            row.load = dict(seen.fields)
        for name in ("latency_ms", "loss_rate"):
            if isinstance(seen.fields.get(name), int | float):
                setattr(row, name, seen.fields[name])

    def sorted(self) -> list[Row]:
        """What needs somebody first, then by name."""
        return sorted(self.rows.values(), key=lambda row: (_ORDER.index(row.health), row.entity))

    def summary(self) -> dict[str, int]:
        """Entities by health."""
        counts: dict[str, int] = {}
        for row in self.rows.values():
            counts[row.health] = counts.get(row.health, 0) + 1
        return counts
