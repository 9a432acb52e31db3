"""What came before the version of the overlay that gives its publisher its key or its right."""

from __future__ import annotations

import zlib

import pytest

from bridge.contract.machine import Blame, Count, Effect, Received, Refuse, Wire
from bridge.document import Overlay
from bridge.document.policy import Scope
from bridge.membership.adopting import FLAG_DOCUMENT, OVERLAY_TOPIC, OfferedVersion, canonical
from bridge.membership.early_wires import EARLY_BYTES, EARLY_OVERHEAD_BYTES, EarlyWires
from bridge.node import ReaderNode, ReplicaNode
from keys.envelope import PROPERTY_HEADER
from keys.grants import Grant, Right
from tests.bridge.helpers import (
    NOW,
    counted,
    delivered,
    gateway,
    publish,
    replica,
    sent,
    statement,
    subscriber,
    suspected,
)
from tests.sim.world import World, make_world


@pytest.fixture
def world() -> World:
    """Site may publish in plant by the next version only."""
    scopes, rights = [Scope("plant/#"), Scope("open/#")], {"site": (("open/#",), ("#",))}
    return make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, scopes, rights=rights)


def next_version(world: World) -> Overlay:
    return world.with_policy(grants=(*world.overlay.policy.grants, Grant("site", "plant/#", Right.PUBLISH)))


def offer(node: ReplicaNode | ReaderNode, peer: str, overlay: Overlay | int) -> list[Effect]:
    version = OfferedVersion(overlay, bytes(32)) if isinstance(overlay, int) else OfferedVersion.of(overlay)
    return node.handle(Received(peer, Wire(OVERLAY_TOPIC, version.encode())), NOW)


def answer(node: ReplicaNode | ReaderNode, peer: str, overlay: Overlay) -> list[Effect]:
    packed = OfferedVersion.of(overlay).encode(FLAG_DOCUMENT) + zlib.compress(canonical(overlay))
    return node.handle(Received(peer, Wire(OVERLAY_TOPIC, packed)), NOW)


def ahead(world: World, overlay: Overlay) -> tuple[Wire, Wire]:
    """What a publisher and its replica that adopted the next version send: to it, and on to the next region."""
    before, world.overlay = world.overlay, overlay
    site, first = gateway(world, "site"), replica(world, "r1a", ("site", "r2a"))
    first.handle(Received("r2a", statement(world, "control", "plant/#")), NOW)
    wire = publish(site, "plant/t", sequence=1)["r1a"]
    (onward,) = [s.wire for s in sent(first.handle(Received("site", wire), NOW), "r2a")]
    world.overlay = before
    return wire, onward


def second(world: World) -> ReplicaNode:
    node = replica(world, "r2a", ("r1a", "r1b", "control"))
    node.handle(Received("control", statement(world, "control", "plant/#")), NOW)
    return node


def test_what_comes_from_who_is_ahead_waits_for_the_version(world: World) -> None:
    newer = next_version(world)
    _, onward = ahead(world, newer)
    node = second(world)
    offer(node, "r1b", world.overlay)
    offer(node, "r1a", newer)
    effects = node.handle(Received("r1a", onward), NOW)
    assert counted(effects, "publications_ahead") == 1
    assert not [e for e in effects if isinstance(e, Blame | Refuse)]
    adopted = answer(node, "r1a", newer)
    assert [s.peer for s in sent(adopted) if s.wire.topic == onward.topic] == ["control"]
    assert not suspected(adopted)


def test_a_reader_keeps_it_too(world: World) -> None:
    near = make_world({1: 3}, [], {"site": 1, "control": 1}, [Scope("plant/#")], rights={"site": ((), ("#",))})
    newer = next_version(near)
    before, near.overlay = near.overlay, newer
    wires = publish(gateway(near, "site"), "plant/t", b"x", sequence=1)
    nodes = {name: replica(near, name, ("site", "control")) for name in wires}
    onward = {}
    for name, node in nodes.items():
        node.handle(Received("control", statement(near, "control", "plant/#")), NOW)
        (onward[name],) = [s.wire for s in sent(node.handle(Received("site", wires[name]), NOW), "control")]
    near.overlay = before
    control = subscriber(near, "control")
    for name, wire in onward.items():  # links are new: nobody has said yet which version it has
        assert counted(control.handle(Received(name, wire), NOW), "publications_ahead") == 1
    offer(control, "r1a", newer)
    effects = answer(control, "r1a", newer)
    assert [d.sequence for d in delivered(effects)] == [1]
    assert not suspected(effects)


def test_the_publisher_itself_is_refused_and_offers_it_again(world: World) -> None:
    """Acknowledged and kept in memory only, it could be lost."""
    newer = next_version(world)
    wire, _ = ahead(world, newer)
    node = replica(world, "r1a", ("site",))
    offer(node, "site", newer)
    effects = node.handle(Received("site", wire), NOW)
    assert [e.reason for e in effects if isinstance(e, Refuse)] == ["right"]
    assert not suspected(effects)


def test_a_liar_that_says_that_it_is_ahead_is_judged_when_the_version_comes(world: World) -> None:
    newer = next_version(world)
    _, onward = ahead(world, newer)
    node = second(world)
    other = world.with_policy()
    offer(node, "r1a", other)
    offer(node, "r1b", other)
    assert counted(node.handle(Received("r1a", onward), NOW), "publications_ahead") == 1
    effects = answer(node, "r1a", other)  # site has no right there, either
    assert counted(effects, "refused") == 1
    assert not [s for s in sent(effects) if s.wire.topic == onward.topic]
    assert not [e for e in effects if isinstance(e, Refuse)]  # which would be of the version


def test_a_liar_that_takes_it_back_is_judged_at_once(world: World) -> None:
    _, onward = ahead(world, next_version(world))
    node = second(world)
    offer(node, "r1a", 99)
    assert counted(node.handle(Received("r1a", onward), NOW), "publications_ahead") == 1
    assert counted(offer(node, "r1a", world.overlay), "refused") == 1


def test_a_liar_whose_version_does_not_hold_is_not_believed_any_more(world: World) -> None:
    _, onward = ahead(world, next_version(world))
    node = second(world)
    offer(node, "r1a", 99)
    false = OfferedVersion(99, bytes(32)).encode(FLAG_DOCUMENT) + zlib.compress(canonical(world.overlay))
    node.handle(Received("r1a", Wire(OVERLAY_TOPIC, false)), NOW)
    assert counted(node.handle(Received("r1a", onward), NOW), "refused") == 1


def test_a_liar_fills_its_own_part_only() -> None:
    refused: list[Effect] = [Count("refused", 1, "NotAuthorised"), Blame("r1a", False, "why")]
    early, last = EarlyWires(), ""
    honest = Received("r1b", Wire("veilmq/batch/1", b"x", properties=((PROPERTY_HEADER, "h"),)))
    assert early.instead(honest, refused, keeps=True)[0] == Count("publications_ahead")
    most = EARLY_BYTES // EARLY_OVERHEAD_BYTES
    for n in range(most + 10):
        last = f"{n}"
        effects = early.instead(
            Received("r1a", Wire(last, b"", properties=((PROPERTY_HEADER, "h"),))), refused, keeps=True
        )
    assert effects == [Count("publications_ahead"), Count("publications_ahead_dropped", 1)]
    assert len(early) <= most
    assert early.take("r1b") == [honest]
    assert early.take()[-1].wire.topic == last
    assert early.take() == []


def test_other_faults_and_other_wires_do_not_wait() -> None:
    early = EarlyWires()
    content: list[Effect] = [Count("refused", 1, "content"), Blame("r1a", False, "why")]
    carried = Received("r1a", Wire("veilmq/batch/1", b"x", properties=((PROPERTY_HEADER, "h"),)))
    assert early.instead(carried, content, keeps=True) == content
    bare, refused = Received("r1a", Wire("$veil/generation", b"x")), [Count("refused", 1, "NotAuthorised")]
    assert early.instead(bare, refused, keeps=True) == refused
    assert len(early) == 0
