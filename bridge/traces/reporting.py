"""Reports of traces for readers of an overlay topic: `PREFIX/GATEWAY/ENTITY/trace`, an ordinary publication (B4, B6).

A tracker needs the trace topic, which only parties learn that may discover the entity. A report says as much in JSON
to all readers of the topic's scope, and is sealed like telemetry:

    {"entity": name, "gateway": name, "kind": "NETWORK_METRICS", "time_ms": ms, "number": n, "fields": {...}}

`number` rises by one with each report of an entity, so that a reader sees gaps; it begins anew with the gateway.

So reports cover only entities that consent: their restrictions of discovery admit this gateway, or name the report by
its filter, `PREFIX/#`; sealed traces are no exception. A report is an interest that never ends, at the pace of a
gauge: kinds changing nothing (ALLS_WELL, load, metrics) are reported once each in `STEADY_S`. Changes are reported at
once, up to `CHANGES_BURST` and then one a second; between them only the newest is kept, so that the last word is
always reported. All entities together have a pace as well, one for changes and one for the rest: thousands dying at
once are reported in turn.

Not here: the making of traces for trackers, the right to publish on these topics (`document.own_topics`).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from bridge.base import Wall
from bridge.contract import Allowance, Count
from bridge.document import OwnTopics
from bridge.traces.availability import entity_level
from bridge.traces.kinds import GAUGE_EVERY_S, Interest, TraceKind, body_of, fields_of, interest_of, own_word
from keys.delegation import admits
from keys.errors import KeysError

STEADY_S = GAUGE_EVERY_S  # between two reports of one kind without changes
CHANGES_BURST = 20  # changes of one entity that are reported at once ...
CHANGES_EVERY_S = (
    1.0  # ... and the pause before each further one: an entity may change its state a thousand times a second
)
REPORTS_BURST, REPORTS_PER_S = 5_000, 1_000  # of all entities together: changes, and as many others
REPORTED_MAX = 65_536  # remembered paces; the entity silent longest is forgotten, its held report sent
_STEADY = frozenset({Interest.ALL_UPDATES, Interest.LOAD, Interest.NETWORK})


@dataclass(frozen=True, slots=True)
class TraceReport:
    """An effect: publish as the gateway, QoS 1."""

    topic: str
    payload: bytes = field(repr=False)


ReportEffect: TypeAlias = TraceReport | Count


class _Told(NamedTuple):
    entity: str
    kind: TraceKind
    fields: Mapping[str, object]
    at: float


@dataclass(slots=True)
class _Pace:
    """The pace of an entity's reports."""

    changes: Allowance
    steady: dict[TraceKind, float] = field(default_factory=dict)  # the last report of each kind
    held: _Told | None = None
    number: int = 0


class Reporter:
    """The reports of a gateway. `name`, `domain`: from its certificate, for the restrictions of entities."""

    def __init__(self, name: str, domain: str, prefix: str, wall: Wall | None = None) -> None:
        self._wall = wall or Wall()
        self._name, self._domain, self._prefix = name, domain, prefix
        self._paces: OrderedDict[str, _Pace] = OrderedDict()
        self._held: list[tuple[float, str]] = []  # an entry whose entity holds nothing any more is stale
        self._changes, self._steady = (Allowance(REPORTS_BURST, 1 / REPORTS_PER_S, 0.0) for _ in range(2))
        self._resumes_at = 0.0  # the time at which there is room for a further change

    @property
    def next_deadline(self) -> float | None:
        """The time for the next call of `due_reports`; None if nothing is held back."""
        return max(self._held[0][0], self._resumes_at) if self._held else None

    def reserve_topics(self, own: OwnTopics) -> None:
        """Reserves the report topics: a client publishing there would speak in a gateway's name."""
        own.add_documents(self._prefix, entity_level(self._name), "trace")

    def consents(self, discoverers: Sequence[str]) -> bool:
        """Returns True if an entity with these restrictions may be reported."""
        return f"{self._prefix}/#" in discoverers or admits(discoverers, self._name, self._domain)

    def report_trace(
        self, entity: str, kind: TraceKind, fields: Mapping[str, object], now: float, to: Interest | None = None
    ) -> list[ReportEffect]:
        """Reports a trace of an entity that consents, at the pace of its kind. `to`: the trace's interest, None for the
        kind's own.
        """
        if kind is TraceKind.GAUGE_INTEREST:
            return []  # a question to trackers
        effects = list(self.due_reports(now))
        pace, told = self._pace(entity, now, effects), _Told(entity, kind, fields, now)
        if (interest_of(kind) if to is None else to) in _STEADY:
            if 0 <= now - pace.steady.get(kind, float("-inf")) < STEADY_S:  # a clock that goes back stops nothing
                return effects
            if not self._steady.spend_one(now):
                return [*effects, Count("reports_skipped")]
            pace.steady[kind] = now
            return [*effects, self._report(pace, told)]
        if pace.held is None and pace.changes.spend_one(now) and self._changes.spend_one(now):
            return [*effects, self._report(pace, told)]
        if pace.held is None:
            heapq.heappush(self._held, (now + CHANGES_EVERY_S, entity))
        else:
            effects.append(Count("reports_skipped"))
        pace.held = told
        return effects

    def due_reports(self, now: float) -> Iterator[ReportEffect]:
        """Yields the held reports that may go now."""
        while self._held and self._held[0][0] <= now and self._resumes_at <= now:
            pace = self._paces.get(self._held[0][1])
            held = None if pace is None else pace.held
            if held is not None and not self._changes.spend_one(now):
                self._resumes_at = now + 1 / REPORTS_PER_S
                return
            heapq.heappop(self._held)
            if pace is not None and held is not None:
                pace.changes.spend_one(now)
                pace.held = None
                yield self._report(pace, held)

    def _pace(self, entity: str, now: float, effects: list[ReportEffect]) -> _Pace:
        pace = self._paces.get(entity)
        if pace is None:
            pace = self._paces[entity] = _Pace(Allowance(CHANGES_BURST, CHANGES_EVERY_S, now))
            if len(self._paces) > REPORTED_MAX:
                forgotten = self._paces.popitem(last=False)[1]
                if forgotten.held is not None:
                    effects.append(self._report(forgotten, forgotten.held))
        else:
            self._paces.move_to_end(entity)
        return pace

    def _report(self, pace: _Pace, told: _Told) -> TraceReport:
        pace.number += 1
        body = {
            "entity": told.entity, "gateway": self._name, "kind": told.kind.name, "time_ms": self._wall.ms(told.at),
            "number": pace.number, "fields": _in_clear(told.fields),
        }  # fmt: skip
        topic = f"{self._prefix}/{entity_level(self._name)}/{entity_level(told.entity)}/trace"
        return TraceReport(topic, body_of(body))


def _in_clear(fields: Mapping[str, object]) -> Mapping[str, object]:
    """Returns the fields in clear for readers: an entity with several witnesses sends its own word as a single signed
    field.
    """
    if "word" not in fields:
        return fields
    try:
        return {**fields_of(own_word(fields).body), **{name: fields[name] for name in fields if name != "word"}}
    except KeysError:
        return fields  # a load may have a figure with the name `word`
