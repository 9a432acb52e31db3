"""The Spark process of `veilmq demo`: three queries over one spool, as an application would write them.

    sink           every telemetry row, by publisher and sequence, into SQLite: what the table counts at the end
    windows        mean, least and greatest value of each sensor in five seconds, printed as they come
    availability   how many entities are online

Events go to standard output as JSON lines: `ready` with the first row, `rows`, `window`, `entities`, `trouble`.
Runs until `stop` or the end of standard input. The demonstration itself is `gateway/demo`, which starts this:

    python -m spark_ingest.demo --identity DIR --overlay FILE --grants FILE --work DIR --sink FILE
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from .errors import IngestError
from .session import spark_session

CORES = 2
TRIGGER = "1 second"
WINDOW = "5 seconds"
WATERMARK = "10 seconds"
PROBE = "probe-"
"""Ids of messages that only find out whether the way is open; they are rows, but counted nowhere."""
BAD_INPUT = 2
WINDOWS_SHOWN = 3
TOLD_S = 5.0
"""After a failure: so long the starter may take to read of it."""
_PYTHON_ERROR = re.compile(r"(?!org\.|java|py4j)[\w.]+(Error|Exception|Gap|Busy|Damaged|Option|Java): ")

_TABLES = """
CREATE TABLE IF NOT EXISTS telemetry (
    batch INTEGER NOT NULL, publisher TEXT NOT NULL, sequence INTEGER NOT NULL,
    id TEXT, topic TEXT NOT NULL, digest TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_batch ON telemetry (batch);
"""


def emit(event: str, **fields: Any) -> None:
    """Tell the starter something."""
    print(json.dumps({"event": event, **fields}, separators=(",", ":")), flush=True)


class Sink:
    """Rows by micro-batch: a batch that Spark repeats replaces its first attempt, nothing else is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ready = False
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.executescript(_TABLES)

    def write(self, rows: Any, batch: int) -> None:
        """For `foreachBatch`: in the driver, in one transaction."""
        from pyspark.sql import functions as f  # noqa: PLC0415  heavy, and absent without the extra

        text = f.col("payload").cast("string")
        chosen = rows.select(
            "publisher", "sequence", f.get_json_object(text, "$.id").alias("id"), "topic",
            f.sha2("payload", 256).alias("digest"),
        )  # fmt: skip
        found = [(batch, *row) for row in chosen.collect()]
        with closing(sqlite3.connect(self._path)) as database, database:
            database.execute("DELETE FROM telemetry WHERE batch = ?", (batch,))
            database.executemany("INSERT INTO telemetry VALUES (?, ?, ?, ?, ?, ?)", found)
        with closing(sqlite3.connect(self._path)) as database:
            (count,) = database.execute(
                "SELECT COUNT(DISTINCT id) FROM telemetry WHERE id NOT LIKE ?", (f"{PROBE}%",)
            ).fetchone()
        if found and not self._ready:
            self._ready = True
            emit("ready")
        emit("rows", count=count)


def windows(rows: Any) -> Any:
    """Per sensor and window: mean, least, greatest value and how many. `payload` is the demo's JSON."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    text = f.col("payload").cast("string")
    readings = rows.select(
        "published_at",
        f.get_json_object(text, "$.sensor").alias("sensor"),
        f.get_json_object(text, "$.unit").alias("unit"),
        f.get_json_object(text, "$.value").cast("double").alias("value"),
    ).where("sensor IS NOT NULL")
    return (
        readings.withWatermark("published_at", WATERMARK)
        .groupBy(f.window("published_at", WINDOW).alias("window"), "sensor", "unit")
        .agg(
            f.avg("value").alias("mean"),
            f.min("value").alias("least"),
            f.max("value").alias("greatest"),
            f.count("value").alias("n"),
        )
    )


def show_windows(rows: Any, batch: int) -> None:
    """For `foreachBatch`: a few lines for people, busiest cores first."""
    found = rows.orderBy("window", "sensor").limit(WINDOWS_SHOWN).collect()
    lines = [
        f"{row.window.start:%H:%M:%S} {row.sensor}: mean {row['mean']:,.1f} {row.unit}, "
        f"{row.least:,.1f} to {row.greatest:,.1f}, {row.n} readings"
        for row in found
    ]
    if lines:
        emit("window", batch=batch, rows=lines)


class Entities:
    """The newest state of each entity, over all batches."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], tuple[int, str]] = {}

    def take(self, rows: Any, batch: int) -> None:
        """For `foreachBatch`. Within a gateway the sequence tells which state is newer."""
        for row in rows.select("gateway", "entity", "sequence", "state").collect():
            key = (row.gateway, row.entity)
            if row.sequence >= self._states.get(key, (0, ""))[0]:
                self._states[key] = (row.sequence, row.state)
        online = sum(state == "online" for _, state in self._states.values())
        emit("entities", batch=batch, online=online, known=len(self._states))


def start(spark: Any, told: argparse.Namespace) -> Sequence[Any]:
    """Start the queries. The sink's source receives for all three; the others read the same spool."""
    from .source import register  # noqa: PLC0415

    register(spark)
    work: Path = told.work

    def stream(consumer: str, **options: str) -> Any:
        reader = spark.readStream.format("veilmq").option("spool", str(work / "spool"))
        common = {"grants": str(told.grants), "consumer": consumer, "availability": told.availability}
        return reader.options(**common, **options).load()

    def query(name: str, rows: Any, write: Any, mode: str = "append") -> Any:
        writer = rows.writeStream.foreachBatch(write).outputMode(mode).queryName(name)
        return writer.option("checkpointLocation", str(work / f"checkpoint-{name}")).trigger(
            processingTime=TRIGGER
        ).start()  # fmt: skip

    sink, entities = Sink(told.sink), Entities()
    receives = {"identity": str(told.identity), "overlay": str(told.overlay), "topics": told.telemetry}
    return [
        query("sink", stream("sink", **receives), sink.write),
        query("windows", windows(stream("windows", topics=told.telemetry)), show_windows, "update"),
        query("availability", stream("availability", stream="availability"), entities.take),
    ]


def _wait_for_stop(stopped: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "stop":
            break
    stopped.set()


def _cause(failure: str) -> str:
    """One line of a query's failure: the last Python error in it, else its first line."""
    lines = failure.split("JVM stacktrace", maxsplit=1)[0].splitlines()
    errors = [line for line in lines if _PYTHON_ERROR.match(line)]
    return (errors or lines or ["unknown"])[-1 if errors else 0]


def main() -> int:
    """Exit status: 0 stopped, 1 a query failed, 2 something is missing here."""
    parser = argparse.ArgumentParser(description="Spark's part of the demonstration.")
    for name in ("identity", "overlay", "grants", "work", "sink"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--telemetry", default="machine/#")
    parser.add_argument("--availability", default="entities/#")
    told = parser.parse_args()
    stopped = threading.Event()
    threading.Thread(target=_wait_for_stop, args=(stopped,), daemon=True).start()
    try:
        told.work.mkdir(mode=0o700, parents=True, exist_ok=True)
        spark = spark_session("veilmq demo", CORES)
    except ModuleNotFoundError as error:
        print(f"veilmq: {error}; pip install 'veilmq[spark]'", file=sys.stderr)
        return BAD_INPUT
    except (IngestError, OSError) as error:
        print(f"veilmq: {error}", file=sys.stderr)
        return BAD_INPUT
    try:
        _run(start(spark, told), stopped)
    except Exception as error:  # noqa: BLE001  whatever Spark raises: one line for people, all of it in the log
        print(error, file=sys.stderr)
        emit("trouble", text=_cause(str(error)))
        stopped.wait(TOLD_S)
        return 1
    spark.stop()
    return 0


def _run(queries: Sequence[Any], stopped: threading.Event) -> None:
    """Until `stopped`. Raises what ended a query."""
    while not stopped.wait(0.5):
        for query in queries:
            failure = query.exception()
            if failure is not None:
                raise failure


if __name__ == "__main__":
    sys.exit(main())
