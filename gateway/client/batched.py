"""Batched writes of a connection: collected, and handed to the transport once per turn of the event loop.

A turn takes a single system call and makes a single TLS record. Nothing is bounded here: a writer heeds
`pause_writing`.
"""

from __future__ import annotations

import asyncio

from gateway.base import LinkFigures


class BatchedWriter:
    """The buffer of a connection's writes, flushed once per turn. Flushed bytes count as sent in `figures`."""

    def __init__(self, figures: LinkFigures) -> None:
        self._figures = figures
        self._out: list[bytes] = []
        self.is_due = False
        """True if bytes wait for the end of the turn."""
        self.transport: asyncio.Transport | None = None
        """The transport, or None without a connection. `clear_buffer` drops bytes that were unsent at the connection's
        end.
        """

    def write(self, data: bytes) -> None:
        self._out.append(data)
        if not self.is_due:
            self.is_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Writes the buffer now, without waiting for the end of the turn."""
        self.is_due = False
        if self._out and self.transport is not None:
            data = b"".join(self._out)
            self._out.clear()
            self._figures.sent_bytes += len(data)
            self.transport.write(data)

    def clear_buffer(self) -> None:
        self._out.clear()
