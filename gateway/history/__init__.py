"""Histories on disk: sealed records of scopes with a history, and their readings for clients.

`segments` is a file of records, `archive` all files with their bounds, `keeper` serves an event loop. `rereading` gives
clients what was, then what is live. `local` is the history of a broker without overlay. Rules of the protocol stand in
`bridge`.

Source: docs/protocol-options.md §12.1.
"""

from __future__ import annotations

from gateway.history.archive import Archive, HistoryError, Reach
from gateway.history.keeper import HistoryKeeper
from gateway.history.local import LocalHistory
from gateway.history.rereading import Give, Rereading

__all__ = ["Archive", "Give", "HistoryError", "HistoryKeeper", "LocalHistory", "Reach", "Rereading"]
