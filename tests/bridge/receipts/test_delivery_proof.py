"""Proofs of delivery: they convince from the file alone, show no other message, and prove nothing of the innocent."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bridge.contract import Numbered, Publication
from bridge.document import NotProvedError, Scope
from bridge.receipts import DeliveryProof, ReceiptBody, ReceiptRow, SealedBatch
from bridge.receipts.hashes import root, sha256
from bridge.receipts.receipt import Listed, Receipt
from keys.errors import BadContent, BadFrame
from keys.identity import Certificate, Identity, Role
from tests.bridge.document.test_evidence import statement
from tests.bridge.helpers import NOW, craft, forge_key
from tests.sim.world import NOT_AFTER_MS, World
from tests.support.regions import one_region, shared

TEXTS = (b"open the valve", b"close the valve", b"secret of another")


world = shared(one_region, "site", "lab", "evil", scopes=[Scope("plant/#", receipts=True)])


def batch_of(world: World, first: int = 5, texts: tuple[bytes, ...] = TEXTS, publisher: str = "site") -> SealedBatch:
    wire = craft(world, publisher, "plant/t", sequence=first, key=forge_key(world, publisher, "plant/#"))
    said = statement(wire)
    records = [Numbered(first + n, Publication("plant/t", text, 1, time_ms=n)) for n, text in enumerate(texts)]
    return SealedBatch.from_records(first, 1, wire.topic, said.body + said.signature, bytes(range(32)), records)


def row_of(world: World, batches: list[SealedBatch], reader: str = "lab", publisher: str = "site") -> ReceiptRow:
    hashes = [batch.hashed for batch in batches]
    party = world.identities[publisher].party_id
    draft = ReceiptBody(reader, party, 1, int(NOW * 1000), 0, 0, (), b"", 0, b"", root(hashes))
    listed = [Listed(batch.number, batch.frame_hash[:4]) for batch in batches]
    receipt = Receipt.sign(world.identities[reader], draft, listed)
    return ReceiptRow(receipt.body, receipt.signature, tuple((b.number, b.hashed) for b in batches))


def proof(world: World, wanted: int = 6, reader: str = "lab") -> DeliveryProof:
    batches = [batch_of(world, first) for first in (5, 10, 20)]
    certificate = world.overlay.certificate
    certificates = certificate("site"), certificate("site"), certificate(reader)
    row = row_of(world, batches, reader)
    batch = next(b for b in batches if b.number <= wanted < b.number + 3)
    return DeliveryProof.make(world.identities["site"], world.overlay.owner, certificates, batch, wanted, row)


def in_a_file(made: DeliveryProof) -> DeliveryProof:
    return DeliveryProof.from_document(json.loads(json.dumps(made.to_document())))


@pytest.mark.parametrize("wanted", [5, 6, 7, 10, 22])
def test_a_delivery_is_proved_from_the_file_alone(world: World, wanted: int):
    made = proof(world, wanted)
    assert in_a_file(made) == made
    proven = in_a_file(made).check_proof()
    assert (proven.publisher, proven.reader, proven.record.number) == ("site", "lab", wanted)
    assert proven.owner == world.overlay.owner
    assert proven.record.payload_hash == sha256(TEXTS[(wanted - 5) % 5 if wanted < 20 else wanted - 20])
    assert f"message {wanted} on plant/t" in proven.says


@pytest.mark.attack(179)
def test_a_proof_shows_no_other_message(world: World):
    told = json.dumps(proof(world).to_document()).encode()
    for text in TEXTS:
        assert text not in told
    for other in (TEXTS[0], TEXTS[2]):
        assert sha256(other).hex().encode() not in told
    # Whoever guesses the text of a neighbour cannot tell by the file that it is right: the salt is missing.
    batch = batch_of(world)
    made = proof(world)
    for record in (batch.records[0], batch.records[2]):
        assert record.hashed(made.salt) not in made.record_way


def test_a_message_that_is_not_in_the_receipt_has_no_proof(world: World):
    certificate = world.overlay.certificate
    certificates = certificate("site"), certificate("site"), certificate("lab")
    row = row_of(world, [batch_of(world, 10)])
    for batch, wanted in ((batch_of(world, 5), 5), (batch_of(world, 10), 99)):
        with pytest.raises(BadContent):
            DeliveryProof.make(world.identities["site"], world.overlay.owner, certificates, batch, wanted, row)


# ------------------------------------------------------------------------------------------------- attacks


def refuted(made: DeliveryProof, match: str = "it proves nothing") -> None:
    with pytest.raises(NotProvedError, match=match):
        in_a_file(made).check_proof()


@pytest.mark.attack(177)
def test_another_content_than_the_reader_got_is_not_proved(world: World):
    made = proof(world)
    forged = replace(made.record, payload_hash=sha256(b"something else"))
    refuted(replace(made, record=forged))
    signature = world.identities["site"].sign(
        "veilmq/1 published", sha256(made.header.body + made.header.signature) + forged.hashed(made.salt)
    )
    refuted(replace(made, record=forged, signature=signature), "does not hold this message")


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 5}, {"topic": "plant/u"}, {"time_ms": 77},
    ],
)  # fmt: skip
def test_number_topic_and_time_are_bound(world: World, changes: dict[str, Any]):
    made = proof(world)
    refuted(replace(made, record=replace(made.record, **changes)))


@pytest.mark.attack(177)
def test_a_reader_says_nothing_in_the_name_of_a_publisher(world: World):
    """The reader signs that it got a message that the publisher never sent: the publisher's signature is missing."""
    invented = batch_of(world, texts=(b"I owe the lab a million",))
    row = row_of(world, [invented])
    certificate = world.overlay.certificate
    certificates = certificate("site"), certificate("site"), certificate("lab")
    refuted(DeliveryProof.make(world.identities["lab"], world.overlay.owner, certificates, invented, 5, row))


@pytest.mark.attack(177)
def test_a_publisher_does_not_sign_for_a_reader(world: World):
    batches = [batch_of(world)]
    row = row_of(world, batches, "lab")
    forged = replace(row, signature=world.identities["site"].sign("veilmq/1 receipt", row.body.encode()))
    certificate = world.overlay.certificate
    certificates = certificate("site"), certificate("site"), certificate("lab")
    refuted(DeliveryProof.make(world.identities["site"], world.overlay.owner, certificates, batches[0], 5, forged))


def test_the_receipt_of_another_reader_proves_nothing_of_this_one(world: World):
    made = proof(world)
    refuted(replace(made, reader=world.overlay.certificate("evil").encode()))


def test_a_receipt_of_another_publisher_proves_nothing(world: World):
    batches = [batch_of(world)]
    row = row_of(world, batches, publisher="evil")
    certificate = world.overlay.certificate
    certificates = certificate("site"), certificate("site"), certificate("lab")
    made = DeliveryProof.make(world.identities["site"], world.overlay.owner, certificates, batches[0], 5, row)
    refuted(made, "another reader, publisher or scope")


def test_a_header_on_another_wire_topic_proves_nothing(world: World):
    made = proof(world)
    refuted(replace(made, header=replace(made.header, topic="veilmq/batch/2")))


def test_a_replica_is_neither_publisher_nor_reader(world: World):
    made = proof(world)
    refuted(replace(made, reader=world.overlay.certificate("r1a").encode()))
    refuted(replace(made, publisher=world.overlay.certificate("r1a").encode()))


def test_a_certificate_of_another_owner_proves_nothing(world: World):
    stranger = Identity.generate(bytes(range(32)))
    lab = world.overlay.certificate("lab")
    invented = Certificate.issue(
        stranger, name="lab", role=Role.GATEWAY, public_key=lab.public_key, agreement_key=lab.agreement_key,
        domain=lab.domain, region=1, not_after_ms=NOT_AFTER_MS,
    )  # fmt: skip
    refuted(replace(proof(world), reader=invented.encode()))
    refuted(replace(proof(world), owner=stranger.public_bytes))


def rotated(world: World, name: str) -> tuple[Identity, Certificate]:
    assert world.owner is not None
    fresh, former = Identity.generate(name.encode().ljust(32, b"+")), world.overlay.certificate(name)
    certificate = Certificate.issue(
        world.owner, name=name, role=former.role, public_key=fresh.public_bytes, agreement_key=former.agreement_key,
        domain=former.domain, region=former.region, not_after_ms=NOT_AFTER_MS,
    )  # fmt: skip
    return fresh, certificate


def test_a_proof_holds_after_the_publisher_has_another_key(world: World):
    batches = [batch_of(world)]
    fresh, certificate = rotated(world, "site")
    former = world.overlay.certificate("site")
    certificates = certificate, former, world.overlay.certificate("lab")
    made = DeliveryProof.make(fresh, world.overlay.owner, certificates, batches[0], 6, row_of(world, batches))
    proven = in_a_file(made).check_proof()
    assert (proven.publisher, proven.publisher_key) == ("site", fresh.public_bytes)


def test_another_member_does_not_pass_for_a_former_key(world: World):
    batches = [batch_of(world)]
    certificates = (
        world.overlay.certificate("evil"),
        world.overlay.certificate("site"),
        world.overlay.certificate("lab"),
    )
    owner = world.overlay.owner
    made = DeliveryProof.make(world.identities["evil"], owner, certificates, batches[0], 6, row_of(world, batches))
    refuted(made, "another member signed the header")


@pytest.mark.attack(177)
def test_numbers_of_another_life_are_other_messages(world: World):
    """The publisher lost its data: one number, two headers. The receipt of one proves nothing of the other."""
    one, other = batch_of(world), batch_of(world, texts=(b"x", b"y", b"z"))
    assert one.number == other.number
    certificate = world.overlay.certificate
    certificates = certificate("site"), certificate("site"), certificate("lab")
    row = row_of(world, [one])
    with pytest.raises(BadContent):
        DeliveryProof.make(world.identities["site"], world.overlay.owner, certificates, other, 5, row)
    smuggled = replace(row, batches=((other.number, other.hashed),))
    refuted(DeliveryProof.make(world.identities["site"], world.overlay.owner, certificates, other, 5, smuggled))


# --------------------------------------------------------------------------------------------------- the file


def spoilt(document: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(document))
    change(copy)
    return copy


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("receipt"), lambda d: d.update(more=1), lambda d: d.update(veilmq_delivery=2),
        lambda d: d.update(owner=5), lambda d: d["record"].update(at=-1), lambda d: d["record"].update(at="0"),
        lambda d: d["record"].update(number=True), lambda d: d["record"].update(path=["AAAA"]),
        lambda d: d["record"].update(path=[d["record"]["payload_sha256"]] * 65), lambda d: d["record"].update(salt="!"),
        lambda d: d["record"].update(topic=None), lambda d: d["receipt"].update(at=1 << 70),
        lambda d: d["receipt"].update(body=""), lambda d: d["receipt"].update(x=1), lambda d: d.update(header=[]),
        lambda d: d.update(header_certificate="AA=="), lambda d: d["record"].update(of=0),
        lambda d: d["record"].update(topic="\ud800"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_with_a_line(world: World, change: Callable[[dict[str, Any]], object]):
    document = spoilt(proof(world).to_document(), change)
    with pytest.raises(NotProvedError):
        DeliveryProof.from_document(document).check_proof()


def test_rows_come_back_as_they_were(world: World):
    batch = batch_of(world)
    row = row_of(world, [batch])
    assert SealedBatch.decode(batch.encode()) == batch
    assert ReceiptRow.decode(row.encode()) == row
    for frame, kind in ((batch.encode(), SealedBatch), (row.encode(), ReceiptRow)):
        for wrong in (frame[:-1], frame + b"\0", b"\x09" + frame[1:], b""):
            with pytest.raises(BadFrame):
                kind.decode(wrong)
