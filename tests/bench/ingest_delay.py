"""From a device's PUBLISH to the row in the application's hands: `python -m tests.bench.ingest_delay`, the Spark part.

A query on a real region receives and hands each micro-batch to Python, as fast as triggers follow each other; each
row carries the time at which it was sent. Beside it, in the same process:

floor    micro-batches of one row out of Spark's own `rate-micro-batch` source, before anything else runs
clock    rows of a Python source that makes one a millisecond, from then to the application, while the region
         carries as much, and a receiver as a process of its own takes it: the same load, and nothing to open
socket   lines that a process sends, one a millisecond, into the JVM's own socket source, under the same load
stages   where the time between a device and the application goes, and what each call of our reader takes
         (`ingest_calls`); `apart`: the receiver is a process of its own in our query, too, as `veilmq ingest receive`

Reads {"options", "session", "seconds", "rate"} as JSON from the command line. It tells `ready` with the first row; a
line on standard input ends our query and begins the peers; the last line that it tells has the figures.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from spark_ingest import spark_session
from spark_ingest.options import parse_options
from tests.bench.ingest_calls import CALLS, Taken, TimedSource, calls_ms, read_calls, stages_ms

FLOOR_BATCHES = 60
SETTLED_BATCHES = 3
PATIENCE_S = 120.0
RECEIVE = "receive"
PARTS = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
STAMPS = pa.schema([("stamp", pa.float64())])


class Milliseconds(InputPartition):
    """From one to another, since 1970."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, end


class ClockReader(DataSourceStreamReader):
    """Begins where it is started."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802, RUF100
        """Now."""
        return {"ms": int(time.time() * 1000)}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802, RUF100
        """Now."""
        return self.initialOffset()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One task."""
        return [Milliseconds(start["ms"], end["ms"])]

    def read(self, partition: Any) -> Iterator[Any]:
        """When each row was made, in seconds."""
        stamps = [ms / 1000 for ms in range(partition.begin + 1, partition.end + 1)]
        yield pa.RecordBatch.from_arrays([pa.array(stamps, pa.float64())], schema=STAMPS)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept."""


class Clock(DataSource):
    """A row a millisecond: what a Python source costs that has nothing to do."""

    @classmethod
    def name(cls) -> str:
        """For `format`."""
        return "clock"

    def schema(self) -> str:
        """One column."""
        return "stamp double"

    def streamReader(self, schema: Any) -> ClockReader:
        """For `readStream`."""
        return ClockReader()


def floor(spark: Any) -> tuple[list[float], dict[str, float]]:
    """How long micro-batches with one row take, and their parts."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format("rate-micro-batch")
            .options(rowsPerBatch=1)
            .load()
            .writeStream.foreachBatch(lambda rows, _: rows.collect())
            .option("checkpointLocation", checkpoint)
            .start()
        )
        while len(query.recentProgress) < FLOOR_BATCHES:
            time.sleep(0.1)
        took = took_ms(query), parts_ms(query)
        query.stop()
    return took


def took_ms(query: Any) -> list[float]:
    """Of its last hundred micro-batches that had rows, but for the first."""
    progress = [each for each in query.recentProgress if each.numInputRows]
    return [float(each.durationMs["triggerExecution"]) for each in progress[2:]]


def parts_ms(query: Any) -> dict[str, float]:
    """What Spark says that a micro-batch spends on: medians. `addBatch` has our rows opened and the application."""
    progress = [each.durationMs for each in query.recentProgress if each.numInputRows][2:]
    return {part: statistics.median(each.get(part, 0) for each in progress) for part in PARTS} if progress else {}


def delays_of(rows: Any, column: str, seconds: float) -> list[float]:
    """Of a peer's rows in so many seconds, from their making to the application, once it runs."""
    found: list[float] = []
    batches = [0]

    def take(batch: Any, _: int) -> None:
        stamps = [float(row[0]) for row in batch.select(column).collect()]
        now = time.time()
        batches[0] += bool(stamps)
        if batches[0] > SETTLED_BATCHES:
            found.extend(now - stamp for stamp in stamps)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        query = rows.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).start()
        give_up = time.monotonic() + PATIENCE_S
        while not found:
            assert query.isActive, query.exception()
            assert time.monotonic() < give_up, "no row comes"
            time.sleep(0.1)
        time.sleep(seconds)
        query.stop()
        query.awaitTermination(PATIENCE_S)
    return found


def send_lines(listener: socket.socket, rate: int) -> None:
    """To whoever connects, the time, so many times a second."""
    while True:
        with listener.accept()[0] as sock:
            began, number = time.perf_counter(), 0
            try:
                while True:
                    time.sleep(max(0.0, began + number / rate - time.perf_counter()))
                    sock.sendall(b"%.6f\n" % time.time())
                    number += 1
            except OSError:
                continue  # the query ended


def peers(spark: Any, told: dict[str, Any], port: int) -> dict[str, list[float]]:
    """While a process receives what the region carries."""
    with receiving(told["options"]):
        clock = delays_of(spark.readStream.format(Clock.name()).load(), "stamp", told["seconds"])
        lines = spark.readStream.format("socket").options(host="127.0.0.1", port=port).load()
        return {"clock": clock, "socket": delays_of(lines, "value", told["seconds"])}


@contextmanager
def receiving(options: dict[str, str]) -> Iterator[None]:
    """A process that receives what the region carries."""
    command = [sys.executable, "-m", "tests.bench.ingest_delay", RECEIVE, json.dumps(options)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()


def receive(options: dict[str, str]) -> None:
    """A receiver as a process of its own, until standard input ends."""
    from spark_ingest.receiver import Receiver, ReceiverSettings
    from spark_ingest.source.source import VeilMQDataSource

    parsed = parse_options(options)
    receiver = Receiver(ReceiverSettings.of(parsed), lambda: VeilMQDataSource.connect(parsed))
    receiver.start()
    sys.stdin.read()
    receiver.stop()


def taking(taken: list[Taken], since: float) -> Callable[[Any, int], None]:
    """Of a micro-batch, the rows of what was sent since then."""
    told = threading.Event()

    def take(rows: Any, _: int) -> None:
        found = rows.selectExpr("payload", "cast(received_at as double) as received").collect()
        now = time.time()
        each = [Taken(float(bytes(row.payload)), row.received, now) for row in found]
        taken.extend(row for row in each if row.sent > since)
        if found and not told.is_set():
            told.set()
            print(json.dumps({"event": "ready"}), flush=True)
        elif found:
            print(json.dumps({"event": "rows", "count": len(taken)}), flush=True)

    return take


def main() -> None:
    if sys.argv[1] == RECEIVE:
        receive(json.loads(sys.argv[2]))
        return
    told = json.loads(sys.argv[1])
    options = told["options"]
    since = time.time()
    listener = socket.create_server(("127.0.0.1", 0))
    fork = multiprocessing.get_context("fork")
    sender = fork.Process(target=send_lines, args=(listener, told["rate"]), daemon=True)
    sender.start()
    directory = Path(options["spool"]).parent
    calls = directory / f"calls-{options['consumer']}.jsonl"
    os.environ[CALLS] = str(calls)
    spark = spark_session("veilmq delay", 2, told["session"])
    spark.dataSource.register(TimedSource)
    spark.dataSource.register(Clock)
    figures: dict[str, Any] = dict(zip(("floor_ms", "floor_parts_ms"), floor(spark), strict=True))
    with receiving(options) if told["apart"] else nullcontext():  # its first query waits for the file of scope keys
        taken, query_figures = ours(spark, told, since)
    figures |= query_figures
    known = [call for call in read_calls(calls) if call.begin > min(row.sent for row in taken)]
    figures |= {"stages_ms": stages_ms(known, taken), "calls_ms": calls_ms(known)}
    if not told["apart"]:
        figures |= peers(spark, told, listener.getsockname()[1])
    delays = [row.taken - row.sent for row in taken]
    print(json.dumps({"event": "end", "delays": delays, **figures}), flush=True)
    spark.stop()
    sender.terminate()


def ours(spark: Any, told: dict[str, Any], since: float) -> tuple[list[Taken], dict[str, Any]]:
    """Rows of our query until a line comes on standard input, and what Spark tells of its micro-batches."""
    options = dict(told["options"])
    if told["apart"]:
        kept = {each: options[each] for each in ("spool", "consumer", "startingOffsets")}
        options = kept | {"grants": str(parse_options(options).grants)}
    taken: list[Taken] = []
    rows = spark.readStream.format("veilmq").options(**options).load()
    with tempfile.TemporaryDirectory(dir=Path(options["spool"]).parent, ignore_cleanup_errors=True) as checkpoint:
        query = rows.writeStream.foreachBatch(taking(taken, since)).option("checkpointLocation", checkpoint).start()
        sys.stdin.readline()
        figures = {"triggers_ms": took_ms(query), "parts_ms": parts_ms(query)}
        query.stop()
        query.awaitTermination(PATIENCE_S)
    return taken, figures


if __name__ == "__main__":
    main()
