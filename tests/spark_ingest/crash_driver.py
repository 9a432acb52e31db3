"""An application that ingests: one query from the source `veilmq` into the exact sink, until it is killed.

    python -m tests.spark_ingest.crash_driver WORK_DIRECTORY NAME=VALUE...

The pairs are options of the source. Ends with status 1 if the query fails, as an application would whose supervisor
starts it again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spark_ingest import register, spark_session
from spark_ingest.writing.sink import PublicationSink

CORES = 2


def main() -> int:
    work, options = Path(sys.argv[1]), dict(pair.split("=", 1) for pair in sys.argv[2:])
    spark = spark_session("crashes", CORES)
    register(spark)
    sink = PublicationSink(work / "sink.sqlite3", id_field="id")
    rows = spark.readStream.format("veilmq").options(**options).load()
    writer = rows.writeStream.foreachBatch(sink.write).option("checkpointLocation", str(work / "checkpoint"))
    query = writer.trigger(processingTime="500 milliseconds").start()
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001  whatever it is, the next start has to cope
        print(str(error)[:2000], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
