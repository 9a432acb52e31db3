"""`veilmq ingest backfill` on real brokers: rows of before the job, once, alone and beside a running receiver."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from spark_ingest.opening.rows import RowReader
from spark_ingest.options import parse_options
from spark_ingest.spool.backfilled import ask
from spark_ingest.spool.status import PartStatus, status_of
from spark_ingest.spool.view import SpoolView
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ, OverlayProcesses
from tests.waits import wait_until

COUNT = 400


def numbers(spool: Path, keys: Path) -> Counter[int]:
    """The rows of all parts of the spool. `keys`: the directory with the files of scope keys."""
    grants = ",".join(str(path) for path in sorted(keys.glob("scope_keys*.json")))
    if not grants:
        return Counter()
    options = parse_options({"spool": str(spool), "grants": grants})
    view, reader = SpoolView(options.spool), RowReader(options)
    batches = (batch for extent in view.ranges({}, view.advance({}), 1) for batch in reader.read(extent))
    return Counter(int(payload) for batch in batches for payload in batch.column("payload").to_pylist())


def publish(overlay: OverlayProcesses, first: int, count: int, gateway: str = "site") -> None:
    device = overlay.client(gateway, "device", paho.MQTTv5)
    sent = [device.publish(f"plant/line/{n % 3}", b"%d" % n, 1 + n % 2) for n in range(first, first + count)]
    for each in sent:
        each.wait_for_publish(60)
    device.disconnect()
    device.loop_stop()


@dataclass
class Job:
    """An ingest job of an overlay whose scopes have a history, and its spool."""

    overlay: OverlayProcesses
    spool: Path

    @property
    def rows(self) -> Counter[int]:
        return numbers(self.spool, self.overlay.directory / "job")

    @property
    def where(self) -> list[str]:
        return ["--spool", str(self.spool), "--identity", "job", "--overlay", "job-overlay.json"]

    def backfill(self) -> str:
        command = [sys.executable, *VEILMQ[:2], "ingest", "backfill", *self.where]
        done = subprocess.run(
            command, cwd=self.overlay.directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=200,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, *VEILMQ[:2], "ingest", "run", *self.where, *arguments]
        with subprocess.Popen(command, cwd=self.overlay.directory, env=ENVIRONMENT) as process:
            try:
                yield process
            finally:
                process.terminate()
                process.wait(60)

    def has(self, total: int) -> bool:
        return wait_until(lambda: self.rows.total() >= total, 90, 0.5)


def made(overlay: OverlayProcesses, spool: Path, *sites: str, job: str = "north") -> Job:
    """A job in the region `job`; the sites are in the north, which alone keeps the history."""
    regions = tuple(dict.fromkeys(("north", job)))
    edges = [("north", job)] if job != "north" else []
    overlay.make(dict.fromkeys(regions, 3), edges, {**dict.fromkeys(sites, "north"), "job": job})

    def keep(description: dict[str, object]) -> None:
        for scope in description["scopes"]:  # type: ignore[attr-defined]
            scope["history"] = {"days": 7, "gigabytes": 1, "regions": ["north"]}

    replicas = [f"{region}{number}" for region in regions for number in (1, 2, 3)]
    overlay.describe(keep)
    overlay.hand_out(*replicas, *sites, "job")
    overlay.start(*replicas, *sites)
    return Job(overlay, spool)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_was_published_before_the_job_is_a_row_once(overlay: OverlayProcesses, tmp_path: Path) -> None:
    job = made(overlay, tmp_path / "spool", "site")
    publish(overlay, 0, COUNT)
    assert "100%" in job.backfill()
    assert job.rows == Counter(range(COUNT))
    job.backfill()
    assert job.rows == Counter(range(COUNT)), "a second one writes nothing again"
    publish(overlay, COUNT, COUNT)
    with job.running():
        assert job.has(2 * COUNT)
        job.backfill()
        publish(overlay, 2 * COUNT, COUNT)
        assert job.has(3 * COUNT)
    assert job.rows == Counter(range(3 * COUNT))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_read_what_was_before_them_each_its_part(overlay: OverlayProcesses, tmp_path: Path) -> None:
    sites = ("site", "site2", "site3")
    job = made(overlay, tmp_path / "spool", *sites)
    for at, gateway in enumerate(sites):
        publish(overlay, at * COUNT, COUNT, gateway)
    earliest = tmp_path / "first.yaml"
    earliest.write_text("startingOffsets: earliest\n")
    with job.running("--workers", "2", "--config", str(earliest)):
        assert job.has(3 * COUNT), "a first start reads back by itself"
        assert wait_until(lambda: all(one.backfill and one.backfill.is_over for one in parts(job)), 60, 0.5)
        publish(overlay, 3 * COUNT, COUNT)
        assert job.has(4 * COUNT)
        assert "100%" in job.backfill(), "beside workers that run"
    assert job.rows == Counter(range(4 * COUNT))

    publish(overlay, 4 * COUNT, COUNT, "site2")
    ask(job.spool / "main.w1of2", 0)  # of workers that are stopped before they have begun
    with job.running("--workers", "3"):
        assert job.has(5 * COUNT)
        assert wait_until(lambda: sum(bool(one.backfill and one.backfill.is_over) for one in parts(job)) == 3, 60, 0.5)
    assert job.rows == Counter(range(5 * COUNT)), "others go on, and write nothing again"
    assert "100%" in job.backfill(), "without workers"
    assert job.rows == Counter(range(5 * COUNT))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_only_another_region_keeps_is_a_row_once(overlay: OverlayProcesses, tmp_path: Path) -> None:
    job = made(overlay, tmp_path / "spool", "site", job="south")
    publish(overlay, 0, COUNT)
    overlay.kill("north3")  # one party of each region may be gone
    overlay.kill("south1")
    assert "100%" in job.backfill()
    assert job.rows == Counter(range(COUNT))
    job.backfill()
    assert job.rows == Counter(range(COUNT)), "a second one writes nothing again"
    publish(overlay, COUNT, COUNT)
    with job.running("--workers", "2"):
        assert job.has(2 * COUNT)
        assert "100%" in job.backfill(), "by workers"
        publish(overlay, 2 * COUNT, COUNT)
        assert job.has(3 * COUNT)
    assert job.rows == Counter(range(3 * COUNT))


def parts(job: Job) -> tuple[PartStatus, ...]:
    return status_of(job.spool).receivers
