"""The history of a replica on disk: sealed records of scopes with a history (docs/protocol.md §12.1).

`segments` is a file of records, `archive` all files with their bounds, `keeper` serves an event loop. Rules of the
protocol stand in `bridge`.
"""

from __future__ import annotations

from gateway.history.archive import Archive, HistoryError, Reach
from gateway.history.keeper import HistoryKeeper

__all__ = ["Archive", "HistoryError", "HistoryKeeper", "Reach"]
