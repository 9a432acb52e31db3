"""The rows of each stream: from opened rows to record batches, in exactly the schema that Spark expects.

telemetry      publications outside the availability topics, in clear
availability   publications on the availability topics: statements about entities (`statements`)
quarantine     publications that never became whole or cannot be opened, still sealed, with the reason

Spark checks only the first batch of a task, so the types here must be right by construction: a test
compares them with Spark's own conversion of `DDL`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ingest.errors import BadOption, GrantsError
from spark_ingest.opening.batching import in_batches, plain, together
from spark_ingest.opening.contents import PROPERTIES, SEALED_TYPES, Contents
from spark_ingest.opening.data_keys import GRANT, is_absent
from spark_ingest.opening.decode import Opened, Opener, TopicSet, check_written, which
from spark_ingest.opening.held import KeyNames
from spark_ingest.opening.packed import PackedRows, packed_stretches
from spark_ingest.opening.statements import AvailabilityStatement, Unreadable, statement_of
from spark_ingest.options import IngestStream, MissingKey, Options
from spark_ingest.spool import BLOCK_BITS, ByteRange, Shard, placed_groups, salvaged_groups

_log = logging.getLogger(__name__)
_TIME = pa.timestamp("us", tz="UTC")
KEY_LOOK_S = 0.5
"""The pause between looks at the file of scope keys while a key is awaited."""
DDL = {
    IngestStream.TELEMETRY: (
        "topic string, payload binary, publisher string, sequence long, published_at timestamp, "
        "received_at timestamp, qos int, retain boolean, properties array<struct<name: string, value: string>>"
    ),
    IngestStream.AVAILABILITY: (
        "entity string, gateway string, state string, since timestamp, last_seen timestamp, reason string, "
        "topic string, publisher string, sequence long, published_at timestamp, received_at timestamp, "
        "kind string, time timestamp, number long, latency_ms double, loss_rate double, load map<string,double>, "
        "fields string"
    ),
    IngestStream.QUARANTINE: (
        "reason string, wire_topic string, publisher string, sequence long, key_id string, "
        "published_at timestamp, received_at timestamp, header binary, sealed binary"
    ),
}

SCHEMAS = {
    IngestStream.TELEMETRY: pa.schema(
        [
            ("topic", pa.string()),
            ("payload", pa.binary()),
            ("publisher", pa.string()),
            ("sequence", pa.int64()),
            ("published_at", _TIME),
            ("received_at", _TIME),
            ("qos", pa.int32()),
            ("retain", pa.bool_()),
            ("properties", PROPERTIES),
        ]
    ),
    IngestStream.AVAILABILITY: pa.schema(
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
            ("kind", pa.string()),
            ("time", _TIME),
            ("number", pa.int64()),
            ("latency_ms", pa.float64()),
            ("loss_rate", pa.float64()),
            ("load", pa.map_(pa.string(), pa.float64())),
            ("fields", pa.string()),
        ]
    ),
    IngestStream.QUARANTINE: pa.schema(
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


PLACE = pa.schema([("receiver", pa.string()), ("segment", pa.int64()), ("offset", pa.int64())])
"""The place of a row in the spool: its group ends at byte `offset` of a receiver's segment, so that
reading from there begins behind the row.
"""
PROGRESS = "progress_at"
"""The column for watermarks: a row's time of reception; of a redriven row a time that no row to come precedes."""
OWN = ("key_id", "wire_topic", *PLACE.names)
EXTRAS = pa.schema(
    [
        ("publisher_id", pa.binary()),
        ("key_id", pa.string()),
        ("wire_topic", pa.string()),
        (PROGRESS, _TIME),
        *SEALED_TYPES.items(),
        *PLACE,
    ]
)
"""Columns of telemetry for queries that name them: the publisher as 16 bytes, key and wire topic of the row, sealed
properties of MQTT, the row's place, the time for watermarks.
"""


def schema_of(stream: IngestStream, columns: Sequence[str] = (), *, redrives: bool = False) -> Any:
    """Returns the named columns of a stream in their order, all of them without names. Raises BadOption.

    `redrives`: the query may get redriven rows, so that all columns of telemetry are one more, PROGRESS.
    """
    known = SCHEMAS[stream]
    if not columns:
        return known.append(EXTRAS.field(PROGRESS)) if redrives and stream is IngestStream.TELEMETRY else known
    fields = {field.name: field for field in (*known, *(EXTRAS if stream is IngestStream.TELEMETRY else ()))}
    unknown = [name for name in columns if name not in fields]
    if unknown or len(set(columns)) != len(columns):
        raise BadOption(f"columns={','.join(columns)!r}: name each once, of {', '.join(fields)}")
    return pa.schema([fields[name] for name in columns])


class RowReader:
    """A reader of ranges of the spool as rows of a stream. One per worker process and set of options."""

    def __init__(self, options: Options) -> None:
        self._stream = options.stream
        self._schema = schema_of(options.stream, options.columns, redrives=options.redrives)
        self._since_us, self._until_us = options.since_us, options.until_us
        self._grants = options.grants
        self._on_missing_key, self._key_patience_s = options.on_missing_key, options.key_patience_s
        self._read_groups = placed_groups if options.fails_on_loss else salvaged_groups
        self._fails_on_change = options.fails_on_loss and options.stream is not IngestStream.QUARANTINE
        self._placed = not set(PLACE.names).isdisjoint(self._schema.names)
        self._rows_per_batch = options.rows_per_batch
        self._opener = Opener(options.grants, options.grants_identity, options.more_grants)
        self._topics = TopicSet(options.topics)
        shards = (*(before for _, before in options.shard_before), options.shard)
        self._shards: tuple[Shard | None, ...] = () if options.parts is None else shards
        self._untils_us = np.array([until_ms * 1000 for until_ms, _ in options.shard_before], np.int64)
        self._availability = TopicSet(options.availability)
        self._names = KeyNames()
        self._held: Collection[str] | None = None
        self._redriven_us: int | None = None

    def read(
        self, *extents: ByteRange, held: Collection[str] | None = None, redriven_us: int | None = None
    ) -> Iterator[Any]:
        """Yields record batches of at most `rows_per_batch` rows. Raises GrantsError, SpoolError.

        `held`: names of keys whose rows are passed over; None: nobody remembers rows that are passed over.
        `redriven_us`: column `progress_at` of a redrive, which reads rows under the `held` keys alone; UNIX time in
        microseconds, 0 for the times of reception.
        """
        self._opener.refresh()
        self._held, self._redriven_us = held, redriven_us
        reasons: Counter[str] = Counter()
        yield from in_batches(self._made(extents, reasons), self._rows_per_batch)
        if reasons and self._stream is not IngestStream.QUARANTINE:
            told = "; ".join(f"{number} x {reason}" for reason, number in reasons.most_common(3))
            _log.warning(
                "veilmq: %d of %d rows stay closed (%s); read them with .option('stream', 'quarantine')",
                reasons.total(),
                sum(extent.rows for extent in extents),
                told,
            )

    def _made(self, extents: Sequence[ByteRange], reasons: Counter[str]) -> Iterator[Any]:
        """Yields rows of this stream, out of packs where there are some."""
        spooled: list[ByteRange] = []
        for each in chain.from_iterable(map(self._stretches, extents)):
            if isinstance(each, ByteRange):
                spooled.append(each)
                continue
            yield from self._spooled(spooled, reasons)
            spooled = []
            yield self._unpacked(each, reasons)
        yield from self._spooled(spooled, reasons)

    def _spooled(self, extents: Sequence[ByteRange], reasons: Counter[str]) -> Iterator[Any]:
        for groups in together(chain.from_iterable(map(self._groups, extents)), self._rows_per_batch):
            yield self.rows_of(groups, reasons)

    def _stretches(self, extent: ByteRange) -> Iterator[PackedRows | ByteRange]:
        if self._stream is IngestStream.QUARANTINE or self._shards or self._held:
            return iter((extent,))
        return packed_stretches(extent, self._opener.grants)

    def _unpacked(self, packed: PackedRows, reasons: Counter[str]) -> Any:
        """Returns the rows of this stream in a run of a pack."""
        timely = self._timely(packed.group)
        if timely is not None:
            packed.opened.drop_all_but(timely)
        reasons.update(packed.closed)
        return self._shown(packed.group, packed.opened, reasons)

    def _groups(self, extent: ByteRange) -> Iterator[Any]:
        for group, end in self._read_groups(extent):
            yield _with_place(group, extent, end) if self._placed else group

    def rows_of(self, group: Any, reasons: Counter[str] | None = None) -> Any:
        """Returns the rows of this stream in one or several groups of the spool; `reasons` counts closed rows."""
        return self._shown(group, self._opened_group(group), reasons)

    def _shown(self, group: Any, opened: Opened, reasons: Counter[str] | None) -> Any:
        statements = self._sort(opened)
        if reasons is not None:
            reasons.update(reason for _, reason in opened.closed)
        if self._stream is IngestStream.AVAILABILITY:
            return _batch(self._schema, **_availability(group, opened, statements))
        if self._stream is IngestStream.QUARANTINE:
            return _batch(self._schema, **_quarantine(group, opened))
        return _batch(self._schema, **_telemetry(group, opened, self._schema.names, self._redriven_us))

    def _opened_group(self, group: Any) -> Opened:
        """Opens a group; obeys `onMissingKey` if a key is missing. Raises GrantsError, SpoolDamaged."""
        wanted = self._wanted(group)
        if self._held:
            needing = self._names.rows_needing(group, self._held)
            needing = ~needing if self._redriven_us is None else needing
            wanted = needing if wanted is None else wanted & needing
        opened = self._opener.open(group, wanted)
        if self._fails_on_change:
            check_written(group, opened)
        if (lacking := self._lacking(group, opened)) is None:
            return opened
        give_up = time.monotonic() + (self._key_patience_s if self._on_missing_key is MissingKey.WAIT else 0.0)
        while True:
            if self._opener.refresh(anew=True):
                opened = self._opener.open(group, wanted)
                if (lacking := self._lacking(group, opened)) is None:
                    return opened
            if time.monotonic() >= give_up:
                raise GrantsError(
                    f"grants={self._grants}: {lacking.removeprefix('grant: ')}, which rows of the spool need; name the "
                    "file that this spool's receiver writes, or wait for it with onMissingKey=wait; "
                    "onMissingKey=quarantine puts such rows into the quarantine instead"
                )
            time.sleep(KEY_LOOK_S)

    def _lacking(self, group: Any, opened: Opened) -> str | None:
        """Returns a reason of a closed whole row the right file of scope keys would cure; None without one that
        matters.

        A row may go into the quarantine unless a micro-batch was planned with its key.
        """
        quarantines = self._on_missing_key is MissingKey.QUARANTINE
        if quarantines and self._held is None:
            return None
        told = group.column("reason")
        reasons = (reason for row, reason in opened.closed if reason.startswith(GRANT) and told[row].as_py() is None)
        return next((reason for reason in reasons if not quarantines or is_absent(reason)), None)

    def _wanted(self, group: Any) -> Any:
        """Returns rows of this query's part and time; None: all. The topic of a row shows only when it is open."""
        ours = self._ours(group) if self._shards else None
        if (timely := self._timely(group)) is not None:
            ours = timely if ours is None else ours & timely
        return ours

    def _timely(self, group: Any) -> Any:
        """Returns rows received within the time that options name; None: all."""
        if self._since_us is None and self._until_us is None:
            return None
        received_us = group.column("received_at").cast(pa.int64()).to_numpy()
        return (received_us >= (self._since_us or 0)) & (received_us < (self._until_us or np.iinfo(np.int64).max))

    def _ours(self, group: Any) -> Any:
        """Returns rows of this query's part, by the receivers' rule (`part`); by time of sealing where parts
        changed.
        """
        if len(self._shards) == 1:
            eras = np.zeros(group.num_rows, np.int64)
        else:
            sealed_us = group.column("published_at").cast(pa.int64()).to_numpy()
            eras = np.searchsorted(self._untils_us, sealed_us, side="right")
        blocks = group.column("sequence").to_numpy() >> BLOCK_BITS
        wanted, places = np.unique(np.stack([eras, blocks], axis=1), axis=0, return_inverse=True)
        verdicts = []
        for era, block in wanted.tolist():
            shard = self._shards[era]
            verdicts.append(shard is not None and shard.owns(block << BLOCK_BITS))
        return np.array(verdicts, bool)[places.ravel()]

    def _sort(self, opened: Opened) -> list[AvailabilityStatement]:
        """Keeps the rows of this stream; returns their statements.

        A row on an availability topic without a statement is closed.
        """
        topics = opened.content.topic.dictionary_encode()
        available = which(topics, self._availability.__contains__)
        telemetry = self._stream is IngestStream.TELEMETRY
        kept = which(topics, self._topics.__contains__) & ~available if telemetry else np.zeros(len(topics), bool)
        statements = []
        for index in np.flatnonzero(available).tolist():
            payload, time_ms = opened.content.payload[index].as_py(), int(opened.content.time_ms[index])
            try:
                statement = statement_of(opened.content.topic[index].as_py(), payload, time_ms)
            except Unreadable as error:
                opened.closed.append((int(opened.rows[index]), str(error)))
                continue
            if statement is not None and self._stream is IngestStream.AVAILABILITY:
                kept[index] = True
                statements.append(statement)
        opened.drop_all_but(kept)
        opened.closed.sort()
        return statements


def _telemetry(group: Any, opened: Opened, wanted: Sequence[str], redriven_us: int | None) -> dict[str, Any]:
    extras = [name for name in OWN if name in wanted]
    taken, content = _taken(group, opened.rows, extras), opened.content
    made: dict[str, Callable[[], Any]] = {
        "topic": lambda: content.topic,
        "payload": lambda: content.payload,
        "publisher": lambda: _hex(taken, "publisher"),
        "sequence": lambda: pa.array(opened.numbers),
        "published_at": lambda: _times(content),
        "received_at": lambda: taken.column("received_at"),
        "qos": lambda: pa.array(opened.qos),
        "retain": lambda: pa.array(opened.retain),
        "properties": lambda: content.properties,
        "publisher_id": lambda: plain(taken.column("publisher")).cast(pa.binary()),
        "key_id": lambda: _hex(taken, "key_id"),
    }
    made |= {name: partial(taken.column, name) for name in ("wire_topic", *PLACE.names)}
    made[PROGRESS] = partial(_progress, taken.column("received_at"), redriven_us)
    made |= {name: partial(content.sealed.__getitem__, name) for name in SEALED_TYPES}
    return {name: made[name]() for name in wanted}


def _availability(group: Any, opened: Opened, statements: Sequence[AvailabilityStatement]) -> dict[str, Any]:
    taken = _taken(group, opened.rows)
    said = dict(zip(AvailabilityStatement._fields, zip(*statements, strict=True), strict=True)) if statements else {}
    return {name: said.get(name, ()) for name in AvailabilityStatement._fields} | {
        "topic": opened.content.topic,
        "publisher": _hex(taken, "publisher"),
        "sequence": pa.array(opened.numbers),
        "published_at": _times(opened.content),
        "received_at": taken.column("received_at"),
    }


def _quarantine(group: Any, opened: Opened) -> dict[str, Any]:
    taken = group.take(pa.array([row for row, _ in opened.closed], pa.int64()))
    whole = ("wire_topic", "sequence", "published_at", "received_at", "header", "sealed")
    return {name: taken.column(name) for name in whole} | {
        "reason": [reason for _, reason in opened.closed],
        "publisher": _hex(taken, "publisher"),
        "key_id": _hex(taken, "key_id"),
    }


def _taken(group: Any, rows: Any, more: Sequence[str] = ()) -> Any:
    """Returns the columns of opened rows that are not content: large columns were opened."""
    own = group.select(["publisher", "received_at", *more])
    whole = len(rows) == group.num_rows and np.array_equal(rows, np.arange(len(rows)))
    return own if whole else own.take(pa.array(rows, pa.int64()))


def _with_place(group: Any, extent: ByteRange, end: int) -> Any:
    path, rows = Path(extent.path), group.num_rows
    place = (path.parent.name, int(path.stem), end)
    columns = [pa.repeat(pa.scalar(value, field.type), rows) for value, field in zip(place, PLACE, strict=True)]
    return pa.RecordBatch.from_arrays([*group.columns, *columns], [*group.schema.names, *PLACE.names])


def _batch(schema: Any, **columns: Any) -> Any:
    arrays = [
        plain(value) if isinstance(value, pa.Array) else pa.array(value, field.type)
        for field, value in ((field, columns[field.name]) for field in schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _times(content: Contents) -> Any:
    """Returns the device's time of publishing, even if the gateway could send only later."""
    return pa.array(content.time_ms.astype(np.int64) * 1000).cast(_TIME)


def _progress(received_at: Any, redriven_us: int | None) -> Any:
    """Returns the times for watermarks: those of a redrive, else the times of reception."""
    return pa.repeat(pa.scalar(redriven_us, _TIME), len(received_at)) if redriven_us else received_at


def _hex(batch: Any, name: str) -> Any:
    """Returns ids as text: few distinct ones, many times."""
    coded = batch.column(name).dictionary_encode()
    return pa.array([value.hex() for value in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)
