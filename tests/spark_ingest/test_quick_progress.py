"""A session whose progress has no checksums and starts no process: rows come once over a restart all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark_ingest.site import Site

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

RUN = """
import json, sys
from spark_ingest import register, spark_session
from spark_ingest.session import QUICK_PROGRESS
spark = spark_session("quick", 2, QUICK_PROGRESS)
register(spark)
rows = spark.readStream.format("veilmq").options(**json.loads(sys.argv[1])).load()
found = []
take = lambda batch, _: found.extend(row.sequence for row in batch.select("sequence").collect())
query = rows.writeStream.foreachBatch(take).option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start()
query.awaitTermination()
print(json.dumps(found))
spark.stop()
"""


def test_a_query_goes_on_where_it_was(tmp_path: Path) -> None:
    site, checkpoint = Site(None, tmp_path), tmp_path / "checkpoint"
    options = json.dumps({"spool": str(site.spool), "grants": str(site.grants), "max_rows_per_batch": "20"})
    for begin in (1, 41):
        site.fill(40)
        command = [sys.executable, "-c", RUN, options, str(checkpoint)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        assert json.loads(done.stdout.splitlines()[-1]) == list(range(begin, begin + 40))
    assert sorted(each.name for each in (checkpoint / "commits").iterdir()) == ["0", "1", "2", "3"]
