"""Spark's state store over the loss of executors: repeats stay dropped, and no row is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_ingest.spool.writer import SpoolWriter
from tests.spark_ingest.site import Site
from tests.spark_ingest.test_clusters import environment

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

STATE = "org.apache.spark.sql.execution.streaming.state"
ROWS = 40


def fill(site: Site) -> None:
    """Forty rows of a writer, then each once more under its id."""
    writer = SpoolWriter(site.spool, "main", cap_bytes=1 << 30)
    writer.roll(b"")
    for number in [*range(ROWS)] * 2:
        told = (("veilmq-id", f"w/{number}"),)
        site.link.publish(site.seal(f"plant/{number % 3}", b"%d" % number, properties=told))
    site.link.write(writer, 20)
    writer.close()


@pytest.mark.parametrize("provider", ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
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
