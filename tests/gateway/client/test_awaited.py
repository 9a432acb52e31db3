"""Who waits for an acknowledgement hears one answer, and one publication at a time is timed."""

from __future__ import annotations

import pytest

from gateway.base.figures import LinkFigures
from gateway.client import awaited
from gateway.client.awaited import Acknowledgements, Awaiting
from gateway.mqtt5.client_session import Completed


class Clock:
    now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(awaited, "time", made)
    return made


def completed(token: Awaiting, code: int = 0) -> Completed:
    return Completed(token=token, code=code)


def test_one_answer_reaches_whom_it_concerns() -> None:
    acks, heard = Acknowledgements(LinkFigures()), list[object]()
    for code in (0, 0x10, 0x80, 0x87):
        acks.take_completed(
            completed(acks.awaiting_for(lambda: heard.append("ack"), heard.append, written_now=False), code)
        )
    assert heard == ["ack", "ack", 0x80, 0x87]
    assert acks.refused == 2
    for code in (0, 0x87):
        acks.take_completed(completed(acks.awaiting_for(None, None, written_now=False), code))


def test_the_first_that_is_written_is_timed_until_its_acknowledgement(clock: Clock) -> None:
    figures = LinkFigures()
    acks = Acknowledgements(figures)
    first = acks.awaiting_for(None, None, written_now=True)
    acks.start_timing(first)
    clock.now += 1
    second = acks.awaiting_for(None, None, written_now=True)
    acks.start_timing(second)
    acks.take_completed(completed(second))
    assert figures.acknowledge_s is None, "the first is timed"
    clock.now += 2
    acks.take_completed(completed(first))
    assert figures.acknowledge_s == 3.0


def test_what_waits_in_a_queue_is_not_timed(clock: Clock) -> None:
    figures = LinkFigures()
    acks = Acknowledgements(figures)
    queued = acks.awaiting_for(None, None, written_now=False)
    acks.start_timing(queued)
    clock.now += 5
    acks.take_completed(completed(queued))
    assert figures.acknowledge_s is None


@pytest.mark.parametrize("end", ["lost", "refused"])
def test_after_a_loss_or_a_refusal_another_one_is_timed(clock: Clock, end: str) -> None:
    figures = LinkFigures()
    acks = Acknowledgements(figures)
    first = acks.awaiting_for(None, None, written_now=True)
    acks.start_timing(first)
    if end == "lost":
        acks.stop_timing()
    else:
        acks.take_completed(completed(first, 0x97))
    clock.now += 7
    second = acks.awaiting_for(None, None, written_now=True)
    acks.start_timing(second)
    clock.now += 1
    acks.take_completed(completed(second))
    assert figures.acknowledge_s == 1.0
