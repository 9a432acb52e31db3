"""Readers: when they sign, and what."""

from __future__ import annotations

import pytest

from bridge.contract import (
    AskKept,
)
from bridge.receipts.acknowledging import EVERY_S, WAITING_MAX, StreamNumbers
from bridge.receipts.receipt import BATCHES_MAX, MISSING_MAX
from tests.bridge.helpers import NOW, counted
from tests.bridge.receipts.helpers import (
    had,
    reader,
    receipts_in,
)
from tests.sim.world import World


def test_a_receipt_waits_for_the_disk_and_for_its_turn(world: World):
    node = reader(world)
    had(world, node, [1, 2])
    assert node.next_deadline is not None
    assert node.next_deadline <= NOW
    assert node.tick(NOW) == [AskKept(1)]
    had(world, node, [5])
    assert node.tick(NOW + 1) == []  # the disk has not answered
    (receipt,) = receipts_in(node.send_kept(1, NOW + 1))
    assert [each.number for each in receipt.batches] == [1, 2]
    assert (receipt.body.since, receipt.body.through, receipt.body.missing) == (1, 9, ((3, 4),))
    assert node.tick(NOW + 1.5) == []
    assert node.next_deadline == NOW + EVERY_S
    assert node.tick(NOW + EVERY_S) == [AskKept(2)]
    assert receipts_in(node.send_kept(1, NOW + 3)) == []
    assert [b.number for b in receipts_in(node.send_kept(2, NOW + 3))[0].batches] == [5]


def test_a_clock_that_is_set_back_stops_no_receipt(world: World):
    node = reader(world)
    had(world, node, [1])
    node.tick(NOW)
    node.send_kept(1, NOW)
    had(world, node, [2])
    assert node.tick(NOW - 5_000) == [AskKept(2)]


@pytest.mark.attack(178)
def test_a_publisher_with_most_of_what_waits_loses_its_own(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.receipts.acknowledging.WAITING_MAX", 20)
    node = reader(world)
    had(world, node, [1], publisher="near")
    had(world, node, list(range(1, 31)))
    effects = node.tick(NOW)
    assert counted(effects, "receipts_skipped") >= 11
    by_publisher = {r.body.publisher: len(r.batches) for r in receipts_in(node.send_kept(1, NOW))}
    assert by_publisher[world.identities["near"].party_id] == 1
    assert WAITING_MAX > BATCHES_MAX


def test_streams_of_which_nothing_is_known_say_nothing():
    assert StreamNumbers.for_receipt(0, 9, [(1, 2)]) == StreamNumbers()
    assert StreamNumbers.for_receipt(9, 5, []) == StreamNumbers()
    assert StreamNumbers.for_receipt(5, 9, [(1, 3), (4, 6), (8, 20)]) == StreamNumbers(5, 9, ((5, 6), (8, 9)))
    many = [(n * 3, n * 3) for n in range(1, 200)]
    assert len(StreamNumbers.for_receipt(1, 1000, many).missing) == MISSING_MAX
