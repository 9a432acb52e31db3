"""Snapshot of the whole broker for `operation`, which shows it on `$SYS` and to Prometheus; made on request."""

from __future__ import annotations

import time

from gateway.broker.exchange import Exchange
from gateway.broker.lifecycle import Lifecycle
from gateway.mqtt5.actions import SessionFigures
from gateway.operation import BrokerSnapshot, add_up


def observe(lifecycle: Lifecycle, exchange: Exchange) -> BrokerSnapshot:
    """Returns a snapshot: time proportional to sessions, some microseconds for each."""
    total = SessionFigures()
    add_up(total, exchange.traffic.ended)
    connected = members = subscriptions = shared = queued = queued_bytes = in_flight = 0
    for client in lifecycle.clients.values():
        session = client.session
        if (counted := session.counted) is not None:
            add_up(total, counted)
        queued += len(session.waiting)
        queued_bytes += session.held_bytes
        in_flight += session.outbound.in_flight
        if client.peer is not None:
            members += client.connection is not None
            continue
        connected += client.connection is not None
        subscriptions += len(client.filters)
        shared += sum(topic_filter.startswith("$share/") for topic_filter in client.filters)
    return BrokerSnapshot(
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
        predicates=exchange.delivery.router.predicates,
        retained_messages=len(exchange.retained) + len(exchange.system),
        retained_bytes=exchange.retained.held_bytes,
        queued_messages=queued,
        queued_bytes=queued_bytes,
        in_flight=in_flight,
        held_now=exchange.holding.waiting,
        behind=len(exchange.holding.behind),
        reached=dict(exchange.reached.counts),
        histories=() if exchange.history is None else tuple(exchange.history.history_states()),
        history_lost=0 if exchange.history is None else exchange.history.lost,
    )
