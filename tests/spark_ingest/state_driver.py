"""An application that drops repeated rows, whose executors are killed while it runs.

    python -m tests.spark_ingest.state_driver WORK PROVIDER [BATCH ...]

WORK has `spool` and `keys.json` and gets the checkpoint. PROVIDER is the class of Spark's state store. While each of
these micro-batches is written, all executors are killed. Prints as JSON the payloads of all rows, and how many
executors fell.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from spark_ingest import register, spark_session
from spark_ingest.writing.repeats import drop_repeats
from tests.spark_ingest.sink_driver import CLUSTER, kill_executors
from tests.spark_ingest.sink_targets import OPTIONS

PATIENCE = {"spark.python.authenticate.socketTimeout": "600s", "spark.network.timeout": "600s"}
"""Of Spark with its Python workers and executors, on a busy machine."""


def main() -> None:
    work, provider, deaths = Path(sys.argv[1]), sys.argv[2], {int(each) for each in sys.argv[3:]}
    settings = {"spark.sql.streaming.stateStore.providerClass": provider, **PATIENCE}
    spark = spark_session("state", 2, {**CLUSTER, **settings})
    register(spark)
    found: list[str] = []
    killed = 0

    def take(rows: Any, number: int) -> None:
        nonlocal killed
        if number in deaths:
            killed += kill_executors()
        found.extend(bytes(row.payload).decode() for row in rows.select("payload").collect())

    told = {"spool": str(work / "spool"), "grants": str(work / "keys.json"), **OPTIONS}
    rows = drop_repeats(spark.readStream.format("veilmq").options(**told).load())
    query = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(work / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    print(json.dumps({"found": found, "killed": killed}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
