"""An entity, its gateway, an overlay of real brokers, a row in Spark; replicas learn not even whose traces pass."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bridge.tracking.entity import Stage, Wishes
from gateway.tracing.client import TracedEntity
from gateway.trust.credentials import Credentials
from gateway.trust.domains import Card, TrustDomain
from tests.gateway.overlay_processes import OverlayProcesses
from tests.support.processes import ending
from tests.waits import wait_until

pytest.importorskip("pyspark")
REPLICAS = ("north1", "north2", "north3")
PATIENCE_S = 90.0


def begin(made: OverlayProcesses) -> None:
    made.make({"north": 3}, [], {"site": "north", "job": "north"})
    traces = {"authority": "owner/ca.pem", "identity": "site", "report": {"prefix": "plant/entities"}}
    made.configure("site", traces=traces)


overlay = ending(begin)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_traces_become_rows_and_no_replica_learns_whose(spark: Any, overlay: OverlayProcesses) -> None:
    directory = overlay.directory
    Credentials.issue(
        TrustDomain.load(directory / "owner"), "pump-7", [Card.load(directory / "site" / "card.json")],
        directory / "pump-7", time.time(),
    )  # fmt: skip
    overlay.start(*REPLICAS, "site")
    found: list[Any] = []
    job = {"identity": str(directory / "job"), "overlay": str(directory / "job-overlay.json")}
    rows = spark.readStream.format("veilmq").options(**job, spool=str(directory / "spool"), stream="availability")
    query = (
        rows.load()
        .writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    overlay.client("site", "probe")
    assert wait_until(lambda: any(row.entity == "probe" for row in found), PATIENCE_S), query.exception()
    wishes = Wishes(("desk", "plant/entities/#"), secured=True)
    with TracedEntity(directory / "pump-7", "127.0.0.1", overlay.ports["site"], wishes=wishes) as pump:
        assert wait_until(lambda: pump.stage is Stage.TRACED)
        pump.state("READY")
        pump.load({"cpu": 0.25, "task": "filling"})
        traced = {"JOIN", "READY", "LOAD_INFORMATION", "ALLS_WELL"}
        assert wait_until(lambda: traced <= {row.kind for row in found}, PATIENCE_S), query.exception()
    assert wait_until(lambda: any(row.kind == "DISCONNECT" for row in found), PATIENCE_S), query.exception()
    query.stop()
    said = {row.kind: row for row in found if row.kind is not None}
    assert {(row.gateway, row.entity, row.topic) for row in said.values()} == {
        ("site", "pump-7", "plant/entities/site/pump-7/trace")
    }
    assert (said["LOAD_INFORMATION"].load, said["DISCONNECT"].state) == ({"cpu": 0.25}, "disconnected")
    assert said["READY"].state == "ready"
    assert said["ALLS_WELL"].latency_ms < 60_000
    overlay.stop()
    kept = [directory / "spool", *(directory / f"data-{name}" for name in REPLICAS)]
    files = [path for each in kept for path in each.rglob("*") if path.is_file()]
    files += [directory / f"{name}.log" for name in REPLICAS]
    assert len(files) > 2 * len(REPLICAS)
    for path in files:
        assert b"pump-7" not in path.read_bytes(), path
