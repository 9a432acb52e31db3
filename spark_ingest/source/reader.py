"""The streaming reader that Spark drives: offsets and partitions in the driver, `read` in the executors.

In the driver a single object lives as long as its query; it runs the receiver if options say so. Copies of it are made
in a planner process and pickled to executors: those only ever see `read`, so nothing is opened before `initialOffset`,
`latestOffset` or `partitions`, and nothing that is open is pickled. Durability depends on no call to `stop`: Spark
kills the driver-side process of a stopped query.
"""
# ruff: noqa: N802  Spark chose these names

from __future__ import annotations

import gc
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from spark_ingest.errors import IngestError
from spark_ingest.opening import KeyNames, RowReader
from spark_ingest.options import IngestStream, MissingKey, Options
from spark_ingest.secrets import GrantsFile
from spark_ingest.source.handing import HandedRows, HandsOver
from spark_ingest.source.marks import OffsetMarks, held_of, new_owner, owner_of, redriven_of, redriven_us_of
from spark_ingest.spool import (
    UNNAMED_KEPT_S,
    ByteRange,
    Consumer,
    Offset,
    Position,
    SpoolView,
    as_offset,
    first_offset,
    groups_of,
    in_tasks,
    place_of,
    positions_of,
)

if TYPE_CHECKING:
    from spark_ingest.extents.fetching import FetchedExtents
    from spark_ingest.extents.placing import PlacedExtents
    from spark_ingest.receiver import Receiver, ReplicaClient
    from spark_ingest.schema_config import KeptSchemas

READS = "_reads"
"""In a storage the place of batch reads, no query's name. Nobody tells when they end: a rule of the bucket removes what
was put there."""
READERS_MAX = 8
"""Sets of options for which a worker process keeps opened keys: one a running query, usually."""

PLACE_EVERY_S = 1.0
"""The least time between two writes of a query's place. A place only lets segments go, and to sync it takes each
micro-batch as long as to open its rows."""

Connect: TypeAlias = "Callable[[Options], ReplicaClient]"


@dataclass
class SpoolPartition(InputPartition):
    """A task: some groups of a segment, or of several. Holds paths, numbers and names, nothing secret.

    `held`, `redriven_us`: as `RowReader.read` has them.
    """

    extents: tuple[ByteRange, ...]
    held: tuple[str, ...] | None = None
    redriven_us: int | None = None


class SpoolStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches from a spool; see the module's docstring for what runs where."""

    def __init__(self, options: Options, connect: Connect) -> None:
        self._options = options
        self._connect = connect
        self._view: SpoolView | None = None
        self._consumer: Consumer | None = None
        self._receiver: Receiver | None = None
        self._schemas: KeptSchemas | None = None
        self._target: dict[str, Position] | None = None
        self._planned: Offset | None = None
        self._owner = ""
        self._placed: PlacedExtents | None = None
        self._waiting_since: float | None = None
        self._processed: Offset | None = None
        self._place_due = 0.0
        self._handing = HandedRows(options)
        self._handed: list[Any] | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:
        """The class that Spark sees (`handing`): once, behind a plan whose rows are at hand, a reader that hands
        over.
        """
        return type(self) if self._handed is None or HandsOver is None else HandsOver

    def __getstate__(self) -> dict[str, Any]:
        """Returns the options, which are all that an executor needs."""
        return {"_options": self._options, "_connect": self._connect}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_options"], state["_connect"])  # type: ignore[misc]

    # ---------------------------------------------------------------------------------------- in the driver

    def initialOffset(self) -> Offset:
        """Returns the oldest readable position, or the end; a query with a name is protected from there on.

        Spark asks at each start, and uses the answer only for a query without a checkpoint.
        """
        self._owner = new_owner()
        view, options = self._spool(), self._options
        asked = None if options.since_us is None and options.starting is None else _begin(view, options)
        if options.is_named:
            begin = self._open_place(self._owner).register(options.from_latest, asked)
        else:  # a query that has a checkpoint gets another place, by the token in it
            begin = asked or first_offset(view, options.from_latest)
            self._receive()
        return self._marks.stamped(begin, self._owner)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns a limit for Spark, which knows rows or bytes; ours may be both (`latestOffset`)."""
        options = self._options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        if options.min_rows is not None:
            return ReadMinRows(options.min_rows)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next micro-batch: what is synced, within max_rows_per_batch and max_bytes_per_batch.

        Spark hands back the default limit, or none at all for the trigger `once`. Raises what ended the receiver or
        has kept it from receiving for too long, BadOption for a checkpoint of another shard or under another's name.
        """
        view = self._spool()
        self._owner = owner_of(start)
        at = self._marks.positions(start)
        consumer = self._open_place(self._owner)
        consumer.needs(at, self._owner)
        self._keep_place(consumer)
        if self._target is not None and not consumer.has_committed(at, redriven_of(start)):
            # All of it was processed, and nobody tells us of the last batch otherwise.
            consumer.commit(at, redriven_of(start))
            self._processed = None
        if isinstance(limit, ReadAllAvailable):
            self._planned = view.advance(at, None, self._target)
        else:
            options = self._options
            self._planned = view.advance(at, options.max_rows, self._target, max_bytes=options.max_bytes)
            if self._target is None and self._waits(view, at):
                self._planned = as_offset(positions_of(at))
        ours = self._options.receiver
        if self._receiver is not None and self._planned.get(ours) == as_offset(positions_of(at)).get(ours):
            self._receiver.check_progress(self._options.trouble_s)  # whatever other receivers bring meanwhile
        end = self._marked(view, start, at)
        if redriven_of(end) == redriven_of(start):
            self._open_ahead(view, at, end)
        return end

    def _open_ahead(self, view: SpoolView, at: Offset, end: Offset) -> None:
        """Begins to open the rows up to `end` while Spark plans, if they will be handed over with the plan."""
        assert self._planned is not None
        if self._planned == as_offset(positions_of(at)):
            return
        planned = _planned(view, at, self._planned, self._options.partitions, self._held(end))
        if len(planned) == 1:
            self._handing.begin_opening(planned[0].extents, planned[0].held, planned[0].redriven_us)

    def _held(self, end: Offset) -> tuple[str, ...] | None:
        """Returns the keys whose rows a micro-batch passes over, None for a query that passes over none."""
        return tuple(held_of(end)) if self._holds else None

    def _marked(self, view: SpoolView, start: Offset, at: Offset) -> Offset:
        """Returns the planned end, marked with the keys that rows up to there lack, and with the rows to be read
        again.
        """
        assert self._planned is not None
        assert self._consumer is not None
        redriven = max(redriven_of(start), self._consumer.ledger.count)
        held: Sequence[str] = held_of(start) if redriven == redriven_of(start) else ()
        if self._planned != as_offset(positions_of(at)):
            held = self._missing(view.ranges(at, self._planned, 1)) if self._holds else ()
        redriven_us = self._redriven_us(view) if redriven > redriven_of(start) else 0
        return self._marks.stamped(self._planned, self._owner, held, redriven, redriven_us)

    def _redriven_us(self, view: SpoolView) -> int:
        """Returns the time of reception of the first row behind the plan, in microseconds.

        Without such a row: now, or the time of the newest planned row if receivers' clocks are fast. Micro-batches take
        rows by time of reception. So a watermark on this time drops neither rows of the redrive nor rows that follow.
        """
        now, planned = time.time(), self._planned or {}
        behind_s = max(view.age_s(planned, now).values(), default=0.0)
        return int((now - behind_s) * 1e6) if behind_s else max(int(now * 1e6), view.newest_us(planned))

    @property
    def _holds(self) -> bool:
        """True if rows without their key wait for `veilmq ingest redrive`."""
        options = self._options
        return options.on_missing_key is MissingKey.QUARANTINE and options.stream is not IngestStream.QUARANTINE

    def _missing(self, extents: Sequence[ByteRange]) -> list[str]:
        options = self._options
        grants, _ = GrantsFile(options.grants, options.grants_identity, options.more_grants).load(anew=True)
        return KeyNames().missing(groups_of(extents, options.fails_on_loss), grants)

    def _waits(self, view: SpoolView, at: Offset) -> bool:
        """Returns True while there are fewer rows than a batch should have, within the time to wait for them."""
        options = self._options
        if options.min_rows is None or view.rows_between(at, view.latest()) >= options.min_rows:
            self._waiting_since = None
            return False
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()
        if time.monotonic() - self._waiting_since < options.max_delay_s:
            return True
        self._waiting_since = None
        return False

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is synced now, and no further."""
        view = self._spool()
        self._target = positions_of(view.latest())

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """Returns the end of the synced rows by receiver, with number, bytes and age of the sealed batches that are
        behind the plan.

        It stands as `latestOffset` in the query's progress.
        """
        if self._view is None:
            return None
        latest = self._view.latest()
        left = self._view.sizes_between(self._planned or {}, latest)
        lost = self._view.lost
        ages = self._view.age_s(self._planned or {}, time.time())
        return {
            name: {**at, "sealed_batches_behind": left[name].sealed_batches, "bytes_behind": left[name].bytes}
            | {"seconds_behind": round(ages.get(name, 0.0), 3)}
            | ({"lost": lost[name]} if lost[name] else {})
            for name, at in latest.items()
        } or None

    def partitions(self, start: Offset, end: Offset) -> Sequence[SpoolPartition]:
        """About `partitions` tasks over the groups in (start, end]. Raises SpoolGap if they are gone, BadOption."""
        view, consumer = self._spool(), self._open_place(owner_of(end))
        before, after = self._marks.positions(start), self._marks.positions(end)
        if owner_of(start) != owner_of(end):  # the first batch once more: Spark asked for its begin anew
            before = consumer.protected_position() or before
        consumer.needs(before, owner_of(end), claim=True)
        held = self._held(end)
        parts = self._options.partitions
        planned = [] if before == after else _planned(view, before, after, parts, held)
        if held and before != after:
            consumer.hold_batch(before, after, held, redriven_of(end))
        for each in consumer.ledger.between(redriven_of(start), redriven_of(end)):
            planned += _planned(view, as_offset(each.begin), as_offset(each.end), parts, each.keys, redriven_us_of(end))
        if not self._options.fails_on_loss:
            view.look_for_damage(extent for each in planned for extent in each.extents)
        if self._placed is None:
            self._placed = _placing(self._options)
        if self._placed is not None:
            self._placed.remove_behind(positions_of(before))
            self._placed.place(extent for each in planned for extent in each.extents)
        if len(planned) == 1:
            self._handed = self._handing.read(planned[0].extents, planned[0].held, planned[0].redriven_us)
        return planned

    def getCache(self, _start: Offset, _end: Offset) -> Iterator[Any] | None:
        """Returns the rows of the newest plan, if they are at hand; Spark asks its simple readers so."""
        handed, self._handed = self._handed, None
        if handed is None or self._options.otlp is None:
            return None if handed is None else iter(handed)
        return _told(iter(handed), self._options)

    def commit(self, end: Offset) -> None:
        """Rows up to `end` are in the sink: segments behind every consumer go, within `PLACE_EVERY_S`."""
        self._spool()
        self._processed = end
        self._keep_place(self._open_place(owner_of(end)))

    def _keep_place(self, consumer: Consumer) -> None:
        """Writes down which rows are processed, if that is due."""
        if self._processed is not None and time.monotonic() >= self._place_due:
            consumer.commit(self._marks.positions(self._processed), redriven_of(self._processed))
            self._processed, self._place_due = None, time.monotonic() + PLACE_EVERY_S

    def stop(self) -> None:
        """Ends the receiver, when Spark calls it at all."""
        if self._receiver is not None:
            self._receiver.stop()
            self._receiver = None
        if self._consumer is not None:
            self._consumer.detach()
            self._consumer = None
        self._handing.close()

    def _spool(self) -> SpoolView:
        """Returns the view of the spool, made at the first call."""
        options = self._options
        if self._view is None:
            lossy = not options.fails_on_loss
            self._view = SpoolView(options.spool, lossy=lossy)
            self._marks = OffsetMarks(self._view, options.parts, lossy=lossy)
        return self._view

    def _open_place(self, owner: str) -> Consumer:
        """Takes the query's place in the spool and starts the receiver, at the first call; returns the place.

        `owner`: the token of the checkpoint, which tells the places of queries without a name apart.
        """
        options, view = self._options, self._spool()
        if self._consumer is None:
            if not options.is_named:
                options = self._options = replace(options, consumer=place_of(options.consumer, owner))
            keep_s = None if options.is_named else UNNAMED_KEPT_S
            consumer = Consumer(options.spool, options.consumer, view, options.retain_s, keep_s)
            consumer.attach()
            self._consumer = consumer
        self._receive()
        return self._consumer

    def _receive(self) -> None:
        """Starts the receiver if options ask for one and it does not run yet; a running one's schemas are followed."""
        options = self._options
        if options.receives and self._receiver is None:
            # Executors import this module and never receive: they do without the gateway's half.
            from spark_ingest.receiver import Receiver, ReceiverSettings  # noqa: PLC0415

            if options.schemas is not None:
                from spark_ingest.schema_config import KeptSchemas  # noqa: PLC0415  the same

                self._schemas = KeptSchemas(options.schemas, options.spool)
                self._schemas.keep_schemas()
            self._receiver = Receiver(ReceiverSettings.from_options(options), lambda: self._connect(options))
            self._receiver.start()
        elif self._schemas is not None:
            self._schemas.renew_schemas()

    # -------------------------------------------------------------------------------------- in an executor

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Record batches of a task."""
        return _read(self._options, partition)


class SpoolReader(DataSourceReader):
    """`spark.read.format("veilmq")`: everything that is synced when the query is planned; trims nothing.

    It takes no filters (`pushFilters`): Spark 4.3 keeps what a source narrowed for a scan and reads no more for the
    next one over the same frame, which then lacks rows. Options narrow: topic, columns, beginning and end.
    """

    def __init__(self, options: Options) -> None:
        self._options = replace(options, consumer=READS) if options.places else options

    def partitions(self) -> Sequence[InputPartition]:
        """About `partitions` tasks over what options say of the spool, by default all of it."""
        options = self._options
        view = SpoolView(options.spool, lossy=not options.fails_on_loss)
        target = None
        if options.ending is not None:
            target = dict(options.ending)
        elif options.until_us is not None:
            target = positions_of(view.until(options.until_us))
        start = _begin(view, options)
        planned = _planned(view, start, view.advance(start, None, target), options.partitions)
        placed = _placing(options)
        if placed is not None:
            placed.place(extent for each in planned for extent in each.extents)
        return planned

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Record batches of a task."""
        if not isinstance(partition, SpoolPartition):
            return iter(())  # Spark's placeholder for an empty spool
        return _read(self._options, partition)


def _placing(options: Options) -> PlacedExtents | None:
    if not options.places:
        return None
    from spark_ingest.extents.placing import PlacedExtents  # noqa: PLC0415  loads what speaks to storages

    return PlacedExtents(options)


def _begin(view: SpoolView, options: Options) -> Offset:
    """Returns the position at which reading begins by the options."""
    if options.starting is not None:
        return as_offset(dict(options.starting))
    return view.earliest() if options.since_us is None else view.since(options.since_us)


def _planned(
    view: SpoolView,
    start: Offset,
    end: Offset,
    parts: int,
    held: tuple[str, ...] | None = None,
    redriven_us: int | None = None,
) -> list[SpoolPartition]:
    return [SpoolPartition(extents, held, redriven_us) for extents in in_tasks(view.ranges(start, end, parts), parts)]


class _Reading(NamedTuple):
    """The objects a worker process keeps for a set of options. `fetched`: the rows coming over the network, if any."""

    rows: RowReader
    fetched: FetchedExtents | None


_readings: OrderedDict[Options, _Reading] = OrderedDict()


def _read(options: Options, partition: InputPartition) -> Iterator[Any]:
    """Keeps opened data keys over the tasks of a reused worker process."""
    if not isinstance(partition, SpoolPartition):
        raise IngestError("this partition is none of a veilmq source")
    if not _readings:
        # A worker collects garbage after each task, which takes as long as opening 20,000 rows if it looks at all
        # that the modules above are made of.
        gc.freeze()
    reading = _readings.get(options)
    if reading is None:
        reading = _readings[options] = _reading(options)
        if len(_readings) > READERS_MAX:
            _, oldest = _readings.popitem(last=False)
            if oldest.fetched is not None:
                oldest.fetched.close()
    if reading.fetched is None:
        found = reading.rows.read(*partition.extents, held=partition.held, redriven_us=partition.redriven_us)
    else:
        found = _read_fetched(reading.rows, reading.fetched, partition)
    return found if options.otlp is None else _told(found, options)


def _told(batches: Iterator[Any], options: Options) -> Iterator[Any]:
    """Yields the batches of a task, and tells a collector of their rows. Raises IngestError without its libraries."""
    try:
        from spark_ingest.source.row_spans import RowSpans  # noqa: PLC0415  few have OpenTelemetry
    except ImportError:
        raise IngestError("otlp: opentelemetry is missing here; pip install 'veilmq[otel]'") from None
    assert options.otlp is not None
    spans = RowSpans(options.otlp, options.consumer)
    try:
        for batch in batches:
            spans.make_spans(batch)
            yield batch
    finally:
        spans.close()


def _reading(options: Options) -> _Reading:
    if options.extents is None:
        return _Reading(RowReader(options), None)
    from spark_ingest.extents.fetching import FetchedExtents  # noqa: PLC0415  loads Flight, which few use

    fetched = FetchedExtents(options)
    return _Reading(RowReader(fetched.options), fetched)


def _read_fetched(rows: RowReader, fetched: FetchedExtents, partition: SpoolPartition) -> Iterator[Any]:
    fetched.renew_grants()
    with fetched.held_copies(partition.extents) as extents:
        yield from rows.read(*extents, held=partition.held, redriven_us=partition.redriven_us)
