"""Whose connection it is, with and without a transport that says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.sockets.accepted import AcceptedTransport


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
