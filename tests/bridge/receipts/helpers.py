"""A publisher, readers and receipts for tests, over a small overlay."""

from __future__ import annotations

import random
from dataclasses import replace

from bridge.contract import (
    AskKept,
    KeepSealed,
    OnDisk,
    Publication,
    ReceiptCame,
    Received,
    Subscribed,
    Tick,
)
from bridge.contract.machine import Appending, Committed, Effect, Wire
from bridge.document import Scope
from bridge.receipts import RECEIPTS_TOPIC, DeliveryProof, Receipt, ReceiptRow, SealedBatch
from bridge.receipts.acknowledging import Acknowledging, HadBatch, StreamNumbers
from bridge.receipts.receipt import ChainId
from keys.envelope import PROPERTY_HEADER, MessageHeader, Mode, from_property, header_of
from tests.bridge.helpers import NOW, craft, forge_key, gateway, sent
from tests.sim.world import World, make_world

SCOPES = [Scope("plant/#", receipts=True), Scope("quiet/#"), Scope("clear/#", Mode.PLAIN, receipts=True)]
LIARS = {"r1b": 1, "r2c": 2}


def the_world(**kinds: object) -> World:
    return make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2, "near": 1, "spy": 2}, SCOPES, **kinds)  # type: ignore[arg-type]


def acknowledged(came: list[ReceiptCame], reader: str) -> set[int]:
    return {record.number for each in came if each.reader == reader for record in each.records}


def proof_of(world: World, sealed: list[KeepSealed], came: ReceiptCame, place: int = 0) -> DeliveryProof:
    """The proof of one of the records of a receipt."""
    row, wanted = ReceiptRow.decode(came.row), came.records[place].number
    batches = [SealedBatch.decode(each.row) for each in sealed]
    batch = next(b for b in batches if row.place_of(b) is not None and wanted in {r.number for r in b.records})
    certificate = world.overlay.certificate
    certificates = certificate("site"), certificate("site"), certificate(came.reader)
    return DeliveryProof.make(world.identities["site"], world.overlay.owner, certificates, batch, wanted, row)


def had(world: World, node: Acknowledging, numbers: list[int], scope: int = 1, publisher: str = "site") -> None:
    for number in numbers:
        wire = crafted(world, number, publisher)
        chain, author = ChainId(wire[0].publisher, scope), world.identities[publisher].party_id
        node.had(chain, author, HadBatch.from_records(*wire, [], bytes(32)))


def crafted(world: World, number: int, publisher: str = "site") -> tuple[MessageHeader, bytes]:
    wire = craft(world, publisher, "plant/t", sequence=number, key=forge_key(world, publisher, "plant/#"))
    frame = from_property(dict(wire.properties)[PROPERTY_HEADER])
    return header_of(frame), frame


def receipts_in(effects: list[Effect]) -> list[Receipt]:
    return [Receipt.decode(s.wire.payload) for s in sent(effects) if s.wire.topic == RECEIPTS_TOPIC]


def reader(world: World) -> Acknowledging:
    made = Acknowledging(
        world.overlay, world.identities["control"], "control", lambda author, scope: StreamNumbers(1, 9, ((3, 4),))
    )
    made.link_up("r2a", NOW)
    return made


class Scene:
    """A publisher that sealed three messages, and whatever somebody brings as receipts of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.site = gateway(world, "site")
        self.near = gateway(world, "near")
        self.near.handle(Subscribed("plant/#"), NOW)
        self.sealed: list[KeepSealed] = []
        self.wires: list[tuple[str, Wire]] = []
        for number in (1, 2, 3):
            self.publish(number, b"payload %d" % number)

    def publish(self, number: int, payload: bytes, previous: int | None = None) -> None:
        publication = Publication("plant/t", payload, 1, time_ms=int(NOW * 1000), correlation_data=b"c%d" % number)
        self.site.handle(Appending((number,)), NOW)
        effects = self.site.handle(
            Committed(((number, number - 1 if previous is None else previous, publication),)), NOW
        )
        self.sealed += [e for e in effects if isinstance(e, KeepSealed)]
        for send in sent(effects):
            self.wires.append((send.peer, send.wire))
            for effect in self.near.handle(Received(send.peer, send.wire), NOW):
                assert not isinstance(effect, ReceiptCame)

    def signed(self, now: float = NOW) -> bytes:
        """The receipt of the reader."""
        effects = self.near.handle(Tick(), now)
        (asked,) = [e for e in effects if isinstance(e, AskKept)]
        frames = {
            s.wire.payload for s in sent(self.near.handle(OnDisk(asked.mark), now)) if s.wire.topic == RECEIPTS_TOPIC
        }
        (frame,) = frames
        return frame

    def bring(self, frame: bytes, now: float = NOW, peer: str = "r1a") -> list[Effect]:
        return self.site.handle(Received(peer, Wire(RECEIPTS_TOPIC, frame)), now)


def came_in(effects: list[Effect]) -> list[ReceiptCame]:
    return [e for e in effects if isinstance(e, ReceiptCame)]


def altered(frame: bytes, at: int) -> bytes:
    return frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]


def resigned(scene: Scene, signer: str, name: str | None = None, **changes: object) -> bytes:
    receipt = Receipt.decode(scene.signed())
    body = replace(receipt.body, reader=name or signer, **changes)  # type: ignore[arg-type]
    return Receipt.sign(scene.world.identities[signer], body, receipt.batches).encode()


def replace_seed(world: World) -> World:
    class Later(World):
        def node(self, name: str, rng: random.Random):
            return super().node(name, random.Random(name + "later"))

    return Later(world.overlay, world.identities, world.secrets, world.keys, world.seed, owner=world.owner)
