"""Publishers: what receipts count, and of what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import (
    Received,
    Subscribed,
)
from bridge.contract.machine import Wire
from bridge.document import Overlay
from bridge.receipts import RECEIPTS_TOPIC, Receipt, SealedBatch
from bridge.receipts.acknowledging import EVERY_S
from bridge.receipts.hashes import root
from tests.bridge.helpers import NOW, counted, gateway
from tests.bridge.reader.test_newest_retained import rotated
from tests.bridge.receipts.helpers import (
    Scene,
    acknowledged,
    came_in,
    proof_of,
    replace_seed,
    resigned,
)


def test_the_publisher_learns_what_the_reader_has(scene: Scene):
    (came,) = came_in(scene.bring(scene.signed()))
    assert (came.reader, came.first, came.last) == ("near", 1, 3)
    assert [(r.number, r.topic, r.correlation_data) for r in came.records] == [
        (n, "plant/t", b"c%d" % n) for n in (1, 2, 3)
    ]
    (state,) = scene.site.acknowledged.reader_states()
    assert (state.reader, state.through, state.acknowledged, state.oldest_ms) == ("near", 3, 3, 0)
    scene.publish(4, b"later")
    assert scene.site.acknowledged.reader_states()[0].oldest_ms == int(NOW * 1000)


def test_a_replayed_receipt_says_nothing_new(scene: Scene):
    frame = scene.signed()
    assert came_in(scene.bring(frame))
    assert scene.bring(frame, peer="r1b") == []


def test_a_reader_that_signs_the_same_batches_again_and_again_is_kept_and_told_once(scene: Scene):
    """Attack: each receipt is new and true; kept and told each time, they would fill disk and sessions of others."""
    receipt = Receipt.decode(scene.signed())
    assert len(came_in(scene.bring(receipt.encode()))) == 1

    def again(number: int) -> bytes:
        body = replace(receipt.body, time_ms=receipt.body.time_ms + number)
        return Receipt.sign(scene.world.identities["near"], body, receipt.batches).encode()

    effects = [effect for number in range(1, 50) for effect in scene.bring(again(number))]
    assert counted(effects, "receipts_taken") == 49
    assert came_in(effects) == []
    (state,) = scene.site.acknowledged.reader_states()
    assert (state.acknowledged, state.time_ms) == (3, receipt.body.time_ms + 49)


def test_of_a_receipt_with_old_and_new_batches_the_new_are_told_and_all_are_kept(scene: Scene):
    receipt = Receipt.decode(scene.signed())
    part = replace(receipt.body, root=root([SealedBatch.decode(scene.sealed[0].row).hashed]), latest=b"")
    first = Receipt.sign(scene.world.identities["near"], part, receipt.batches[:1])
    assert acknowledged(came_in(scene.bring(first.encode())), "near") == {1}
    (came,) = came_in(scene.bring(receipt.encode()))
    assert {record.number for record in came.records} == {2, 3}
    assert (came.first, came.last) == (1, 3)
    assert proof_of(scene.world, scene.sealed, came).check_proof().reader == "near"


@pytest.mark.attack(176)
def test_receipts_count_in_any_order(scene: Scene):
    first = scene.signed()
    scene.publish(4, b"later")
    second = scene.signed(NOW + EVERY_S)
    assert acknowledged(came_in(scene.bring(second, NOW + 3)), "near") == {4}
    assert acknowledged(came_in(scene.bring(first, NOW + 3)), "near") == {1, 2, 3}
    assert scene.site.acknowledged.reader_states()[0].through == 4  # of the newest


@pytest.mark.parametrize("changes", [{"scope": 2}, {"scope": 3}, {"scope": 99}])
def test_a_receipt_of_another_scope_fits_nothing(scene: Scene, changes: dict[str, int]):
    assert came_in(scene.bring(resigned(scene, "near", latest=b"", **changes))) == []


def test_a_receipt_for_another_publisher_is_refused(scene: Scene):
    other = scene.world.identities["control"].party_id
    assert came_in(scene.bring(resigned(scene, "near", latest=b"", publisher=other))) == []


@pytest.mark.attack(176)
def test_a_reader_that_lies_about_what_it_had_acknowledges_nothing(scene: Scene):
    effects = scene.bring(resigned(scene, "near", root=bytes(32)))
    assert came_in(effects) == []
    assert counted(effects, "receipts_unmatched") == 1


def test_numbers_of_another_life_of_the_publisher_acknowledge_nothing(scene: Scene):
    """The data directory was lost, and other contents have these numbers now: headers differ, so nothing fits."""
    frame = scene.signed()
    other = Scene(replace_seed(scene.world))
    assert came_in(other.bring(frame)) == []
    assert came_in(scene.bring(frame))


def test_a_publisher_that_was_restarted_knows_what_it_sealed(scene: Scene):
    frame = scene.signed()
    again = gateway(scene.world, "site")
    again.acknowledged.restore([each.row for each in scene.sealed])
    effects = again.handle(Received("r1a", Wire(RECEIPTS_TOPIC, frame)), NOW)
    assert acknowledged(came_in(effects), "near") == {1, 2, 3}


def test_a_reader_restored_from_a_backup_says_what_it_said(scene: Scene):
    first = scene.signed()
    scene.near = gateway(scene.world, "near")  # it has forgotten all, and gets the three messages once more
    scene.near.handle(Subscribed("plant/#"), NOW)
    for wire in scene.wires:
        scene.near.handle(Received(*wire), NOW)
    second = scene.signed(NOW + 1)
    assert first != second
    assert acknowledged(came_in(scene.bring(second, NOW + 2)), "near") == {1, 2, 3}
    assert counted(effects := scene.bring(first, NOW + 2), "receipts_taken") == 1
    assert came_in(effects) == [], "it is as true, and says nothing new"


def test_a_publisher_with_another_key_shows_each_reader_once_and_by_its_newest_receipt(scene: Scene):
    """The chain of a former key has no more receipts; told beside the new one it would wait for ever, in a second row
    with the labels of the first.
    """
    scene.bring(scene.signed())
    after = rotated(scene.world, "site")
    scene.site.acknowledged.adopt_overlay(after.overlay)
    scene.publish(4, b"later")
    second = Receipt.decode(scene.signed(NOW + EVERY_S))
    party = after.identities["site"].party_id
    body = replace(second.body, publisher=party, latest=b"", time_ms=second.body.time_ms + 1)
    frame = Receipt.sign(scene.world.identities["near"], body, second.batches).encode()
    scene.site.acknowledged.take_receipt(Received("r1a", Wire(RECEIPTS_TOPIC, frame)), NOW + EVERY_S)
    (state,) = scene.site.acknowledged.reader_states()
    assert (state.reader, state.through, state.oldest_ms, state.acknowledged) == ("near", 4, 0, 4)


def test_rights_and_receipts_that_end_leave_nothing_behind(scene: Scene):
    scene.bring(scene.signed())
    world = scene.world
    without = world.with_policy(scopes=tuple(replace(s, receipts=False) for s in world.overlay.policy.scopes))
    assert isinstance(without, Overlay)
    scene.site.acknowledged.adopt_overlay(without)
    assert scene.site.acknowledged.reader_states() == []
    scene.near.acknowledging.adopt_overlay(without)
    assert scene.near.acknowledging.next_deadline is None
