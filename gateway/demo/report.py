"""Report of a demonstration: figures, verdict and table from the digests at both ends. Pure: no files, no processes.

*published*: messages whose PUBACK the telemetry clients got. *delivered*: published messages the subscriber received
unaltered (topic, payload digest, user properties). *lost*: the other published messages. *wrong*: receptions differing
from the sent message or were never sent. *duplicated*: unaltered receptions beyond the first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from gateway.demo.logs import PROBE, SeenMessage, Sent
from gateway.demo.timeline import Timeline
from keys.envelope import PROPERTY_SHARES


@dataclass(frozen=True, slots=True)
class Tally:
    """The figures of a path from end to end. Latencies in milliseconds, first unaltered receptions only."""

    published: int
    delivered: int
    lost: int
    wrong: int
    duplicated: int
    latencies_ms: tuple[float, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A row of Spark's sink. `publisher` in hex."""

    publisher: str
    sequence: int
    id: str
    topic: str
    digest: str


@dataclass(frozen=True, slots=True)
class SparkTally:
    """The figures of Spark's sink. `rows`: published messages with an unaltered row; the rest as in Tally."""

    rows: int
    lost: int
    wrong: int
    duplicated: int


@dataclass(frozen=True, slots=True)
class Blamed:
    """The blame by all reporters. `suspected`: member -> reporter -> count; `named`: member -> reporters."""

    suspected: Mapping[str, Mapping[str, int]]
    named: Mapping[str, Sequence[str]]

    def without(self, liar: str) -> Blamed:
        """Returns the blame by honest parties, without the liar's, who may accuse any member."""
        suspected = {m: {by: n for by, n in who.items() if by != liar} for m, who in self.suspected.items()}
        named = {m: tuple(by for by in who if by != liar) for m, who in self.named.items()}
        return Blamed({m: who for m, who in suspected.items() if who}, {m: who for m, who in named.items() if who})


@dataclass(frozen=True, slots=True)
class ReportSample:
    """A message as a replica saw it, and as its sender wrote it. Properties are the decoded frames."""

    replica: str
    wire_topic: str
    content: bytes
    properties: tuple[tuple[str, bytes], ...]
    clear_topic: str
    clear_payload: str


@dataclass(frozen=True, slots=True)
class KeyServiceTally:
    """The figures of the key service: servers, killed servers, epochs, publications that waited for a key."""

    servers: int
    down: int
    epochs: int
    waits: int

    def __str__(self) -> str:
        return f"{self.servers} servers, {self.down} down, {self.epochs} epochs, {self.waits} waits"


@dataclass(frozen=True, slots=True)
class DemoReport:
    """All figures of the table and of `--json`.

    `entities`: numbers of entities that Spark knows and of online ones. `unlinked`: roles lacking links at the end,
    although the killed replica runs again. `failures` is empty if the demonstration succeeded.
    """

    sealed: Tally
    plain: Tally
    unconfirmed: int
    spark: SparkTally
    entities: tuple[int, int]
    unlinked: tuple[str, ...]
    blamed: Blamed
    timeline: Timeline
    key_service: KeyServiceTally
    sample: ReportSample | None

    def failures(self) -> list[str]:
        """Returns the reasons to end with status 1, a line each."""
        sealed, spark, liar = self.sealed, self.spark, self.timeline.liar
        named = sorted(set(self.blamed.named) - {liar})
        found = [
            (sealed.published == 0, "nothing was published"),
            (self.unconfirmed > 0, f"{self.unconfirmed} messages were never confirmed by the gateway"),
            (sealed.lost > 0, f"{sealed.lost} messages were lost"),
            (sealed.wrong > 0, f"{sealed.wrong} messages arrived altered or were never sent"),
            (sealed.duplicated > 0, f"{sealed.duplicated} messages arrived more than once"),
            (spark.lost > 0, f"{spark.lost} messages have no row in Spark"),
            (spark.wrong > 0, f"{spark.wrong} rows in Spark are altered or were never sent"),
            (spark.duplicated > 0, f"{spark.duplicated} rows in Spark are there more than once"),
            (
                liar not in self.blamed.suspected and liar not in self.blamed.named,
                f"{liar} lied and nobody suspects it",
            ),
            (
                bool(self.unlinked),
                f"{self.timeline.killed} runs again, but links are down at {', '.join(self.unlinked)}",
            ),
            (bool(named), f"named as liars, but honest: {', '.join(named)}"),
        ]
        return [why for failed, why in found if failed]

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `--json` prints."""
        sealed = self.sealed
        steps = [{"at_s": s.at_s, "replica": s.replica, "what": s.action.name.lower()} for s in self.timeline.steps]
        return {
            "published": sealed.published,
            "delivered": sealed.delivered,
            "lost": sealed.lost,
            "wrong": sealed.wrong,
            "duplicated": sealed.duplicated,
            "unconfirmed": self.unconfirmed,
            "spark_rows": self.spark.rows,
            "spark": {"lost": self.spark.lost, "wrong": self.spark.wrong, "duplicated": self.spark.duplicated},
            "entities": {"known": self.entities[0], "online": self.entities[1]},
            "blamed": {
                "suspected": {member: dict(who) for member, who in sorted(self.blamed.suspected.items())},
                "named": {member: sorted(who) for member, who in sorted(self.blamed.named.items())},
            },
            "faults": {
                "seed": self.timeline.seed,
                "liar": self.timeline.liar,
                "killed": self.timeline.killed,
                "steps": steps,
            },
            "key_service": asdict(self.key_service),
            "latency_ms": {"plain": _percentiles(self.plain), "sealed": _percentiles(sealed)},
            "replica_saw": None
            if self.sample is None
            else {
                "replica": self.sample.replica,
                "topic": self.sample.wire_topic,
                "content_hex": self.sample.content.hex(),
                "properties_hex": {name: frame.hex() for name, frame in self.sample.properties},
                "clear_topic": self.sample.clear_topic,
                "clear_payload": self.sample.clear_payload,
            },
            "failures": self.failures(),
        }


def tally(sent: Mapping[str, Sent], seen: Iterable[SeenMessage], *, plain: bool = False) -> Tally:
    """Compares confirmed messages with received ones. `plain`: latency against the twin at the ordinary broker.

    An unconfirmed message is neither published nor lost, and its arrival is no error.
    """
    delivered: set[str] = set()
    wrong = duplicated = 0
    latencies: list[float] = []
    for got in seen:
        if got.id.startswith(PROBE):
            continue
        was = sent.get(got.id)
        if was is None or (was.topic, was.digest, was.properties) != (got.topic, got.digest, got.properties):
            wrong += 1
        elif got.id in delivered:
            duplicated += 1
        else:
            delivered.add(got.id)
            latencies.append((got.at_ns - (was.plain_ns if plain else was.sent_ns)) / 1e6)
    published = {id_ for id_, message in sent.items() if message.confirmed}
    arrived = len(published & delivered)
    return Tally(len(published), arrived, len(published) - arrived, wrong, duplicated, tuple(latencies))


def tally_spark(sent: Mapping[str, Sent], rows: Iterable[ReportRow]) -> SparkTally:
    """Compares confirmed messages with the rows of Spark's sink."""
    counts: Counter[str] = Counter()
    wrong = 0
    for row in rows:
        if row.id.startswith(PROBE):
            continue
        was = sent.get(row.id)
        if was is None or (was.topic, was.digest) != (row.topic, row.digest):
            wrong += 1
        else:
            counts[row.id] += 1
    published = {id_ for id_, message in sent.items() if message.confirmed}
    found = len(published & counts.keys())
    return SparkTally(found, len(published) - found, wrong, sum(counts.values()) - len(counts))


def percentile(values: Sequence[float], part: float) -> float:
    """Returns the nearest rank, or NaN for no values.

    The rank is the smallest value that at least `part` (0 < part <= 1) of all do not exceed.
    """
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[math.ceil(part * len(ordered)) - 1]


def _percentiles(way: Tally) -> dict[str, float | None]:
    if not way.latencies_ms:
        return {"p50": None, "p99": None}
    return {"p50": round(percentile(way.latencies_ms, 0.50), 3), "p99": round(percentile(way.latencies_ms, 0.99), 3)}


# ------------------------------------------------------------------------------------------- the table


def render(report: DemoReport) -> Group:
    """Returns the table, a message as a replica saw it, and the verdict, for a rich console."""
    table = Table(
        title="VeilMQ: six replicas, two regions, one liar, one crash", show_header=False, title_justify="left"
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    sealed, spark = report.sealed, report.spark
    table.add_row("published", f"{sealed.published:,} (QoS 1, confirmed)")
    table.add_row("delivered", _count(sealed.delivered, sealed.published))
    for name, bad in (("lost", sealed.lost), ("wrong", sealed.wrong), ("duplicated", sealed.duplicated)):
        table.add_row(name, Text(f"{bad:,}", style="red" if bad else "green"))
    table.add_row("rows in Spark", _count(spark.rows, sealed.published, _spark_faults(spark)))
    known, online = report.entities
    table.add_row("entities in Spark", f"{known:,}, of them online {online:,}", end_section=True)
    for step in report.timeline.steps:
        table.add_row("fault", f"{step.at_s:5.1f} s  {step.replica} {step.action.value}")
    table.add_row("suspected", _suspected(report.blamed))
    table.add_row("named", _named(report.blamed), end_section=True)
    table.add_row("key service", str(report.key_service))
    for name, way in (("one ordinary broker", report.plain), ("sealed, two regions", sealed)):
        p50, p99 = percentile(way.latencies_ms, 0.5), percentile(way.latencies_ms, 0.99)
        table.add_row(f"latency, {name}", f"p50 {p50:8.2f} ms   p99 {p99:8.2f} ms")
    parts: list[Any] = [table]
    if report.sample is not None:
        parts += [_render_sample(report.sample)]
    failures = report.failures()
    parts += [Text(f"failed: {why}", style="bold red") for why in failures]
    if not failures:
        parts.append(Text("Every message arrived once and unaltered; no replica could read one.", style="bold green"))
    return Group(*parts)


def _render_sample(sample: ReportSample) -> Table:
    table = Table(title="One message", show_header=True, title_justify="left")
    table.add_column("")
    table.add_column("as its sender wrote it", overflow="fold")
    table.add_column(f"as replica {sample.replica} saw it (hex)", overflow="fold")
    table.add_row("topic", Text(sample.clear_topic), Text(sample.wire_topic))
    table.add_row("payload", Text(sample.clear_payload), _shortened(sample.content))
    shares = dict(sample.properties).get(PROPERTY_SHARES)
    table.add_row(
        "key", "none", f"its share, useless without another replica's: {_shortened(shares)}" if shares else "none"
    )
    return table


def _count(part: int, whole: int, note: str = "") -> Text:
    return Text(f"{part:,} of {whole:,}{note}", style="green" if part == whole and whole and not note else "red")


def _spark_faults(spark: SparkTally) -> str:
    faults = [f"{n} {what}" for n, what in ((spark.wrong, "wrong"), (spark.duplicated, "duplicated")) if n]
    return f" ({', '.join(faults)})" if faults else ""


def _suspected(blamed: Blamed) -> str:
    lines = [
        f"{member} by {', '.join(f'{by} ({times})' for by, times in sorted(who.items()))}"
        for member, who in sorted(blamed.suspected.items(), key=lambda item: -sum(item[1].values()))
    ]
    return "\n".join(lines) or "nobody"


def _named(blamed: Blamed) -> str:
    return (
        "\n".join(f"{member} by {', '.join(sorted(who))}" for member, who in sorted(blamed.named.items())) or "nobody"
    )


def _shortened(data: bytes, head: int = 40, tail: int = 8) -> str:
    if len(data) <= head + tail:
        return data.hex()
    return f"{data[:head].hex()} … {data[-tail:].hex()} ({len(data)} bytes)"
