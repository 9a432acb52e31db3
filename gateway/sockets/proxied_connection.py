"""Connection a proxy passed on: its peer is the client the proxy named."""

from __future__ import annotations

from sys import intern
from typing import Any

from gateway.sockets.connection import MqttConnection


class ProxiedConnection(MqttConnection):
    """Connection of a client behind a proxy. `client_peer`: address and port of the client."""

    def __init__(self, client_peer: tuple[str, int], *of_connection: Any) -> None:
        self._client_peer = intern(client_peer[0]), client_peer[1]
        super().__init__(*of_connection)

    @property
    def peer(self) -> tuple[str, int]:
        """The address and port of the client, not of the proxy."""
        return self._client_peer
