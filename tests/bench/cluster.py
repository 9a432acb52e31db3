"""The shape of the model of scale on Spark's standalone cluster: `python -m tests.bench.cluster`.

A master and 1 and 3 workers of one core each open the rows of a spool that one receiver wrote, and of one that ten
wrote, into Spark's noop sink. The model says that a row costs executors as much however many of either there are. So
the figure is the processor time of all executors a row, of the second reading and later ones; the wall clock is told
beside it. Then the time that the driver plans for, in micro-batches under a limit, over the ten.
"""

from __future__ import annotations

import argparse
import json
import statistics
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

WORKERS = (1, 3)
RECEIVERS = (1, 10)
ROWS, MESSAGES_A_KEY, BATCH, SEGMENT_BYTES = 200_000, 1024, 64, 1 << 20
SEGMENTS = 40
"""Of a spool, however many receivers wrote it."""
READINGS = 4
CHILD_S = 400.0


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


def readings(master: str, options: dict[str, str], workers: int) -> tuple[float, float, int]:
    """Returns processor time of a row in µs and rows a second, medians of the later readings, and the rows."""
    settings = {
        "spark.master": master, "spark.executor.cores": "1", "spark.executor.memory": "600m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.cores.max": str(workers), "spark.python.authenticate.socketTimeout": "120s",
    }  # fmt: skip
    spark = spark_session("cluster", workers, settings)
    register(spark)
    frame = spark.read.format("veilmq").options(**options, partitions=str(2 * workers)).load()
    driver = f"127.0.0.1:{spark.sparkContext.getConf().get('spark.driver.port')}"
    rows = frame.count()
    spent, took = [], []
    for _ in range(READINGS):
        before, began = executors_s(driver), time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        took.append(time.monotonic() - began)
        spent.append(executors_s(driver) - before)
    spark.stop()
    return statistics.median(spent[1:]) / rows * 1e6, rows / statistics.median(took[1:]), rows


def measured(directory: Path) -> Iterator[dict[str, Any]]:
    """Yields a line for each cluster and spool."""
    keys = spools.grants(directory / "keys.json")
    in_process(spools.fill, directory / "small", ROWS, MESSAGES_A_KEY, BATCH, SEGMENT_BYTES, limit_s=CHILD_S)
    roots = {
        count: ingest_growth.copied(directory / "small" / "main", directory / f"of-{count}", count, SEGMENTS // count)
        for count in RECEIVERS
    }
    for workers in WORKERS:
        home = directory / f"cluster-{workers}"
        home.mkdir()
        with standalone(home, workers=workers) as master:
            for count, root in roots.items():
                told = {"spool": str(root), "grants": str(keys)}
                cpu_us, rate, rows = in_process(readings, master, told, workers, limit_s=CHILD_S)
                line = {"workers": workers, "receivers": count, "rows": rows, "cpu_us_a_row": round(cpu_us, 2)}
                yield {**line, "rows_a_second": round(rate)}
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
