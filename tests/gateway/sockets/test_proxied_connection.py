"""A connection behind a proxy has the address that the proxy named, whatever its socket says."""

from __future__ import annotations

from gateway.base import Limits
from gateway.sockets.proxied_connection import ProxiedConnection


class Core:
    limits = Limits()


def test_its_peer_is_the_client() -> None:
    connection = ProxiedConnection(("192.0.2.7", 40_000), Core(), None, "default", False, False)
    assert connection.peer == ("192.0.2.7", 40_000)
    assert connection.address == "192.0.2.7:40000"
