"""Broker of local clients: admission, subscriptions, the exchange of publications, wills.

It extends amqtt's `Broker` and replaces its data plane. Imports every room below it; never `overlay`, which it meets
through `clients.overlay_port`.
"""

from __future__ import annotations

from gateway.broker.edge_broker import EdgeBroker
from gateway.broker.exchange import Exchange
from gateway.broker.lifecycle import Lifecycle
from gateway.broker.member_sessions import LINK_LIMITS
from gateway.broker.running import make_broker, run_broker

__all__ = [
    "LINK_LIMITS",
    "EdgeBroker",
    "Exchange",
    "Lifecycle",
    "make_broker",
    "run_broker",
]
