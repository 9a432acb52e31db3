"""Rows of a spool that a stopped job has not shown: those behind the end of its last finished micro-batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spark_ingest.spool import RECEIVER_NAME, SpoolView


def unread_sealed_batches(spool: Path, progress: Sequence[Any]) -> int:
    """Returns the number of sealed batches that no finished micro-batch has read.

    `progress`: StreamingQueryProgress objects of a query over the spool, the newest last; none: nothing is read.
    """
    end = progress[-1].sources[0].endOffset if progress else None
    read = json.loads(end) if end else {}
    view = SpoolView(spool, lossy=True)
    return view.rows_between({name: at for name, at in read.items() if RECEIVER_NAME.fullmatch(name)}, view.latest())
