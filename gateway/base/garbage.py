"""Rarer runs of Python's garbage collector through the memory of a long-lived process.

Short-lived objects are freed by counting references. The collector only finds circles, which here are rare and small.
With its default thresholds it looks through all modules and all sessions again and again, and no client is served
meanwhile: some 20 ms each time in a fresh gateway, more with each client.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.base.rhythm import until_next

THRESHOLDS = (1_000, 5, 5_000)
"""New objects before a look at the young ones; then the looks at each generation before a look at the next older
one. A look takes up to 0.3 ms for a thousand objects, and nobody is served meanwhile: the young are few, and all
objects are looked at after 25 million new ones only.
"""
LOOKS = 350_000
"""The looks at middle-aged objects before one at all, where looks go by the clock: a day of a broker that rests."""
LOOK_S = 0.001
"""The time that a look at young objects may take; after a longer one the next comes sooner."""
PAUSE_MIN_S, PAUSE_S, PAUSE_MAX_S = 0.02, 0.32, 1.0
"""Between two looks by the clock: the shortest, the first, and that of a process at rest, whose looks come together
with others (`rhythm`), since each wakes it.
"""


def collect_seldom() -> None:
    """Excludes all loaded objects from collection and sets THRESHOLDS. Call once a process, when all permanent objects
    are loaded. Runs no collection even now, when the first clients wait for answers.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def collect_by_clock(loop: asyncio.AbstractEventLoop) -> None:
    """Does as `collect_seldom`, and looks at young objects by the clock for as long as the loop runs.

    The collector counts how many more objects there are than before. In a full table each new entry replaces an old
    one: nothing is counted, a hundred thousand young objects come together, and one look at them takes 25 ms.
    """
    collect_seldom()
    gc.set_threshold(*THRESHOLDS[:2], LOOKS)
    _look(loop, PAUSE_S / 2)


def pause_after(took_s: float, pause_s: float) -> float:
    """Returns the pause behind a look that took so long after the pause before it."""
    if took_s > LOOK_S:
        return max(PAUSE_MIN_S, pause_s / 2)
    return min(PAUSE_MAX_S, 2 * pause_s) if took_s < LOOK_S / 8 else pause_s


def _look(loop: asyncio.AbstractEventLoop, pause_s: float) -> None:
    began = time.thread_time()
    gc.collect(1)
    pause_s = pause_after(time.thread_time() - began, pause_s)
    loop.call_later(pause_s if pause_s < PAUSE_MAX_S else until_next(PAUSE_MAX_S), _look, loop, pause_s)


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspends collection while objects are made that stay, and excludes them from it afterwards: else the collector
    looks through all of them again and again, for more than half of the time that it takes to make 100,000 sessions.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
