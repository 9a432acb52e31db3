"""`veilmq ingest jobs`: runs a ready-made job over a spool and prints tables, or JSON lines.

A streaming job goes on until Ctrl-C and prints the changes. With `once`, and for jobs that need all rows, the command
reads the present content of the spool. It keeps no checkpoint: a stream begins at the oldest row, and its place in
the spool, which would keep rows from being trimmed, is forgotten at the end. Not here: the queries themselves
(`jobs`).

Numbers that `windows` left out because they came too late: the numbers read, less the numbers in windows.

Rows of a spool that a stopped job has not shown: those behind the end of its last finished micro-batch.
"""

# ruff: noqa: PLC0415  Spark takes a second to import

from __future__ import annotations

import base64
import json
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from spark_ingest.errors import BadOption, IngestError
from spark_ingest.jobs import queries as jobs
from spark_ingest.jobs.queries import NUMBERS
from spark_ingest.late_workers import PatientQuery
from spark_ingest.options import IngestStream, Options, parse_options
from spark_ingest.schema_config import opened_schemas
from spark_ingest.secrets import read_grants
from spark_ingest.spool import CONSUMERS, RECEIVER_NAME, SpoolView, forget


def unread_sealed_batches(spool: Path, progress: Sequence[Any]) -> int:
    """Returns the number of sealed batches that no finished micro-batch has read.

    `progress`: StreamingQueryProgress objects of a query over the spool, the newest last; none: nothing is read.
    """
    end = progress[-1].sources[0].endOffset if progress else None
    read = json.loads(end) if end else {}
    view = SpoolView(spool, lossy=True)
    return view.rows_between({name: at for name, at in read.items() if RECEIVER_NAME.fullmatch(name)}, view.latest())


BATCHES_MAX = 1_000
"""Micro-batches whose windows wait for Spark's progress; it follows at once."""


class LateNumbers:
    """A counter over the micro-batches of a query. Not for several threads at once."""

    def __init__(self) -> None:
        self.read = 0
        """Numbers read, of micro-batches whose windows and progress are both there."""
        self.left_out = 0
        self._windows: dict[tuple[datetime, str], tuple[datetime, int]] = {}
        self._counted: dict[int, int] = {}

    def count_windows(self, batch: int, windows: Iterable[Mapping[str, Any]]) -> None:
        """Takes the changed windows of a micro-batch; a batch that comes again changes nothing."""
        more = 0
        for each in windows:
            key = (each["start"], each["topic"])
            more += each["count"] - self._windows.get(key, (each["end"], 0))[1]
            self._windows[key] = (each["end"], each["count"])
        self._counted[batch] = self._counted.get(batch, 0) + more
        while len(self._counted) > BATCHES_MAX:
            del self._counted[next(iter(self._counted))]

    def progress(self, told: Iterable[Any]) -> None:
        """Takes StreamingQueryProgress objects, which may come again."""
        for each in told:
            if each.batchId not in self._counted or NUMBERS not in each.observedMetrics:
                continue
            rows = int(each.observedMetrics[NUMBERS]["rows"])
            self.read += rows
            self.left_out += rows - self._counted.pop(each.batchId)
            self._forget_closed(each.eventTime.get("watermark"))

    def _forget_closed(self, watermark: str | None) -> None:
        """Drops windows that ended before the watermark: nothing is added to them."""
        if watermark is not None:
            until = datetime.fromisoformat(watermark).replace(tzinfo=None)
            self._windows = {key: known for key, known in self._windows.items() if known[0] > until}


SHOWN_MAX = 1_000
"""Rows of one table for people; JSON has all."""
TRIGGER = "2 seconds"
LOOK_S = 0.5
TWICE = 1
"""Exit status of `late` when a publication came twice."""
_DURATION = re.compile(r"[1-9][0-9]{0,5} (millisecond|second|minute|hour|day)s?")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_PYTHON_ERROR = re.compile(r"(?!org\.|java|py4j)[\w.]+(Error|Exception|Gap|Busy|Damaged|Option|Java): ")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of a job. Durations in Spark's words, such as `10 seconds`."""

    window: str = jobs.DEFAULT_WINDOW
    watermark: str = jobs.DEFAULT_WATERMARK
    field: str = jobs.DEFAULT_FIELD
    late_after: str = jobs.DEFAULT_LATE_AFTER
    entity_level: int = jobs.DEFAULT_ENTITY_LEVEL
    schemas: Path | None = None
    """A YAML file of schemas, or a spool with schemas."""
    schema: str | None = None
    """The name of a schema; None: the only schema."""

    def check_settings(self) -> None:
        """Raises BadOption."""
        for name, value in (("window", self.window), ("watermark", self.watermark), ("late-after", self.late_after)):
            if not _DURATION.fullmatch(value):
                raise BadOption(f"--{name} {value!r} is no duration; write e.g. --{name} '10 seconds'")
        if not _FIELD.fullmatch(self.field):
            raise BadOption(f"--field {self.field!r} is no field of a JSON object; write e.g. --field motor.rpm")


Rows = Callable[[IngestStream], Any]


@dataclass(frozen=True, slots=True)
class Job:
    """`made`: its table from the rows of streams. `stream`: its input stream, None if the job needs all rows at once.

    `shown`: the table that is printed, of the made one or of each of its micro-batches. `mode`: output mode of the
    stream. `counts_late`: whether it is a table of windows that leave out late numbers.
    """

    told: str
    made: Callable[[Rows, RunSettings], Any]
    order: tuple[str, ...]
    stream: IngestStream | None = None
    mode: str = "update"
    shown: Callable[[Any, RunSettings], Any] = lambda table, _: table
    counts_late: bool = False


def _timeline(rows: Rows, settings: RunSettings) -> Any:
    """Intervals with the number of telemetry rows that were published meanwhile."""
    from pyspark.sql import functions as f

    intervals = jobs.timeline(rows(IngestStream.AVAILABILITY)).cache()
    key = ["gateway", "entity", "since"]
    meanwhile = jobs.during(rows(IngestStream.TELEMETRY), intervals, settings.entity_level).groupBy(*key).count()
    counted = intervals.join(meanwhile, key, "left").withColumn("rows", f.coalesce("count", f.lit(0)))
    return counted.select("gateway", "entity", "state", "since", "until", "seconds", "rows")


def _typed(rows: Any, settings: RunSettings) -> Any:
    """Returns telemetry with the columns that a schema has now, also with columns of a moment ago."""
    from spark_ingest.typed import typed_streams

    rows = rows.select("published_at", "topic", "publisher", "payload")
    named = typed_streams(rows, str(settings.schemas))
    table = named[_chosen(named, settings.schema)]
    return table.drop("row_payload" if "row_payload" in table.columns else "payload")


def _chosen(named: Collection[str], schema: str | None) -> str:
    """Returns the name of a schema. Raises BadOption."""
    if schema is None and len(named) == 1:
        return next(iter(named))
    if schema is None or schema not in named:
        raise BadOption(f"--schema NAME says which; known are {', '.join(named)}")
    return schema


JOBS = {
    "windows": Job(
        "count, mean, least and greatest value of each topic in windows of time",
        lambda rows, told: jobs.windows(rows(IngestStream.TELEMETRY), told.window, told.watermark, told.field),
        ("start", "topic"),
        IngestStream.TELEMETRY,
        counts_late=True,
    ),
    "late": Job(
        "how late telemetry came, by publisher, and duplicates, of which there must be none",
        lambda rows, told: jobs.late(rows(IngestStream.TELEMETRY), told.late_after),
        ("publisher",),
    ),
    "timeline": Job(
        "who was in which state from when until when, and telemetry rows meanwhile",
        _timeline,
        ("gateway", "entity", "since"),
    ),
    "fleet": Job(
        "how many entities are in which state at which gateway, the worst of them, who is unseen for longest",
        lambda rows, told: jobs.entities(rows(IngestStream.AVAILABILITY)),
        ("gateway", "state"),
        IngestStream.AVAILABILITY,
        "complete",
        lambda table, _: jobs.fleet(table),
    ),
    "typed": Job(
        "telemetry with a column for each field of a schema, of the receiver's configuration or of --schemas FILE",
        lambda rows, _: rows(IngestStream.TELEMETRY),
        ("published_at",),
        IngestStream.TELEMETRY,
        "append",
        _typed,
    ),
}


def listing() -> Iterator[str]:
    """A line for each job."""
    for name, job in JOBS.items():
        yield f"{name:9} {'streams' if job.stream else 'batch':8} {job.told}"


def run_job(
    name: str,
    spool: Path,
    grants: Path,
    topics: str,
    settings: RunSettings,
    *,
    as_json: bool = False,
    once: bool = False,
) -> int:
    """Exit status 0, or 1 when `late` finds a publication twice. Raises IngestError, ModuleNotFoundError."""
    job = JOBS.get(name)
    if job is None:
        raise BadOption(f"there is no job {name!r}; known are {', '.join(JOBS)}")
    settings.check_settings()
    consumer = f"job-{name}-{os.getpid()}"
    options = {"spool": str(spool), "grants": str(grants), "topics": topics, "consumer": consumer}
    _check(parse_options(options))
    if job is JOBS["typed"]:
        _chosen(opened_schemas(settings.schemas or spool), settings.schema)
    import pyspark  # noqa: F401  a missing one is told as such

    from spark_ingest.session import spark_session
    from spark_ingest.source.source import register

    spark = spark_session(f"veilmq {name}")
    try:
        register(spark)
        if once or job.stream is None:
            return _once(spark, job, options, settings, as_json)
        with tempfile.TemporaryDirectory(prefix="veilmq-job-", ignore_cleanup_errors=True) as checkpoint:
            stopped = _stopped()
            late = LateNumbers()
            query = PatientQuery(lambda: _started(spark, job, options, settings, as_json, checkpoint, stopped, late))
            _await(query, stopped, partial(_say_late, query, late, settings))
            late.progress(query.progress)
            if late.left_out:
                _say_left_out(late, settings)
            _say_unread(name, spool, query)
    except IngestError:
        raise
    except Exception as error:  # whatever Spark raises becomes one line
        raise IngestError(cause(str(error))) from error
    finally:
        spark.stop()
        forget(spool, consumer)
        (spool / CONSUMERS / f"{consumer}.lock").unlink(missing_ok=True)  # nobody else has this name
    return 0


def cause(failure: str) -> str:
    """Returns a line about a failure: the last Python error in Spark's text, else its first line."""
    lines = failure.split("JVM stacktrace", maxsplit=1)[0].splitlines()
    errors = [line for line in lines if _PYTHON_ERROR.match(line)]
    return (errors or lines or ["unknown"])[-1 if errors else 0]


def _check(options: Options) -> None:
    """Raises BadOption or GrantsError for faults that would fail deep in Spark, or show as an empty table."""
    if not options.spool.is_dir():
        raise BadOption(f"{options.spool} is no spool; name the directory that a receiver writes")
    read_grants(options.grants)


def _once(spark: Any, job: Job, options: dict[str, str], settings: RunSettings, as_json: bool) -> int:
    def rows(stream: IngestStream) -> Any:
        return spark.read.format("veilmq").options(**options, stream=stream.value).load()

    table = job.shown(job.made(rows, settings), settings).orderBy(*job.order)
    return TWICE if _print(table, as_json) else 0


def _started(
    spark: Any,
    job: Job,
    options: dict[str, str],
    settings: RunSettings,
    as_json: bool,
    checkpoint: str,
    stopped: threading.Event,
    late: LateNumbers,
) -> Any:
    """Returns the query of a streaming job. Ctrl-C reaches Spark's workers, too: failures after `stopped` are no
    news. `late` counts the windows that it shows.
    """

    def rows(stream: IngestStream) -> Any:
        return spark.readStream.format("veilmq").options(**options, stream=stream.value).load()

    def show(table: Any, batch: int) -> None:
        table.persist()  # so that Spark works a micro-batch out once, however often it is looked at
        try:
            if job.counts_late:
                late.count_windows(batch, (row.asDict() for row in table.toLocalIterator()))
            _print(job.shown(table, settings).orderBy(*job.order), as_json)
            table.unpersist()
        except Exception:
            if not stopped.is_set():
                raise

    writer = job.made(rows, settings).writeStream.foreachBatch(show).outputMode(job.mode)
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime=TRIGGER).start()


def _stopped() -> threading.Event:
    """Set by Ctrl-C or SIGTERM."""
    stopped = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stopped.set())
    return stopped


def _say_late(query: PatientQuery, late: LateNumbers, settings: RunSettings) -> None:
    """Says how many numbers windows left out, the first time and whenever there are twice as many."""
    before = late.left_out
    late.progress(query.progress)
    if late.left_out.bit_length() > before.bit_length():
        _say_left_out(late, settings)


def _say_left_out(late: LateNumbers, settings: RunSettings) -> None:
    print(
        f"windows: left out {late.left_out} of {late.read} numbers, published more than {settings.watermark} before "
        "the newest; a longer --watermark takes them",
        file=sys.stderr,
        flush=True,
    )


def _say_unread(name: str, spool: Path, query: PatientQuery) -> None:
    """Says what a stopped job has not read, so that its last table is not taken for all of the spool."""
    count = unread_sealed_batches(spool, query.progress)
    if count:
        told = f"{name}: stopped before {count} sealed batches of the spool were read"
        print(f"{told}; a new run begins at the oldest row", file=sys.stderr, flush=True)


def _await(query: PatientQuery, stopped: threading.Event, look: Callable[[], None]) -> None:
    """Waits until the query is `stopped`, and looks now and then. Raises what ended the query before."""
    try:
        while not (stopped.is_set() or query.ended(LOOK_S)):
            look()
        query.stop()
    except Exception:
        if not stopped.is_set():
            raise


def _print(table: Any, as_json: bool) -> bool:
    """Print; whether a publication came twice."""
    if as_json:
        twice = False
        for row in table.toLocalIterator():
            twice |= bool(row.asDict().get("duplicates"))
            print(json.dumps(row.asDict(recursive=True), default=_plain), flush=True)
        return twice
    found = table.limit(SHOWN_MAX + 1).collect()
    if found:
        _show(table.columns, [row.asDict() for row in found[:SHOWN_MAX]])
    if len(found) > SHOWN_MAX:
        print(f"more than {SHOWN_MAX} rows; --json has all")
    return any(row.asDict().get("duplicates") for row in found)


def _show(columns: list[str], rows: list[dict[str, Any]]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row[column])) for column in columns))  # Text: brackets of a name are not markup
    Console().print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else str(value)


def _plain(value: object) -> str:
    """Returns a value for JSON: sessions run in UTC, and `collect` gives times without a zone."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return value.isoformat() + "Z" if isinstance(value, datetime) else str(value)
