"""Transport of an accepted connection: address of the peer, TLS, and state.

Not here: reading and writing (`connection.py`).

Detection of vanished machines by the operating system: unanswered probes and unacknowledged bytes end a connection.
"""

from __future__ import annotations

import asyncio
import socket
from sys import intern
from typing import Any

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


class AcceptedTransport(asyncio.Protocol):
    """Protocol at this end of a transport; `listener` names where it was accepted. `closed`: nothing more is read or
    written.
    """

    def __init__(self, listener: str) -> None:
        self.listener = listener
        self.closed = False
        self._transport: asyncio.Transport | None = None

    @property
    def peer(self) -> tuple[str, int] | None:
        """The address and port of the client."""
        name = self._transport.get_extra_info("peername") if self._transport else None
        return (intern(str(name[0])), int(name[1])) if isinstance(name, tuple | list) and len(name) >= 2 else None

    @property
    def address(self) -> str:
        peer = self.peer
        return f"{peer[0]}:{peer[1]}" if peer else f"client of listener {self.listener}"

    @property
    def tls(self) -> Any:
        """The `ssl.SSLObject` of the connection, or None."""
        return self._transport.get_extra_info("ssl_object") if self._transport else None

    def probe_host(self, within_s: float) -> None:
        """Lets the system end the connection of a peer whose machine is gone for `within_s` seconds."""
        probe_host(self._transport, within_s)

    def _unsent(self) -> int:
        """Returns the number of written bytes the peer has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _is_open(self) -> bool:
        # uvloop raises where asyncio ignores what comes between the peer's close and `connection_lost`.
        return self._transport is not None and not self.closed and not self._transport.is_closing()
