"""End of a broker's reading: packets already read are decided and acknowledged, and nothing more is read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

from gateway.clients import Reached
from gateway.sockets.connection import MqttConnection
from gateway.sockets.flushing import DRAINING

LOOK_S = 0.005
"""Seconds between two checks if everything is decided, or all connections are gone."""


async def drain(connections: Collection[MqttConnection], timeout_s: float) -> None:
    """Stops reading, and waits until all packets already read are decided and acknowledged."""
    for connection in connections:
        connection.pause(DRAINING)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while any(one.is_waiting or (one.client and one.client.acks) for one in connections):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)


async def all_gone(connections: Collection[MqttConnection], reached: Reached, timeout_s: float) -> None:
    """Waits until no connection is left; cuts off the remaining ones after `timeout_s`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while connections:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
    for connection in list(connections):
        reached.note_bound("shutdown_s", connection.address)
        connection.abort()
