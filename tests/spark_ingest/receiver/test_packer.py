"""Packing at a receiver: when, how often, and what is said of it. Runs are the test's own, but for the last two."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from spark_ingest.receiver.packer import TOLD_MAX, PackRunEnd, SegmentPacker, run_nicely
from tests.spark_ingest.packs import filled

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The test, in a loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 30))

    return run


class Runs:
    """Each ends as it is told to."""

    def __init__(self) -> None:
        self.commands: list[Sequence[str]] = []
        self._ends: asyncio.Queue[PackRunEnd | OSError] = asyncio.Queue()
        self.begun = asyncio.Semaphore(0)

    async def __call__(self, command: Sequence[str]) -> PackRunEnd:
        self.commands.append(command)
        self.begun.release()
        end = await self._ends.get()
        if isinstance(end, OSError):
            raise end
        return end

    def end(self, status: int, told: str = "") -> None:
        self._ends.put_nowait(PackRunEnd(status, told))

    def fail(self) -> None:
        self._ends.put_nowait(OSError("no process is to be had"))


@contextlib.asynccontextmanager
async def packing(runs: Runs, again_s: float = 1e6) -> AsyncIterator[SegmentPacker]:
    packer = SegmentPacker(Path("/s"), "west", Path("/k"), Path("/i"), 1000, start=runs, again_s=again_s)
    task = asyncio.ensure_future(packer.run())
    yield packer
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@in_loop
async def test_it_runs_at_once_and_after_each_finished_segment_one_at_a_time() -> None:
    runs = Runs()
    async with packing(runs) as packer:
        await runs.begun.acquire()
        packer.finished()
        packer.finished()
        await asyncio.sleep(0)
        assert len(runs.commands) == 1
        runs.end(0)
        await runs.begun.acquire()  # two were finished meanwhile: one run packs both
        runs.end(0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(runs.commands) == 2
    assert list(runs.commands[0][1:]) == [
        "-m", "spark_ingest.cli", "pack", "/s", "--grants", "/k", "--receiver", "west", "--cap-bytes", "1000",
        "--grants-identity", "/i",
    ]  # fmt: skip


@pytest.mark.parametrize("status", [1, 2, None])
@in_loop
async def test_what_was_left_is_tried_again_and_told_once(caplog: pytest.LogCaptureFixture, status: int | None) -> None:
    caplog.set_level(logging.INFO)
    runs = Runs()
    async with packing(runs, again_s=0.0):
        for _ in range(3):
            await runs.begun.acquire()
            runs.fail() if status is None else runs.end(status, "west 1: not packed\n")
        await runs.begun.acquire()
        runs.end(0, "west 1: packed\n")
    assert caplog.text.count("no process" if status is None else "not packed") == 1


@in_loop
async def test_the_command_packs_a_spool(tmp_path: Path) -> None:
    job = filled(tmp_path)
    command = [sys.executable, "-m", "spark_ingest.cli", "pack", str(job.root), "--grants", str(job.grants)]
    status, told = await run_nicely(command)
    assert (status, job.pack_at().exists()) == (0, True)
    assert told.startswith("main 1: packed, 20 rows")


@in_loop
async def test_a_command_that_says_too_much_or_is_not_waited_for_leaves_nothing_behind() -> None:
    endless = f"print('x' * {2 * TOLD_MAX}, flush=True)"
    status, told = await run_nicely([sys.executable, "-c", endless])
    assert (status, len(told) <= TOLD_MAX) == (0, True)
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    before = set(children.read_text().split())  # a JVM of other tests, say
    waiting = asyncio.ensure_future(run_nicely(["sleep", "1000"]))
    while not (new := set(children.read_text().split()) - before):
        await asyncio.sleep(0)
    (child,) = new
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    while Path(f"/proc/{child}").exists():
        await asyncio.sleep(0)


@in_loop
async def test_a_run_that_is_not_waited_for_has_ended_before_its_loop_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else asyncio complains in the log of a receiver that is told to end."""
    begun: list[asyncio.subprocess.Process] = []
    begin = asyncio.create_subprocess_exec

    async def noted(*command: str, **how: Any) -> asyncio.subprocess.Process:
        begun.append(await begin(*command, **how))
        return begun[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    running = asyncio.ensure_future(run_nicely(["sleep", "1000"]))
    while not begun:
        await asyncio.sleep(0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert begun[0].returncode is not None
