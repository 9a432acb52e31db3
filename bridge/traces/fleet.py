"""A gateway's fleet for its own dashboards: a summary of each group, and alerts for entities staying away (B4).

A group is the part of an entity's name before the first colon, or `all` for names without a colon; an operator's
devices are `OWNER:DEVICE`, so that each owner is a group. Each group has a retained JSON object, published at most
once a second:

    {"group": "shop", "alive": 40, "suspected": 1, "failed": 2, "offline": [{"entity": …, "since_ms": …, "flaps": 3}]}

`offline` lists the entities that are away, the longest first, `OFFLINE_SHOWN` at most; `flaps` counts how often a
single went away in the last day. An entity that was FAILED or gone for `alert_after_s` causes a single alert, and
another when the entity is back. Any reader of the topics sees the summary, so it counts only entities letting this
gateway discover them. Not here: tellings by traces, the way of an alert.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.base import Wall
from bridge.document import OwnTopics
from bridge.traces.availability import entity_level
from bridge.traces.kinds import TraceKind

OFFLINE_SHOWN = 100
FLAPS_KEPT = 32  # of one entity
FLAPS_S = 86_400.0
GROUPS_MAX = 1_000
ENTITIES_MAX = 100_000  # beyond it the largest group loses the entity that it has had longest
SAY_EVERY_S = 1.0  # of one group
OTHERS = "all"
_HEALTH = {
    TraceKind.JOIN: "alive", TraceKind.ALLS_WELL: "alive", TraceKind.FAILURE_SUSPICION: "suspected",
    TraceKind.FAILED: "failed", TraceKind.DISCONNECT: "disconnected",
}  # fmt: skip
_AWAY = ("failed", "disconnected")


@dataclass(frozen=True, slots=True)
class Stood:
    """The state of an entity from now on; `kind` REVERTING_TO_SILENT_MODE: nothing is known of the entity any more."""

    entity: str
    kind: TraceKind
    discoverers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """An effect: publish to local clients, retained."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Alert:
    """An effect: publish, and send to the operator on call. `back`: the entity is there again."""

    topic: str
    payload: bytes
    back: bool


FleetEffect: TypeAlias = Summary | Alert


@dataclass(slots=True)
class _Member:
    health: str
    since_ms: int
    alert_at: float = float("inf")
    alerted: bool = False
    went: deque[float] = field(default_factory=lambda: deque(maxlen=FLAPS_KEPT))

    def flaps(self, now: float) -> int:
        return sum(now - at < FLAPS_S for at in self.went)


class Fleet:
    """A gateway's fleet. `prefix`: of topics. `alert_after_s`: the time away before an alert."""

    def __init__(
        self, prefix: str, alert_after_s: float, wall: Wall, admitted: Callable[[Sequence[str]], bool] = lambda _: True
    ) -> None:
        """Takes `admitted`: True if an entity with these restrictions of discovery lets us see it."""
        self._admitted = admitted
        self.prefix, self._alert_after_s, self._wall = prefix, alert_after_s, wall
        self._groups: dict[str, dict[str, _Member]] = {}
        self._count = 0
        self._say_at: dict[str, float] = {}  # groups that changed
        self._said_at: dict[str, float] = {}
        self._alerts: list[tuple[float, str]] = []  # an entry that differs from a member's `alert_at` is stale

    def __len__(self) -> int:
        return self._count

    @property
    def next_deadline(self) -> float | None:
        dues = [*self._say_at.values(), *(at for at, _ in self._alerts[:1])]
        return min(dues, default=None)

    def reserve_topics(self, own: OwnTopics) -> None:
        """Reserves the topics of the fleet, so that no client publishes there."""
        own.add_shown(f"{self.prefix}/")

    def stood(self, event: Stood, now: float) -> list[FleetEffect]:
        """Takes the new state of an entity, and returns the summaries and alerts that are due."""
        name = group_of(event.entity)
        health = _HEALTH.get(event.kind)
        if not self._admitted(event.discoverers):
            return []
        if health is None:
            gone = self._groups.get(name, {}).pop(event.entity, None)
            self._count -= gone is not None
            return [] if gone is None else self._changed(name, now)
        group = self._groups.get(name)
        if group is None:
            if len(self._groups) >= GROUPS_MAX:
                return []
            group = self._groups[name] = {}
        member, effects = group.get(event.entity), list[FleetEffect]()
        if member is None:
            effects += self._evict_oldest(now)
            self._count += 1
            group = self._groups.setdefault(name, {})
            member = group[event.entity] = _Member("", 0)
        if member.health == health:
            return effects
        was_away, is_away = member.health in _AWAY, health in _AWAY
        member.health, member.since_ms = health, self._wall.ms(now)
        if is_away and not was_away:
            member.went.append(now)
        effects += self._changed(name, now)
        if is_away and not was_away:
            member.alert_at = now + self._alert_after_s
            heapq.heappush(self._alerts, (member.alert_at, event.entity))
        elif was_away and not is_away:
            member.alert_at = float("inf")
            if member.alerted:
                member.alerted = False
                effects.append(self._alert(event.entity, member, now, back=True))
        return effects

    def _evict_oldest(self, now: float) -> list[FleetEffect]:
        """Forgets the oldest entity of the largest group, if there is no room for one more."""
        if self._count < ENTITIES_MAX:
            return []
        largest = max(self._groups, key=lambda name: len(self._groups[name]))
        members = self._groups[largest]
        del members[next(iter(members))]
        self._count -= 1
        return self._changed(largest, now)

    def view(self, group: str, limit: int, now: float) -> dict[str, object]:
        """Returns the data of a page: every group's counts, and the members of `group`, of all groups for "". Members
        that are away come first, the longest first; `went_ms`: the times at which a member went away in the last day.
        """
        counted, members = list[dict[str, object]](), list[tuple[str, str, _Member]]()
        for name, found in sorted(self._groups.items()):
            counted.append({"group": name, **self._counts(found)})
            if group in ("", name):
                members += [(name, entity, member) for entity, member in found.items()]
        members.sort(key=lambda each: (each[2].health not in _AWAY, each[2].health == "alive", each[2].since_ms))
        shown = [
            {
                "entity": entity, "group": name, "health": member.health, "since_ms": member.since_ms,
                "flaps": member.flaps(now), "went_ms": [self._wall.ms(at) for at in member.went if now - at < FLAPS_S],
            }
            for name, entity, member in members[:limit]
        ]  # fmt: skip
        return {"groups": counted, "entities": shown, "more": len(members) > limit}

    def due_alerts(self, now: float) -> list[FleetEffect]:
        """Returns the alerts and summaries that are due by now."""
        effects: list[FleetEffect] = []
        while self._alerts and self._alerts[0][0] <= now:
            at, entity = heapq.heappop(self._alerts)
            member = self._groups.get(group_of(entity), {}).get(entity)
            if member is not None and member.alert_at == at:
                member.alert_at, member.alerted = float("inf"), True
                effects.append(self._alert(entity, member, now, back=False))
        for name in [name for name, at in self._say_at.items() if at <= now]:
            del self._say_at[name]
            effects.append(self._summary(name, now))
        return effects

    def _changed(self, name: str, now: float) -> list[FleetEffect]:
        """Publishes a group's summary at once, or plans it for the earliest time the pace allows."""
        if name in self._say_at:
            return []
        at = self._said_at.get(name, float("-inf")) + SAY_EVERY_S
        if now >= at:
            return [self._summary(name, now)]
        self._say_at[name] = at
        return []

    def _summary(self, name: str, now: float) -> Summary:
        self._said_at[name] = now
        group = self._groups.get(name, {})
        topic = f"{self.prefix}/{entity_level(name)}/fleet"
        if not group:
            self._groups.pop(name, None)
            self._said_at.pop(name, None)
            return Summary(topic, b"")
        counts = self._counts(group)
        away = heapq.nsmallest(OFFLINE_SHOWN, self._away(group), key=lambda each: each[1].since_ms)
        offline = [{"entity": e, "since_ms": m.since_ms, "flaps": m.flaps(now)} for e, m in away]
        return Summary(topic, _json({"group": name, **counts, "offline": offline, "time_ms": self._wall.ms(now)}))

    def _counts(self, group: dict[str, _Member]) -> dict[str, int]:
        counts = dict.fromkeys(_HEALTH.values(), 0)
        for member in group.values():
            counts[member.health] += 1
        return counts

    def _away(self, group: dict[str, _Member]) -> Iterator[tuple[str, _Member]]:
        return ((entity, member) for entity, member in group.items() if member.health in _AWAY)

    def _alert(self, entity: str, member: _Member, now: float, back: bool) -> Alert:
        body = {
            "entity": entity, "health": member.health, "since_ms": member.since_ms, "back": back,
            "flaps": member.flaps(now), "time_ms": self._wall.ms(now),
        }  # fmt: skip
        return Alert(f"{self.prefix}/{entity_level(group_of(entity))}/alerts", _json(body), back)


def group_of(entity: str) -> str:
    """Returns the group of an entity: the part of its name before the first colon."""
    owner, colon, _ = entity.partition(":")
    return owner if colon else OTHERS


def _json(body: dict[str, object]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
