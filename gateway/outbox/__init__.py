"""Durable store of publications for the overlay: outbox and sequence numbers. An acknowledged publication is on disk.

Imports `base`, `data` and machines of `bridge`.
"""

from __future__ import annotations

from gateway.outbox.outgoing import Outgoing
from gateway.outbox.store import Store

__all__ = [
    "Outgoing",
    "Store",
]
