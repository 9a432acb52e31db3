"""What went through the broker, counted where it passes, and the picture of a moment that operators are shown.

`Traffic` is written by connections and the exchange: one addition a read, a write or a publication, never one a
delivery. `observe` adds up the rest from the sessions when somebody asks. `$SYS` and Prometheus say it in their ways.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from .mqtt5.actions import SessionFigures
from .mqtt5.packets import Publish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .exchange import Exchange
    from .lifecycle import Lifecycle
    from .mqtt5.packets import Packet


class Traffic:
    """Totals since the start. `packets`: of any type. `flooded`: deliveries that no session counts."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "clients_maximum",
        "connects",
        "ended",
        "expired",
        "flooded",
        "flooded_bytes",
        "packets_received",
        "packets_sent",
        "publish_bytes_received",
        "publish_received",
        "sockets",
        "started_at",
    )

    def __init__(self) -> None:
        self.started_at = time.time()
        self.sockets = self.connects = self.clients_maximum = self.expired = 0
        self.bytes_received = self.bytes_sent = 0
        self.packets_received = self.packets_sent = 0
        self.publish_received = self.publish_bytes_received = 0
        self.flooded = self.flooded_bytes = 0
        self.ended = SessionFigures()  # of sessions that are no more

    def read(self, packets: Sequence[Packet]) -> None:
        """The packets of one read."""
        self.packets_received += len(packets)
        if len(packets) == 1:  # most reads; a list and its sum would cost twice as much
            packet = packets[0]
            if type(packet) is Publish:
                self.publish_received += 1
                self.publish_bytes_received += len(packet.payload)
            return
        payloads = [len(packet.payload) for packet in packets if type(packet) is Publish]
        if payloads:
            self.publish_received += len(payloads)
            self.publish_bytes_received += sum(payloads)

    def session_ended(self, figures: SessionFigures) -> None:
        add_up(self.ended, figures)


_FIGURES = tuple(field.name for field in fields(SessionFigures))


def add_up(total: SessionFigures, figures: SessionFigures) -> None:
    """Add one session's figures to a sum."""
    for name in _FIGURES:
        setattr(total, name, getattr(total, name) + getattr(figures, name))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The broker at one moment: gauges as they are, totals since the start."""

    traffic: Traffic
    figures: SessionFigures
    uptime_s: float
    connections: int
    half_open: int
    clients_connected: int
    sessions: int
    members: int
    subscriptions: int
    shared_subscriptions: int
    retained_messages: int
    retained_bytes: int
    queued_messages: int
    queued_bytes: int
    in_flight: int
    reached: dict[str, int]

    @property
    def published(self) -> int:
        """Publications sent, over all receivers."""
        return self.figures.delivered + self.traffic.flooded

    @property
    def published_bytes(self) -> int:
        return self.figures.delivered_bytes + self.traffic.flooded_bytes

    @property
    def dropped(self) -> dict[str, int]:
        """Publications that a receiver did not get, by reason."""
        figures = self.figures
        return {
            "qos0_away_or_slow": figures.dropped_qos0,
            "queue_full": figures.dropped_queue_full,
            "expired": figures.dropped_expired,
            "too_large": figures.dropped_too_large,
        }


def observe(lifecycle: Lifecycle, exchange: Exchange) -> Snapshot:
    """Look at everything: time proportional to sessions, some microseconds for each."""
    total = SessionFigures()
    add_up(total, exchange.traffic.ended)
    connected = members = subscriptions = shared = queued = queued_bytes = in_flight = 0
    for client in lifecycle.clients.values():
        session = client.session
        add_up(total, session.figures)
        queued += len(session.waiting)
        queued_bytes += session.held_bytes
        in_flight += session.outbound.in_flight
        if client.peer is not None:
            members += client.connection is not None
            continue
        connected += client.connection is not None
        subscriptions += len(client.filters)
        shared += sum(topic_filter.startswith("$share/") for topic_filter in client.filters)
    reached = dict(exchange.reached.counts)
    reached["queue_messages"] += total.dropped_queue_full - total.dropped_queue_bytes
    reached["queue_bytes"] += total.dropped_queue_bytes
    reached["in_flight"] += total.waited_in_flight
    reached["subscriptions"] += total.refused_subscriptions
    reached["subscription_bytes"] += total.refused_subscription_bytes
    return Snapshot(
        traffic=exchange.traffic,
        figures=total,
        uptime_s=time.time() - exchange.traffic.started_at,
        connections=len(lifecycle.connections),
        half_open=lifecycle.door.half_open,
        clients_connected=connected,
        sessions=len(lifecycle.clients) - len(lifecycle.peers),
        members=members,
        subscriptions=subscriptions,
        shared_subscriptions=shared,
        retained_messages=len(exchange.retained) + len(exchange.system),
        retained_bytes=exchange.retained.held_bytes,
        queued_messages=queued,
        queued_bytes=queued_bytes,
        in_flight=in_flight,
        reached=reached,
    )
