"""Receipts of a job: batches that its spool has, as their publisher sealed them, and no others."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from bridge.contract import (
    Adopt,
    KeepSealed,
    LinkUp,
    Numbered,
    Offered,
    Publication,
    ReceiptCame,
    Received,
    Subscribed,
    Tick,
    packed,
)
from bridge.contract.machine import Appending, Committed, Effect, Wire
from bridge.document import Scope, ScopeSecret
from bridge.membership.adopting import canonical
from bridge.node import GatewayNode, JobNode, ReplicaNode
from bridge.receipts import RECEIPTS_TOPIC, Receipt
from bridge.receipts.acknowledging import EVERY_S
from keys.derivation import Derivation
from keys.envelope import KeyName, Mode
from spark_ingest.receiving import Group, SpoolCollector, SpooledBatch, SpooledBatches
from tests.bridge.helpers import NOW, counted, gateway, replica, sent
from tests.bridge.receipts.helpers import acknowledged, proof_of
from tests.sim.world import World
from tests.spark_ingest.region import Link, Overlay, Publisher
from tests.support.regions import one_region, shared

SCOPES = [
    Scope("plant/#", receipts=True),
    Scope("hidden/#", tokens=True, receipts=True),
    Scope("clear/#", Mode.PLAIN, receipts=True),
    Scope("quiet/#"),
]


world = shared(one_region, "site", "job", scopes=SCOPES, jobs=("job",))


def as_publication(topic: str, payload: bytes, **fields: object) -> Publication:
    return Publication(topic, payload, 1, time_ms=int(NOW * 1000), **fields)  # type: ignore[arg-type]


class Scene:
    """A gateway that publishes, and a job beside it in the region."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.site: GatewayNode = gateway(world, "site")
        self.job = job_of(world)
        self.collector = SpoolCollector(world.overlay, 1)
        names = [KeyName(s.filter, 0, 0) for s in world.overlay.policy.scopes]
        self.keys: dict[KeyName, bytes] = {name: key for name in names if (key := world.keys.get(name)) is not None}
        self.collector.learn({name: Derivation(key).check_value for name, key in self.keys.items()})
        self.batches = SpooledBatches()
        self.sealed: list[KeepSealed] = []
        self._last: dict[str, int] = {}
        self._number = 0

    def publish(self, topic: str, payload: bytes = b"x", **fields: object) -> int:
        self._number = number = self._number + 1
        chain = topic.partition("/")[0]
        self.site.handle(Appending((number,)), NOW)
        publication = as_publication(topic, payload, **fields)
        effects = self.site.handle(Committed(((number, self._last.get(chain, 0), publication),)), NOW)
        self._last[chain] = number
        self.sealed += [effect for effect in effects if isinstance(effect, KeepSealed)]
        for send in sent(effects):
            self.collector.receive(send.peer, send.wire, lambda: None, NOW)
        return number

    def written(self) -> list[Group]:
        groups = []
        while group := self.collector.take_group(500):
            self.collector.note_written(group)
            groups.append(group)
        return groups

    def spool(self, keys: Mapping[KeyName, bytes] | None = None, since_ms: int = 0) -> list[SpooledBatch]:
        keys = self.keys if keys is None else keys
        return [b for g in self.written() for b in self.batches.batches_of(g, self.world.secrets, keys, since_ms)]

    def receipts(self, now: float = NOW, job: JobNode | None = None) -> list[bytes]:
        effects = (job or self.job).handle(Tick(), now)
        wires = {send.wire for send in sent(effects) if send.wire.topic == RECEIPTS_TOPIC}
        return sorted(wire.payload for wire in wires)

    def bring(self, frames: Sequence[bytes], now: float = NOW) -> list[ReceiptCame]:
        effects = [e for frame in frames for e in self.bring_one(frame, now)]
        return [effect for effect in effects if isinstance(effect, ReceiptCame)]

    def bring_one(self, frame: bytes, now: float = NOW) -> list[Effect]:
        return self.site.handle(Received("r1a", Wire(RECEIPTS_TOPIC, frame)), now)


def job_of(world: World) -> JobNode:
    node = JobNode(
        world.overlay, world.identities["job"], "job", world.secrets, world.keys_of("job"), random.Random("j").randbytes
    )
    node.handle(Subscribed("#"), NOW)
    for name in world.overlay.views[1].members:
        node.handle(LinkUp(name), NOW)
    return node


def tell(job: JobNode, batches: Sequence[SpooledBatch]) -> None:
    for each in batches:
        job.take_spooled(*each)


@pytest.fixture
def scene(world: World) -> Scene:
    return Scene(world)


def test_a_publisher_learns_what_is_in_the_spool_and_can_prove_it(scene: Scene) -> None:
    wanted = {scene.publish(topic, b"%d" % n) for n, topic in enumerate(("plant/a", "hidden/b", "clear/c", "plant/d"))}
    wanted.add(scene.publish("plant/kept", b"value", retain=True))
    scene.publish("quiet/a")
    tell(scene.job, scene.spool())
    frames = scene.receipts()
    assert len(frames) == 3, "one of each chain with receipts"
    came = scene.bring(frames)
    assert acknowledged(came, "job") == wanted
    assert {proof_of(scene.world, scene.sealed, each).check_proof().reader for each in came} == {"job"}


def test_nothing_is_told_before_it_is_written_and_then_not_more_often_than_its_time(scene: Scene) -> None:
    scene.publish("plant/a")
    assert scene.receipts() == []
    tell(scene.job, scene.spool())
    assert len(scene.receipts()) == 1
    scene.publish("plant/b")
    tell(scene.job, scene.spool())
    assert scene.receipts(NOW + EVERY_S / 2) == []
    assert scene.job.next_deadline == NOW + EVERY_S
    assert len(scene.receipts(NOW + EVERY_S)) == 1


def test_a_replica_whose_link_comes_up_hears_the_newest_again(scene: Scene) -> None:
    scene.publish("plant/a")
    tell(scene.job, scene.spool())
    frames = scene.receipts()
    again = sent(scene.job.handle(LinkUp("r1b"), NOW + 1), "r1b")
    assert frames == [each.wire.payload for each in again if each.wire.topic == RECEIPTS_TOPIC]


def test_a_batch_that_does_not_open_is_in_no_receipt(scene: Scene) -> None:
    scene.publish("plant/a")
    scene.publish("hidden/a")
    plant = KeyName("plant/#", 0, 0)
    wrong = {name: bytes(32) if name == plant else key for name, key in scene.keys.items()}
    (only,) = scene.spool(wrong)
    assert only.chain.scope == 2
    scene.publish("hidden/b")
    none = [b for g in scene.written() for b in SpooledBatches().batches_of(g, scene.world.secrets, {}, 0)]
    assert none == []


def test_what_was_retained_before_the_job_began_is_in_no_receipt(scene: Scene) -> None:
    scene.publish("plant/kept", retain=True)
    assert scene.spool(since_ms=int(NOW * 1000) + 1) == []


@pytest.mark.parametrize("given", [{"expiry_s": 1}, {"inner_topic": "elsewhere/a"}])
def test_a_batch_with_a_record_that_may_not_be_shown_is_in_no_receipt(given: dict[str, object]) -> None:
    overlay = Overlay()
    overlay.change(receipts=True)
    link, publisher = Link(overlay), Publisher(overlay)
    topic, number = str(given.get("inner_topic", "plant/a")), 1
    late = as_publication(topic, b"x", expiry_s=given.get("expiry_s"))
    good = as_publication("plant/a", b"x")
    clear = packed("plant/a", [Numbered(number, good), Numbered(2, late)]).payload
    link.publish(publisher.seal("plant/a", clear=clear, sequence=1), now=NOW + 60)
    secrets = [ScopeSecret(scope, scope.filter) for scope in overlay.signed.policy.scopes]
    keys = {name: key for scope in overlay.held().scopes.values() for name, key in scope.keys.items()}
    (group,) = link.write()
    assert SpooledBatches().batches_of(group, secrets, keys, 0) == []
    link.publish(publisher.seal("plant/a"))
    (group,) = link.write()
    assert len(SpooledBatches().batches_of(group, secrets, keys, 0)) == 1


def test_a_row_that_never_became_whole_is_in_no_receipt() -> None:
    overlay = Overlay()
    overlay.change(receipts=True)
    link, publisher = Link(overlay), Publisher(overlay)
    link.publish(publisher.seal("plant/a"), places=(1,))
    link.collector.do_due_work(NOW + 60)
    (group,) = link.write()
    assert group.records[0].reason is not None
    secrets = [ScopeSecret(scope, scope.filter) for scope in overlay.signed.policy.scopes]
    assert SpooledBatches().batches_of(group, secrets, {}, 0) == []


# ------------------------------------------------------------------------------------------------ attacks


@pytest.mark.attack(181)
def test_a_job_that_lies_about_content_acknowledges_nothing(scene: Scene) -> None:
    scene.publish("plant/a")
    (batch,) = scene.spool()
    tell(scene.job, [batch._replace(batch=replace(batch.batch, hashed=bytes(32)))])
    (frame,) = scene.receipts()
    effects = scene.bring_one(frame)
    assert counted(effects, "receipts_unmatched") == 1
    assert not any(isinstance(effect, ReceiptCame) for effect in effects)


@pytest.mark.attack(181)
def test_two_processes_with_one_identity_acknowledge_a_batch_once(scene: Scene) -> None:
    """Two machines run a job under one identity: both words are true, and a device is told once."""
    number = scene.publish("plant/a")
    found = scene.spool()
    other = job_of(scene.world)
    tell(scene.job, found)
    tell(other, found)
    came = scene.bring([*scene.receipts(NOW + 1), *scene.receipts(NOW + 3, other)], NOW + 3)
    assert [record.number for each in came for record in each.records] == [number]


def test_two_processes_with_parts_acknowledge_each_what_it_has(scene: Scene) -> None:
    """A part says nothing of the numbers of the other, and takes nothing back that the other said."""
    first, second, third = scene.publish("plant/a"), scene.publish("plant/b"), scene.publish("plant/c")
    found = scene.spool()
    other = job_of(scene.world)
    tell(scene.job, [each for each in found if each.batch.number != second])
    tell(other, [each for each in found if each.batch.number == second])
    came = scene.bring([*scene.receipts(NOW), *scene.receipts(NOW + 1, other)], NOW + 1)
    assert acknowledged(came, "job") == {first, second, third}
    (state,) = scene.site.acknowledged.reader_states()
    assert (state.through, state.missing, state.oldest_ms) == (third, 0, 0)
    scene.publish("plant/d")
    assert scene.site.acknowledged.reader_states()[0].oldest_ms == int(NOW * 1000)


@pytest.mark.attack(181)
def test_a_spool_that_was_restored_says_what_is_true_and_takes_back_nothing(scene: Scene) -> None:
    """The spool of yesterday has less than was acknowledged; what the job signs from it is what it has."""
    scene.publish("plant/a")
    tell(scene.job, scene.spool())
    scene.bring(scene.receipts())
    scene.job = job_of(scene.world)
    scene.collector = SpoolCollector(scene.world.overlay, 1, keys=scene.collector.keys())
    scene.collector.learn({name: Derivation(key).check_value for name, key in scene.keys.items()})
    number = scene.publish("plant/b")
    tell(scene.job, scene.spool())
    came = scene.bring(scene.receipts(NOW + EVERY_S), NOW + EVERY_S)
    assert acknowledged(came, "job") == {number}
    assert scene.site.acknowledged.reader_states()[0].acknowledged == 2


def test_a_job_without_its_right_is_refused_by_replicas_and_by_the_publisher(scene: Scene) -> None:
    scene.publish("plant/a")
    tell(scene.job, scene.spool())
    (frame,) = scene.receipts()
    revoked = scene.world.revoked("job", -1)
    relay = ReplicaNode(revoked, scene.world.identities["r1a"], "r1a", lambda epoch: bytes(32))
    relay.handle(LinkUp("site"), NOW)
    assert sent(relay.handle(Received("r1b", Wire(RECEIPTS_TOPIC, frame)), NOW), "site") == []
    before = replica(scene.world, "r1a", ("site", "job"))
    assert sent(before.handle(Received("job", Wire(RECEIPTS_TOPIC, frame)), NOW), "site")
    scene.site.handle(Offered(canonical(revoked)), NOW)
    effects = scene.bring_one(frame)
    assert counted(effects, "refused")
    assert not any(isinstance(effect, ReceiptCame) for effect in effects)


def test_a_batch_of_a_scope_whose_receipts_ended_meanwhile_is_dropped(scene: Scene) -> None:
    """A worker's word may come after the version of the overlay that ends the receipts."""
    scene.publish("plant/a")
    found = scene.spool()
    scopes = tuple(replace(scope, receipts=False) for scope in scene.world.overlay.policy.scopes)
    adopted = scene.job.handle(Offered(canonical(scene.world.with_policy(scopes=scopes))), NOW)
    assert any(isinstance(effect, Adopt) for effect in adopted)
    tell(scene.job, found)
    assert scene.receipts() == []
    assert scene.receipts(NOW + 60) == []


def test_a_receipt_of_a_job_says_no_numbers(scene: Scene) -> None:
    scene.publish("plant/a")
    tell(scene.job, scene.spool())
    (frame,) = scene.receipts()
    body = Receipt.decode(frame).body
    assert (body.reader, body.since, body.through, body.missing) == ("job", 0, 0, ())
