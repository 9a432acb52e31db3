"""A broker whose turns of the event loop are measured in processor time: `python -m tests.bench.loop_turns FILE broker
-c broker.yaml`.

On SIGUSR2 it writes a line of JSON to FILE, about the turns since the last one: how many, their processor time in
seconds, and in milliseconds the longest, the 99.9th percentile, and how long a packet that arrives at any moment waits
for the turn that runs then, on average, and the longest run of the garbage collector and its number of runs. Other
processes of the machine change none of it but the number.

The loop never rests meanwhile, so that this broker's other figures are not those of a broker.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import time
from functools import partial
from pathlib import Path

from gateway.broker.edge_broker import EdgeBroker
from gateway.cli import run


class LoopTurns:
    """Turns of the running event loop, in seconds of its thread."""

    def __init__(self) -> None:
        self.turns: list[float] = []
        self.collections: list[float] = []
        self._collecting_since = 0.0
        gc.callbacks.append(self._collects)

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_since = time.thread_time()
        else:
            self.collections.append(time.thread_time() - self._collecting_since)

    async def measure(self) -> None:
        while True:
            began, turns = time.thread_time(), self.turns
            await asyncio.sleep(0)
            if turns is self.turns:  # otherwise the turn was that of `write`
                turns.append(time.thread_time() - began)

    def write(self, path: Path) -> None:
        turns, self.turns = sorted(self.turns), []
        collections, self.collections = self.collections, []
        total = sum(turns)
        found = {
            "turns": len(turns),
            "cpu_s": round(total, 2),
            "longest_ms": round(1000 * turns[-1], 2),
            "p99.9_ms": round(1000 * turns[int(0.999 * len(turns))], 3),
            "wait_ms": round(1000 * sum(turn * turn for turn in turns) / (2 * total), 3),
            "collections": len(collections),
            "longest_collection_ms": round(1000 * max(collections, default=0.0), 2),
        }
        with path.open("a") as file:
            file.write(json.dumps(found) + "\n")


def main() -> int:
    path, turns, start = Path(sys.argv[1]), LoopTurns(), EdgeBroker.start

    async def started(broker: EdgeBroker) -> None:
        await start(broker)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR2, partial(turns.write, path))
        broker.measuring = loop.create_task(turns.measure())  # type: ignore[attr-defined]

    EdgeBroker.start = started  # type: ignore[method-assign,assignment]
    return run(sys.argv[2:])


if __name__ == "__main__":
    raise SystemExit(main())
