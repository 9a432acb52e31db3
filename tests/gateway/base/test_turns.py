"""What is judged is judged behind what could be read."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from gateway.base.turns import behind_reads, give_way


@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_what_lay_there_is_read_before_anybody_is_judged(loops: str) -> None:
    async def check() -> list[str]:
        done: list[str] = []
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(ours, lambda: done.append(ours.recv(9).decode()))
        theirs.send(b"read")

        def judge() -> None:
            done.append("judged")
            ended.set()

        loop.call_later(0, behind_reads, judge)
        await ended.wait()
        loop.remove_reader(ours)
        ours.close()
        theirs.close()
        return done

    factory = asyncio.new_event_loop
    if loops == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(check()) == ["read", "judged"]


def test_a_long_task_sleeps_only_if_others_have_work() -> None:
    async def slept(works_s: float) -> bool:
        loop, sleeps = asyncio.get_running_loop(), []
        sleep = asyncio.sleep

        async def noted(delay_s: float) -> None:
            sleeps.append(delay_s)
            await sleep(0)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "sleep", noted)
            loop.call_soon(time.sleep, works_s)
            await give_way(works_s or 60.0)
        return sleeps[1:] == [works_s]

    assert asyncio.run(slept(0.02))
    assert not asyncio.run(slept(0.0))
