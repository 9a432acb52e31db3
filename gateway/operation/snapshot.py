"""Snapshot of the broker for operators: gauges, and totals since the start. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.base.figures import HistoryState
from gateway.mqtt5.actions import SessionFigures
from gateway.operation.traffic import Traffic


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """The broker at one moment: gauges, and totals since the start."""

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
    predicates: int
    retained_messages: int
    retained_bytes: int
    queued_messages: int
    queued_bytes: int
    in_flight: int
    held_now: int
    behind: int
    reached: dict[str, int]
    history_lost: int = 0
    histories: tuple[HistoryState, ...] = ()

    @property
    def published(self) -> int:
        """The number of publications sent, over all receivers."""
        return self.figures.delivered + self.traffic.flooded

    @property
    def published_bytes(self) -> int:
        return self.figures.delivered_bytes + self.traffic.flooded_bytes

    @property
    def dropped(self) -> dict[str, int]:
        """The number of publications a receiver did not get, by reason."""
        figures = self.figures
        return {
            "qos0_away_or_slow": figures.dropped_qos0,
            "queue_full": figures.dropped_queue_full,
            "expired": figures.dropped_expired,
            "too_large": figures.dropped_too_large,
            "without_right": figures.dropped_without_right,
        }
