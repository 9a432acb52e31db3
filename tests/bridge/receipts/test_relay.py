"""Receipts on their way: over regions, past liars, after outages."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bridge.contract import (
    LinkDown,
    LinkUp,
    Received,
)
from bridge.contract.machine import Send, Wire
from bridge.document import Scope
from bridge.receipts import RECEIPTS_TOPIC, Receipt
from papers.sim.adversary import Behaviour
from tests.bridge.helpers import NOW, replica, sent
from tests.bridge.receipts.helpers import (
    LIARS,
    Scene,
    acknowledged,
    proof_of,
    the_world,
)
from tests.seldom import slow
from tests.sim.world import Traffic, make_world, subscribe


@pytest.mark.long
@pytest.mark.attack(176)
@pytest.mark.parametrize(
    "lies",
    [
        (),
        (Behaviour.DROP,),
        (Behaviour.CONTENT,),
        (Behaviour.REPLAY, Behaviour.REORDER),
        (Behaviour.DELAY,),
        (Behaviour.FLOOD,),
    ],
)
@pytest.mark.parametrize("seed", [0, *slow(range(1, 10))])
def test_everything_delivered_is_acknowledged_past_a_liar_in_each_region(seed: int, lies: tuple[Behaviour, ...]):
    world = the_world(seed=seed)
    world.liars = {name: frozenset(lies) for name in LIARS} if lies else {}
    kernel = world.kernel(random.Random(seed))
    for reader in ("control", "near"):
        subscribe(kernel, reader, "plant/#")
        subscribe(kernel, reader, "quiet/#")
    subscribe(kernel, "control", "clear/#")
    traffic = Traffic("site")
    for n in range(30):
        traffic.publish(
            kernel, NOW + 5 + n * 0.4, f"{('plant', 'quiet', 'clear')[n % 3]}/{n % 2}", b"%d" % n, qos=n % 3 or 1
        )
    trace = kernel.run(NOW + 45)
    came = trace.receipts["site"]
    of = {topic: {s for s, p in traffic.published.items() if p.topic.startswith(topic)} for topic in ("plant", "clear")}
    had = {reader: {d.sequence for d in trace.delivered[reader]} for reader in ("near", "control")}
    assert of["plant"] <= acknowledged(came, "near") <= had["near"]  # a liar may bring what it did not ask for
    assert of["plant"] | of["clear"] == acknowledged(came, "control")
    assert not trace.figures.get("receipts_unmatched")
    assert trace.named_members() <= set(LIARS)
    assert trace.suspected() <= set(LIARS) | {"site", "control", "near"}
    proofs = [proof_of(world, trace.sealed["site"], each) for each in came]
    assert {proof.check_proof().reader for proof in proofs} == {"near", "control"}


def test_a_publisher_that_was_cut_off_hears_the_newest_receipt_when_it_is_back():
    world = the_world()
    kernel = world.kernel(random.Random(4))
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    traffic.publish(kernel, NOW + 5, "plant/a", b"x")
    kernel.run(NOW + 5.02)  # it is with the replicas, and no receipt is back
    for name in ("r1a", "r1b", "r1c"):
        kernel.cut("site", name)
    assert not kernel.run(NOW + 20).receipts.get("site")
    for name in ("r1a", "r1b", "r1c"):
        kernel.heal("site", name)
    assert acknowledged(kernel.run(NOW + 30).receipts["site"], "control") == set(traffic.published)


def test_a_scope_without_receipts_has_none():
    world = make_world({1: 3}, [], {"site": 1, "near": 1}, [Scope("plant/#")])
    kernel = world.kernel(random.Random(1))
    subscribe(kernel, "near", "plant/#")
    Traffic("site").publish(kernel, NOW + 5, "plant/a", b"x")
    trace = kernel.run(NOW + 20)
    assert len(trace.delivered["near"]) == 1
    assert not (trace.receipts)
    assert not (trace.sealed)
    assert not (trace.figures.get("receipts_signed"))


def test_replicas_pass_on_what_holds_once_and_towards_the_publisher_alone(scene: Scene):
    world = scene.world
    node = replica(world, "r2a", ("control", "spy", "r1a", "r1b", "r1c"))
    receipt = Receipt.decode(scene.signed())
    frame = Receipt.sign(world.identities["control"], replace(receipt.body, reader="control"), receipt.batches).encode()
    effects = node.handle(Received("control", Wire(RECEIPTS_TOPIC, frame)), NOW)
    assert {s.peer for s in effects if isinstance(s, Send)} == {"r1a", "r1b", "r1c"}
    assert node.handle(Received("control", Wire(RECEIPTS_TOPIC, frame)), NOW) == []
    forged = Receipt.sign(world.identities["spy"], replace(receipt.body, reader="control"), receipt.batches).encode()
    assert not [e for e in node.handle(Received("spy", Wire(RECEIPTS_TOPIC, forged)), NOW) if isinstance(e, Send)]
    node.handle(LinkDown("r1a"), NOW)
    told = [s for s in sent(node.handle(LinkUp("r1a"), NOW)) if s.wire.topic == RECEIPTS_TOPIC]
    assert [s.wire.payload for s in told] == [frame]
