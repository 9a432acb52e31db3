"""The content of the dashboard as a pure model: takes looks at the spool and scrapes of endpoints, gives figures.

No I/O, no clock: `Board.take_look` and `Board.scraped` are told the time. `feed` brings looks and scrapes, `html` draws
them, `dashboard` is the page. Nothing here is secret: no topic, payload or key comes in.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

STREAMS = ("telemetry", "availability", "quarantine")
POINTS = 150
"""Of each curve: five minutes of looks, one every two seconds."""
DELAYS_MAX = 20_000
DELAYS_S = 60.0
ENTITIES_MAX = 20_000
"""Entities that are remembered; those that were heard of longest ago go."""
CELLS_MAX = 400
"""Entities that are drawn, those in trouble first; the rest is a number."""
REASONS_MAX = 16
UNHEARD_S = 86_400.0
"""An entity that nothing was said of for so long is one to look at, whatever was said last."""
UNHEARD = "unheard"
"""In place of the state that was said of such an entity."""
QUIET = ("online", "ready", "alive")
"""States that are no trouble, in lower case."""


class HeardEntity(NamedTuple):
    """A statement about an entity. `since`: UNIX seconds, None if it is not said. `heard_at`: when it was received, the
    same; None if nobody knows."""

    gateway: str
    entity: str
    state: str
    sequence: int
    since: float | None
    heard_at: float | None = None

    def is_unheard(self, now: float) -> bool:
        """Returns True if the last word is too old to show it as the present state."""
        return self.heard_at is not None and now - self.heard_at > UNHEARD_S


class BoardReader(NamedTuple):
    """A consumer of the spool; `sealed_batches`, `bytes`, `seconds` behind are None where a part of that is gone."""

    name: str
    running: bool
    sealed_batches: int | None
    bytes: int | None
    seconds: float | None
    committed: float


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a spool. `sealed_batches` counts all new ones. The newest, `read` in number, were opened for the other
    fields: `streams` counts publications.
    """

    sealed_batches: int = 0
    read: int = 0
    streams: Mapping[str, int] = field(default_factory=dict)
    delays: Sequence[tuple[float, float]] = ()
    """(received at, seconds since the device published), of telemetry."""
    heard: Sequence[HeardEntity] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)
    readers: Sequence[BoardReader] = ()
    spool_bytes: int = 0
    trouble: str = ""


class BoardSample(NamedTuple):
    """A line of a scrape."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Scrape:
    """The samples of an endpoint, or the reason for which there are none."""

    url: str
    samples: Sequence[BoardSample] = ()
    error: str = ""


@dataclass(slots=True)
class MemberCard:
    """A replica or key server, over all endpoints. `up`, `of`: standing connections, and all connections."""

    name: str
    up: int = 0
    of: int = 0
    pieces: float = 0
    wrong: float = 0
    suspected: float = 0
    named: bool = False


@dataclass(slots=True)
class Query:
    """A streaming query, as its process reports it; None for figures without a report."""

    name: str
    running: bool = False
    rows_per_second: float | None = None
    batch_s: float | None = None
    lag_sealed_batches: float | None = None
    lag_s: float | None = None
    state_rows: float | None = None
    reported_at: float | None = None


@dataclass(frozen=True, slots=True)
class ShownFigures:
    """Everything the page draws."""

    rates: Mapping[str, Sequence[float]]
    """Rows a second of each stream, oldest first."""
    seen: Mapping[str, int]
    p50_s: float | None
    p99_s: float | None
    newest_at: float | None
    sampled: bool
    spool_bytes: int
    cap_bytes: int | None
    reasons: Sequence[tuple[str, int]]
    readers: Sequence[BoardReader]
    cells: Sequence[HeardEntity]
    states: Sequence[tuple[str, int]]
    """How many entities are in each state; of those that are unheard, `UNHEARD` counts."""
    members: Sequence[MemberCard]
    queries: Sequence[Query]
    endpoints: Sequence[tuple[str, str]]
    trouble: str


class Board:
    """Remembers what curves and tables need, within bounds. `cap_bytes`: of the spool, if no receiver says it."""

    def __init__(self, cap_bytes: int | None = None) -> None:
        self._cap_bytes = cap_bytes
        self._rates = {name: deque[float](maxlen=POINTS) for name in STREAMS}
        self._seen = dict.fromkeys(STREAMS, 0)
        self._delays = deque[tuple[float, float]](maxlen=DELAYS_MAX)
        self._entities: OrderedDict[tuple[str, str], HeardEntity] = OrderedDict()
        self._reasons: Counter[str] = Counter()
        self._looked_at: float | None = None
        self._last = Look()
        self._scrapes: Sequence[Scrape] = ()

    def take_look(self, look: Look, now: float) -> None:
        """The first look is at what was there before: it fills tables, and is no rate."""
        share = look.sealed_batches / look.read if look.read else 0.0
        if self._looked_at is not None:
            passed_s = max(0.001, now - self._looked_at)
            for name in STREAMS:
                self._rates[name].append(look.streams.get(name, 0) * share / passed_s)
        self._looked_at, self._last = now, look
        for name in STREAMS:
            self._seen[name] += round(look.streams.get(name, 0) * share)
        self._delays.extend(look.delays)
        for heard in look.heard:
            self._hear(heard)
        for reason, count in look.reasons.items():
            if reason in self._reasons or len(self._reasons) < REASONS_MAX:
                self._reasons[reason] += count

    def scraped(self, scrapes: Sequence[Scrape]) -> None:
        """The newest answers of all endpoints."""
        self._scrapes = scrapes

    def shown_figures(self) -> ShownFigures:
        delays, newest = self._newest_delays()
        now = self._looked_at or 0.0
        entities = sorted(
            self._entities.values(),
            key=lambda each: (each.state.lower() in QUIET and not each.is_unheard(now), each[:2]),
        )
        return ShownFigures(
            rates={name: tuple(rates) for name, rates in self._rates.items()},
            seen=dict(self._seen),
            p50_s=quantile(delays, 0.5),
            p99_s=quantile(delays, 0.99),
            newest_at=newest,
            sampled=self._last.read < self._last.sealed_batches,
            spool_bytes=self._last.spool_bytes,
            cap_bytes=self._cap(),
            reasons=self._reasons.most_common(),
            readers=tuple(self._last.readers),
            cells=tuple(entities[:CELLS_MAX]),
            states=Counter(UNHEARD if each.is_unheard(now) else each.state for each in entities).most_common(),
            members=members(self._samples()),
            queries=queries(self._samples()),
            endpoints=tuple((each.url, each.error) for each in self._scrapes),
            trouble=self._last.trouble,
        )

    def _hear(self, heard: HeardEntity) -> None:
        key = (heard.gateway, heard.entity)
        known = self._entities.get(key)
        if known is None or heard.sequence >= known.sequence:
            self._entities[key] = heard
        self._entities.move_to_end(key)
        if len(self._entities) > ENTITIES_MAX:
            self._entities.popitem(last=False)

    def _newest_delays(self) -> tuple[list[float], float | None]:
        newest = max((at for at, _ in self._delays), default=None)
        if newest is None:
            return [], None
        return sorted(delay for at, delay in self._delays if at > newest - DELAYS_S), newest

    def _cap(self) -> int | None:
        told = [each.value for each in self._samples() if each.name == "veilmq_ingest_spool_cap_bytes"]
        return int(sum(told)) if told else self._cap_bytes

    def _samples(self) -> Iterable[BoardSample]:
        for scrape in self._scrapes:
            yield from scrape.samples


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The least of `ordered` that `share` of them do not exceed; None of nothing."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def members(samples: Iterable[BoardSample]) -> list[MemberCard]:
    """Returns the members with their links and their liars' figures, the worst first."""
    found: dict[str, MemberCard] = {}

    def of(name: str) -> MemberCard:
        return found.setdefault(name, MemberCard(name))

    for name, labels, value in samples:
        member = labels.get("replica") or labels.get("member") or labels.get("peer") or ""
        if name == "veilmq_ingest_link_up" or (name == "veilmq_link_up" and labels.get("direction") == "out"):
            of(member).up += value > 0
            of(member).of += 1
        elif name == "veilmq_ingest_received_total":
            of(member).pieces += value
        elif name == "veilmq_ingest_events_total" and member:
            event = labels.get("event", "")
            of(member).wrong += value if event.startswith("refused") else 0
            of(member).suspected += value if event == "suspected" else 0
            of(member).named |= event == "named" and value > 0
        elif name == "veilmq_overlay_suspicions_total":
            of(member).suspected += value
        elif name == "veilmq_overlay_named":
            of(member).named |= value > 0
    return sorted(found.values(), key=lambda each: (not each.named, -each.wrong, -each.suspected, each.name))


_QUERY_FIELDS = {
    "veilmq_query_input_rows_per_second": "rows_per_second",
    "veilmq_query_batch_duration_seconds": "batch_s",
    "veilmq_query_lag_sealed_batches": "lag_sealed_batches",
    "veilmq_query_lag_seconds": "lag_s",
    "veilmq_query_state_rows": "state_rows",
    "veilmq_query_progress_timestamp_seconds": "reported_at",
}


def queries(samples: Iterable[BoardSample]) -> list[Query]:
    """Streaming queries by name."""
    found: dict[str, Query] = {}
    for name, labels, value in samples:
        if not name.startswith("veilmq_query_") or "query" not in labels:
            continue
        query = found.setdefault(labels["query"], Query(labels["query"]))
        if name == "veilmq_query_running":
            query.running = value > 0
        elif name in _QUERY_FIELDS:
            setattr(query, _QUERY_FIELDS[name], value)
    return [found[name] for name in sorted(found)]
