"""What `veilmq ingest status` says of a spool."""

from __future__ import annotations

import json
from pathlib import Path

from keys.records import encode
from spark_ingest.spool.backfilled import BackfillRecord, ScopeRecord, answered, ask
from spark_ingest.spool.status import status_of, told
from spark_ingest.spool.writer import SpoolWriter
from tests.gateway.overlay_processes import run_veilmq
from tests.spark_ingest.region import Link, Overlay, Publisher


def test_status_of_spools_without_anything(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, "main", cap_bytes=1 << 20)
    writer.roll(b"")
    assert "receiver main: running, 0 sealed batches in 1 segments" in told(status_of(tmp_path))
    writer.close()
    assert "receiver main: not running" in told(status_of(tmp_path))
    ended = run_veilmq("ingest", "status", str(tmp_path / "nowhere"))
    assert (ended.returncode, ended.stderr.count("is no spool")) == (2, 1)


def test_status_says_no_rows_where_it_counts_sealed_batches(tmp_path: Path) -> None:
    """A sealed batch holds many publications, which only a reader with keys can count: they alone are rows."""
    link, writer = Link(Overlay()), SpoolWriter(tmp_path, "main", cap_bytes=1 << 30)
    writer.roll(b"")
    publications = encode(b"\1" * 10, [0] * 10, [b"plant/a"] * 10, [b""] * 10, [b"1"] * 10)
    link.publish(Publisher(link.overlay).seal("plant/a", clear=publications))
    link.write(writer)
    status = status_of(tmp_path)
    (part,) = status.receivers
    assert part.sealed_batches == 1
    assert "1 sealed batches in" in told(status)
    assert "rows" not in told(status)
    assert "rows" not in json.loads(status.to_json())["receivers"][0]
    writer.close()


def test_status_says_how_far_a_backfill_is(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, "main", cap_bytes=1 << 20)
    writer.roll(b"")
    assert status_of(tmp_path).receivers[0].backfill is None
    ask(tmp_path / "main", 1_000)
    assert "receiver main: its backfill goes on: 0 sealed batches of history written; waits for replicas" in told(
        status_of(tmp_path)
    )
    answered(tmp_path / "main")
    BackfillRecord(1_000, {1: ScopeRecord(0, 4_000, 1_000), 2: ScopeRecord(0, 9, 0, True, True)}, 1_234).store(
        tmp_path / "main"
    )
    writer.close()
    status = status_of(tmp_path)
    assert "its backfill waits for the receiver: 1,234 sealed batches of history written; scope 1 25%" in told(status)
    found = json.loads(status.to_json())["receivers"][0]["backfill"]
    assert (found["scopes"], found["refused"], found["is_over"]) == ({"1": 0.25, "2": 1.0}, [2], False)
    BackfillRecord(1_000, {1: ScopeRecord(0, 4_000, 1_000, True)}, 9, is_over=True).store(tmp_path / "main")
    assert "its backfill is over: 9 sealed batches of history written; scope 1 100%" in told(status_of(tmp_path))
