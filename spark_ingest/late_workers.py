"""Queries that start again when Spark gave a Python worker too little time to start.

Spark ends a query whose Python process has not connected within ten seconds, and has no setting for that time (Spark
4.3, `PythonWorkerFactory`). A small or busy machine needs longer now and then. A query goes on from its checkpoint, so
that a second start loses and repeats nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

STARTS_MAX = 5
"""Starts in a row without success that a query gets; a machine that needs more has another fault."""
_LATE = "Python worker failed to connect back"


class PatientQuery:
    """Streaming query that starts again after a late worker. `start()`: starts the query from its checkpoint, which
    must be the same one each time.
    """

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._query = start()
        self._starts = 1

    @property
    def progress(self) -> Any:
        """Progress of the last micro-batches, as Spark tells it."""
        return self._query.recentProgress

    def ended(self, seconds: float) -> bool:
        """Waits so long for the end of the query. Returns True if there is one. Raises the query's error."""
        try:
            if not self._query.awaitTermination(seconds):
                return False
        except Exception as error:
            if _LATE not in str(error) or self._starts >= STARTS_MAX:
                raise
            self._query = self._start()
            self._starts += 1
            return False
        return True

    def stop(self) -> None:
        """Stops the query."""
        self._query.stop()
