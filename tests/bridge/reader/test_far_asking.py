"""Asking of replicas in another region: which way, and which pages count (docs/protocol-options.md §12.6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import (
    FAR_PAGE_BYTES,
    FAR_TOPIC,
    HISTORY_TOPIC,
    Effect,
    FarPage,
    FarRequest,
    HistoryPage,
    HistoryRequest,
    ReadAgain,
    Received,
    Send,
    Wire,
    number_of,
)
from bridge.document import History, Scope
from bridge.reader import Collector, FarAsking, Readings
from bridge.reader.far_asking import WAIT_S
from keys.errors import BadSignature
from tests.sim.changing import changed
from tests.sim.world import NOW, World, make_world

SCOPE = Scope("plant/#", history=History(7, 100, (1,)))


class Reader:
    """A reader of region 2 of a history that region 1 keeps."""

    def __init__(self, *, is_quantum_safe: bool = False) -> None:
        self.world: World = make_world({1: 3, 2: 3}, [(1, 2)], {"late": 2}, [SCOPE], is_quantum_safe=is_quantum_safe)
        world, drawn = self.world, iter(range(1, 100))
        collector = Collector(world.overlay, "late", world.secrets, world.keys)
        self.readings = Readings(world.overlay, "late", world.secrets, world.keys, collector, 1 << 20)
        self.readings.up.update(("r2a", "r2b", "r2c"))
        random = lambda size: bytes([next(drawn)]) * size  # noqa: E731
        self.asking = FarAsking(
            world.overlay, "late", world.identities["late"], random, self.readings.next_number, self.readings.up
        )

    def ask(self, asked: str = "r1a", now: float = NOW, number: int = 7) -> tuple[str, FarRequest] | None:
        request = HistoryRequest(number, 1, 0, int(NOW * 1000))
        effects = self.asking.sent(Send(asked, Wire(HISTORY_TOPIC, request.encode())), now)
        return sent(effects)

    def answer(self, request: FarRequest, page: bytes = b"", by: str = "", number: int = 7) -> Received:
        page = page or HistoryPage(number, 1).encode()
        signer = self.world.identities[by or request.asked]
        return Received(request.way[0], Wire(FAR_TOPIC, FarPage.for_request(request, page, signer).encode()))


def sent(effects: list[Effect]) -> tuple[str, FarRequest] | None:
    sends = [effect for effect in effects if isinstance(effect, Send)]
    return (sends[0].peer, FarRequest.decode(sends[0].wire.payload)) if sends else None


def asked(reader: Reader, *about: object) -> FarRequest:
    found = reader.ask(*about)  # type: ignore[arg-type]
    assert found is not None
    assert found[0] == found[1].way[0]
    return found[1]


def test_a_request_leaves_signed_and_small_and_its_page_comes_as_if_linked() -> None:
    reader = Reader()
    request = asked(reader)
    assert (request.reader, request.asked, request.way[1]) == ("late", "r1a", "r1a")
    assert HistoryRequest.decode(request.request).most_bytes == FAR_PAGE_BYTES
    page = reader.asking.open_far_page(reader.answer(request), NOW)
    assert page is not None
    assert (page.peer, page.wire.topic, number_of(page.wire.payload)) == ("r1a", HISTORY_TOPIC, 7)
    assert reader.asking.open_far_page(reader.answer(request), NOW) is None, "it came a second time"


def test_a_request_within_the_region_stays_as_it_is() -> None:
    reader, wire = Reader(), Wire(HISTORY_TOPIC, b"as it is")
    assert reader.asking.sent(Send("r2a", wire), NOW) == [Send("r2a", wire)]


def test_another_way_is_taken_once_a_page_does_not_come_and_a_good_one_stays() -> None:
    reader = Reader()
    first = asked(reader)
    assert asked(reader, "r1a", NOW + 1).way == first.way, "too early to call it lost"
    second = asked(reader, "r1a", NOW + 5)
    assert second.way != first.way
    reader.asking.open_far_page(reader.answer(asked(reader, "r1a", NOW + 9)), NOW + 9)
    assert asked(reader, "r1b", NOW + 9).way[0] == first.way[0], "ways to another replica are another matter"
    numbers = [request.number for request in (first, second)]
    assert numbers == sorted(set(numbers))


def test_a_way_begins_at_who_is_connected() -> None:
    reader = Reader()
    reader.readings.up.intersection_update({"r2c"})
    assert asked(reader).way == ("r2c", "r1a")
    reader.readings.up.clear()
    assert reader.ask() is None


def test_a_page_that_its_replica_did_not_sign_is_charged_to_who_brings_it() -> None:
    reader = Reader()
    request = asked(reader)
    with pytest.raises(BadSignature):
        reader.asking.open_far_page(reader.answer(request, by="r1b"), NOW)
    assert reader.asking.open_far_page(reader.answer(request), NOW) is not None, "the true one counts still"


def test_a_box_for_somebody_else_or_with_no_page_is_as_no_answer() -> None:
    reader = Reader()
    request = asked(reader)
    other = replace(request, box_key=reader.world.identities["r1b"].agreement_bytes)
    page = FarPage.for_request(other, HistoryPage(7, 1).encode(), reader.world.identities["r1a"])
    forged = replace(page, digest=request.digest)
    signed = replace(forged, signature=reader.world.identities["r1a"].sign("veilmq/1 far page", forged.signed_bytes()))
    assert reader.asking.open_far_page(Received("r2a", Wire(FAR_TOPIC, signed.encode())), NOW) is None
    again = asked(reader, "r1a", NOW + 1)
    assert reader.asking.open_far_page(reader.answer(again, b"no page"), NOW) is None


def test_the_key_of_boxes_is_erased_with_the_last_reading() -> None:
    reader = Reader()
    request = asked(reader)
    reader.asking.erase_box_key()
    assert reader.asking.open_far_page(reader.answer(request), NOW) is None
    assert asked(reader).box_key != request.box_key


def test_a_quantum_safe_overlay_has_hybrid_boxes() -> None:
    reader = Reader(is_quantum_safe=True)
    request = asked(reader)
    assert len(request.box_key) == 1_216
    assert reader.asking.open_far_page(reader.answer(request), NOW) is not None


def test_a_reading_asks_the_region_that_keeps() -> None:
    reader = Reader()
    effects = reader.readings.read_again(ReadAgain(1, 1, int(NOW * 1000), "user"), NOW)
    assert {effect.peer for effect in effects if isinstance(effect, Send)} == {"r1a", "r1b", "r1c"}


def test_a_page_is_lost_once_its_time_is_over_and_each_loss_counts_once() -> None:
    reader = Reader()
    first = asked(reader)
    assert asked(reader, "r1a", NOW + WAIT_S - 0.01).way == first.way
    second = asked(reader, "r1a", NOW + WAIT_S)
    assert second.way != first.way
    assert reader.asking.open_far_page(reader.answer(first), NOW + WAIT_S) is None, "given up"
    assert asked(reader, "r1a", NOW + WAIT_S).way == second.way


def test_who_leaves_the_overlay_is_awaited_no_more() -> None:
    reader = Reader()
    request = asked(reader)
    world = reader.world
    for turn in range(2):
        overlay = changed(world, world.overlay, 1, ("r1b", "r1c", "r1d"), NOW + turn, 0)
        world.overlay = overlay
        reader.asking.adopt_overlay(overlay)
        assert (reader.asking.open_far_page(reader.answer(request), NOW) is None) is bool(turn)
        request = asked(reader) if not turn else request
