"""Common rhythm of a process's regular looks, so that looks of all its parts wake the process together.

A look costs little, a wake-up of a process at rest some hundred microseconds. Processes have phases of their own: those
of one machine do not wake all at once.
"""

from __future__ import annotations

import asyncio
import random

PHASE_S = random.random()  # noqa: S311  no secret


def until_next(every_s: float) -> float:
    """Returns the seconds until the next look of those that come each `every_s`: from half of that to half as much
    again.
    """
    left_s = every_s - (asyncio.get_running_loop().time() + PHASE_S) % every_s
    return left_s if left_s > every_s / 2 else left_s + every_s
