"""Further copies of a publication that passed or was delivered: they cost little, and excuse nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import COPY
from bridge.contract.machine import Effect, Publication, Received, Unstored, Wire
from bridge.document import Overlay, Scope, ShownAttribute
from bridge.membership.adopting import canonical
from bridge.node import GatewayNode, ReplicaNode
from bridge.replica.content_relay import RECENT_S
from bridge.wire import PROPERTY_PART
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, Mode
from tests.bridge.helpers import (
    NOW,
    counted,
    delivered,
    gateway,
    publish,
    replica,
    same_version,
    sent,
    subscribe_at,
    subscriber,
    suspected,
    wire_topic,
    with_properties,
)
from tests.sim.world import World, make_world
from tests.support.regions import fresh, row_of_regions

BEFORE = ("r1a", "r1b", "r1c")
Node = ReplicaNode | GatewayNode


world = fresh(row_of_regions, 2, {"site": 1, "local": 1, "control": 2})


def passed_on(world: World, to: str) -> dict[str, tuple[Wire, Wire]]:
    """Returns the wires of two publications, the first with the key, that each replica of region 1 sends."""
    site = gateway(world, "site")
    both = [publish(site, "plant/t", b'{"room":"a"}', sequence=at) for at in (1, 2)]
    found: dict[str, tuple[Wire, Wire]] = {}
    for name in BEFORE:
        node = replica(world, name, ["r2a", "local", "site"])
        subscribe_at(node, world, "control", "plant/#", via="r2a")
        subscribe_at(node, world, "local", "plant/#")
        sends = [sent(node.handle(Received("site", wires[name]), NOW), to)[0].wire for wires in both]
        found[name] = sends[0], sends[1]
    return found


def at_replica(world: World) -> Node:
    node = replica(world, "r2a", [*BEFORE, "control"])
    subscribe_at(node, world, "control", "plant/#")
    same_version(node, *BEFORE, "control")
    return node


def fed(node: Node, wires: dict[str, tuple[Wire, Wire]], at: int) -> list[list[Effect]]:
    return [node.handle(Received(peer, wires[peer][at]), NOW) for peer in wires]


def test_further_copies_at_a_replica_change_nothing_and_excuse_nobody(world: World) -> None:
    wires, node = passed_on(world, "r2a"), at_replica(world)
    fed(node, wires, 0)
    first, *others = fed(node, wires, 1)
    assert sent(first, "control")
    assert [len(each) for each in others] == [1, 1]
    assert all(each[0] is COPY for each in others)
    copy = wires["r1b"][1]
    altered = node.handle(Received("r1b", replace(copy, payload=b"x" + copy.payload[1:])), NOW)
    assert suspected(altered) == {"r1b"}
    wrong_way = node.handle(Received("control", copy), NOW)
    assert counted(wrong_way, "refused") == 1
    assert suspected(wrong_way) == {"control"}


def test_further_copies_at_a_reader_are_delivered_once_and_excuse_nobody(world: World) -> None:
    wires = passed_on(world, "local")
    reader = subscriber(world, "local")
    fed(reader, wires, 0)
    effects = fed(reader, wires, 1)
    assert len(delivered([each for some in effects for each in some])) == 1
    assert effects[-1][0] is COPY
    copy = wires["r1b"][1]
    altered = reader.handle(Received("r1b", replace(copy, payload=b"x" + copy.payload[1:])), NOW)
    assert suspected(altered) == {"r1b"}
    assert not delivered(altered)


def without_right(world: World, member: str) -> bytes:
    """Returns the next version of the overlay, in which the member may do nothing."""
    overlay, owner = world.overlay, world.owner
    assert owner is not None
    grants = tuple(grant for grant in overlay.policy.grants if grant.member != member)
    policy = replace(overlay.policy, version=overlay.policy.version + 1, grants=grants)
    return canonical(Overlay.sign(owner, policy, overlay.views.values(), overlay.members.values()))


@pytest.mark.parametrize("mode", [Mode.PLAIN, Mode.AUTO])
def test_a_copy_without_the_list_of_attributes_that_was_signed_is_refused(mode: Mode) -> None:
    scope = Scope("plant/#", mode, shown=(ShownAttribute(("room",)),))
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "local": 1, "control": 2}, [scope])
    wires, node = passed_on(world, "r2a"), at_replica(world)
    fed(node, wires, 0)
    fed(node, wires, 1)
    copy = wires["r1b"][1]
    assert len(copy.properties) == 2
    bare = replace(copy, properties=tuple(each for each in copy.properties if each[0] == PROPERTY_HEADER))
    effects = node.handle(Received("r1b", bare), NOW)
    assert counted(effects, "refused") == 1
    assert suspected(effects) == {"r1b"}


def test_a_copy_of_a_publisher_that_lost_its_right_is_no_copy_any_more(world: World) -> None:
    wires, node = passed_on(world, "r2a"), at_replica(world)
    fed(node, wires, 0)
    fed(node, wires, 1)
    node.offered(without_right(world, "site"), NOW)
    same_version(node, *BEFORE)
    for peer in BEFORE:
        effects = node.handle(Received(peer, wires[peer][1]), NOW)
        assert not sent(effects, "control")
        assert not any(effect is COPY for effect in effects)


def test_equal_bytes_under_another_topic_or_sender_are_no_copy(world: World) -> None:
    wires, node = passed_on(world, "r2a"), at_replica(world)
    fed(node, wires, 0)
    fed(node, wires, 1)
    copy = wires["r1b"][1]
    for topic in (wire_topic(world, "site", "plant/t", retain=True), copy.topic + "0", "$veil/anything"):
        effects = node.handle(Received("r1b", replace(copy, topic=topic)), NOW)
        assert counted(effects, "refused") == 1
        assert suspected(effects) == {"r1b"}
    (only, blame) = node.handle(Received("r2b", copy), NOW)[:2]
    assert (only is COPY, suspected([blame])) == (False, {"r2b"})


def test_unsigned_words_beside_a_copy_are_judged_as_beside_any_publication(world: World) -> None:
    wires, node = passed_on(world, "r2a"), at_replica(world)
    fed(node, wires, 0)
    fed(node, wires, 1)
    copy = wires["r1b"][1]
    for wrong in ((PROPERTY_KEY, "AAAA"), (PROPERTY_PART, "9")):
        effects = node.handle(Received("r1b", with_properties(copy, wrong)), NOW)
        assert counted(effects, "refused") == 1
        assert suspected(effects) == {"r1b"}
    assert node.handle(Received("r1b", with_properties(copy, ("anything", "else"))), NOW)[0] is not COPY


def test_thousands_of_copies_take_nothing_from_anybody(world: World) -> None:
    wires, node = passed_on(world, "r2a"), at_replica(world)
    fed(node, wires, 0)
    node.handle(Received("r1a", wires["r1a"][1]), NOW)
    due = node.next_deadline
    copy = Received("r1b", wires["r1b"][1])
    assert all(node.handle(copy, NOW)[0] is COPY for _ in range(5_000))
    assert node.next_deadline == due
    assert node.handle(Received("r1c", wires["r1c"][1]), NOW)[0] is COPY
    site = gateway(world, "site")
    home = replica(world, "r1b", ["r2a", "site"])
    subscribe_at(home, world, "control", "plant/#", via="r2a")
    third = publish(site, "plant/t", sequence=3)["r1b"]
    (onwards,) = sent(home.handle(Received("site", third), NOW), "r2a")
    assert sent(node.handle(Received("r1b", onwards.wire), NOW), "control"), "of the same link, and of the same author"


def test_a_copy_of_what_passed_long_ago_goes_on_no_more(world: World) -> None:
    wires, node = passed_on(world, "r2a"), at_replica(world)
    fed(node, wires, 0)
    fed(node, wires, 1)
    later = NOW + RECENT_S + 1
    site, home = gateway(world, "site"), replica(world, "r1b", ["r2a", "site"])
    subscribe_at(home, world, "control", "plant/#", via="r2a")
    third = publish(site, "plant/t", sequence=3, now=later)["r1b"]
    (onwards,) = sent(home.handle(Received("site", third), later), "r2a")
    node.handle(Received("r1b", onwards.wire), later)
    for wire in wires["r1b"]:
        assert not sent(node.handle(Received("r1b", wire), later))


def test_a_copy_of_what_still_waits_is_no_copy_of_what_was_delivered(world: World) -> None:
    """The second publication waits for its key, which rides with the first."""
    wires, reader = passed_on(world, "local"), subscriber(world, "local")
    for _ in range(3):
        effects = [each for some in fed(reader, wires, 1) for each in some]
        assert not delivered(effects)
        assert not any(each is COPY for each in effects)
    both = [each for some in fed(reader, wires, 0) for each in some]
    assert len(delivered(both)) == 2


def test_a_gateway_whose_machine_was_driven_beside_it_asks_for_deadlines_anew(world: World) -> None:
    site = gateway(world, "site")
    before = site.next_deadline
    publication = Publication("plant/t", b"x", 0, expiry_s=1, time_ms=int(NOW * 1000))
    site.intake.unstored(Unstored(1, publication), NOW)
    site.woken()
    assert site.next_deadline != before
