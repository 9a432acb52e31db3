"""Turns of the event loop: a client is judged only after its unread data was read.

A broker that was held up finds timers that ended and data that came long ago. In any order in which the event loop
takes them, a client that sent in time must not be taken for silent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def behind_reads(act: Callable[[], None]) -> None:
    """Calls `act` after all data that can be read by now was read: in the turn of the event loop behind the next
    one.
    """
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, act)


OTHERS_SHARE = 0.25
"""The part of a turn's time that others must take in the turn behind it to be given as long as it took."""


async def give_way(took_s: float) -> None:
    """Lets everything run that is ready, behind a turn that took so long, and gives it as long again if there is much
    of it. A long task that calls this has half of the event loop beside others, and all of it alone.
    """
    began = time.perf_counter()
    await asyncio.sleep(0)
    if time.perf_counter() - began > OTHERS_SHARE * took_s:
        await asyncio.sleep(took_s)
