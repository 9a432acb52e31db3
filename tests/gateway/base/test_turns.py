"""What is judged is judged behind what could be read; owners of much work take turns."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

import pytest

from gateway.base import turns
from gateway.base.turns import ALONE_S, SHARED_S, TURN_S, FairTurns, behind_reads
from tests.gateway.harness import on_loop


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


@pytest.mark.attack(189)
@on_loop
async def test_owners_take_turns_however_much_work_each_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0.0)  # each act takes all of a turn
    queue, done = FairTurns(), list[str]()
    for number in range(3):
        queue.call("bad", partial(done.append, f"bad {number}"))
    queue.call("good", partial(done.append, "good"))
    await queue.wait_for_turn("bad")
    done.append("bad task")
    assert done == ["bad 0", "good", "bad 1", "bad 2", "bad task"]


@on_loop
async def test_small_pieces_of_one_owner_share_a_turn_and_what_they_make_comes_behind_others() -> None:
    queue, done = FairTurns(), list[str]()

    def again() -> None:
        done.append("bad 0")
        queue.call("bad", partial(done.append, "bad 2"))

    queue.call("bad", again)
    queue.call("bad", partial(done.append, "bad 1"))
    queue.call("good", partial(done.append, "good"))
    await queue.wait_for_turn("last")
    await queue.wait_for_turn("last")
    assert done == ["bad 0", "bad 1", "good", "bad 2"]


@on_loop
async def test_what_was_made_for_others_leaves_before_a_turn() -> None:
    queue, done = FairTurns(), list[str]()
    queue.first = partial(done.append, "flushed")
    queue.call("bad", partial(done.append, "bad"))
    await queue.wait_for_turn("bad")
    assert done == ["flushed", "bad"]


@on_loop
async def test_a_turn_that_fails_and_a_caller_that_left_stop_nobody() -> None:
    queue, errors = FairTurns(), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(repr(context["exception"])))
    left = asyncio.ensure_future(queue.wait_for_turn("bad"))
    await asyncio.sleep(0)
    left.cancel()
    queue.call("bad", lambda: 1 / 0)
    await queue.wait_for_turn("bad")
    assert len(errors) == 1


@on_loop
async def test_turns_go_on_when_what_was_made_for_others_cannot_leave() -> None:
    queue, errors, failures = FairTurns(), list[str](), iter([ConnectionResetError()])

    def fail() -> None:
        for failure in failures:
            raise failure

    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(repr(context["exception"])))
    queue.first = fail
    await asyncio.wait_for(queue.wait_for_turn("good"), 1)
    assert len(errors) == 1


@pytest.mark.attack(189)
@on_loop
async def test_reads_are_taken_as_they_come_for_a_while_in_each_turn_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "READS_S", 0.0)
    queue = FairTurns()
    assert not queue.reads_go_on()
    monkeypatch.setattr(turns, "READS_S", 60.0)
    assert not queue.reads_go_on(), "the same turn"
    await asyncio.sleep(0)
    assert queue.reads_go_on()


def test_a_read_may_last_longer_while_data_of_one_connection_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    now, fair, one, other = [100.0], FairTurns(), object(), object()
    monkeypatch.setattr(turns, "perf_counter", lambda: now[0])
    fair.note_data(one)
    assert fair.read_s == TURN_S, "another may have sent before"
    assert not fair.is_alone
    now[0] += SHARED_S
    fair.note_data(one)
    assert fair.is_alone
    assert fair.read_s == ALONE_S
    fair.note_data(other)
    fair.note_data(one)
    fair.note_data(one)
    assert fair.read_s == TURN_S, "another sent a moment ago"
    now[0] += SHARED_S
    assert fair.read_s == ALONE_S
