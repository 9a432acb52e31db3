"""What was read before a broker ends is decided and acknowledged, and nothing more is read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

from gateway.sockets.connection import MqttConnection
from gateway.sockets.flushing import DRAINING

DRAIN_LOOK_S = 0.005
"""How often `drain` looks whether everything is decided."""


async def drain(connections: Collection[MqttConnection], timeout_s: float) -> None:
    """Reads nothing more, and waits until what was read is decided and acknowledged."""
    for connection in connections:
        connection.pause(DRAINING)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while any(one.is_waiting or (one.client and one.client.acks) for one in connections):  # noqa: ASYNC110
                await asyncio.sleep(DRAIN_LOOK_S)
