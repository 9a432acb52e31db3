"""Counters of the broker's traffic.

Connections and the exchange add to `Traffic` once a read, a write or a publication, never once a delivery. On demand
the broker adds the figures of its sessions (`Snapshot`).
"""

from __future__ import annotations

import time
from dataclasses import fields
from typing import TYPE_CHECKING

from gateway.base import Defects
from gateway.mqtt5.actions import SessionFigures
from gateway.mqtt5.packets import Publish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.mqtt5.packets import Packet


class Traffic:
    """The totals since the start. `packets`: of any type. `flooded`: deliveries no session counts.

    `held`: publications that waited for a receiver. `evaluated`: publications to topics with a subscription that has
    a predicate. `withheld`: deliveries left out because the predicate does not hold. `defects`: internal errors.
    """

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "clients_maximum",
        "connects",
        "defects",
        "ended",
        "evaluated",
        "expired",
        "flooded",
        "flooded_bytes",
        "held",
        "packets_received",
        "packets_sent",
        "publish_bytes_received",
        "publish_received",
        "sockets",
        "started_at",
        "withheld",
    )

    def __init__(self) -> None:
        self.started_at = time.time()
        self.sockets = self.connects = self.clients_maximum = self.expired = 0
        self.bytes_received = self.bytes_sent = 0
        self.packets_received = self.packets_sent = 0
        self.publish_received = self.publish_bytes_received = 0
        self.flooded = self.flooded_bytes = self.held = self.evaluated = self.withheld = 0
        self.defects = Defects()
        self.ended = SessionFigures()  # of ended sessions

    def read(self, packets: Sequence[Packet]) -> None:
        """Counts the packets of a read."""
        self.packets_received += len(packets)
        if len(packets) == 1:  # most reads have one packet; a list and its sum would cost twice as much
            packet = packets[0]
            if type(packet) is Publish:
                self.publish_received += 1
                self.publish_bytes_received += len(packet.payload)
            return
        payloads = [len(packet.payload) for packet in packets if type(packet) is Publish]
        if payloads:
            self.publish_received += len(payloads)
            self.publish_bytes_received += sum(payloads)

    def session_ended(self, figures: SessionFigures | None) -> None:
        """Adds the figures of an ended session; None if the session counted nothing."""
        if figures is not None:
            add_up(self.ended, figures)


_FIGURES = tuple(field.name for field in fields(SessionFigures))


def add_up(total: SessionFigures, figures: SessionFigures) -> None:
    """Adds a single session's figures to a sum."""
    for name in _FIGURES:
        setattr(total, name, getattr(total, name) + getattr(figures, name))
