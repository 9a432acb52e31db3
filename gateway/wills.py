"""Wills: published as the client's own publications, if it may, when its connection is gone without goodbye.

When that is, and after what delay, is the session's business (`mqtt5.session`).
"""

from __future__ import annotations

from .clients import Client
from .exchange import RESERVED_TOPICS, Exchange
from .mqtt5.message import Message
from .mqtt5.packets import Will
from .plugin import Action
from .publications import publication_of


def publish_will(exchange: Exchange, client: Client, will: Will) -> None:
    """Ask whether the client may, then publish."""
    if client.peer is not None:
        return  # members publish their clients' wills themselves
    permitted = will.topic not in exchange.own_topics
    if exchange.tracing is not None:
        will, may = exchange.tracing.willing(client.client_id, will)
        permitted = permitted and may
    verdict = permitted and exchange.host.verdict(client.view, will.topic, Action.PUBLISH)
    if verdict is None:
        exchange.in_order(_asking(exchange, client, will))
    elif verdict:
        _accept(exchange, client, will)


async def _asking(exchange: Exchange, client: Client, will: Will) -> None:
    if await exchange.host.ask(client.view, will.topic, Action.PUBLISH):
        _accept(exchange, client, will)


def _accept(exchange: Exchange, client: Client, will: Will) -> None:
    if will.topic.startswith(RESERVED_TOPICS):
        return
    if exchange.tracing is not None:
        exchange.tracing.willed(client.client_id, will)
    message = Message.of_will(will, exchange.now(), client.client_id)
    exchange.inject(message, client.view)
    if exchange.overlay is not None:
        exchange.overlay.publish(client.client_id, publication_of(message, exchange.now()), _nothing)


def _nothing(code: int) -> None:
    """Nobody waits for the acknowledgement of a will."""
