"""A loop in a thread of its own begins before `start` returns, ends when it is told, and says what it raised."""

from __future__ import annotations

import asyncio

from spark_ingest.receiver.looping import LoopThread

PATIENCE_S = 10.0


def test_it_runs_until_it_is_stopped_and_may_be_stopped_again() -> None:
    steps: list[str] = []

    async def main(stop: asyncio.Event) -> None:
        steps.append("begun")
        await stop.wait()
        steps.append("ended")

    thread = LoopThread(main, lambda error: steps.append(str(error)))
    thread.start()
    assert thread.alive
    thread.stop(PATIENCE_S)
    assert (thread.alive, steps) == (False, ["begun", "ended"])
    thread.stop(PATIENCE_S)


def test_what_it_raises_is_told_and_ends_it() -> None:
    told: list[Exception] = []

    async def main(stop: asyncio.Event) -> None:
        raise ValueError("no such region")

    thread = LoopThread(main, told.append)
    thread.start()
    thread.stop(PATIENCE_S)
    assert (thread.alive, [str(error) for error in told]) == (False, ["no such region"])
