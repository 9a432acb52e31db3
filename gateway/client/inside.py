"""A client of our own broker, within its process: over a pair of sockets, without listener and login.

The broker knows the client by its name as an internal part and asks no plugin for its rights; the user of the client
has to check rights.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Protocol

from gateway.client.mqtt_client import MqttClient


class Here(Protocol):
    """Our broker. `internal` returns the broker's end of a connection to a part of this process."""

    def internal(self, listener: str) -> asyncio.Protocol: ...


class LocalEnd(MqttClient):
    """An internal client.

    `name`: of its session and its bounds in the broker; begins with `gateway.clients.INTERNAL`.
    """

    def __init__(self, name: str, here: Here, **options: Any) -> None:
        super().__init__("", 0, client_id=name, keep_alive_s=0, **options)
        self._name, self._here = name, here

    async def _open_connection(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        try:
            await loop.connect_accepted_socket(lambda: self._here.internal(self._name), theirs)
            await loop.create_connection(lambda: self, sock=ours)
        except BaseException:
            if self._out.transport is None:
                ours.close()  # otherwise the broker would wait for our CONNECT
            raise
