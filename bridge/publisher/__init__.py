"""The publisher side at a gateway: from committed outbox entries to sealed publications at every replica of its
region.

Data keys, sealing, windows towards replicas, repair, own retained publications. Imports `wire` and below; never
replica or reader.
"""

from __future__ import annotations

from bridge.publisher.entry import Entry
from bridge.publisher.intake import NothingLeft, OutboxIntake, Shelf
from bridge.publisher.next_key import SigningKey
from bridge.publisher.publisher import Publisher
from bridge.publisher.sealing import clear_of
from bridge.publisher.windows import WINDOW_MAX

__all__ = [
    "WINDOW_MAX",
    "Entry",
    "NothingLeft",
    "OutboxIntake",
    "Publisher",
    "Shelf",
    "SigningKey",
    "clear_of",
]
