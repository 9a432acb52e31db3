"""Attacks on receipts: nobody signs for another, floods for another, or accuses an innocent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import (
    Prove,
    Received,
)
from bridge.contract.machine import Send, Wire
from bridge.receipts import RECEIPTS_TOPIC, Receipt, ReceiptBody
from bridge.receipts.checks import ALLOWED_BURST
from bridge.receipts.receipt import Listed
from tests.bridge.document.test_evidence import statement
from tests.bridge.helpers import NOW, counted, craft, forge_key, named, replica, suspected
from tests.bridge.receipts.helpers import (
    Scene,
    altered,
    came_in,
    resigned,
)
from tests.sim.world import World


@pytest.mark.attack(176)
def test_nobody_alters_a_byte_of_a_receipt(scene: Scene):
    frame = scene.signed()
    for at in range(len(frame)):
        assert came_in(scene.bring(altered(frame, at))) == [], at
    for cut in range(0, len(frame), 7):
        assert came_in(scene.bring(frame[:cut])) == []
    assert came_in(scene.bring(frame + b"\0")) == []
    assert came_in(scene.bring(frame))  # none of these stands in the way of the true one


def test_nobody_signs_in_the_name_of_another(scene: Scene):
    assert came_in(scene.bring(resigned(scene, "control", "near"))) == []


def test_a_member_without_the_right_to_read_acknowledges_nothing(scene: Scene):
    effects = scene.bring(resigned(scene, "spy"))
    assert came_in(effects) == []
    assert counted(effects, "refused") == 1
    assert not suspected(effects)  # it may have had the right when the replica took it


def test_a_replica_is_no_reader(scene: Scene):
    assert came_in(scene.bring(resigned(scene, "r1b"))) == []


@pytest.mark.parametrize("off_s", [-3_700, 400])
def test_a_time_that_cannot_be_is_refused(scene: Scene, off_s: int):
    assert came_in(scene.bring(resigned(scene, "near", time_ms=int((NOW + off_s) * 1000)))) == []


@pytest.mark.attack(178)
def test_a_flood_of_one_reader_is_its_own(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.receipts.checks.ALLOWED_BURST", 5)
    receipt = Receipt.decode(scene.signed())
    refused = 0
    for n in range(20):
        body = replace(receipt.body, reader="control", time_ms=receipt.body.time_ms + n, latest=b"")
        frame = Receipt.sign(scene.world.identities["control"], body, receipt.batches).encode()
        effects = scene.bring(frame)
        refused += counted(effects, "refused")
        assert not suspected(effects)
    assert refused == 15
    assert came_in(scene.bring(receipt.encode()))
    assert ALLOWED_BURST > 100


def test_two_contents_of_one_number_meet_in_a_receipt(world: World):
    """The reader got another header than the replica that passes its receipt on: the publisher signed both."""
    key = forge_key(world, "site", "plant/#")
    again = forge_key(world, "site", "plant/#")
    one = craft(world, "site", "plant/t", sequence=5, key=key, payload=b"on")
    other = craft(world, "site", "plant/t", sequence=5, key=again, payload=b"off")
    node = replica(world, "r1a", ("site", "near", "r2a"))
    node.handle(Received("site", one), NOW)
    said = statement(other)
    body = ReceiptBody(
        "near", world.identities["site"].party_id, 1, int(NOW * 1000), 0, 0, (), said.body + said.signature, 0, b"",
        bytes(32),
    )  # fmt: skip
    receipt = Receipt.sign(world.identities["near"], body, [Listed(5, b"abcd")])
    effects = node.handle(Received("near", Wire(RECEIPTS_TOPIC, receipt.encode())), NOW)
    assert named(effects) == {"site"}
    (proved,) = [e for e in effects if isinstance(e, Prove)]
    assert proved.evidence.check_proof().author == "site"


def test_a_header_that_the_publisher_did_not_sign_accuses_nobody(scene: Scene):
    body = Receipt.decode(scene.signed()).body
    frame = altered(body.latest, len(body.latest) - 1)
    node = replica(scene.world, "r1a", ("site", "near", "r2a"))
    receipt = Receipt.sign(scene.world.identities["near"], replace(body, latest=frame), [Listed(3, b"abcd")])
    effects = node.handle(Received("near", Wire(RECEIPTS_TOPIC, receipt.encode())), NOW)
    assert not named(effects)
    assert suspected(effects) == {"near"}
    assert not [e for e in effects if isinstance(e, Send)]
