"""Packing of a receiver's finished segments, if asked for: option `pack`, `veilmq ingest run --pack`.

Packing opens the rows of the segments. A receiver writes the file of scope keys and so could open them; its operator
has to consent. `veilmq ingest pack` does the work in a process of its own, at low priority:
the receiver's loop never waits for it, and opened rows are gone with that process. It runs when a session
begins and whenever a segment is finished, and again after a while if segments were left.

Not here: how segments are packed (`spark_ingest.packing`).
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
"""The pause after a segment could not be packed, or another process was packing: a key may come, and that process
ends.
"""
NICER = 10
"""Receiving goes before packing."""
TOLD_MAX = 1 << 20
"""Bytes of output that one run may have."""
_log = logging.getLogger(__name__)


class PackRunEnd(NamedTuple):
    """The end of a run: exit status, 0 if no segment is left, and its output, a line a segment."""

    status: int
    told: str


StartPacking: TypeAlias = Callable[[Sequence[str]], Awaitable[PackRunEnd]]
"""A function that runs a command to its end, and kills it when cancelled."""


class SegmentPacker:
    """The packer of a receiver, for a session: `run` until cancelled, `finished` when a segment is finished."""

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
        """Takes the receiver's part of the spool.

        `name`: of the receiver, whose part alone is packed. `identity`: directory of the identity to which the file
        of
        scope keys is sealed.
        """
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
        """Notes that a segment grows no more."""
        self._finished.set()

    async def run(self) -> None:
        """Packs until cancelled. Never raises for the outcome of a run."""
        while True:
            self._finished.clear()
            try:
                ended = await self._start([sys.executable, "-m", "spark_ingest.cli", *self._arguments])
            except OSError as error:  # no process is to be had
                ended = PackRunEnd(2, str(error))
            self._log_segments(ended)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), self._again_s if ended.status else None)

    def _log_segments(self, ended: PackRunEnd) -> None:
        """Logs each line about a segment once, however often it comes."""
        lines = ended.told.splitlines()
        for line in lines:
            if line not in self._told:
                LogEvent.RECEIVER_PACKS.say(_log, self._name, line)
        self._told = set(lines) if ended.status else set()


async def run_nicely(command: Sequence[str]) -> PackRunEnd:
    """Runs a command at low priority, as a `StartPacking`. Raises OSError."""
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
