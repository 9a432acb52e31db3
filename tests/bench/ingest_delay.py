"""From a device's PUBLISH to the row in the application's hands: `python -m tests.bench.ingest_delay`, the Spark part.

A query on a real region receives and hands each micro-batch to Python, as fast as triggers follow each other; each
row carries the time at which it was sent. Beside it, in the same process, the floor: micro-batches of one row out of
Spark's own `rate-micro-batch` source, handed over in the same way. Reads options as JSON from the command line; tells
`ready` with the first row, and the delays when standard input ends.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from spark_ingest import register, spark_session

FLOOR_BATCHES = 60


def floor_ms(spark: Any) -> list[float]:
    """How long micro-batches with one row take."""
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
        took = took_ms(query)
        query.stop()
    return took


def took_ms(query: Any) -> list[float]:
    """Of its last hundred micro-batches that had rows, but for the first."""
    progress = [each for each in query.recentProgress if each.numInputRows]
    return [float(each.durationMs["triggerExecution"]) for each in progress[2:]]


def main() -> None:
    options = json.loads(sys.argv[1])
    spark = spark_session("veilmq delay", 2)
    register(spark)
    floor = floor_ms(spark)
    delays: list[float] = []
    told = threading.Event()

    def take(rows: Any, _: int) -> None:
        stamps = [float(bytes(row.payload)) for row in rows.select("payload").collect()]
        now = time.time()
        delays.extend(now - stamp for stamp in stamps if stamp)
        if stamps and not told.is_set():
            told.set()
            print(json.dumps({"event": "ready"}), flush=True)
        elif stamps:
            print(json.dumps({"event": "rows", "count": len(delays)}), flush=True)

    checkpoint = Path(options["spool"]).parent / "checkpoint"
    rows = spark.readStream.format("veilmq").options(**options).load()
    query = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint)).start()
    sys.stdin.read()
    triggers = took_ms(query)
    query.stop()
    told = {"event": "end", "floor_ms": floor, "delays": delays, "triggers_ms": triggers}
    print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
