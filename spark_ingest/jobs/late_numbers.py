"""Numbers that `windows` left out because they came too late: the numbers read, less the numbers in windows.

Spark counts what a watermark drops behind its first sums of a micro-batch, and so not in rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from spark_ingest.jobs.queries import NUMBERS

BATCHES_MAX = 1_000
"""Micro-batches whose windows wait for Spark's progress; it follows at once."""


class LateNumbers:
    """A counter over the micro-batches of a query. Not for several threads at once."""

    def __init__(self) -> None:
        self.read = 0
        """Numbers read, of micro-batches whose windows and progress are both there."""
        self.left_out = 0
        self._windows: dict[tuple[datetime, str], tuple[datetime, int]] = {}
        self._counted: dict[int, int] = {}

    def count(self, batch: int, windows: Iterable[Mapping[str, Any]]) -> None:
        """Takes the changed windows of a micro-batch; a batch that comes again changes nothing."""
        more = 0
        for each in windows:
            key = (each["start"], each["topic"])
            more += each["count"] - self._windows.get(key, (each["end"], 0))[1]
            self._windows[key] = (each["end"], each["count"])
        self._counted[batch] = self._counted.get(batch, 0) + more
        while len(self._counted) > BATCHES_MAX:
            del self._counted[next(iter(self._counted))]

    def progress(self, told: Iterable[Any]) -> None:
        """Takes StreamingQueryProgress objects, which may come again."""
        for each in told:
            if each.batchId not in self._counted or NUMBERS not in each.observedMetrics:
                continue
            rows = int(each.observedMetrics[NUMBERS]["rows"])
            self.read += rows
            self.left_out += rows - self._counted.pop(each.batchId)
            self._forget(each.eventTime.get("watermark"))

    def _forget(self, watermark: str | None) -> None:
        """Drops windows that ended before the watermark: nothing is added to them."""
        if watermark is not None:
            until = datetime.fromisoformat(watermark).replace(tzinfo=None)
            self._windows = {key: known for key, known in self._windows.items() if known[0] > until}
