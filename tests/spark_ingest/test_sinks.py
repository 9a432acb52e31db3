"""Sinks over crashes: executors and drivers are killed before a batch is written, within, and between the sink's commit
and Spark's. Each row is there once."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from spark_ingest.jobs.runs import cause
from tests.spark_ingest.sink_targets import POSTGRES, TARGETS, database
from tests.spark_ingest.site import Site
from tests.spark_ingest.test_clusters import environment

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

ROWS = 400
PARTS = 2
MOMENTS = ("half", "after", "before", "half", "after")
"""Of the deaths of a part, one after the other from one checkpoint: in each life an executor falls, then the driver."""
LIFE_S = 300.0
"""Spark alone takes 80 s to start where two busy cores have half their speed."""
LINES = 15
SHORT_LIVED = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For JVMs that live some ten seconds: most of their time goes into compiling, thoroughly, what is run once."""


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


class Lives:
    """Lives of the application that writes into a sink, one after the other from one checkpoint."""

    def __init__(self, work: Path, target: tuple[str, str], name: str) -> None:
        self._work, self._name = work, name
        self._command = [sys.executable, "-m", "tests.spark_ingest.sink_driver", str(work), *target]
        self._environment = environment(work) | SHORT_LIVED

    def live(self, *words: str) -> tuple[int, str]:
        """Returns exit status and output of a life, which is told with its time. `words`: batch and moment of death."""
        log, began = self._work / "life.log", time.monotonic()
        with log.open("w") as output:
            process = subprocess.Popen(
                [*self._command, *words], cwd=self._work, env=self._environment, stdout=output, stderr=output, text=True
            )
        try:
            status = process.wait(LIFE_S)
        except subprocess.TimeoutExpired:
            for each in (*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)):
                with contextlib.suppress(psutil.Error):
                    each.kill()
            status = process.wait()
            log.write_text(f"{log.read_text()}\nkilled after {LIFE_S:.0f} s\n")
        said = log.read_text()
        batches = re.findall(r"^batch (\d+)$", said, re.MULTILINE)
        told = f"{self._name}: death {' '.join(words) or 'none'}, batches {', '.join(batches)}, status {status}"
        print(f"{told}, {time.monotonic() - began:.0f} s", flush=True)
        return status, said


def why(said: str) -> str:
    """Returns the cause of a life's end, and the last lines that are none of a stack in Java."""
    lines = [line for line in said.splitlines() if not line.lstrip().startswith("at ")]
    return "\n".join([cause(said), *lines[-LINES:]])


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_twenty_crashes_of_a_sink_lose_and_repeat_nothing(target: tuple[str, str], tmp_path: Path, part: int) -> None:
    """Ten crashes a part, of two parts a sink. With -s it tells each life as it ends."""
    site = Site(None, tmp_path)
    site.fill(ROWS)
    lives, killed = Lives(tmp_path, target, f"{target[0]}-{part}"), 0
    for moment in MOMENTS:
        status, said = lives.live(str(2 + part), moment)
        assert status == -signal.SIGKILL, (moment, why(said))
        executors = [int(each) for each in re.findall(r"killed (\d+) executors", said)]
        assert executors == [1], (moment, why(said))
        killed += 1 + executors[0]
    site.fill(ROWS // 10)
    status, said = lives.live()
    assert status == 0, why(said)
    found = TARGETS[target[0]](target[1]).found()
    published = len(site.published)
    print(f"{target[0]}: {published} published, {killed} killed, {len(found)} rows, {len(set(found))} different")
    assert killed == 2 * len(MOMENTS)
    assert len(found) == len(set(found)) == published
    assert {sequence for _, sequence in found} == {sequence for sequence, _, _ in site.published}
