"""What a connection writes, collected and handed to its transport once per turn of the event loop: one system call, one
TLS record. Nothing is bounded here: who writes heeds `pause_writing`."""

from __future__ import annotations

import asyncio

from gateway.base import LinkFigures


class BatchedWriter:
    """See the module. Bytes that were handed over count as sent in `figures`."""

    def __init__(self, figures: LinkFigures) -> None:
        self._figures = figures
        self._out: list[bytes] = []
        self._due = False
        self.transport: asyncio.Transport | None = None
        """None: no connection. What was not handed over when it ended is forgotten by `clear`."""

    def write(self, data: bytes) -> None:
        self._out.append(data)
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Now, not at the end of the turn."""
        self._due = False
        if self._out and self.transport is not None:
            data = b"".join(self._out)
            self._out.clear()
            self._figures.sent_bytes += len(data)
            self.transport.write(data)

    def clear(self) -> None:
        self._out.clear()
