"""Waiting for what real processes, threads and sockets do: a condition is looked at until it holds.

Only where no clock can be passed in; a machine that takes `now` is never waited for. A bound guards against a hang
alone, so that it is the same, and large, wherever the test does not go on when it has passed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 120.0
"""What a machine of two slow cores with four workers may need for anything that happens at all."""


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE_S, every_s: float = 0.02) -> bool:
    """Whether it holds within that time; to be asserted, beside what one wants to see if it does not."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(every_s)
    return bool(condition())


async def until(
    condition: Callable[[], object], seconds: float = PATIENCE_S, what: str | Callable[[], str] = "it"
) -> None:
    """The event loop turns until it holds. Real time, so that a loop whose clock leaps is waited for as well."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        await asyncio.sleep(0.001)
