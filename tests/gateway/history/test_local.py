"""A broker's own history: order within a ms, turns of owners, old age, and what is not configured any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.contract import Publication
from bridge.document import DAY_S, History
from gateway.history import LocalHistory
from gateway.history import local as local_module
from gateway.history.archive import Archive
from tests.gateway.harness import on_loop
from tests.waits import until

KEPT = {"plant/#": History(1, 16), "yard/+": History(1, 16)}


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Client:
    """A client that reads the past. `room`: how many more messages it takes."""

    def __init__(self, history: LocalHistory, topic_filter: str, owner: str = "ann", since_ms: int = 0) -> None:
        self.got: list[bytes] = []
        self.times: list[str] = []
        self.is_live = False
        self.room = 1 << 30
        self.stop: Callable[[], None] = history.read_again(
            topic_filter, since_ms, self.give, lambda: len(self.got) < self.room, self.done, owner
        )

    def give(self, publication: Publication) -> None:
        self.got.append(publication.payload)
        self.times += [value for name, value in publication.properties if name == "published"]

    def done(self) -> None:
        self.is_live = True


def made(directory: Path, clock: Clock, kept: dict[str, History] = KEPT) -> LocalHistory:
    return LocalHistory(directory, lambda: bytes(32), kept, clock)


def say(history: LocalHistory, payload: bytes, owner: str = "ann", topic: str = "plant/a") -> None:
    history.record_publication(Publication(topic, payload, 1), owner, owner)


@pytest.mark.parametrize("page", [1, 1 << 16])
@on_loop
async def test_publications_of_one_ms_and_several_owners_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """By the archive alone they would be in the order of their owners, and the last value could be a former one."""
    monkeypatch.setattr(local_module, "PAGE_BYTES", page)
    clock = Clock()
    history = made(tmp_path, clock)
    for number in range(30):
        say(history, b"%d" % number, f"owner{number % 7}")
        clock.now += 0.001 * (number % 10 == 9)
    client = Client(history, "#")
    say(history, b"live")
    await until(lambda: client.is_live)
    assert client.got == [*(b"%d" % number for number in range(30)), b"live"]
    assert client.times[0] == "2027-01-15T08:00:00.000Z"
    assert len(client.times) == 30
    history.close()


@on_loop
async def test_only_the_span_and_the_filter_are_read(tmp_path: Path) -> None:
    clock = Clock()
    history = made(tmp_path, clock)
    say(history, b"old")
    clock.now += 3600
    say(history, b"new")
    say(history, b"beside", topic="plant/b")
    say(history, b"yard", topic="yard/a")
    say(history, b"kept nowhere", topic="other")
    client = Client(history, "+/a", since_ms=int((clock.now - 60) * 1000))
    nobody = Client(history, "other/#")
    await until(lambda: client.is_live and nobody.is_live)
    assert sorted(client.got) == [b"new", b"yard"]
    assert nobody.got == []
    history.close()


@on_loop
async def test_owners_take_turns_and_a_client_without_room_holds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: a user with many readings, one of which takes nothing; another user's short one does not wait."""
    monkeypatch.setattr(local_module, "PAGE_BYTES", 1)
    history = made(tmp_path, Clock())
    for number in range(200):
        say(history, b"%d" % number)
    say(history, b"short", topic="yard/a")
    greedy = [Client(history, "plant/#", "eve") for _ in range(10)]
    greedy[0].room = 0
    short = Client(history, "yard/#", "bob")
    await until(lambda: short.is_live)
    assert short.got == [b"short"]
    assert sum(len(each.got) for each in greedy) < 20
    greedy[1].stop()
    await until(lambda: all(each.is_live for each in greedy[2:]))
    assert all(len(each.got) == 200 for each in greedy[2:])
    assert not greedy[0].is_live
    greedy[0].room = 1 << 30
    await until(lambda: greedy[0].is_live)
    assert len(greedy[0].got) == 200
    history.close()
    assert not history._parts


@on_loop
async def test_what_is_too_old_goes_and_a_filter_that_is_configured_no_more(tmp_path: Path) -> None:
    clock = Clock()
    history = made(tmp_path, clock)
    say(history, b"old")
    say(history, b"yard", topic="yard/a")
    history.close()
    again = made(tmp_path, clock, {"plant/#": History(1, 16)})
    again.start()
    await until(lambda: len(list(tmp_path.glob("*.segment"))) == 1)
    assert len(again.history_states()) == 1
    await until(lambda: bool(again.history_states()[0].bytes))
    assert again.history_states()[0].first_ms == 1_800_000_000_000
    again.close()
    clock.now += 2 * DAY_S
    later = made(tmp_path, clock)
    later.start()
    await until(lambda: not list(tmp_path.glob("*.segment")))
    later.close()


@on_loop
async def test_a_damaged_record_is_left_out_and_what_fits_no_record_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = made(tmp_path, Clock())
    say(history, b"one")
    history.record_publication(Publication("plant/a", b"odd", 1, properties=(("a", "b"),) * 2000), "ann", "ann")
    assert history.lost == 1
    real = local_module.unpacked
    monkeypatch.setattr(
        local_module, "unpacked", lambda content, first: real(content[:-9] if first == 1 else content, first)
    )
    say(history, b"two")
    client = Client(history, "plant/#")
    await until(lambda: client.is_live)
    assert client.got == [b"two"]
    history.close()


@on_loop
async def test_a_disk_that_does_not_read_ends_the_past_and_the_client_is_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("input/output error")

    history = made(tmp_path, Clock())
    say(history, b"one")
    monkeypatch.setattr(Archive, "read", refuse)
    client = Client(history, "plant/#")
    await until(lambda: client.is_live)
    assert client.got == []
    assert "input/output" in history.history_states()[0].refused
    history.close()


@on_loop
async def test_an_end_amid_a_reading_reads_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_module, "PAGE_BYTES", 1)
    clock = Clock()
    history = made(tmp_path, clock)
    for number in range(50):
        say(history, b"%d" % number)
        clock.now += 0.001
    client = Client(history, "plant/#")
    await until(lambda: len(client.got) > 2)
    assert not client.is_live
    history.close()
    taken = len(client.got)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(client.got) == taken
    assert history._keeper._thread is None
    client.stop()


def test_numbers_of_filters_do_not_change_with_the_order_of_the_configuration(tmp_path: Path) -> None:
    async def check() -> None:
        clock = Clock()
        history = made(tmp_path, clock)
        say(history, b"one")
        history.close()
        again = made(tmp_path, clock, dict(reversed(KEPT.items())))
        client = Client(again, "plant/#")
        await until(lambda: client.is_live)
        assert client.got == [b"one"]
        again.close()

    asyncio.run(check())
