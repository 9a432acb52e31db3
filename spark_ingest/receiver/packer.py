"""A receiver that packs what it has finished, if it was told to: option `pack`, `veilmq ingest run --pack`.

Packing opens what the segments hold. A receiver writes the file of scope keys, so it could; that it does takes the
consent of whoever runs it. The work is `veilmq ingest pack` in a process of its own, at the end of the processor's
queue: the receiver's loop waits for none of it, and what it opens is gone with that process. It runs when a session
begins and whenever a segment is finished, and again after a while if something was left.

Not here: what is packed and how (`spark_ingest.packing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from gateway.base.log_events import LogEvent

AGAIN_S = 300.0
"""When a segment could not be packed, or another process was packing: a key may come, and that one ends."""
NICER = 10
"""What is received goes first."""
TOLD_MAX = 1 << 20
"""Bytes of what one run may say."""
_log = logging.getLogger(__name__)


class PackRunEnd(NamedTuple):
    """How a run ended: 0 if nothing is left, and what it said, a line a segment."""

    status: int
    told: str


StartPacking: TypeAlias = Callable[[Sequence[str]], Awaitable[PackRunEnd]]
"""Runs a command to its end; kills it when cancelled."""


class SegmentPacker:
    """Of one receiver, for one session: `run` in its loop until cancelled, `finished` when a segment is."""

    def __init__(
        self,
        spool: Path,
        name: str,
        grants: Path,
        identity: Path | None,
        cap_bytes: int,
        *,
        start: StartPacking | None = None,
        again_s: float = AGAIN_S,
    ) -> None:
        """`name`: of the receiver, whose part alone is packed. `identity`: directory of the one to which the file of
        scope keys is sealed."""
        self._name, self._again_s = name, again_s
        self._start = start or run_nicely
        self._arguments = [
            "pack",
            str(spool),
            "--grants",
            str(grants),
            "--receiver",
            name,
            "--cap-bytes",
            f"{cap_bytes}",
        ]
        if identity is not None:
            self._arguments += ["--grants-identity", str(identity)]
        self._finished = asyncio.Event()
        self._told: set[str] = set()

    def finished(self) -> None:
        """A segment grows no more."""
        self._finished.set()

    async def run(self) -> None:
        """Until cancelled. Never raises for what a run comes to."""
        while True:
            self._finished.clear()
            try:
                ended = await self._start([sys.executable, "-m", "spark_ingest.cli", *self._arguments])
            except OSError as error:  # no process is to be had
                ended = PackRunEnd(2, str(error))
            self._tell(ended)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), self._again_s if ended.status else None)

    def _tell(self, ended: PackRunEnd) -> None:
        """What is said of one segment again and again is logged once."""
        lines = ended.told.splitlines()
        for line in lines:
            if line not in self._told:
                LogEvent.RECEIVER_PACKS.say(_log, self._name, line)
        self._told = set(lines) if ended.status else set()


async def run_nicely(command: Sequence[str]) -> PackRunEnd:
    """A `StartPacking`. Raises OSError."""
    process = await asyncio.create_subprocess_exec(
        "nice", "-n", f"{NICER}", *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    try:
        told = await process.stdout.read(TOLD_MAX)
        while await process.stdout.read(TOLD_MAX):  # what is beyond is not kept
            continue
        return PackRunEnd(await process.wait(), told.decode(errors="replace"))
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()  # its end, before this loop's
