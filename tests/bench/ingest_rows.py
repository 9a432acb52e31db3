"""Rows a second from disk to Spark's noop sink, in a process of its own: `tests.bench.ingest_rows DIR CORES WAYS`.

DIR is what `tests.bench.ingest` made, WAYS a JSON object: by way, how many rows must come. A figure is rows over the
time of the micro-batch that read them all (planning, tasks, commit), so that the start of a query counts for nobody.
The ways take turns; each goes once before it counts. One JSON object is printed: for each way a list of runs, (rows a
second, CPU us a row).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

from spark_ingest import register, spark_session
from tests.bench.spools import Unwrapping

RUNS = 3
PATIENCE_S = 120.0
OPENED = "topic string, payload binary"


class Ways:
    """Each gives a streaming DataFrame of one set of rows."""

    def __init__(self, spark: Any, directory: Path, cores: int) -> None:
        self._spark = spark
        self._directory = directory
        self._cores = cores
        self._runs = 0

    def ours(self, kind: str) -> Any:
        self._runs += 1
        options = {
            "consumer": f"run-{self._cores}-{self._runs}",
            "retain_s": "86400",
            "spool": str(self._directory / f"large-{kind}"),
            "grants": str(self._directory / "keys.json"),
            "partitions": str(self._cores),
        }
        return self._spark.readStream.format("veilmq").options(**options).load()

    def plain(self, kind: str) -> Any:
        """The same rows in clear, read by the JVM."""
        return self._parquet(f"plain-{kind}-{self._cores}")

    def sealed(self, kind: str) -> Any:
        """AES-GCM a row in Python workers, the data key unwrapped by AES-GCM once, as envelope encryption does."""
        wrapping_key = (self._directory / "wrapping.key").read_bytes()
        return self._parquet(f"sealed-{kind}-{self._cores}").mapInArrow(Unwrapping(wrapping_key).open, OPENED)

    def _parquet(self, name: str) -> Any:
        path = str(self._directory / name)
        return self._spark.readStream.schema(self._spark.read.parquet(path).schema).parquet(path)


def cpu_s() -> float:
    """Used so far by the JVM and by Python workers, also by those that ended. Processes that plan a query live for its
    start only and count for nobody."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            command, times = process.cmdline(), process.cpu_times()
            if "pyspark.worker" in command:
                total += sum(times[:4])  # own user and system time, and that of children that ended
            elif command and Path(command[0]).name == "java":  # none: it just ended
                total += sum(times[:2])
    return total


def measured(rows: Any) -> tuple[float, float, int]:
    """(rows a second, CPU us a row, rows) of one query that reads all there is."""
    before = cpu_s()
    with tempfile.TemporaryDirectory() as checkpoint:
        query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        running = query.start()
        assert running.awaitTermination(PATIENCE_S), "the query does not end"
        batches = [each for each in running.recentProgress if each.numInputRows]
    count = sum(each.numInputRows for each in batches)
    took_ms = sum(each.durationMs["triggerExecution"] for each in batches)
    return count / took_ms * 1000, (cpu_s() - before) / count * 1e6, count


def main() -> None:
    directory, cores, counts = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    spark = spark_session("veilmq bench", cores, {"spark.driver.memory": "1g"})
    register(spark)
    ways = Ways(spark, directory, cores)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in counts}
    for run in range(RUNS + 1):
        for name, expected in counts.items():
            # Executors forget keys when the file changes: no run profits from those of the one before.
            os.utime(directory / "keys.json")
            way, _, kind = name.partition("-")
            rate, cpu_us, count = measured(getattr(ways, way)(kind))
            if count != expected:
                raise RuntimeError(f"{name}: {count} rows came")
            if run:
                found[name].append((rate, cpu_us))
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
