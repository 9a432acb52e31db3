"""How seldom Python's garbage collector looks through the memory of a long-lived process.

What a process holds for a moment is freed by counting references. The collector only finds circles, which here are rare
and small; but with its default thresholds it looks through all modules and all sessions again and again, and nobody is
served meanwhile: some 20 ms each time in a fresh gateway, more with each client.
"""

from __future__ import annotations

import gc

THRESHOLDS = (100_000, 20, 20)
"""So many objects more than before, and it looks at the young ones; then how many times the young, before the older."""


def collect_seldom() -> None:
    """To be called once a process, when all that stays is loaded: that is not looked at again, not even now, when the
    first clients wait to be answered."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
