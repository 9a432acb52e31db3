"""Sockets, TLS contexts and WebSockets of the broker's listeners.

Imports `base` only.
"""

from __future__ import annotations

from gateway.listening.listeners import (
    BACKLOG,
    OURS,
    accepting,
    amqtt_config,
    amqtt_listener,
    open_sockets,
    open_unix_socket,
    remove_stale_socket,
    serve_adapter,
    server_context,
)
from gateway.listening.proxied import ProxiedServer
from gateway.listening.websocket import WebSocketProtocol

__all__ = [
    "BACKLOG",
    "OURS",
    "ProxiedServer",
    "WebSocketProtocol",
    "accepting",
    "amqtt_config",
    "amqtt_listener",
    "open_sockets",
    "open_unix_socket",
    "remove_stale_socket",
    "serve_adapter",
    "server_context",
]
