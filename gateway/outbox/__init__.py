"""Durable store of publications for the overlay: outbox, sequence numbers, seeds. An acknowledged publication is on
disk.

Imports `base` and machines of `bridge`.
"""

from __future__ import annotations

from gateway.outbox.database import open_database, store_error
from gateway.outbox.outgoing import Outgoing
from gateway.outbox.store import Store, sealing_key

__all__ = [
    "Outgoing",
    "Store",
    "open_database",
    "sealing_key",
    "store_error",
]
