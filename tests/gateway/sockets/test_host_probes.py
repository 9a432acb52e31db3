"""A traced entity's connection is probed by the system; a Unix socket has no machine at its other end."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from gateway.sockets.host_probes import PROBES, probe_host
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
