"""An application that writes into a sink: an executor of it is killed, then it dies at one moment, JVM and all.

    python -m tests.spark_ingest.sink_driver WORK SINK TARGET [BATCH MOMENT]

WORK has `spool` and `keys.json` and gets the checkpoint. The executor is a JVM of its own, killed while the batch
before BATCH, counted from the first of this life, is written. MOMENT: `before` (nothing of the batch is written),
`half` (some of it is, and is not committed), `after` (the sink has committed, Spark has not). Without, it reads what is
there, to the end. Each batch is told as it begins. A Python worker that is late, on a busy machine, ends no life.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import psutil

from spark_ingest import register, spark_session
from spark_ingest.late_workers import PatientQuery
from tests.spark_ingest.sink_targets import OPTIONS, TARGETS

CLUSTER = {
    "spark.master": "local-cluster[1,1,1024]",
    "spark.executor.memory": "1g",
    "spark.python.authenticate.socketTimeout": "120s",
}
LOOK_S = 1.0


def die() -> NoReturn:
    """Kills this process and what belongs to it, all at once: nothing is closed or told."""
    below = [str(child.pid) for child in psutil.Process().children(recursive=True)]
    subprocess.run(["kill", "-9", *below, str(os.getpid())], check=False)
    raise AssertionError("it lives")


def kill_executors() -> int:
    """Kills the executors that run; returns their number."""
    killed = 0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("CoarseGrainedExecutorBackend" in word for word in child.cmdline()):
                child.kill()
                killed += 1
    return killed


def main() -> None:
    work, (name, target) = Path(sys.argv[1]), sys.argv[2:4]
    last, moment = (int(sys.argv[4]), sys.argv[5]) if len(sys.argv) > 4 else (-1, "")
    spark = spark_session("sinks", 2, CLUSTER)
    register(spark)
    to = TARGETS[name](target)
    count = itertools.count()

    def write(rows: Any, number: int) -> None:
        of_this_life = next(count)
        print(f"batch {number}", flush=True)
        if of_this_life == last - 1:
            print(f"killed {kill_executors()} executors", flush=True)
        if of_this_life != last:
            to.sink(rows, number)
            return
        if moment == "before":
            die()
        if moment == "half":
            to.write_half(rows, number, die)
        to.sink(rows, number)
        die()

    told = {"spool": str(work / "spool"), "grants": str(work / "keys.json"), **OPTIONS}
    rows = spark.readStream.format("veilmq").options(**told).load()
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(work / "checkpoint"))
    query = PatientQuery(lambda: writer.trigger(availableNow=True).start())
    while not query.ended(LOOK_S):
        pass
    spark.stop()


if __name__ == "__main__":
    main()
