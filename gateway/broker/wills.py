"""Wills: published as the client's own publications, if it may, when its connection is gone without a DISCONNECT.

The session decides the time and delay (`mqtt5.session`). If a plugin needs time to decide on a due will, its client
may be back before. The will is published all the same (MQTT 5.0 §3.1.2.5), but no packet of the new connection counts
before it (`decided`): otherwise `offline` would follow `online`. Tracing does not take such a will for a death.
"""

from __future__ import annotations

from gateway.broker.exchange import Exchange, is_reserved
from gateway.broker.offering import offer
from gateway.broker.session_shares import owner_of
from gateway.clients import Client, Undecided
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Will
from gateway.plugins import Action


def publish_will(exchange: Exchange, client: Client, will: Will) -> None:
    """Publishes a will if the client may."""
    if client.peer is not None:
        return  # members publish their clients' wills themselves
    permitted = will.topic not in exchange.own_topics
    if exchange.tracing is not None:
        will, may = exchange.tracing.willing(client.client_id, will)
        permitted = permitted and may
    verdict = permitted and exchange.host.verdict(client.view, will.topic, Action.PUBLISH)
    if verdict is None:
        waits = Undecided()
        if exchange.in_order(_asking(exchange, client, will, waits)):
            exchange.undecided.setdefault(client.client_id, []).append(waits)
    elif verdict:
        _accept(exchange, client, will)


async def decided(exchange: Exchange, client_id: str) -> None:
    """Waits for the wills of a client's former connections, and marks the client as back."""
    for waits in exchange.undecided.get(client_id, [])[:]:
        waits.is_back = True
        await waits.decision


async def _asking(exchange: Exchange, client: Client, will: Will, waits: Undecided) -> None:
    try:
        if await exchange.host.ask_topic_plugins(client.view, will.topic, Action.PUBLISH):
            _accept(exchange, client, will, is_back=waits.is_back)
    finally:
        waits.decision.set_result(None)
        left = exchange.undecided[client.client_id]
        left.remove(waits)
        if not left:
            del exchange.undecided[client.client_id]


def _accept(exchange: Exchange, client: Client, will: Will, *, is_back: bool = False) -> None:
    if is_reserved(will.topic):
        return
    if exchange.tracing is not None and not is_back:
        exchange.tracing.willed(client.client_id, will)
    message = Message.of_will(will, exchange.now(), client.client_id)
    overlay = exchange.overlay
    circles, defects, owner = exchange.delivery.circles, exchange.traffic.defects, owner_of(client.view)
    if overlay is None or offer(overlay, client.client_id, message, exchange.now(), _nothing, defects, circles, owner):
        exchange.inject(message, client.view)


def _nothing(code: int) -> None:
    """Does nothing: a will has no acknowledgement."""
