"""The Spark process of `veilmq demo`: three queries over a single spool, as an application would write them.

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
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spark_ingest.errors import IngestError
from spark_ingest.jobs.queries import windows
from spark_ingest.jobs.runs import cause
from spark_ingest.late_workers import PatientQuery
from spark_ingest.session import spark_session
from spark_ingest.writing import PublicationSink

CORES = 2
TRIGGER = "1 second"
TRIGGER_SLOW = "2 seconds"
"""Of the queries that people look at: with one core, three queries a second would be most of its work."""
PROBE = "probe-"
"""Ids of messages that only find out whether the way is open; they are rows, but counted nowhere."""
BAD_INPUT = 2
WINDOWS_SHOWN = 3
TOLD_S = 5.0
"""After a failure: so long the starter may take to read of it."""


def emit(event: str, **fields: Any) -> None:
    """Tell the starter something."""
    print(json.dumps({"event": event, **fields}, separators=(",", ":")), flush=True)


class DemoSink(PublicationSink):
    """The exact sink, which also tells the starter how far it is."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, id_field="id")
        self._ids: set[str] = set()
        self._ready = False

    def write(self, rows: Any, batch: int) -> None:
        super().write(rows, batch)
        arrived = list(self.arrived_in(batch))
        self._ids.update(one.id for one in arrived if one.id and not one.id.startswith(PROBE))
        if arrived and not self._ready:
            self._ready = True
            emit("ready")
        emit("rows", count=len(self._ids))


def show_windows(rows: Any, batch: int) -> None:
    """Prints a few lines of a micro-batch for people, of other sensors each time; for `foreachBatch`."""
    found = sorted(rows.collect(), key=lambda row: (row.topic, row.start))
    first = batch * WINDOWS_SHOWN % max(1, len(found))
    lines = [
        f"{row.start:%H:%M:%S} {row.topic.split('/', 2)[-1]}: mean {row['mean']:,.1f}, "
        f"{row.least:,.1f} to {row.greatest:,.1f}, {row['count']} readings"
        for row in (found[first:] + found[:first])[:WINDOWS_SHOWN]
    ]
    if lines:
        emit("window", batch=batch, rows=lines)


class Entities:
    """The newest state of each entity, over all batches."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], tuple[int, str]] = {}

    def take_batch(self, rows: Any, batch: int) -> None:
        """Takes a micro-batch; for `foreachBatch`. Within a gateway the sequence tells which state is newer."""
        for row in rows.select("gateway", "entity", "sequence", "state").collect():
            key = (row.gateway, row.entity)
            if row.sequence >= self._states.get(key, (0, ""))[0]:
                self._states[key] = (row.sequence, row.state)
        online = sum(state == "online" for _, state in self._states.values())
        emit("entities", batch=batch, online=online, known=len(self._states))


def start(spark: Any, told: argparse.Namespace) -> Sequence[PatientQuery]:
    """Starts the three queries of the demo: sink, windows, availability. The source of the sink receives from the
    replicas; the other two read the spool that the sink fills.
    """
    from spark_ingest.source.source import register  # noqa: PLC0415

    register(spark)
    work: Path = told.work

    def stream(consumer: str, **options: str) -> Any:
        reader = spark.readStream.format("veilmq").option("spool", str(work / "spool"))
        common = {"grants": str(told.grants), "consumer": consumer, "availability": told.availability}
        return reader.options(**common, **options).load()

    def query(name: str, rows: Any, write: Any, mode: str = "append", trigger: str = TRIGGER_SLOW) -> PatientQuery:
        writer = rows.writeStream.foreachBatch(write).outputMode(mode).queryName(name)
        writer = writer.option("checkpointLocation", str(work / f"checkpoint-{name}"))
        return PatientQuery(writer.trigger(processingTime=trigger).start)

    sink, entities = DemoSink(told.sink), Entities()
    receives = {"identity": str(told.identity), "overlay": str(told.overlay), "topics": told.telemetry}
    return [
        query("sink", stream("sink", **receives), sink.write, trigger=TRIGGER),
        query("windows", windows(stream("windows", topics=told.telemetry)), show_windows, "update"),
        query("availability", stream("availability", stream="availability"), entities.take_batch),
    ]


def _wait_for_stop(stopped: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "stop":
            break
    stopped.set()


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
        emit("trouble", text=cause(str(error)))
        stopped.wait(TOLD_S)
        return 1
    spark.stop()
    return 0


def _run(queries: Sequence[PatientQuery], stopped: threading.Event) -> None:
    """Looks after the queries until `stopped`. Raises the error that ended a query."""
    while not stopped.wait(0.5):
        for query in queries:
            query.ended(0.001)


if __name__ == "__main__":
    sys.exit(main())
