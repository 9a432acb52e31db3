"""Detection of vanished machines by the operating system: unanswered probes and unacknowledged bytes end a connection.

This costs the broker nothing. Pings of the application remain for what only they can show: that the program on that
machine still runs. Where the system has no such options (not Linux), or the client is on this machine, nothing is
set.
"""

from __future__ import annotations

import asyncio
import socket

PROBES = 3


def probe_host(transport: asyncio.BaseTransport | None, within_s: float) -> None:
    """Ends this connection when its peer's machine did not answer for `within_s`, seconds."""
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6) or not hasattr(socket, "TCP_USER_TIMEOUT"):
        return
    pause_s = max(1, int(within_s / (PROBES + 2)))
    # uvloop's object makes a new socket for each option; this is one socket, and closes nothing.
    ours = socket.socket(sock.family, sock.type, sock.proto, sock.fileno())
    try:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, pause_s)
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, pause_s)
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(within_s * 900))
    except OSError:
        pass  # it ended meanwhile
    finally:
        ours.detach()
