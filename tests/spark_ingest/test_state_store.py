"""Spark's state store over the loss of executors, over a restart, and lost: no repeat comes unseen."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_ingest.spool.writer import SpoolWriter
from spark_ingest.writing.repeats import drop_repeats
from tests.spark_ingest.site import Site
from tests.spark_ingest.test_clusters import environment

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

STATE = "org.apache.spark.sql.execution.streaming.state"
ROWS = 40


PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def fill(site: Site, first: int = 0) -> None:
    """Forty rows of a writer, then each once more under its id."""
    writer = SpoolWriter(site.spool, "main", cap_bytes=1 << 30)
    writer.roll(b"")
    for number in [*range(first, first + ROWS)] * 2:
        told = (("veilmq-id", f"w/{number}"),)
        site.link.publish(site.seal(f"plant/{number % 3}", b"%d" % number, properties=told))
    site.link.write(writer, 20)
    writer.close()


STORES = ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"]


@pytest.mark.parametrize("provider", STORES)
def test_state_outlives_its_executors(tmp_path: Path, provider: str) -> None:
    """Both of Spark's own stores; the executor is killed in two micro-batches."""
    site = Site(None, tmp_path)
    fill(site)
    command = [sys.executable, "-m", "tests.spark_ingest.state_driver", str(tmp_path), f"{STATE}.{provider}", "1", "3"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert told["killed"] == 2
    assert sorted(map(int, told["found"])) == list(range(ROWS))


@pytest.mark.parametrize("provider", STORES)
def test_state_outlives_a_restart_and_the_query_ends_without_it(site: Site, provider: str) -> None:
    found: list[int] = []

    def run() -> list[int]:
        found.clear()
        rows = drop_repeats(site.stream())
        site.run(
            rows, lambda batch, _: found.extend(int(bytes(row.payload)) for row in batch.collect())
        ).awaitTermination()
        return sorted(found)

    before = site.spark.conf.get(PROVIDER)
    site.spark.conf.set(PROVIDER, f"{STATE}.{provider}")
    try:
        fill(site)
        assert run() == list(range(ROWS))
        fill(site, ROWS // 2)
        assert run() == list(range(ROWS, ROWS + ROWS // 2)), "repeats of before the restart are dropped, too"
        fill(site)
        shutil.rmtree(site.path / "checkpoint" / "state")
        with pytest.raises(Exception, match="MISSING_STATE_DIRECTORY"):
            run()
    finally:
        site.spark.conf.set(PROVIDER, before)
