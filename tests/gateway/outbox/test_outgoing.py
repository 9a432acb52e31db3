"""What is not stored waits for what else the same turn of the loop brings, and goes as one batch, never behind what is
stored after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from bridge.contract import (
    BATCH_BYTES,
    RECORDS_MAX,
    Appending,
    Chain,
    Committed,
    Event,
    Numbered,
    Publication,
    Unstored,
)
from bridge.contract.batches import count_of, unpacked
from gateway.base import Figures
from gateway.data import DataDirectory, NoRoomError
from gateway.outbox.outgoing import Outgoing
from gateway.outbox.store import Store
from keys.identity import Role


def reading(qos: int, payload: bytes = b"x", topic: str = "plant/a", retain: bool = False) -> Publication:
    return Publication(topic, payload, qos, retain, time_ms=1)


def run(tmp_path: Path, work: Callable[[Outgoing], None], in_clear: bool = False) -> list[Event]:
    """What the node hears of it."""
    events: list[Event] = []

    async def main() -> None:
        store, chain = Store(DataDirectory.open(tmp_path)), Chain("plant/#", in_clear=in_clear)
        outgoing = Outgoing(store, Figures("site", Role.GATEWAY), events.append, lambda topic: chain)
        work(outgoing)
        for _ in range(200):
            await asyncio.sleep(0.005)
            stored = [entry[2] for event in events if isinstance(event, Committed) for entry in event.entries]
            if not outgoing._appending and len(appended(events)) <= sum(map(count_of, stored)):
                break
        store.close()

    asyncio.run(main())
    return events


def appended(events: Sequence[Event]) -> list[int]:
    """Returns the numbers that the node was told to be on their way to the disk."""
    told = list[int]()
    for event in events:
        told += event.sequences if isinstance(event, Appending) else ()
        told += event.appending if isinstance(event, Committed) else ()
    return told


def records(event: Unstored) -> list[bytes]:
    found = list(unpacked(event.publication.payload, event.sequence))
    assert all(isinstance(each, Numbered) for each in found)
    return [each.publication.payload for each in found if isinstance(each, Numbered)]


def test_who_floods_shares_no_batch_with_others(tmp_path: Path) -> None:
    """Where there is no uplink the flooder's batches go first; nobody else's may be in them."""
    evil, good = (replace(reading(0, name.encode()), owner=name) for name in ("evil", "good"))

    def work(outgoing: Outgoing) -> None:
        for each in [*[evil] * 40, good, *[evil] * 40]:
            outgoing.take_publication(each, lambda code: None)

    events = [event for event in run(tmp_path, work) if isinstance(event, Unstored)]
    assert [(event.publication.owner, len(records(event))) for event in events] == [("evil", 40), ("", 1), ("evil", 40)]
    assert [event.sequence - events[0].sequence for event in events] == [0, 40, 41]


def test_a_run_is_taken_as_far_as_one_batch_of_the_scope_takes_it(tmp_path: Path) -> None:
    codes: list[int] = []
    small, narrow = Chain("plant/#", records=7), Chain("plant/#", bytes=100)

    def work(outgoing: Outgoing) -> None:
        made = [reading(1, b"%d" % number) for number in range(10)]
        assert outgoing.take_run(made, codes.append, small) == 7
        assert outgoing.take_run([reading(1, bytes(40))] * 3, codes.append, narrow) == 1
        assert outgoing.take_run([reading(1, topic="")], codes.append, small) == 0

    events = run(tmp_path, work)
    told = appended(events)
    assert told == [told[0], told[0] + 7], "the first number of a run stands for all of them"
    assert codes == [0, 0]


def test_what_does_not_fit_as_a_run_is_told_one_by_one(tmp_path: Path) -> None:
    codes: list[int] = []

    def work(outgoing: Outgoing) -> None:
        outgoing._store.max_bytes = 2_000
        made = [reading(1, bytes(600))] * 5
        assert outgoing.take_run(made, codes.append, Chain("plant/#"), "meter") == 0
        for each in made:
            outgoing.take_publication(each, codes.append, "meter")

    run(tmp_path, work)
    assert codes == [0x97, 0x97, 0x97, 0, 0]


def test_what_is_stored_needs_nothing_gathered_before_it(tmp_path: Path) -> None:
    codes: list[int] = []
    events = run(tmp_path, lambda outgoing: outgoing.take_publication(reading(1), codes.append))
    assert codes == [0]
    assert not any(isinstance(event, Unstored) for event in events)


def test_many_clients_that_send_little_share_a_batch(tmp_path: Path) -> None:
    def work(outgoing: Outgoing) -> None:
        for number in range(40):
            outgoing.take_publication(replace(reading(0), owner=f"d{number % 20}"), lambda code: None)

    events = [event for event in run(tmp_path, work) if isinstance(event, Unstored)]
    assert [(event.publication.owner, len(records(event))) for event in events] == [("", 40)]


def test_qos_0_of_one_turn_is_one_batch(tmp_path: Path) -> None:
    codes: list[int] = []

    def work(outgoing: Outgoing) -> None:
        for n in range(5):
            outgoing.take_publication(reading(0, b"%d" % n), codes.append)

    (event,) = run(tmp_path, work)
    assert isinstance(event, Unstored)
    assert (event.publication.topic, event.publication.qos, count_of(event.publication)) == ("plant/#", 0, 5)
    assert records(event) == [b"0", b"1", b"2", b"3", b"4"]
    assert codes == [0] * 5


def test_qos_0_does_not_come_behind_what_is_stored_after_it(tmp_path: Path) -> None:
    def work(outgoing: Outgoing) -> None:
        for qos, payload in ((0, b"1"), (0, b"2"), (1, b"3"), (0, b"4")):
            outgoing.take_publication(reading(qos, payload), lambda code: None)

    events = run(tmp_path, work)
    unstored = [event for event in events if isinstance(event, Unstored)]
    stored = appended(events)
    assert [records(event) for event in unstored] == [[b"1", b"2"], [b"4"]]
    assert unstored[0].sequence < stored[0] < unstored[1].sequence
    assert events.index(unstored[0]) < [type(event) for event in events].index(Appending)


def test_a_batch_of_qos_0_has_so_many_records_and_bytes_at_most(tmp_path: Path) -> None:
    def many(outgoing: Outgoing) -> None:
        for _ in range(RECORDS_MAX + 1):
            outgoing.take_publication(reading(0), lambda code: None)

    def large(outgoing: Outgoing) -> None:
        for _ in range(5):
            outgoing.take_publication(reading(0, bytes(BATCH_BYTES // 3)), lambda code: None)

    for name, work, counts in (("many", many, [RECORDS_MAX, 1]), ("large", large, [2, 2, 1])):
        events = run(tmp_path / name, work)
        assert [count_of(event.publication) for event in events if isinstance(event, Unstored)] == counts


def test_what_is_retained_travels_alone_in_its_turn(tmp_path: Path) -> None:
    def work(outgoing: Outgoing) -> None:
        for n, retain in enumerate((False, True, False)):
            outgoing.take_publication(reading(0, b"%d" % n, retain=retain), lambda code: None)

    events = [event for event in run(tmp_path, work) if isinstance(event, Unstored)]
    first = min(event.sequence for event in events)
    found = sorted((event.sequence - first, event.publication.records) for event in events)
    assert found == [(0, 1), (1, 0), (2, 1)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_fits_no_record_is_refused_while_its_client_listens(tmp_path: Path, qos: int) -> None:
    codes: list[int] = []

    def work(outgoing: Outgoing) -> None:
        outgoing.take_publication(
            Publication("plant/a", b"x", qos, properties=(("n", "v"),) * 2000, time_ms=1), codes.append
        )

    assert (run(tmp_path, work), codes) == ([], [0x83])


class FullStore:
    """Its disk has room for nothing more."""

    on_committed = None

    def next_sequence(self) -> int:
        raise NoRoomError("full")

    def append(self, *publication: object) -> int:
        raise NoRoomError("full")


@pytest.mark.parametrize(("local", "code", "label"), [(False, 0x97, "full"), (True, 0, "local")])
def test_a_full_outbox_refuses_or_leaves_local_automation_alone(local: bool, code: int, label: str) -> None:
    async def main() -> None:
        figures, codes = Figures("site", Role.GATEWAY), list[int]()
        store = cast("Store", FullStore())
        outgoing = Outgoing(
            store, figures, lambda event: pytest.fail(f"{event}"), lambda topic: Chain("plant/#"), full_is_local=local
        )
        outgoing.take_publication(reading(1), codes.append)
        assert codes == [code]
        assert figures.counts[f"outbox_refused.{label}"] == 1

    asyncio.run(main())


@pytest.mark.long
@pytest.mark.attack(103)
@pytest.mark.parametrize("in_clear", [False, True])
def test_what_the_node_gets_says_whether_its_scope_was_plain_when_it_was_taken(tmp_path: Path, in_clear: bool) -> None:
    def work(outgoing: Outgoing) -> None:
        for qos, retain in ((0, False), (0, True), (1, False), (1, True)):
            outgoing.take_publication(reading(qos, retain=retain), lambda code: None)

    events = run(tmp_path, work, in_clear)
    said = [e.publication.in_clear for e in events if isinstance(e, Unstored)]
    said += [publication.in_clear for e in events if isinstance(e, Committed) for _, _, publication in e.entries]
    assert said == [in_clear] * 4
