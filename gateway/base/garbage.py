"""Rarer runs of Python's garbage collector through the memory of a long-lived process.

Short-lived objects are freed by counting references. The collector only finds circles, which here are rare and small.
With its default thresholds it looks through all modules and all sessions again and again, and no client is served
meanwhile: some 20 ms each time in a fresh gateway, more with each client.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (1_000, 5, 5_000)
"""New objects before a look at the young ones; then the looks at each generation before a look at the next older
one. A look takes up to 0.3 ms for a thousand objects, and nobody is served meanwhile: the young are few, and all
objects are looked at after 25 million new ones only.
"""


def collect_seldom() -> None:
    """Excludes all loaded objects from collection and sets THRESHOLDS. Call once a process, when all permanent objects
    are loaded. Runs no collection even now, when the first clients wait for answers.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


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
