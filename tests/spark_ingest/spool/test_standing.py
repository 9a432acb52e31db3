"""How far behind each consumer is, and who runs."""

from __future__ import annotations

import time
from pathlib import Path

from spark_ingest.spool.consumers import Consumer
from spark_ingest.spool.segments import Size
from spark_ingest.spool.standing import standings
from spark_ingest.spool.view import SpoolView
from tests.spark_ingest.spool.test_segments import fill, opened


def made(root: Path, rows: int = 400) -> SpoolView:
    """Segments of 50 rows each."""
    fill(opened(root, segment=10_000), range(rows))
    return SpoolView(root)


def test_standings_tell_rows_bytes_and_who_runs(tmp_path: Path) -> None:
    view = made(tmp_path, 100)
    first, second = Consumer(tmp_path, "first", view), Consumer(tmp_path, "second", view, retain_s=60)
    first.attach()
    start = first.register()
    second.register()
    first.commit(view.advance(start, 30))
    found = {each.name: each for each in standings(tmp_path)}
    assert found["first"].behind is not None
    assert found["first"].behind.sealed_batches == 70
    assert found["second"].behind == view.sizes_between({}, view.latest())["main"]
    assert (found["first"].running, found["second"].running) == (True, False)
    assert found["second"].retain_s == 60
    assert abs(found["first"].committed - time.time()) < 60
    first.commit(view.latest())
    assert {each.name: each.behind for each in standings(tmp_path)}["first"] == Size(0, 0)
