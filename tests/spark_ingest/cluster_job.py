"""What a user runs on a cluster: all that is spooled into a file sink, from where the checkpoint left off.

    python -m tests.spark_ingest.cluster_job MASTER SPOOL KEYS WORK [OPTIONS [repeats]]

MASTER is a master's URL, or `sc://...` for Spark Connect; OPTIONS more of the source, as JSON; with `repeats`, repeated
rows of a writer are dropped. Prints as JSON the rows
that the sink has and the number of executors, where the session tells it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from spark_ingest import register
from spark_ingest.writing.repeats import drop_repeats

PATIENCE_S = 300


def session(master: str) -> Any:
    from pyspark.sql import SparkSession

    if master.startswith("sc://"):
        return SparkSession.builder.remote(master).getOrCreate()
    builder = SparkSession.builder.master(master).appName("veilmq cluster")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.cores": "1",
        "spark.executor.memory": "1g",
        "spark.cores.max": "2",
        # Both nodes are to work, not only the first that answers.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.locality.wait": "0s",
        "spark.python.authenticate.socketTimeout": "120s",  # a busy machine starts Python slowly
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    master, spool, keys, work = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
    more = json.loads(sys.argv[5]) if sys.argv[5:] else {}
    spark = session(master)
    register(spark)
    rows = spark.readStream.format("veilmq").options(spool=spool, grants=keys, partitions="4", **more).load()
    if sys.argv[6:] == ["repeats"]:
        rows = drop_repeats(rows)
    query = (
        rows.selectExpr("topic", "sequence", "cast(payload as string) as payload")
        .writeStream.format("parquet")
        .options(path=str(work / "rows"), checkpointLocation=str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S), "the query does not end"
    found = [tuple(row) for row in spark.read.parquet(str(work / "rows")).collect()]
    executors = None
    if not master.startswith("sc://"):
        executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # the driver counts too
    print(json.dumps({"rows": found, "executors": executors}))
    spark.stop()


if __name__ == "__main__":
    main()
