"""Turns of the event loop: nobody is judged before what lies unread was read.

A broker that was held up finds timers that ended and data that came long ago, and whatever order its event loop takes
them in, who spoke in time must not be taken for silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def behind_reads(act: Callable[[], None]) -> None:
    """Call it when whatever can be read by now was read: in the turn of the event loop behind the next one."""
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, act)
