"""Turns of the event loop: a client is judged only after its unread data was read.

A broker that was held up finds timers that ended and data that came long ago. In any order in which the event loop
takes them, a client that sent in time must not be taken for silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def behind_reads(act: Callable[[], None]) -> None:
    """Calls `act` after all data that can be read by now was read: in the turn of the event loop behind the next
    one.
    """
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, act)
