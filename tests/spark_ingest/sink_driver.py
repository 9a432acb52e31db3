"""An application that writes into a sink by its recipe, and dies at one moment: driver and JVM get SIGKILL.

    python -m tests.spark_ingest.sink_driver WORK SINK TARGET [BATCH MOMENT]

WORK has `spool` and `keys.json` and gets the checkpoint. MOMENT: `before` (nothing of the batch is written), `half`
(some of it is, and is not committed), `after` (the sink has committed, Spark has not). Without, it reads what is there,
to the end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import psutil

from spark_ingest import register, spark_session
from tests.spark_ingest.sinks import OPTIONS, SINKS


def die() -> NoReturn:
    """At once, and what belongs to us before: nothing is closed or told."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it lives")


def main() -> None:
    work, (name, target) = Path(sys.argv[1]), sys.argv[2:4]
    batch, moment = (int(sys.argv[4]), sys.argv[5]) if len(sys.argv) > 4 else (-1, "")
    spark = spark_session("sinks", 2)
    register(spark)
    sink = SINKS[name](target)

    def write(rows: Any, number: int) -> None:
        if number != batch:
            sink.write(rows, number)
            return
        if moment == "before":
            die()
        if moment == "half":
            sink.write_half(rows, number, die)
        sink.write(rows, number)
        die()

    told = {"spool": str(work / "spool"), "grants": str(work / "keys.json"), **OPTIONS}
    rows = spark.readStream.format("veilmq").options(**told).load()
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(work / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
