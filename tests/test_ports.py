"""Ports of tests are free, differ, and lie outside the range of outgoing connections."""

from __future__ import annotations

import socket

import pytest

from tests import ports


def test_ports_differ_and_none_is_taken() -> None:
    with socket.socket() as taken:
        first = ports.free_ports(1)[0]
        taken.bind(("127.0.0.1", first))
        taken.listen()
        assert not ports.is_free(first)
        given = ports.free_ports(100)
    assert len(set(given)) == 100
    assert first not in given
    assert set(given) <= set(ports.PORTS)


def test_no_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(OSError, match="no 2 ports of 23000 to 31999 are free"):
        ports.free_ports(2)
