"""Spark's state store over the loss of executors, and without it: repeats stay dropped, or the query ends."""

from __future__ import annotations

import json
import shutil
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


def fill(site: Site, first: int) -> None:
    """Forty rows of a writer, then each once more under its id."""
    writer = SpoolWriter(site.spool, "main", cap_bytes=1 << 30)
    writer.roll(b"")
    for number in [*range(first, first + ROWS)] * 2:
        told = (("veilmq-id", f"w/{number}"),)
        site.link.publish(site.seal(f"plant/{number % 3}", b"%d" % number, properties=told))
    site.link.write(writer, 20)
    writer.close()


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.spark_ingest.state_driver", str(path), *arguments]
    return subprocess.run(command, cwd=path, env=environment(path), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("provider", ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
def test_state_outlives_executors_and_a_lost_store_ends_the_query(tmp_path: Path, provider: str) -> None:
    name = f"{STATE}.{provider}"
    site = Site(None, tmp_path)
    fill(site, 0)
    done = run(tmp_path, name, "1", "3")
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert told["killed"] == 2
    assert sorted(map(int, told["found"])) == list(range(ROWS))

    fill(site, ROWS // 2)
    done = run(tmp_path, name)
    assert done.returncode == 0, done.stderr[-2000:]
    found = sorted(map(int, json.loads(done.stdout.splitlines()[-1])["found"]))
    assert found == list(range(ROWS, ROWS + ROWS // 2)), "repeats of before the restart are dropped, too"

    fill(site, 0)
    shutil.rmtree(tmp_path / "checkpoint" / "state")
    done = run(tmp_path, name)
    assert done.returncode != 0, done.stdout
    assert "STATE_STORE" in done.stderr, done.stderr[-2000:]
    print(next(line for line in done.stderr.splitlines() if "STATE_STORE" in line)[:300])
