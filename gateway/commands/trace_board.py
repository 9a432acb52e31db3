"""Board of entities a tracker follows: a row each, made of the received traces (B4).

A silent entity keeps its last state; `seen_ms` gives the time of the last trace. Not here: the terminal (`traces`),
the source of traces (`client`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bridge.traces import STATES, TraceKind, group_of
from bridge.tracking import Observed

UNKNOWN = "unknown"
PATIENCE_S = 4.0  # seconds before faults are reported: discovery nodes answer in a second
GIVE_UP_S = 12.0  # seconds in which a name that nobody answers to is asked for again: a device may have come just now
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
    """The row of an entity. `state`: reported by the entity; `health`: reported by its broker."""

    entity: str
    health: str = UNKNOWN
    state: str = ""
    since_ms: int = 0
    seen_ms: int = 0
    flaps: int = 0
    """Observed departures of the entity."""
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
    """A tracker, as far as it reports faults."""

    @property
    def amiss(self) -> tuple[str, ...]: ...

    @property
    def is_connected(self) -> bool: ...

    def trouble(self, entity: str) -> str | None: ...


class Troubles:
    """The faults keeping a tracker from observing its entities. Each is reported once while it lasts."""

    def __init__(self, tracker: FollowedRow, entities: Sequence[str], now: float) -> None:
        self._tracker, self._entities = tracker, list(entities)
        self._looks_at = now + PATIENCE_S
        self._known: set[str] = set()
        self._was_connected = self.are_all = False
        self._all_since: float | None = None  # since when no followed name is known

    @property
    def are_any(self) -> bool:
        return bool(self._known)

    def news(self, now: float) -> list[str]:
        """Returns lines for people; none before PATIENCE_S have passed."""
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
            is_nobody_known = all(troubles.values()) and bool(troubles)
            self._all_since = (self._all_since if self._all_since is not None else now) if is_nobody_known else None
            self.are_all = self._all_since is not None and now - self._all_since >= GIVE_UP_S
        news = [line for line in found if line not in self._known]
        self._known = set(found)
        return news


class TraceBoard:
    """The rows of all entities, by entity."""

    def __init__(self, entities: tuple[str, ...] = ()) -> None:
        self.rows = {entity: TraceRow(entity) for entity in entities}

    def show_trace(self, seen: Observed) -> None:
        """Updates the row of an entity by a trace."""
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
        """Returns the rows, the most urgent health first, then by name."""
        return sorted(self.rows.values(), key=lambda row: (_ORDER.index(row.health), row.entity))

    def groups(self) -> dict[str, dict[str, int]]:
        """Returns the number of entities by health, for each group (the part of a name before the first colon)."""
        found: dict[str, dict[str, int]] = {}
        for row in self.rows.values():
            counts = found.setdefault(group_of(row.entity), {})
            counts[row.health] = counts.get(row.health, 0) + 1
        return dict(sorted(found.items()))

    def summary(self) -> dict[str, int]:
        """Returns the number of entities by health."""
        counts: dict[str, int] = {}
        for row in self.rows.values():
            counts[row.health] = counts.get(row.health, 0) + 1
        return counts
