"""What a small micro-batch costs: `python -m tests.bench.ingest_micro [--quick]`, by a task beside with the plan.

Both in turns in one session, micro-batches of one group of 500 rows out of a spool, handed to Python; processor time of
all processes of Spark together, and the medians of what Spark says each part took.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from spark_ingest import register, spark_session
from spark_ingest.session import QUICK_PROGRESS
from spark_ingest.source.reader import SpoolPartition, SpoolStreamReader
from spark_ingest.source.source import VeilMQDataSource
from spark_ingest.spool import Offset
from tests.bench import spools
from tests.bench.load import in_process

ROUNDS = 4
WARM, BATCHES = 5, 20
ROWS = 30_000
PARTS = ("triggerExecution", "addBatch", "walCommit", "commitOffsets", "queryPlanning", "latestOffset")
BY_TASK = "veilmq_by_task"


class TaskReader(SpoolStreamReader):
    """Whose rows a Python worker reads."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[SpoolPartition]:
        """Without the rows."""
        planned = super().partitions(start, end)
        self._handed = None
        return planned


class ByTask(VeilMQDataSource):
    """With such readers."""

    @classmethod
    def name(cls) -> str:
        """Beside the real one."""
        return BY_TASK

    def streamReader(self, schema: Any) -> SpoolStreamReader:
        """For `readStream`."""
        return TaskReader(self._checked(schema), self.connect)


def cpu_s() -> float:
    """Of all that this process started, and of what that started."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def measured(spark: Any, source: str, options: dict[str, str]) -> tuple[float, list[dict[str, int]]]:
    """(CPU ms of a micro-batch, what Spark says of each)."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        rows = spark.readStream.format(source).options(**options).load().select("payload")
        writer = rows.writeStream.foreachBatch(lambda batch, _: batch.collect())
        query = writer.option("checkpointLocation", checkpoint).start()

        def until(number: int) -> int:
            while (last := query.lastProgress) is None or last.batchId < number:
                assert query.isActive, query.exception()
                time.sleep(0.05)
            return int(last.batchId)

        first, before = until(WARM), cpu_s()
        last = until(first + BATCHES)
        cpu_ms = (cpu_s() - before) / (last - first) * 1000
        told = [each.durationMs for each in query.recentProgress if first < each.batchId <= last]
        query.stop()
        query.awaitTermination(60)
    return cpu_ms, told


def main() -> None:
    parser = argparse.ArgumentParser(description="What a small micro-batch costs, with the plan and by a task.")
    parser.add_argument("--quick", action="store_true", help="with QUICK_PROGRESS")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        in_process(spools.fill, directory / "spool", ROWS, 64, 1, limit_s=300.0)
        keys = spools.grants(directory / "keys.json")
        spark = spark_session("veilmq micro-batches", 2, QUICK_PROGRESS if quick else {})
        register(spark)
        spark.dataSource.register(ByTask)
        found: dict[str, list[tuple[float, list[dict[str, int]]]]] = {}
        for run in range(ROUNDS):
            for source in (BY_TASK, "veilmq"):
                options = {"spool": str(directory / "spool"), "grants": str(keys), "max_rows_per_batch": "400"}
                done = measured(spark, source, options | {"consumer": f"{source}{run}", "retain_s": "86400"})
                if run:
                    found.setdefault(source, []).append(done)
        for source, runs in found.items():
            parts = {part: statistics.median(each.get(part, 0) for _, told in runs for each in told) for part in PARTS}
            print(f"{source:<16}{statistics.median(cpu for cpu, _ in runs):6.0f} ms of processor time  {parts}")
        spark.stop()


if __name__ == "__main__":
    main()
