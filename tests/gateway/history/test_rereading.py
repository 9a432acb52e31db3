"""Readings for local clients: the past first, then what is live, each once, and no more than there is room for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import astuple, replace

import pytest

from bridge.contract import (
    Deliver,
    Event,
    HoldReading,
    Publication,
    ReadAgain,
    ReadAgainDone,
    ReadAgainLive,
    Reread,
    StopReading,
)
from gateway.history import rereading as rereading_module
from gateway.history.rereading import LOOK_MOST_S, LOOK_S, OVERHEAD_BYTES, Rereading
from tests.waits import until


class Reader:
    """A client and the node behind it. `room`: how many messages it takes."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.got: list[bytes] = []
        self.room, self.is_done = 1_000, False
        self.rereading = Rereading("desk", self.events.append, lambda: 100.0)

    def begin(self, *scopes: tuple[int, str]) -> Callable[[], None]:
        has_room = lambda: len(self.got) < self.room  # noqa: E731
        return self.rereading.begin_reading("plant/#", scopes, 5, self.give, has_room, self.done, "ann")

    def give(self, publication: Publication) -> None:
        self.got.append(publication.payload)

    def done(self) -> None:
        self.is_done = True


def told(number: int, publisher: str = "site", topic: str = "plant/a", time_ms: int = 1_000) -> Deliver:
    return Deliver(publisher, number, Publication(topic, b"%d" % number, 1, time_ms=time_ms), scope="plant/#")


def test_the_past_then_live_without_gap_or_repetition() -> None:
    asyncio.run(_the_past_then_live_without_gap_or_repetition())


async def _the_past_then_live_without_gap_or_repetition() -> None:
    reader = Reader()
    reader.begin((1, "plant/#"))
    assert reader.events == [ReadAgain(1, 1, 5, "ann")]
    rereading = reader.rereading
    rereading.delivered(told(0))  # live already, and not for this client yet: the past has it
    rereading.effect(Reread((1,), (told(1),)))
    rereading.effect(Reread((1,), (told(2, topic="other/a"),)))
    rereading.effect(ReadAgainLive(1))
    rereading.delivered(told(4))
    rereading.take_published(Publication("plant/own", b"own", 1), "plant/#")
    rereading.effect(Reread((1,), (told(3),)))
    rereading.effect(Reread((1,), (told(4),)))
    rereading.effect(Reread((1,), (told(9, publisher="desk", time_ms=100_500),)))  # our own: it came live
    assert not reader.is_done
    rereading.effect(ReadAgainDone(1, True))
    assert reader.got == [b"1", b"3", b"4", b"own"]
    assert reader.is_done
    assert not rereading


def test_a_client_without_room_holds_the_reading_and_misses_nothing() -> None:
    asyncio.run(_a_client_without_room_holds_the_reading_and_misses_nothing())


async def _a_client_without_room_holds_the_reading_and_misses_nothing() -> None:
    reader = Reader()
    reader.begin((1, "plant/#"))
    reader.room = 2
    for number in range(5):
        reader.rereading.effect(Reread((1,), (told(number),)))
    await asyncio.sleep(0)
    assert reader.events[-1] == HoldReading(1, True)
    reader.rereading.effect(ReadAgainLive(1))
    reader.rereading.effect(ReadAgainDone(1, True))
    reader.rereading.delivered(told(5))
    assert not reader.is_done
    reader.room = 1_000
    await until(lambda: reader.is_done)
    assert reader.got == [b"%d" % number for number in range(6)]
    assert reader.is_done


def test_a_client_gets_a_large_batch_in_turns_with_others_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereading_module, "TURN_S", 0.0)
    asyncio.run(_a_client_gets_a_large_batch_in_turns())


async def _a_client_gets_a_large_batch_in_turns() -> None:
    reader = Reader()
    reader.begin((1, "plant/#"))
    reader.rereading.effect(Reread((1,), tuple(map(told, range(5)))))
    reader.rereading.effect(ReadAgainDone(1, True))
    had = len(reader.got)
    assert had < 5
    asyncio.get_running_loop().call_soon(reader.got.append, b"live")
    await until(lambda: reader.is_done)
    assert reader.got[had] == b"live"
    assert [each for each in reader.got if each != b"live"] == [b"%d" % number for number in range(5)]


def test_several_scopes_end_together_and_a_stop_ends_all() -> None:
    asyncio.run(_several_scopes_end_together_and_a_stop_ends_all())


async def _several_scopes_end_together_and_a_stop_ends_all() -> None:
    reader = Reader()
    stop = reader.begin((1, "plant/#"), (2, "plant/b/#"))
    reader.rereading.effect(ReadAgainDone(1, True))
    assert not reader.is_done
    stop()
    assert StopReading(2) in reader.events
    reader.rereading.effect(Reread((2,), (told(1),)))
    assert reader.got == []
    assert not reader.rereading


@pytest.mark.attack(166)
@pytest.mark.parametrize("bound", ["count", "bytes"])
def test_a_client_that_takes_nothing_does_not_make_live_publications_pile_up(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """Attack: a client asks for the past and takes nothing of it, so that its last lap never ends."""
    entry = len(b"1000") + len("plant/a") + OVERHEAD_BYTES
    if bound == "count":
        monkeypatch.setattr(rereading_module, "WAITING_MAX", 10)
    else:
        monkeypatch.setattr(rereading_module, "WAITING_BYTES_MAX", 10 * entry)
    asyncio.run(_a_client_that_takes_nothing())


async def _a_client_that_takes_nothing() -> None:
    reader = Reader()
    reader.begin((1, "plant/#"))
    reader.room = 0
    reader.rereading.effect(Reread((1,), (told(1_000),)))
    reader.rereading.effect(ReadAgainLive(1))
    (reading,) = reader.rereading._readings.values()
    for number in range(1_001, 2_001):
        reader.rereading.delivered(told(number))
        reader.rereading.take_published(Publication("plant/a", b"%d" % (number + 1_000), 1), "plant/#")
        assert len(reading.waiting) + len(reading.kept) <= 10
    reader.rereading.effect(ReadAgainDone(1, True))
    for number in range(2_001, 2_100):
        reader.rereading.delivered(told(number))
        assert len(reading.waiting) <= 10
    reader.room = 1_000
    await until(lambda: reader.is_done)
    assert reader.got == [b"%d" % number for number in range(2_090, 2_100)], "the oldest go"
    assert reading.size == 0


def test_a_publication_that_waits_for_a_plugin_is_overtaken_by_none() -> None:
    async def check() -> None:
        reader, answer = Reader(), asyncio.Event()
        given = reader.give

        async def later(publication: Publication) -> None:
            await answer.wait()
            given(publication)

        reader.give = lambda publication: later(publication) if publication.payload == b"1" else given(publication)  # type: ignore[method-assign, assignment]
        stop = reader.begin((1, "plant/#"))
        for number in (0, 1, 2):
            reader.rereading.effect(Reread((1,), (told(number),)))
        reader.rereading.effect(ReadAgainLive(1))
        reader.rereading.effect(ReadAgainDone(1, True))
        await asyncio.sleep(0)
        reader.rereading.delivered(told(3))
        assert reader.got == [b"0"]
        assert not reader.is_done
        answer.set()
        await until(lambda: reader.is_done)
        assert reader.got == [b"0", b"1", b"2", b"3"]
        assert not reader.rereading
        stop()
        answer.clear()
        stop = reader.begin((2, "plant/#"))
        reader.rereading.effect(Reread((2,), (told(1),)))
        stop()
        answer.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(reader.got) == 4

    asyncio.run(check())


def test_a_client_without_room_is_looked_at_less_and_less_until_it_takes_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attack: many clients ask for the past and take nothing, so that looking at them costs the broker its time."""
    pauses: list[float] = []
    looks: list[Callable[[], object]] = []

    class Loop:
        def call_soon(self, *call: object) -> None:
            """Holds and releases are not looked at here."""

        def call_later(self, delay_s: float, call: Callable[..., object], *arguments: object) -> None:
            pauses.append(delay_s)
            looks.append(lambda: call(*arguments))

    monkeypatch.setattr(rereading_module.asyncio, "get_running_loop", Loop)
    reader = Reader()
    reader.room = 1
    reader.begin((1, "plant/#"))
    for number in range(4):
        reader.rereading.effect(Reread((1,), (told(number),)))
    for _ in range(12):
        looks.pop()()
    assert pauses[:3] == [LOOK_S, 2 * LOOK_S, 4 * LOOK_S]
    assert pauses[-1] == LOOK_MOST_S
    reader.room = 2
    looks.pop()()
    assert reader.got == [b"0", b"1"]
    assert pauses[-1] == LOOK_S


def test_a_past_publication_keeps_all_but_its_retain_flag() -> None:
    whole = Publication(
        "plant/a", b"x", 1, True, "text/plain", "answers/a", b"7", 1, (("site", "north"),), 60, 1_000, 3, True, "ann"
    )
    told = (*whole.properties, ("published", "1970-01-01T00:00:01.000Z"))
    past = rereading_module._as_past(whole)
    assert astuple(past) == astuple(replace(whole, retain=False, properties=told))
