"""One write a turn of the event loop: in order, counted once it was handed over, and nothing without a connection."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.base.figures import LinkFigures
from gateway.client.batched import BatchedWriter


class Transport:
    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)


def made() -> tuple[BatchedWriter, Any, LinkFigures]:
    figures = LinkFigures()
    writer, transport = BatchedWriter(figures), Transport()
    writer.transport = transport  # type: ignore[assignment]
    return writer, transport, figures


def test_what_one_turn_writes_is_one_write() -> None:
    async def scenario() -> None:
        writer, transport, figures = made()
        for data in (b"a", b"bc", b"def"):
            writer.write(data)
        assert (transport.writes, figures.sent_bytes) == ([], 0)
        await asyncio.sleep(0)
        assert (transport.writes, figures.sent_bytes) == ([b"abcdef"], 6)
        writer.write(b"g")
        writer.flush()
        assert transport.writes == [b"abcdef", b"g"]
        await asyncio.sleep(0)
        assert len(transport.writes) == 2, "nothing is left to write"
        writer.write(b"h")
        await asyncio.sleep(0)
        assert transport.writes[2:] == [b"h"]

    asyncio.run(scenario())


def test_without_a_connection_nothing_is_sent_and_what_waited_can_be_forgotten() -> None:
    async def scenario() -> None:
        writer, transport, figures = made()
        writer.transport = None
        writer.write(b"of the former connection")
        await asyncio.sleep(0)
        assert figures.sent_bytes == 0
        writer.clear_buffer()
        writer.transport = transport
        writer.write(b"new")
        await asyncio.sleep(0)
        assert transport.writes == [b"new"]

    asyncio.run(scenario())
