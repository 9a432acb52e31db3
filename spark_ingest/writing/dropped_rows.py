"""Rows that the watermark of a query dropped, counted from Spark's progress and told in the log.

Spark counts such rows in silence. A listener of the session reads each progress.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any
from weakref import WeakSet

from pyspark.sql.streaming.listener import StreamingQueryListener

QUERIES_MAX = 256
"""Queries that are counted; of more, those go first that were silent for longest."""
_log = logging.getLogger(__name__)
_listened: WeakSet[Any] = WeakSet()


def dropped_rows(progress: Any) -> int:
    """Returns the rows of a micro-batch that watermarks dropped. `progress`: a StreamingQueryProgress."""
    return sum(int(each.numRowsDroppedByWatermark) for each in progress.stateOperators)


class DroppedRows(StreamingQueryListener):
    """A listener that tells the log of dropped rows, a line for each micro-batch with some."""

    def __init__(self) -> None:
        self.counts: OrderedDict[str, int] = OrderedDict()
        """Dropped rows by query, since the listener began."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark chose these names
        """Does nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Counts the micro-batch."""
        number = dropped_rows(event.progress)
        if not number:
            return
        query = event.progress.name or str(event.progress.id)
        self.counts[query] = self.counts.pop(query, 0) + number
        while len(self.counts) > QUERIES_MAX:
            self.counts.popitem(last=False)
        _log.warning(
            "veilmq: the watermark of query %s dropped %d rows as too late, %d in all; a longer watermark keeps such "
            "rows, and redriven rows need column progress_at",
            query,
            number,
            self.counts[query],
        )

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Does nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Does nothing."""


def say_dropped(spark: Any) -> None:
    """Adds the listener to a session; once is enough, again does no harm."""
    if spark not in _listened:
        _listened.add(spark)
        spark.streams.addListener(DroppedRows())
