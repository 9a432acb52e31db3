"""What was sealed and grew too old: a void in its place, once, and only where somebody may wait."""

from __future__ import annotations

import pytest

from bridge.contract.batches import Numbered, packed, unpacked
from bridge.contract.machine import Publication
from bridge.document.policy import Scope
from bridge.publisher.entry import Entry, EntryTurn, Standing
from bridge.publisher.resealing import voided
from bridge.publisher.residents import Residents
from bridge.publisher.windows import Lanes
from keys.records import DROPPED, Records
from tests.sim.world import NOW, make_world

MADE = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#")])
ONE = Publication("plant/t", b"21", 1, expiry_s=5, time_ms=int(NOW * 1000))
BATCH = packed("plant/#", [Numbered(7, ONE), Numbered(8, ONE)])


class Desk:
    """Entries in memory, sealed and sent to one replica, unless said otherwise."""

    def __init__(self, publication: Publication = BATCH, sealed_ms: int = 1) -> None:
        self.entry = Entry(7, publication, MADE.secrets[0], 3, NOW, sealed_ms=sealed_ms, acked={"r1a"})
        self.entry.standing = Standing.SEALED
        self.younger = Entry(9, ONE, MADE.secrets[0], 7, NOW)
        self.entries = {7: self.entry, 9: self.younger}
        self.residents, self.lanes = Residents(), Lanes()
        for each in self.entries.values():
            self.residents.add_entry(each)
        self.lanes.open_lane("r1b", [(7, self.entry.chain)])

    def drop(self) -> list[int]:
        return voided(self.entries, [7], self.residents, self.lanes, NOW + 60)


@pytest.mark.parametrize("publication", [BATCH, ONE], ids=["batch", "alone"])
def test_a_void_is_one_record_that_only_counts_and_lacks_at_everybody(publication: Publication) -> None:
    desk = Desk(publication)
    assert desk.drop() == []
    made = desk.entry.publication
    assert list(unpacked(made.payload, 7)) == []
    records = Records.decode(made.payload)
    assert (list(records.flags), list(records.topics), made.records) == ([1 | DROPPED], [b"plant/t"], 1)
    assert (made.expiry_s, made.time_ms) == (None, int((NOW + 60) * 1000))
    assert (desk.entry.previous, desk.entry.acked, desk.entry.standing) == (3, set(), Standing.FRESH)
    assert list(desk.entries) == [9, 7], "it is the youngest now"


def test_a_void_is_made_once() -> None:
    desk = Desk()
    desk.drop()
    assert desk.drop() == [7]


@pytest.mark.parametrize("what", ["never sealed", "settled", "qos 0", "retained"])
def test_what_nobody_waits_for_goes_without_one(what: str) -> None:
    desk = Desk(sealed_ms=0 if what == "never sealed" else 1)
    if what == "settled":
        desk.residents.move(desk.entry, EntryTurn.HAD)
    if what in ("qos 0", "retained"):
        desk = Desk(Publication("plant/t", b"1", int(what == "retained"), what == "retained"))
    assert desk.drop() == [7]
    assert not desk.entry.is_void


def test_the_void_of_one_that_waits_is_offered_again() -> None:
    """It was sealed once, and waits for a key or a right: the review of what waits no more finds it."""
    desk = Desk()
    lane = desk.lanes.lanes["r1b"]
    assert lane.take_into_flight(NOW) == [7]
    lane.put_back(7)
    desk.residents.move(desk.entry, EntryTurn.UNSEALED)
    desk.residents.move(desk.entry, EntryTurn.HINDERED)
    assert not lane.new
    assert not lane.late
    desk.drop()
    assert (desk.entry.standing, lane.take_into_flight(NOW)) == (Standing.FRESH, [7])
