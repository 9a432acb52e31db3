"""Data directory of a member: its lock, its store key with the keys derived from it, its generation, seeds of splits.

Stores of publications and sessions lie in it, and raise `StoreError`. Imports `base`.
"""

from __future__ import annotations

from gateway.data.database import NoRoomError, StoreError, open_database, store_error
from gateway.data.directory import DataDirectory, in_a_line, sealing_key

__all__ = [
    "DataDirectory",
    "NoRoomError",
    "StoreError",
    "in_a_line",
    "open_database",
    "sealing_key",
    "store_error",
]
