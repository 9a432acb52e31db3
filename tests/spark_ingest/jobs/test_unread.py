"""A stopped job says how many sealed batches it left."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spark_ingest.jobs.unread import unread_sealed_batches
from spark_ingest.source.marks import MARK
from spark_ingest.spool import Offset, SpoolView
from tests.spark_ingest.jobs.test_queries import Spool


def progress(end: Offset | None) -> Any:
    return SimpleNamespace(sources=[SimpleNamespace(endOffset=None if end is None else json.dumps(end))])


def test_what_lies_behind_the_last_micro_batch_was_not_read(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    ends: list[Offset] = []
    for piece in range(3):
        for number in range(5):
            spool.publish("plant/a", b"1", piece + number / 10)
        spool.write()
        ends.append({MARK: {"owner": "x"}, **SpoolView(spool.root).latest()})
    told = [progress(end) for end in ends]
    left = [unread_sealed_batches(spool.root, told[:count]) for count in range(4)]
    assert left == [15, 10, 5, 0]
    assert unread_sealed_batches(spool.root, [progress(None)]) == 15, "a query that has begun"
