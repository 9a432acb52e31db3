"""`veilmq`, which on SIGUSR1 counts its objects and unfinished tasks: `python -m tests.bench.soak_member broker -c F`.

A thread of its own waits for the signal and writes the counts as JSON to `F.counts`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import threading
from pathlib import Path

from gateway.cli import main


def counted() -> dict[str, int]:
    """Returns the number of objects that the collector tracks and has not frozen, and of tasks not done."""
    gc.collect()
    found = gc.get_objects()
    return {"objects": len(found), "tasks": sum(isinstance(one, asyncio.Task) and not one.done() for one in found)}


def _answer(file: Path) -> None:
    while True:
        signal.sigwait({signal.SIGUSR1})
        fresh = file.with_suffix(".fresh")
        fresh.write_text(json.dumps(counted()))
        fresh.replace(file)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # threads inherit the mask: the signal waits for ours
    threading.Thread(target=_answer, args=(Path(f"{sys.argv[-1]}.counts"),), name="counts", daemon=True).start()
    main()
