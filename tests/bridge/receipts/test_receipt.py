"""The frame of a receipt, and the policy that asks for receipts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.document import Policy, Scope
from bridge.receipts import Receipt
from bridge.receipts.hashes import NO_RECORDS, RecordFacts, batch_hash, records_root, root, salt_of, sha256
from bridge.receipts.receipt import BATCHES_MAX, Listed
from keys.errors import BadFrame
from keys.identity import verify
from tests.bridge.receipts.helpers import (
    Scene,
)
from tests.sim.world import World, make_world


def test_a_policy_without_receipts_keeps_every_byte(world: World):
    plain = replace(world.overlay.policy, scopes=tuple(replace(s, receipts=False) for s in world.overlay.policy.scopes))
    body = plain.signed_bytes()
    assert body[2] & 0x80 == 0
    with_them = world.overlay.policy.signed_bytes()
    assert with_them[2] == body[2] | 0x80
    assert len(with_them) == len(body) + 1 + 2 + 2 * 4
    assert Policy.decode(with_them, b"").scopes == world.overlay.policy.scopes
    assert Policy.decode(body, b"").scopes == plain.scopes


@pytest.mark.parametrize("wrong", ["00", "02", "03"])
def test_unknown_further_flags_of_a_policy_are_refused(world: World, wrong: str):
    body = world.overlay.policy.signed_bytes()
    at = body.index(bytes.fromhex("01" + "0002" + "00000001" + "00000003"))
    with pytest.raises(BadFrame):
        Policy.decode(body[:at] + bytes.fromhex(wrong) + body[at + 1 :], b"")


def test_hosted_brokers_carry_no_receipts():
    with pytest.raises(Exception, match="carries none"):
        make_world({1: 3}, [], {"site": 1}, [Scope("plant/#", receipts=True)], hosted=["r1a"])


@pytest.mark.parametrize(
    "changes",
    [
        {"since": 5, "through": 4}, {"missing": ((1, 2),), "since": 0, "through": 0}, {"missing": ((2, 1),)},
        {"missing": ((1, 2), (3, 3))}, {"missing": ((1, 9),)}, {"missing": tuple((n * 3, n * 3) for n in range(1, 70))},
    ],
)  # fmt: skip
def test_impossible_receipts_are_refused(scene: Scene, changes: dict[str, object]):
    receipt = Receipt.decode(scene.signed())
    body = replace(receipt.body, **{"since": 1, "through": 8, **changes})  # type: ignore[arg-type]
    with pytest.raises(BadFrame):
        Receipt.decode(Receipt.sign(scene.world.identities["near"], body, receipt.batches).encode())


@pytest.mark.parametrize("numbers", [(), (2, 1), (1, 1), tuple(range(1, BATCHES_MAX + 2))])
def test_lists_that_are_empty_unordered_or_too_long_are_refused(scene: Scene, numbers: tuple[int, ...]):
    receipt = Receipt.decode(scene.signed())
    listed = [Listed(number, b"abcd") for number in numbers]
    with pytest.raises(BadFrame):
        Receipt.decode(Receipt.sign(scene.world.identities["near"], receipt.body, listed).encode())


def test_the_vector_of_the_protocol_is_what_the_code_makes():
    known = json.loads((Path(__file__).parents[2] / "vectors" / "receipts.json").read_text("utf-8"))
    receipt = Receipt.decode(bytes.fromhex(known["receipt"]))
    assert receipt.encode().hex() == known["receipt"]
    verify(bytes.fromhex(known["reader_public"]), "veilmq/1 receipt", receipt.body.encode(), receipt.signature)
    blinding = bytes(range(32))
    records = [
        RecordFacts(each["number"], each["time_ms"], each["topic"], bytes.fromhex(each["payload_sha256"]))
        for each in known["records"]
    ]
    assert [r.hashed(salt_of(blinding, r.number)).hex() for r in records] == [each["hash"] for each in known["records"]]
    batches = [
        batch_hash(sha256(b"frame 5"), records_root(blinding, records)),
        batch_hash(sha256(b"frame 7"), NO_RECORDS),
    ]
    assert [each.hex() for each in batches] == known["batches"]
    assert root(batches).hex() == known["root"] == receipt.body.root.hex()
    assert receipt.body.publisher.hex() == known["publisher"]
    assert [each.tag for each in receipt.batches] == [sha256(b"frame 5")[:4], sha256(b"frame 7")[:4]]
