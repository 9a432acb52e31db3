"""When a tracing broker judges: behind everything that could be read, on either event loop."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from bridge.contract import Tick
from gateway.tracing.broker_tracing import Tracing


class Recorded:
    """Stands for the tracer: what it was given, in order."""

    next_deadline = None

    def __init__(self) -> None:
        self.events: list[object] = []

    def __len__(self) -> int:
        return 0

    def handle(self, event: object, now: float) -> list[object]:
        self.events.append("judged" if isinstance(event, Tick) else event)
        return []

    def restore(self, records: object, now: float) -> list[object]:
        return []


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_what_lies_in_sockets_is_read_before_anybody_is_judged(loop: Any) -> None:
    async def scenario() -> None:
        running, tracer = asyncio.get_running_loop(), Recorded()
        tracing = Tracing(tracer, None, None, lambda count: None)  # type: ignore[arg-type]
        tracing.start(object())  # type: ignore[arg-type]
        pairs = [socket.socketpair() for _ in range(50)]
        for ours, theirs in pairs:
            ours.setblocking(False)
            running.add_reader(ours, lambda ours=ours: tracer.events.append(ours.recv(64)))
            theirs.send(b"answer")  # it lies there when the timer comes
        tracing._wake()
        for _ in range(6):
            await asyncio.sleep(0)
        assert tracer.events == [b"answer"] * 50 + ["judged"]
        for ours, theirs in pairs:
            running.remove_reader(ours)
            ours.close()
            theirs.close()
        tracing.stop()

    made = loop()
    try:
        made.run_until_complete(scenario())
    finally:
        made.close()
