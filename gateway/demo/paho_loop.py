"""Several paho clients on one thread, driven as paho offers it to a program that has its own loop.

With `loop_start` each client has a thread; with some hundred messages a second these take the interpreter from each
other more often than they work, and the demonstration's clients would cost as much as the replicas that it shows.
"""

from __future__ import annotations

import contextlib
import select
import time

from paho.mqtt.client import Client
from paho.mqtt.enums import MQTTErrorCode

from gateway.demo.child import Commands

LOOK_EVERY_S = 0.5
"""How often clients are asked for their keep alive, and connected again."""
LISTEN_EVERY_S = 0.1
"""How long a command waits at most."""


class PahoLoop:
    """Reads and writes for its clients, which `connect_async` told where to; first connections too."""

    def __init__(self, *clients: Client) -> None:
        self._clients = clients
        self._look_at = 0.0

    def serve(self, seconds: float) -> None:
        """Do what there is to do within so long; with 0 what can be done now."""
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            if now >= self._look_at:
                self._look_at = now + LOOK_EVERY_S
                self._look()
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

    def _look(self) -> None:
        for client in self._clients:
            if client.loop_misc() != MQTTErrorCode.MQTT_ERR_SUCCESS:
                with contextlib.suppress(OSError):  # nobody listens there yet: the next look tries again
                    client.reconnect()

    def next_word(self, commands: Commands, seconds: float) -> str | None:
        """Serve for so long, or until a command comes: that one."""
        until = time.monotonic() + seconds
        while True:
            left_s = until - time.monotonic()
            self.serve(min(max(left_s, 0.0), LISTEN_EVERY_S))
            word = commands.next(0.0)
            if word is not None or left_s <= LISTEN_EVERY_S:
                return word
