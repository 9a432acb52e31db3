"""Sinks over crashes: executors and drivers are killed before a batch is written, within, and between the sink's commit
and Spark's. Each row is there once."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark_ingest.sink_targets import POSTGRES, TARGETS, database
from tests.spark_ingest.site import Site
from tests.spark_ingest.test_clusters import environment

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

ROWS = 400
PARTS = 2
MOMENTS = ("half", "after", "before", "half", "after")
"""Of the deaths of a part, one after the other from one checkpoint: in each life an executor falls, then the driver."""


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A sink by name, and where it writes to."""
    name = request.param
    if name != "postgres":
        yield name, str(tmp_path / "rows")
        return
    if not POSTGRES:
        pytest.skip("no PostgreSQL here; make tools")
    with database() as place:
        yield name, place


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_twenty_crashes_of_a_sink_lose_and_repeat_nothing(target: tuple[str, str], tmp_path: Path, part: int) -> None:
    """Ten crashes a part, of two parts a sink."""
    site = Site(None, tmp_path)
    site.fill(ROWS)
    command = [sys.executable, "-m", "tests.spark_ingest.sink_driver", str(tmp_path), *target]
    driver: dict[str, Any] = {"cwd": tmp_path, "env": environment(tmp_path), "capture_output": True, "text": True}
    killed = 0
    for moment in MOMENTS:
        done = subprocess.run([*command, str(2 + part), moment], check=False, **driver)
        assert done.returncode == -signal.SIGKILL, (moment, done.stderr[-2000:])
        executors = int(re.findall(r"killed (\d+) executors", done.stdout)[0])
        assert executors == 1, moment
        killed += 1 + executors
    site.fill(ROWS // 10)
    done = subprocess.run(command, check=False, **driver)
    assert done.returncode == 0, done.stderr[-2000:]
    found = TARGETS[target[0]](target[1]).found()
    published = len(site.published)
    print(f"{target[0]}: {published} published, {killed} killed, {len(found)} rows, {len(set(found))} different")
    assert killed == 2 * len(MOMENTS)
    assert len(found) == len(set(found)) == published
    assert {sequence for _, sequence in found} == {sequence for sequence, _, _ in site.published}
