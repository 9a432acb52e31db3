"""The shape of the model of scale on Spark's standalone cluster: `python -m tests.bench.cluster`.

Of a master's three workers of one core, 1, 2 and 3 open the rows of a spool that one receiver wrote, and of one that
ten wrote, into Spark's noop sink. The model says that a row costs executors as much however many of either there are.
So the figure is the processor time of all executors a row, behind a first reading; the wall clock is told beside it,
and the load of the machine. Then the time that the driver plans for, in micro-batches under a limit, over one and ten.
Standard error has each step with the seconds since the start.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from spark_ingest import register, spark_session
from tests.bench import ingest_growth, spools
from tests.bench.load import in_process
from tests.spark_ingest.test_clusters import standalone

WORKERS = (1, 2, 3)
RECEIVERS = (1, 10)
ROWS, MESSAGES_A_KEY, BATCH, SEGMENT_BYTES = 200_000, 1024, 64, 1 << 20
SEGMENTS = 80
"""Of a spool, however many receivers wrote it."""
READINGS = 3
CHILD_S = 900.0


BEGAN = time.monotonic()


def step(told: str) -> None:
    """Says on standard error how far the bench is."""
    print(f"{time.monotonic() - BEGAN:6.0f} s  {told}", file=sys.stderr, flush=True)


def executors_s(driver: str) -> float:
    """Returns the processor time of a driver's executors and their Python workers, in seconds. `driver`: its address,
    as executors are told it."""
    spent = 0.0
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or ()
        if any(word.endswith("CoarseGrainedExecutorBackend") for word in words) and any(
            driver in word for word in words
        ):
            for each in (process, *process.children(recursive=True)):
                times = each.cpu_times()
                spent += times.user + times.system + times.children_user + times.children_system
    return spent


def readings(master: str, told: dict[int, dict[str, str]], workers: int) -> list[dict[str, Any]]:
    """Returns a line for each spool: processor time of a row in µs and rows a second, medians of several readings.

    `told`: options by the number of receivers. One session reads all of them, for its start is what takes long: so
    many JVMs and Python workers begin at once. One reading, which counts the rows, goes before.
    """
    settings = {
        "spark.master": master, "spark.executor.cores": "1", "spark.executor.memory": "600m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        "spark.cores.max": str(workers), "spark.python.authenticate.socketTimeout": "120s",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
    }  # fmt: skip
    spark = spark_session("cluster", workers, settings)
    register(spark)
    driver = f"127.0.0.1:{spark.sparkContext.getConf().get('spark.driver.port')}"
    lines = []
    for count, options in told.items():
        frame = spark.read.format("veilmq").options(**options, partitions=str(2 * workers)).load()
        step(f"{workers} workers, {count} receivers: all is read once")
        rows = frame.count()
        spent, took = [], []
        for reading in range(READINGS):
            step(f"{workers} workers, {count} receivers: reading {reading + 1} of {rows} rows")
            before, began = executors_s(driver), time.monotonic()
            frame.write.format("noop").mode("overwrite").save()
            took.append(time.monotonic() - began)
            spent.append(executors_s(driver) - before)
        executors = len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1  # the driver is one
        assert executors == workers, f"{executors} executors"
        cpu_us, rate = statistics.median(spent) / rows * 1e6, rows / statistics.median(took)
        line = {"workers": workers, "receivers": count, "rows": rows, "cpu_us_a_row": round(cpu_us, 2)}
        lines.append({**line, "rows_a_second": round(rate), "load": round(os.getloadavg()[0], 1)})
    spark.stop()
    return lines


def measured(directory: Path) -> Iterator[dict[str, Any]]:
    """Yields a line for each number of workers and spool."""
    step("spool")
    keys = spools.grants(directory / "keys.json")
    in_process(spools.fill, directory / "small", ROWS, MESSAGES_A_KEY, BATCH, SEGMENT_BYTES, limit_s=CHILD_S)
    roots = {
        count: ingest_growth.copied(directory / "small" / "main", directory / f"of-{count}", count, SEGMENTS // count)
        for count in RECEIVERS
    }
    told = {count: {"spool": str(root), "grants": str(keys)} for count, root in roots.items()}
    home = directory / "cluster"
    home.mkdir()
    step("cluster")
    with standalone(home, workers=max(WORKERS)) as master:
        for workers in WORKERS:  # a session takes so many of the workers
            step(f"{workers} workers: session")
            yield from in_process(readings, master, told, workers, limit_s=CHILD_S)
    step("plans")
    for count, root in roots.items():
        plan_ms = in_process(ingest_growth.plan_ms, root, keys, False, limit_s=CHILD_S)
        yield {"receivers": count, "plan_ms": round(plan_ms, 1)}


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    with tempfile.TemporaryDirectory(prefix="veilmq-cluster-") as name:
        for line in measured(Path(name)):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
