"""`veilmq ingest backfill` on real brokers: rows of before the job, once, alone and beside a running receiver."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from spark_ingest.opening.rows import RowReader
from spark_ingest.options import Options, parse_options
from spark_ingest.spool.view import SpoolView
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ, OverlayProcesses
from tests.waits import wait_until

COUNT = 400


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[OverlayProcesses]:
    made = OverlayProcesses(tmp_path / "overlay")
    made.directory.mkdir()
    yield made
    made.stop()


def numbers(options: Options) -> Counter[int]:
    view, reader = SpoolView(options.spool), RowReader(options)
    batches = (batch for extent in view.ranges({}, view.advance({}), 1) for batch in reader.read(extent))
    return Counter(int(payload) for batch in batches for payload in batch.column("payload").to_pylist())


def publish(overlay: OverlayProcesses, first: int, count: int) -> None:
    device = overlay.client("site", "device", paho.MQTTv5)
    sent = [device.publish(f"plant/line/{n % 3}", b"%d" % n, 1 + n % 2) for n in range(first, first + count)]
    for each in sent:
        each.wait_for_publish(60)
    device.disconnect()
    device.loop_stop()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_was_published_before_the_job_is_a_row_once(overlay: OverlayProcesses, tmp_path: Path) -> None:
    overlay.make({"north": 3}, [], {"site": "north", "job": "north"})

    def keep(description: dict[str, object]) -> None:
        for scope in description["scopes"]:  # type: ignore[attr-defined]
            scope["history"] = {"days": 7, "gigabytes": 1}

    overlay.describe(keep)
    overlay.hand_out("north1", "north2", "north3", "site", "job")
    overlay.start("north1", "north2", "north3", "site")
    publish(overlay, 0, COUNT)
    spool = tmp_path / "spool"
    where = ["--spool", str(spool), "--identity", "job", "--overlay", "job-overlay.json"]

    def backfill() -> str:
        command = [sys.executable, *VEILMQ[:2], "ingest", "backfill", *where]
        done = subprocess.run(
            command, cwd=overlay.directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    options = parse_options({"spool": str(spool), "grants": str(overlay.directory / "job" / "scope_keys.json")})
    assert "100%" in backfill()
    assert numbers(options) == Counter(range(COUNT))
    backfill()
    assert numbers(options) == Counter(range(COUNT)), "a second one writes nothing again"
    publish(overlay, COUNT, COUNT)
    with subprocess.Popen(
        [sys.executable, *VEILMQ[:2], "ingest", "run", *where], cwd=overlay.directory, env=ENVIRONMENT
    ) as running:
        try:
            assert wait_until(lambda: numbers(options).total() == 2 * COUNT, 90, 0.5)
            backfill()
            publish(overlay, 2 * COUNT, COUNT)
            assert wait_until(lambda: numbers(options).total() == 3 * COUNT, 90, 0.5)
        finally:
            running.terminate()
            running.wait(60)
    assert numbers(options) == Counter(range(3 * COUNT))
