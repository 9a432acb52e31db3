"""Transport of an accepted connection: address of the peer, TLS, and state.

Not here: reading and writing (`connection.py`).
"""

from __future__ import annotations

import asyncio
from sys import intern
from typing import Any

from gateway.sockets.host_probes import probe_host


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
