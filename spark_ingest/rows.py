"""From opened rows to the record batches of each stream, in exactly the schema that Spark expects.

telemetry      publications outside the availability topics, in clear
availability   publications on the availability topics: one row a change of an entity's state
quarantine     publications that never became whole or cannot be opened, still sealed, with the reason

Only the first batch of a task is checked by Spark, so the types here must be right by construction: a test
compares them with Spark's own conversion of `DDL`.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from keys.envelope import Inner

from .decode import Opened, Opener, TopicSet
from .options import Options, Stream
from .spool import ByteRange, read_groups

_log = logging.getLogger(__name__)
_TIME = pa.timestamp("us", tz="UTC")
_PROPERTY = pa.struct([("name", pa.string()), ("value", pa.string())])

DDL = {
    Stream.TELEMETRY: (
        "topic string, payload binary, publisher string, sequence long, published_at timestamp, "
        "received_at timestamp, qos int, retain boolean, properties array<struct<name: string, value: string>>"
    ),
    Stream.AVAILABILITY: (
        "entity string, gateway string, state string, since timestamp, last_seen timestamp, reason string, "
        "topic string, publisher string, sequence long, published_at timestamp, received_at timestamp"
    ),
    Stream.QUARANTINE: (
        "reason string, wire_topic string, publisher string, sequence long, key_id string, "
        "published_at timestamp, received_at timestamp, header binary, sealed binary"
    ),
}

SCHEMAS = {
    Stream.TELEMETRY: pa.schema(
        [
            ("topic", pa.string()),
            ("payload", pa.binary()),
            ("publisher", pa.string()),
            ("sequence", pa.int64()),
            ("published_at", _TIME),
            ("received_at", _TIME),
            ("qos", pa.int32()),
            ("retain", pa.bool_()),
            ("properties", pa.list_(pa.field("element", _PROPERTY))),
        ]
    ),
    Stream.AVAILABILITY: pa.schema(
        [
            ("entity", pa.string()),
            ("gateway", pa.string()),
            ("state", pa.string()),
            ("since", _TIME),
            ("last_seen", _TIME),
            ("reason", pa.string()),
            ("topic", pa.string()),
            ("publisher", pa.string()),
            ("sequence", pa.int64()),
            ("published_at", _TIME),
            ("received_at", _TIME),
        ]
    ),
    Stream.QUARANTINE: pa.schema(
        [
            ("reason", pa.string()),
            ("wire_topic", pa.string()),
            ("publisher", pa.string()),
            ("sequence", pa.int64()),
            ("key_id", pa.string()),
            ("published_at", _TIME),
            ("received_at", _TIME),
            ("header", pa.binary()),
            ("sealed", pa.binary()),
        ]
    ),
}


class RowReader:
    """Reads ranges of the spool as rows of one stream. One per worker process and set of options."""

    def __init__(self, options: Options) -> None:
        self._stream = options.stream
        self._rows_per_batch = options.rows_per_batch
        self._opener = Opener(options.grants)
        self._topics = TopicSet(options.topics)
        self._shard = options.shard
        self._availability = TopicSet(options.availability)

    def read(self, extent: ByteRange) -> Iterator[Any]:
        """Record batches of at most `rows_per_batch` rows. Raises GrantsError, SpoolError."""
        self._opener.refresh()
        pending: list[Any] = []
        count = 0
        reasons: Counter[str] = Counter()
        for group in read_groups(extent):
            rows = self.rows(group, reasons)
            if rows.num_rows:
                pending.append(rows)
                count += rows.num_rows
            while count >= self._rows_per_batch:
                whole, rest = _cut(pending, self._rows_per_batch)
                yield whole
                pending, count = ([rest], rest.num_rows) if rest.num_rows else ([], 0)
        if pending:
            yield _cut(pending, count)[0]
        if reasons and self._stream is not Stream.QUARANTINE:
            told = "; ".join(f"{number} x {reason}" for reason, number in reasons.most_common(3))
            _log.warning(
                "veilmq: %d of %d rows stay closed (%s); read them with .option('stream', 'quarantine')",
                reasons.total(),
                extent.rows,
                told,
            )

    def rows(self, group: Any, reasons: Counter[str] | None = None) -> Any:
        """The rows of this stream in one group of the spool; `reasons` counts what stays closed."""
        opened = self._opener.open(group, self._wanted(group))
        self._sort(opened)
        if reasons is not None:
            reasons.update(reason for _, reason in opened.closed)
        build = {
            Stream.TELEMETRY: _telemetry,
            Stream.AVAILABILITY: _availability,
            Stream.QUARANTINE: _quarantine,
        }[self._stream]
        return build(group, opened)

    def _wanted(self, group: Any) -> Sequence[bool] | None:
        """Rows that must be opened to know: without topic tokens, the wire topic tells enough. None: all."""
        shard = self._shard
        blind = self._stream is Stream.QUARANTINE or self._opener.hides_topics
        if blind and shard is None:
            return None
        available = self._stream is Stream.AVAILABILITY

        def wanted(topic: str) -> bool:
            if shard is not None and not shard.owns(topic):
                return False
            if blind:
                return True
            return (topic in self._availability) is available and (available or topic in self._topics)

        return [wanted(topic) for topic in group.column("wire_topic").to_pylist()]

    def _sort(self, opened: Opened) -> None:
        """Keep the rows of this stream; a publication about availability that says nothing is closed."""
        rows, inners = [], []
        for row, inner in zip(opened.rows, opened.inners, strict=True):
            if inner.topic in self._availability:
                if inner.payload and availability_of(inner.payload) is None:
                    opened.closed.append((row, "content: no JSON object with a state, on an availability topic"))
                elif inner.payload and self._stream is Stream.AVAILABILITY:
                    rows.append(row)
                    inners.append(inner)
            elif self._stream is Stream.TELEMETRY and inner.topic in self._topics:
                rows.append(row)
                inners.append(inner)
        opened.rows, opened.inners = rows, inners
        opened.closed.sort()


def availability_of(payload: bytes) -> dict[str, Any] | None:
    """The fields of a retained statement about an entity (`bridge.availability`), None if it is none.

    {"state": text, "since": ms, "last_seen": ms, "reason": text}; times are UNIX milliseconds, all but the
    state may be missing.
    """
    try:
        body = json.loads(payload)
    except ValueError:
        return None
    if not isinstance(body, dict) or not isinstance(body.get("state"), str):
        return None
    return {
        "state": body["state"],
        "since": _microseconds(body.get("since")),
        "last_seen": _microseconds(body.get("last_seen")),
        "reason": body["reason"] if isinstance(body.get("reason"), str) else None,
    }


def _microseconds(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 253_402_300_800_000:
        return None
    return int(value * 1000)


def _telemetry(group: Any, opened: Opened) -> Any:
    taken, inners = group.take(pa.array(opened.rows, pa.int64())), opened.inners
    return _batch(
        Stream.TELEMETRY,
        topic=[inner.topic for inner in inners],
        payload=[inner.payload for inner in inners],
        publisher=_hex(taken, "publisher"),
        sequence=taken.column("sequence"),
        published_at=_times(inners),
        received_at=taken.column("received_at"),
        qos=taken.column("qos"),
        retain=taken.column("retain"),
        properties=_properties(inners),
    )


def _availability(group: Any, opened: Opened) -> Any:
    taken, inners = group.take(pa.array(opened.rows, pa.int64())), opened.inners
    bodies = [availability_of(inner.payload) or {} for inner in inners]
    levels = [inner.topic.split("/") for inner in inners]
    return _batch(
        Stream.AVAILABILITY,
        # PREFIX/GATEWAY/ENTITY/availability; names are percent-encoded into one level each
        entity=[unquote(each[-2]) if len(each) > 1 else None for each in levels],
        gateway=[unquote(each[-3]) if len(each) > 2 else None for each in levels],
        state=[body.get("state") for body in bodies],
        since=[body.get("since") for body in bodies],
        last_seen=[body.get("last_seen") for body in bodies],
        reason=[body.get("reason") for body in bodies],
        topic=[inner.topic for inner in inners],
        publisher=_hex(taken, "publisher"),
        sequence=taken.column("sequence"),
        published_at=_times(inners),
        received_at=taken.column("received_at"),
    )


def _quarantine(group: Any, opened: Opened) -> Any:
    taken = group.take(pa.array([row for row, _ in opened.closed], pa.int64()))
    return _batch(
        Stream.QUARANTINE,
        reason=[reason for _, reason in opened.closed],
        wire_topic=taken.column("wire_topic"),
        publisher=_hex(taken, "publisher"),
        sequence=taken.column("sequence"),
        key_id=_hex(taken, "key_id"),
        published_at=taken.column("published_at"),
        received_at=taken.column("received_at"),
        header=taken.column("header"),
        sealed=taken.column("sealed"),
    )


def _batch(stream: Stream, **columns: Any) -> Any:
    schema = SCHEMAS[stream]
    arrays = [
        value if isinstance(value, pa.Array) else pa.array(value, schema.field(name).type)
        for name, value in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _times(inners: Iterable[Inner]) -> Any:
    """When the device published, also if the gateway could send only later."""
    return pa.array([inner.time_ms * 1000 for inner in inners], pa.int64()).cast(_TIME)


def _hex(batch: Any, name: str) -> list[str]:
    return [value.hex() for value in batch.column(name).to_pylist()]


def _properties(inners: Sequence[Inner]) -> Any:
    """Application user properties, order and repeats kept (MQTT 5.0 §3.3.2.3.7)."""
    offsets: list[int] = [0]
    pairs: list[tuple[str, str]] = []
    for inner in inners:
        pairs += inner.properties
        offsets.append(len(pairs))
    names = pa.array([name for name, _ in pairs], pa.string())
    values = pa.array([value for _, value in pairs], pa.string())
    structs = pa.StructArray.from_arrays([names, values], fields=list(_PROPERTY))
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), structs, type=SCHEMAS[Stream.TELEMETRY].field("properties").type
    )


def _cut(batches: Sequence[Any], rows: int) -> tuple[Any, Any]:
    """The first `rows` rows of some batches as one batch, and the rest as one."""
    table = pa.Table.from_batches(batches).combine_chunks()
    whole = table.to_batches()[0]
    return whole.slice(0, rows), whole.slice(rows)
