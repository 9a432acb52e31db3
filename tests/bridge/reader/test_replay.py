"""One reading of a history, by hand: whom it waits for, and what ends it (schedules: `tests/sim/test_history.py`)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from bridge.contract import (
    HISTORY_TOPIC,
    Blame,
    Count,
    Effect,
    HistoryPage,
    HistoryPosition,
    HistoryRequest,
    Received,
    Send,
    Wanted,
    Wire,
    before,
    claim_of,
    encode_body,
    era_of,
    tag_of,
)
from bridge.document import History, Overlay, Scope
from bridge.reader.past import PastCollector
from bridge.reader.replay import (
    BATCHED_BYTES,
    KEY_WAIT_S,
    LAP_S,
    PATIENCE_S,
    SEAM_S,
    TRIES,
    WAIT_S,
    Replay,
)
from bridge.wire import AHEAD_S
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, KeyName, from_property
from tests.bridge.helpers import counted, craft, gateway, publish
from tests.sim.changing import changed
from tests.sim.world import NOW, World, make_world
from tests.support.regions import fresh, one_region

REPLICAS = ("r1a", "r1b", "r1c")


world = fresh(one_region, "desk", scopes=[Scope("plant/#", history=History(7, 100))])


class Reading:
    def __init__(self, world: World) -> None:
        scope = world.overlay.policy.scopes[0]
        numbers = count(1)
        past = PastCollector("desk", scope, world.secrets, world.keys)
        self.replay = Replay(world.overlay, "desk", past, scope, NOW, lambda: next(numbers))
        self.effects: list[Effect] = []
        self.asked: dict[str, HistoryRequest] = {}
        self.took(self.replay.ask_eras(REPLICAS, NOW))

    def took(self, effects: Sequence[Effect]) -> None:
        self.effects += effects
        for effect in effects:
            if isinstance(effect, Send):
                self.asked[effect.peer] = HistoryRequest.decode(effect.wire.payload)

    def answer(self, peer: str, now: float = NOW, **page: object) -> None:
        request = self.asked.pop(peer)
        page.setdefault("upto", request.after)
        page.setdefault("started_ms", 1)
        made = HistoryPage(request.number, **page)  # type: ignore[arg-type]
        assert self.replay.answers(peer, request.number)
        self.took(self.replay.take_page(Received(peer, Wire(HISTORY_TOPIC, made.encode())), now))

    def eras(self, *peers: str, now: float = NOW) -> None:
        for peer in peers:
            self.answer(peer, now, eras=())

    def tick(self, now: float) -> None:
        self.took(self.replay.tick(now))


def test_an_empty_history_ends_after_a_last_lap(world: World) -> None:
    reading = Reading(world)
    reading.eras(*REPLICAS)
    for _ in range(4):
        for peer in list(reading.asked):
            reading.answer(peer, is_end=True)
        reading.tick(NOW)
    assert reading.replay.is_last
    assert reading.replay.is_done


def test_one_that_is_silent_is_left_behind_and_two_are_waited_for(world: World) -> None:
    reading = Reading(world)
    reading.eras("r1a")
    reading.tick(NOW + WAIT_S)
    assert not any(request.scope for request in reading.asked.values())
    reading.eras("r1b", now=NOW + WAIT_S)
    assert [each.peer for each in reading.effects if isinstance(each, Send)][-2:] == ["r1b", "r1c"], "once more"
    reading.tick(NOW + TRIES * WAIT_S + 1)
    assert {peer for peer, request in reading.asked.items() if request.scope} == {"r1a", "r1b"}


def test_who_is_late_each_time_is_left_behind_for_good(world: World) -> None:
    reading, now = Reading(world), NOW
    reading.eras(*REPLICAS)
    for at in range(1, 1_000):
        for peer in ("r1a", "r1b"):
            if peer in reading.asked:
                reading.answer(peer, now, is_end=True)
        if "r1c" not in reading.asked:
            break
        now += WAIT_S - 0.5
        reading.answer("r1c", now, upto=before(int(NOW * 1000) + at))
    assert now - NOW <= PATIENCE_S + WAIT_S


@pytest.mark.parametrize("lie", ["backwards", "beyond"])
def test_a_page_beyond_what_was_asked_for_is_held_against_its_sender(world: World, lie: str) -> None:
    reading = Reading(world)
    reading.eras(*REPLICAS)
    if lie == "backwards":
        reading.answer("r1c", upto=before(0))
    else:
        reading.answer("r1c", bodies=(encode_body("t", b"no header", b"", {}),), upto=before(1 << 50))
    assert [effect.member for effect in reading.effects if isinstance(effect, Blame)] == ["r1c"]
    assert "r1c" not in reading.asked


def test_a_reading_that_f_plus_one_refuse_is_over_and_one_refusal_is_no_end(world: World) -> None:
    reading = Reading(world)
    reading.answer("r1a", is_refused=True)
    assert not reading.replay.is_denied
    reading.answer("r1b", is_refused=True)
    assert reading.replay.is_denied
    assert reading.replay.is_done


# ------------------------------------------------------------------------------------------- records, by a judge


class Notes:
    """A judge that notes each call. `says`: the effects of the next copy; `due`: times at which it wants a tick."""

    def __init__(self) -> None:
        self.eras: list[tuple[int, float]] = []
        self.taken: list[tuple[str, int, float]] = []
        self.wires: list[Wire] = []
        self.ticks: list[float] = []
        self.says: list[Effect] = []
        self.due: list[float] = []
        self.keys = 0

    def adopt_era(self, overlay: Overlay, now: float) -> list[Effect]:
        self.eras.append((overlay.policy.version, now))
        return []

    def take_copy(self, event: Received, now: float) -> list[Effect]:
        assert event.acknowledged
        self.wires.append(event.wire)
        self.taken.append((event.peer, claim_of(dict(event.wire.properties)["vmq"]).sequence, now))
        says, self.says = self.says, []
        return says

    def keys_changed(self, now: float) -> list[Effect]:
        self.keys += 1
        return []

    def tick(self, now: float) -> list[Effect]:
        self.ticks.append(now)
        self.due = [at for at in self.due if at > now]
        return []

    @property
    def next_deadline(self) -> float | None:
        return min(self.due, default=None)


class Judged(Reading):
    """A reading whose judge notes what it gets, with its eras answered."""

    def __init__(self, world: World, since_s: float = NOW, eras: Sequence[tuple[int, bytes]] = (), **options: Any):
        scope = world.overlay.policy.scopes[0]
        numbers = count(1)
        self.notes = Notes()
        self.replay = Replay(world.overlay, "desk", self.notes, scope, since_s, lambda: next(numbers), **options)
        self.effects, self.asked = [], {}
        self.took(self.replay.ask_eras(world.overlay.replicas(self.replay.home), NOW))
        for peer in list(self.asked):
            self.answer(peer, eras=tuple(eras))

    def page(self, peer: str, *records: Record, now: float = NOW, **page: Any) -> None:
        """Hands out records, and lets the reading take as many as it can."""
        page.setdefault("upto", records[-1].position if records else before(int(NOW * 1000)))
        page.setdefault("bodies", tuple(each.body for each in records))
        self.answer(peer, now, **page)
        self.go_on(now)

    def go_on(self, now: float = NOW) -> None:
        while self.replay.has_more:
            self.took(self.replay.go_on(now))

    def found(self, name: str) -> int:
        return counted(self.effects, name)

    @property
    def blamed(self) -> list[str]:
        return [effect.member for effect in self.effects if isinstance(effect, Blame)]


class Record:
    """A publication as a page has it. `at_s`: seconds after NOW at which it was sealed."""

    def __init__(self, world: World, sequence: int, at_s: float = 1.0, publisher: str = "site", payload: bytes = b"x"):
        time_ms = int((NOW + at_s) * 1000)
        wire = craft(world, publisher, "plant/t", sequence=sequence, time_ms=time_ms, content=payload, key_id=b"k" * 16)
        header = from_property(dict(wire.properties)["vmq"])
        self.body = encode_body(wire.topic, header, b"", {0: wire.payload})
        party = world.identities[publisher].party_id
        self.position = HistoryPosition(time_ms, party, sequence, tag_of(wire.topic, header))


@pytest.fixture
def past() -> World:
    gateways = {"desk": 1, "site": 1, "other": 1}
    return make_world({1: 3}, [], gateways, [Scope("plant/#", history=History(7, 100))])


def test_records_go_to_the_judge_in_order_with_all_copies_at_the_time_of_sealing(past: World) -> None:
    reading = Judged(past)
    one, two, three = (Record(past, n, n) for n in (1, 2, 3))
    reading.page("r1a", one, three, is_end=True)
    assert reading.notes.taken == [], "another replica may have an earlier one"
    reading.page("r1b", two, is_end=True)
    reading.page("r1c", one, two, three, is_end=True)
    assert reading.notes.taken == [
        ("r1a", 1, NOW + 1), ("r1c", 1, NOW + 1), ("r1b", 2, NOW + 2), ("r1c", 2, NOW + 2), ("r1a", 3, NOW + 3),
        ("r1c", 3, NOW + 3),
    ]  # fmt: skip
    assert reading.replay.clock == NOW + 3
    assert reading.replay.has_begun
    assert not reading.blamed


@pytest.mark.invariant(12)
def test_a_record_that_one_replica_alone_has_does_not_count(past: World) -> None:
    reading = Judged(past)
    reading.page("r1a", Record(past, 1), is_end=True)
    reading.page("r1b", Record(past, 2, 2), is_end=True)
    reading.page("r1c", Record(past, 2, 2), is_end=True)
    assert reading.notes.taken == [("r1b", 2, NOW + 2), ("r1c", 2, NOW + 2)]
    assert reading.found("unvouched") == 1
    assert not reading.blamed


def test_the_judge_gets_the_wire_that_a_live_reader_got(past: World) -> None:
    live = publish(gateway(past, "site"), "plant/t", b"as it was", sequence=1)
    reading = Judged(past)
    for peer, wire in live.items():
        told = {name: from_property(value) for name, value in wire.properties}
        body = encode_body(wire.topic, told["vmq"], b"", {0: wire.payload})
        keys = ((told[PROPERTY_KEY], told[PROPERTY_SHARES]),)
        reading.page(peer, keys=keys, bodies=(body,), upto=before(int(NOW * 1000) + 1), is_end=True)
    got = dict(zip([peer for peer, _, _ in reading.notes.taken], reading.notes.wires, strict=True))
    assert {peer: (wire.topic, wire.payload, dict(wire.properties)) for peer, wire in got.items()} == {
        peer: (wire.topic, wire.payload, dict(wire.properties)) for peer, wire in live.items()
    }


def test_a_span_ends_before_its_end_and_only_its_publishers_are_read(past: World) -> None:
    site, other = (past.identities[name].party_id for name in ("site", "other"))
    until_ms = int(NOW * 1000) + 2_000
    reading = Judged(past, publishers=(site,), until_ms=until_ms)
    assert {(each.until_ms, each.publishers) for each in reading.asked.values()} == {(until_ms, (site,))}
    for peer in REPLICAS[:2]:
        reading.page(peer, Record(past, 1, 1.999), is_end=True)
    reading.page("r1c", Record(past, 1, 2.0), is_end=True)
    assert reading.blamed == ["r1c"]
    assert [taken[:2] for taken in reading.notes.taken] == [("r1a", 1), ("r1b", 1)]
    assert reading.replay.is_done, "a span has no laps"
    foreign = Judged(past, publishers=(site,), until_ms=until_ms)
    foreign.page("r1a", Record(past, 1, 1, "other"), is_end=True)
    foreign.page("r1b", Record(past, 1, 1), is_end=True)
    foreign.page("r1c", Record(past, 1, 1), is_end=True)
    assert foreign.blamed == ["r1a"]
    assert other != site


@pytest.mark.parametrize("lie", ["twice", "backwards", "behind"])
def test_records_out_of_order_are_held_against_their_sender_alone(past: World, lie: str) -> None:
    reading = Judged(past)
    one, two = Record(past, 1, 1), Record(past, 2, 2)
    told = {"twice": (one, one, two), "backwards": (two, one), "behind": (one, two)}[lie]
    upto = one.position if lie == "behind" else two.position
    reading.page("r1a", *told, upto=upto, is_end=True)
    for peer in REPLICAS[1:]:
        reading.page(peer, one, two, is_end=True)
    assert set(reading.blamed) == {"r1a"}
    assert [taken[:2] for taken in reading.notes.taken if taken[0] != "r1a"] == [
        ("r1b", 1), ("r1c", 1), ("r1b", 2), ("r1c", 2),
    ]  # fmt: skip


def test_a_next_page_begins_where_the_last_one_ended_and_is_asked_for_when_little_is_left(past: World) -> None:
    reading = Judged(past)
    assert {each.after for each in reading.asked.values()} == {before(int(NOW * 1000))}
    long = bytes(BATCHED_BYTES // 2)
    one, two = Record(past, 1, 1, payload=long), Record(past, 2, 2, payload=long)
    reading.page("r1a", one, two)
    assert "r1a" not in reading.asked, "it has enough"
    short = [Record(past, 1, 1), Record(past, 2, 2)]
    reading.page("r1b", short[0])
    assert reading.asked["r1b"].after == short[0].position
    reading.page("r1c", *short, is_end=True)
    assert "r1c" not in reading.asked, "it has no more"
    reading.page("r1b", short[1], is_end=True)
    assert reading.asked["r1a"].after == two.position, "half of it was taken"


def test_a_next_lap_asks_behind_the_row_at_the_beginning_of_the_last_one(past: World) -> None:
    reading = Judged(past)
    assert {each.row for each in reading.asked.values()} == {0}
    first = Record(past, 1, 1)
    for peer in REPLICAS:
        reading.page(peer, first, row=7)
    later = NOW + LAP_S
    for peer in REPLICAS[:2]:
        reading.page(peer, now=later, upto=first.position, row=9, is_end=True)
    reading.answer("r1c", later, upto=first.position, row=9, is_end=True, started_ms=2)
    reading.go_on(later)
    assert (reading.replay.laps, reading.replay.is_last) == (1, False), "a lap as long as that is not the last but one"
    assert {peer: each.row for peer, each in reading.asked.items()} == {"r1a": 7, "r1b": 7, "r1c": 0}
    assert {each.after for each in reading.asked.values()} == {before(int(NOW * 1000))}
    assert {each.until_ms for each in reading.asked.values()} == {int((later + AHEAD_S) * 1000)}
    for peer in REPLICAS:
        reading.page(peer, now=later + LAP_S - 0.1, row=9, is_end=True)
    assert (reading.replay.laps, reading.replay.is_last) == (2, True)
    assert not reading.replay.is_done


def test_the_last_lap_of_another_regions_reading_begins_after_a_seam() -> None:
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"desk": 2, "site": 1}, [Scope("plant/#", history=History(7, 100))])
    reading = Judged(world, region=1)
    for peer in REPLICAS:
        reading.page(peer, is_end=True)
    assert reading.replay.is_last
    assert not reading.asked
    assert reading.replay.next_deadline == NOW + SEAM_S
    reading.tick(NOW + SEAM_S)
    assert sorted(reading.asked) == list(REPLICAS)


def test_nothing_is_taken_while_nobody_has_room(past: World) -> None:
    reading = Judged(past)
    reading.took(reading.replay.hold_reading(True, NOW))
    for peer in REPLICAS:
        reading.page(peer, Record(past, 1), is_end=True)
    assert reading.notes.taken == []
    assert reading.replay.next_deadline is None, "only room lets it go on"
    reading.took(reading.replay.hold_reading(False, NOW))
    assert len(reading.notes.taken) == 3


@pytest.mark.parametrize("how", ["keys", "time"])
def test_the_reading_waits_for_an_epoch_key_of_then(past: World, how: str) -> None:
    reading = Judged(past)
    name = KeyName("plant/#", 0, 0)
    reading.notes.says = [Wanted(name)]
    for peer in REPLICAS:
        reading.page(peer, Record(past, 1), Record(past, 2, 2), is_end=True)
    assert [effect for effect in reading.effects if isinstance(effect, Wanted)] == [Wanted(name)]
    assert {sequence for _, sequence, _ in reading.notes.taken} == {1}
    assert reading.replay.next_deadline == NOW + KEY_WAIT_S
    if how == "keys":
        reading.took(reading.replay.keys_changed(NOW + 1))
        assert reading.notes.keys == 1
    else:
        reading.tick(NOW + KEY_WAIT_S - 0.1)
        assert len(reading.notes.taken) == 3
        reading.tick(NOW + KEY_WAIT_S)
    reading.go_on(NOW + KEY_WAIT_S)
    assert {sequence for _, sequence, _ in reading.notes.taken} == {1, 2}


def test_the_judge_asks_no_replica_and_charges_no_link(past: World) -> None:
    reading = Judged(past)
    reading.notes.says = [Send("r1a", Wire("t", b"")), Count("refused", 3, "share"), Count("recombined")]
    for peer in REPLICAS:
        reading.page(peer, Record(past, 1), is_end=True)
    assert Count("history_misfit", 3, "share") in reading.effects
    assert reading.found("refused") == 0
    assert reading.found("recombined") == 1
    assert all(each.wire.topic == HISTORY_TOPIC for each in reading.effects if isinstance(each, Send))


def test_time_passes_for_the_judge_up_to_each_record_and_to_the_end(past: World) -> None:
    reading = Judged(past)
    gone, end = NOW + 3.5, NOW + 10
    reading.notes.due = [NOW + 2.5, gone, end + 2 * WAIT_S + 1.0, end + 2 * WAIT_S + 1.1]
    for peer in REPLICAS:
        reading.page(peer, Record(past, 1, 2), Record(past, 2, 3), is_end=True)
    assert reading.notes.ticks == [NOW + 2.5], "up to the second record"
    for peer in REPLICAS:
        reading.page(peer, now=end, is_end=True)
    assert reading.replay.is_done
    assert reading.notes.ticks == [NOW + 2.5, gone, end + 2 * WAIT_S + 1.0], "what waits is given up, no more"


def test_a_lost_request_is_sent_anew_when_the_link_is_back_and_old_answers_do_not_count(past: World) -> None:
    reading = Judged(past)
    before_cut = reading.asked["r1a"].number
    reading.replay.link_down("r1a")
    assert not reading.replay.answers("r1a", before_cut)
    assert not reading.replay.answers("stranger", 0)
    reading.tick(NOW + 1)
    reading.took(reading.replay.link_up("r1a", NOW + 1))
    assert reading.asked["r1a"].number > before_cut
    assert reading.replay.answers("r1a", reading.asked["r1a"].number)


def test_one_that_was_left_behind_joins_at_the_present_position_when_its_link_is_back(past: World) -> None:
    reading = Judged(past)
    reading.replay.link_down("r1c")
    for peer in REPLICAS[:2]:
        reading.page(peer, Record(past, 1, 5))
    now = NOW + WAIT_S
    reading.tick(now)
    assert reading.found("history_slow") == 1
    assert {sequence for _, sequence, _ in reading.notes.taken} == {1}
    reading.took(reading.replay.link_up("r1c", now))
    assert reading.asked["r1c"].after == before(int((NOW + 5) * 1000))
    two = Record(past, 2, 6)
    for peer in REPLICAS:
        reading.page(peer, two, now=now)
    assert [peer for peer, sequence, _ in reading.notes.taken if sequence == 2] == list(REPLICAS)


def test_a_replica_whose_page_misfits_is_asked_nothing_more_even_with_a_new_link(past: World) -> None:
    reading = Judged(past)
    reading.answer("r1a", upto=before(0))
    assert reading.blamed == ["r1a"]
    assert reading.found("history_misfit") == 1
    assert reading.replay.link_up("r1a", NOW) == []
    assert "r1a" not in reading.asked


def test_two_of_three_are_waited_for_however_long_and_asked_again(past: World) -> None:
    reading = Judged(past)
    reading.answer("r1a", upto=before(0))
    reading.page("r1b", is_end=True)
    silent = reading.asked.pop("r1c")
    for turn in range(1, 2 * TRIES + 8):
        reading.tick(NOW + turn * WAIT_S)
    assert reading.asked["r1c"].number > silent.number
    reading.page("r1c", now=NOW + 60, is_end=True)
    assert not reading.found("history_slow")
    assert reading.replay.laps == 1


def test_one_that_left_the_overlay_is_asked_nothing_more() -> None:
    world = make_world({1: 4}, [], {"desk": 1}, [Scope("plant/#", history=History(7, 100))])
    reading = Judged(world)
    leaving = changed(world, world.overlay, 1, REPLICAS, NOW, 0)
    reading.took(reading.replay.adopt_overlay(leaving, NOW))
    assert reading.replay.answers("r1d", reading.asked["r1d"].number), "until its view is over"
    gone = changed(world, leaving, 1, REPLICAS, NOW + 1, 0)
    reading.took(reading.replay.adopt_overlay(gone, NOW))
    assert not reading.replay.answers("r1d", reading.asked["r1d"].number)


# ----------------------------------------------------------------------------------------------------- eras


def test_eras_are_fetched_from_those_that_name_them_and_begin_in_their_time(past: World) -> None:
    first, now_ms = past.overlay, int(NOW * 1000)
    past.overlay = second = past.revoked("nobody", 0, 1)
    past.overlay = third = past.revoked("nobody", 0, 2)
    documents = {era_of(each): zlib.compress(json.dumps(each.to_document()).encode()) for each in (first, second)}
    eras = [(now_ms - 20_000, era_of(first)), (now_ms - 5_000, era_of(second)), (now_ms + 5_000, era_of(third))]
    reading = Judged(past, NOW - 10, eras)
    (peer,) = reading.asked
    assert reading.asked[peer].digest == era_of(first)
    reading.answer(peer, document=documents[era_of(first)])
    (peer,) = reading.asked
    assert reading.asked[peer].digest == era_of(second)
    reading.answer(peer, document=documents[era_of(first)])
    assert reading.blamed == [peer], "another one than was asked for"
    (other,) = reading.asked
    reading.answer(other, document=documents[era_of(second)])
    assert reading.notes.eras == [(1, NOW - 10)]
    for each in [each for each in REPLICAS if each != peer]:
        reading.page(each, Record(past, 1, -6), Record(past, 2, -4), is_end=True)
    assert reading.notes.eras == [(1, NOW - 10), (2, NOW - 5)]
    assert {taken[1:] for taken in reading.notes.taken} == {(1, NOW - 6), (2, NOW - 4)}


@pytest.mark.parametrize("document", [b"", b"no document"])
def test_a_document_that_cannot_be_read_is_held_against_its_sender(past: World, document: bytes) -> None:
    reading = Judged(past, eras=[(int(NOW * 1000) - 5_000, bytes(32))])
    for peer in list(reading.asked):
        reading.answer(peer, document=document)
        assert reading.blamed == [peer]
