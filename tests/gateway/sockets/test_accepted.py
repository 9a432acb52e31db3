"""Whose connection it is, with and without a transport that says so.

A traced entity's connection is probed by the system; a Unix socket has no machine at its other end.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from gateway.sockets.accepted import PROBES, AcceptedTransport, probe_host
from gateway.tracing.assembly import Spoken
from tests.gateway.harness import Wire
from tests.gateway.traced_site import Site


def test_the_system_is_told_to_probe_within_what_was_asked_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Site(tmp_path).serving() as broker:
            await Wire.connect(broker, "pump")
            Spoken(broker).probe_host("pump", 10.0)
            Spoken(broker).probe_host("nobody", 10.0)
            connection = broker.lifecycle.clients["pump"].connection
            sock = connection._transport.get_extra_info("socket")  # type: ignore[union-attr]
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            idle_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            pause_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
            assert idle_s + PROBES * pause_s <= 10
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 9_000

    asyncio.run(scenario())


class Transport(asyncio.BaseTransport):
    def __init__(self, sock: socket.socket | None) -> None:
        super().__init__({"socket": sock})


def test_what_has_no_machine_behind_it_is_left_alone() -> None:
    ours, theirs = socket.socketpair()
    for transport in (None, Transport(None), Transport(ours)):
        probe_host(transport, 10.0)
    assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
    ours.close()
    theirs.close()


class Named(asyncio.Transport):
    """A transport whose other end is `peername`."""

    def __init__(self, peername: object, closing: bool = False) -> None:
        super().__init__({"peername": peername})
        self._closing = closing

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return 7


def over(transport: Any) -> AcceptedTransport:
    accepted = AcceptedTransport("default")
    accepted._transport = transport
    return accepted


@pytest.mark.parametrize(
    ("peername", "peer", "address"),
    [
        (("192.0.2.1", 5), ("192.0.2.1", 5), "192.0.2.1:5"),
        (("2001:db8::1", 5, 0, 0), ("2001:db8::1", 5), "2001:db8::1:5"),
        ("/run/socket", None, "client of listener default"),
        (None, None, "client of listener default"),
    ],
)
def test_the_other_end_is_named_where_the_transport_knows_it(peername: object, peer: object, address: str) -> None:
    accepted = over(Named(peername))
    assert (accepted.peer, accepted.address, accepted.tls) == (peer, address, None)


def test_without_a_transport_it_is_nobodys_and_not_open() -> None:
    accepted = AcceptedTransport("default")
    assert (accepted.peer, accepted.tls, accepted._unsent(), accepted._is_open()) == (None, None, 0, False)


def test_it_is_open_until_either_end_closes() -> None:
    accepted = over(Named(None))
    assert accepted._is_open()
    assert accepted._unsent() == 7
    accepted.closed = True
    assert not accepted._is_open()
    assert not over(Named(None, closing=True))._is_open()
