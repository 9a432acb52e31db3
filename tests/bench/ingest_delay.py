"""From a device's PUBLISH to the row in the application's hands: `python -m tests.bench.ingest_delay`, the Spark part.

A device publishes on a real region all the time; each row carries the time at which it was sent. Queries hand each
micro-batch to Python, as fast as triggers follow each other. They take turns in one session: each goes once before it
counts, every round begins with another one, and a figure is the median of its turns.

ours     the query on the region, which receives in the driver
apart    the same query; the receiver is a process of its own, as `veilmq ingest run`
socket   lines that a process sends, as often as the device, into the JVM's own socket source
clock    rows of a Python source that makes them itself, from then to the application

Whatever query runs, the region carries what the device sends, and one receiver takes it. `ingest_calls` says where the
time goes between the device and the application, and what each call of our reader takes.

Reads {"options", "session", "seconds", "rate"} as JSON from the command line; the line that it tells has the figures.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from spark_ingest import spark_session
from spark_ingest.options import parse_options
from tests.bench.ingest_calls import CALLS, Call, Taken, TimedSource, calls_ms, read_calls, stages_ms

RUNS = 3
SETTLE_S = 3.0
"""From a query's first row until it counts: by then it has caught up with what waited for it."""
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


@dataclass
class Turn:
    """What a query did in its turn: its rows, its micro-batches with rows, and when that was, in seconds since 1970."""

    rows: list[Taken]
    progress: list[Any]
    begin: float
    end: float

    @property
    def delays_ms(self) -> list[float]:
        """Returns the delays of the rows, sorted."""
        return sorted((row.taken - row.sent) * 1000 for row in self.rows)

    @property
    def triggers_ms(self) -> list[float]:
        """Returns how long micro-batches took, sorted."""
        return sorted(float(each.durationMs["triggerExecution"]) for each in self.progress)


@dataclass(frozen=True)
class Way:
    """A query by what it reads: columns are the time of sending, as a number or as text, and that of reception."""

    rows: Callable[[], Any]
    receives: bool = False


def turn(way: Way, seconds: float, directory: Path) -> Turn:
    """Runs a query until it has counted for so many seconds."""
    found: list[Taken] = []
    first = threading.Event()

    def take(batch: Any, _: int) -> None:
        rows = batch.collect()
        now = time.time()
        found.extend(Taken(float(sent), received, now) for sent, received in rows)
        if rows:
            first.set()

    with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as checkpoint:
        query = way.rows().writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).start()
        give_up = time.monotonic() + PATIENCE_S
        while not first.wait(0.1):
            assert query.isActive, query.exception()
            assert time.monotonic() < give_up, "no row comes"
        time.sleep(SETTLE_S)
        begin, batch = time.time(), int(query.lastProgress.batchId)
        time.sleep(seconds)
        end = time.time()
        progress = [each for each in query.recentProgress if each.batchId > batch and each.numInputRows]
        query.stop()
        query.awaitTermination(PATIENCE_S)
    return Turn([row for row in found if begin <= row.taken < end], progress, begin, end)


def in_turns(ways: dict[str, Way], seconds: float, options: dict[str, str]) -> dict[str, list[Turn]]:
    """Returns the turns that count, by way."""
    turns: dict[str, list[Turn]] = {name: [] for name in ways}
    directory, names = Path(options["spool"]).parent, list(ways)
    for run in range(1 + RUNS):
        for name in names[run % len(names) :] + names[: run % len(names)]:
            with nullcontext() if ways[name].receives else receiving(options):
                found = turn(ways[name], seconds, directory)
            if run:
                turns[name].append(found)
    return turns


def figures_of(turns: Sequence[Turn]) -> dict[str, Any]:
    """Returns the medians of turns: p50 and p99 of delays and of micro-batches, in milliseconds, and a micro-batch by
    its parts. Of these `addBatch` has the application, and our rows opened."""
    of = {"p": [each.delays_ms for each in turns], "batch_p": [each.triggers_ms for each in turns]}
    figures: dict[str, Any] = {
        f"{name}{at}": statistics.median(values[len(values) * at // 100] for values in each)
        for name, each in of.items()
        for at in (50, 99)
    }
    told = [each.durationMs for found in turns for each in found.progress]
    return figures | {"parts_ms": {part: statistics.median(each.get(part, 0) for each in told) for part in PARTS}}


def within(calls: Sequence[Call], turns: Sequence[Turn]) -> list[Call]:
    """Returns the calls of these turns, from when they settle on: the first rows that count were planned by then."""
    return [call for call in calls if any(each.begin - SETTLE_S <= call.begin < each.end for each in turns)]


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
    receiver = Receiver(ReceiverSettings.from_options(parsed), lambda: VeilMQDataSource.connect(parsed))
    receiver.start()
    sys.stdin.read()
    receiver.stop()


def ways_of(spark: Any, options: dict[str, str], port: int) -> dict[str, Way]:
    """Returns the queries by name. `port`: where lines come from."""

    def ours(told: dict[str, str]) -> Any:
        rows = spark.readStream.format("veilmq").options(**told).load()
        return rows.selectExpr("payload", "cast(received_at as double) AS received")

    def peer(name: str, column: str, **told: Any) -> Any:
        return spark.readStream.format(name).options(**told).load().selectExpr(column, "0D AS received")

    apart = {"spool": options["spool"], "startingOffsets": "latest", "grants": str(parse_options(options).grants)}
    return {
        "ours": Way(lambda: ours(options), receives=True),
        "apart": Way(lambda: ours(apart)),
        "socket": Way(lambda: peer("socket", "value", host="127.0.0.1", port=port)),
        "clock": Way(lambda: peer(Clock.name(), "stamp")),
    }


def main() -> None:
    if sys.argv[1] == RECEIVE:
        receive(json.loads(sys.argv[2]))
        return
    told = json.loads(sys.argv[1])
    options = told["options"]
    listener = socket.create_server(("127.0.0.1", 0))
    fork = multiprocessing.get_context("fork")
    sender = fork.Process(target=send_lines, args=(listener, told["rate"]), daemon=True)
    sender.start()
    calls = Path(options["spool"]).with_name("calls.jsonl")
    os.environ[CALLS] = str(calls)
    spark = spark_session("veilmq delay", 2, told["session"])
    spark.dataSource.register(TimedSource)
    spark.dataSource.register(Clock)
    turns = in_turns(ways_of(spark, options, listener.getsockname()[1]), told["seconds"], options)
    known = within(read_calls(calls), turns["ours"])
    rows = [row for each in turns["ours"] for row in each.rows]
    figures = {"stages_ms": stages_ms(known, rows), "calls_ms": calls_ms(known)}
    print(json.dumps({name: figures_of(found) for name, found in turns.items()} | figures), flush=True)
    spark.stop()
    sender.terminate()


if __name__ == "__main__":
    main()
