"""What `veilmq ingest status` says of a spool."""

from __future__ import annotations

from pathlib import Path

from spark_ingest.spool.status import status_of, told
from spark_ingest.spool.writer import SpoolWriter
from tests.gateway.overlay_processes import run_veilmq


def test_status_of_spools_without_anything(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, "main", cap_bytes=1 << 20)
    writer.roll(b"")
    assert "receiver main: running, 0 rows in 1 segments" in told(status_of(tmp_path))
    writer.close()
    assert "receiver main: not running" in told(status_of(tmp_path))
    ended = run_veilmq("ingest", "status", str(tmp_path / "nowhere"))
    assert (ended.returncode, ended.stderr.count("is no spool")) == (2, 1)
