"""Several paho clients on a thread, driven through paho's interface for programs with their own loop.

With `loop_start` each client has a thread; at some hundred messages a second these threads take the interpreter from
each other more often than they work, and the demonstration's clients would cost as much as its replicas.
"""

from __future__ import annotations

import contextlib
import select
import time

from paho.mqtt.client import Client
from paho.mqtt.enums import MQTTErrorCode

from gateway.demo.child import Commands

LOOK_EVERY_S = 0.5
"""Seconds between checks of the clients' keep-alive and connections."""
LISTEN_EVERY_S = 0.1
"""Longest wait of a command, in seconds."""


class PahoLoop:
    """The loop that reads, writes and connects for its clients, whose addresses `connect_async` has set."""

    def __init__(self, *clients: Client) -> None:
        self._clients = clients
        self._look_at = 0.0

    def serve(self, seconds: float) -> None:
        """Serves the clients for `seconds`; with 0 does only the work that is due now."""
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            if now >= self._look_at:
                self._look_at = now + LOOK_EVERY_S
                self._check_clients()
            open_ = {socket: client for client in self._clients if (socket := client.socket()) is not None}
            full = [socket for socket, client in open_.items() if client.want_write()]
            wait_s = max(0.0, min(until, self._look_at) - now)
            readable, writable, _ = select.select(list(open_), full, [], wait_s)
            for socket in readable:
                open_[socket].loop_read()
            for socket in writable:
                open_[socket].loop_write()
            if time.monotonic() >= until:
                return

    def _check_clients(self) -> None:
        for client in self._clients:
            if client.loop_misc() != MQTTErrorCode.MQTT_ERR_SUCCESS:
                with contextlib.suppress(OSError):  # no listener there yet: the next check tries again
                    client.reconnect()

    def next_word(self, commands: Commands, seconds: float) -> str | None:
        """Serves for `seconds` or until a command comes; returns the command, or None."""
        until = time.monotonic() + seconds
        while True:
            left_s = until - time.monotonic()
            self.serve(min(max(left_s, 0.0), LISTEN_EVERY_S))
            word = commands.next_word(0.0)
            if word is not None or left_s <= LISTEN_EVERY_S:
                return word
