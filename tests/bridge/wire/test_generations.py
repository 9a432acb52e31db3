"""Lives of one identity: a clone, a restored backup, a lost directory, and liars that claim generations."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from bridge.contract import Count, Effect, LinkUp, Outlived, Publication, Received, Unstored, Wire
from bridge.document import Scope
from bridge.membership.adopting import canonical
from bridge.node import GatewayNode, ReplicaNode
from bridge.wire import AHEAD_S, GENERATION_TOPIC, Generations
from bridge.wire.generations import PROOF_EVERY_S, OwnLife
from bridge.wire.statements import KEYS_TOPIC
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, KeyHeader, Mode, Order, from_property, to_property
from keys.errors import NotFresh, Superseded
from keys.keyheader import KEY_DOMAIN
from tests.bridge.helpers import (
    NOW,
    counted,
    craft,
    forge_key,
    publish,
    replica,
    sent,
    subscribe_at,
    suspected,
    with_properties,
)
from tests.bridge.reader.test_newest_retained import rotated
from tests.sim.world import World
from tests.support.regions import fresh, one_region

LATER = NOW + 60
PLAIN = Scope("clear/#", Mode.PLAIN)


world = fresh(one_region, "site", "evil", "reader", scopes=[Scope("plant/#"), Scope("open/#"), PLAIN])


def life(world: World, started: float, **disk: Any) -> GatewayNode:
    """The gateway `site`, started at that time."""
    node = GatewayNode(
        world.overlay, world.identities["site"], "site", world.secrets, world.keys,
        random.Random(started).randbytes, generation=int(started * 1000), **disk,
    )  # fmt: skip
    for peer in world.overlay.views[1].members:
        node.handle(LinkUp(peer), started)
    return node


def r1a(world: World) -> ReplicaNode:
    node = replica(world, "r1a", ["site", "evil", "reader"])
    subscribe_at(node, world, "reader", "plant/#")
    return node


def told(
    node: ReplicaNode, life: GatewayNode, sequence: int, now: float, topic: str = "plant/t", retain: bool = False
) -> list[Effect]:
    """The life publishes; what the replica does."""
    wire = publish(life, topic, sequence=sequence, now=now, retain=retain)["r1a"]
    return node.handle(Received("site", wire), now)


def proofs(effects: list[Effect]) -> list[Wire]:
    return [send.wire for send in sent(effects, "site") if send.wire.topic == GENERATION_TOPIC]


def key_of(wire: Wire) -> KeyHeader:
    return KeyHeader.decode(from_property(dict(wire.properties)[PROPERTY_KEY]))


def test_keys_say_in_which_life_and_as_which_one_they_were_made(world: World) -> None:
    node = life(world, NOW)
    first = key_of(publish(node, "plant/t", sequence=1)["r1a"])
    second = key_of(publish(node, "open/t", sequence=2)["r1a"])
    assert (first.order, second.order) == (Order(int(NOW * 1000), 1), Order(int(NOW * 1000), 2))


@pytest.mark.attack(4)
def test_a_clone_is_refused_and_stops_when_it_is_shown_the_later_life(world: World) -> None:
    node, clone, present = r1a(world), life(world, NOW), life(world, LATER)
    assert counted(told(node, clone, 1, NOW + 1), "forwarded") == 1
    assert counted(told(node, present, 2, LATER + 1), "forwarded") == 1
    refused = told(node, clone, 3, LATER + 2)
    assert counted(refused, "forwarded") == 0
    assert counted(refused, "refused") == 1
    assert not suspected(refused)
    (proof,) = proofs(refused)
    heard = clone.handle(Received("r1a", proof), LATER + 2)
    assert [effect for effect in heard if isinstance(effect, Outlived)] == [Outlived(int(LATER * 1000))]
    assert not publish(clone, "plant/t", sequence=4, now=LATER + 3)
    assert counted(told(node, present, 5, LATER + 4), "forwarded") == 1
    assert not present.handle(Received("r1a", proof), LATER + 4) or not present.life.outlived_by
    assert present.life.outlived_by == 0


@pytest.mark.attack(33)
@pytest.mark.parametrize("retain", [False, True])
def test_a_clone_that_publishes_in_plain_scopes_only_is_refused_and_stops(world: World, retain: bool) -> None:
    """What is plain names no key; so the header itself says in which life it was sealed."""
    node, clone, present = r1a(world), life(world, NOW), life(world, LATER)
    subscribe_at(node, world, "reader", "clear/#")
    assert counted(told(node, clone, 1, NOW + 1, "clear/t", retain), "forwarded") == 1
    assert counted(told(node, present, 2, LATER + 1, "clear/t", retain), "forwarded") == 1
    refused = told(node, clone, 3, LATER + 2, "clear/t", retain)
    assert counted(refused, "forwarded") == 0
    assert not suspected(refused)
    (proof,) = proofs(refused)
    assert not present.handle(Received("r1a", proof), LATER + 2) or not present.life.outlived_by
    for damaged in (
        replace(proof, payload=proof.payload + b"x"),
        replace(proof, properties=((PROPERTY_HEADER, proof.properties[0][1][:-2]),)),
    ):
        assert suspected(clone.handle(Received("r1b", damaged), LATER + 2)) == {"r1b"}
    heard = clone.handle(Received("r1a", proof), LATER + 2)
    assert [effect for effect in heard if isinstance(effect, Outlived)] == [Outlived(int(LATER * 1000))]
    assert not publish(clone, "clear/t", sequence=4, now=LATER + 3)


@pytest.mark.attack(33)
def test_a_plain_header_of_somebody_else_or_of_a_start_to_come_mutes_nobody(world: World) -> None:
    year_s = 365 * 86_400
    node, ahead = life(world, NOW), life(world, NOW + year_s)
    kept = publish(ahead, "clear/t", sequence=1, now=NOW + year_s)["r1c"]
    (header,) = [value for name, value in kept.properties if name == PROPERTY_HEADER]
    foreign = craft(world, "evil", "clear/t", sequence=1, mode=Mode.PLAIN, order=(int(LATER * 1000), 0))
    for topic, told_header in ((kept.topic, header), (foreign.topic, dict(foreign.properties)[PROPERTY_HEADER])):
        proof = Wire(GENERATION_TOPIC, topic.encode(), properties=((PROPERTY_HEADER, told_header),))
        assert counted(node.handle(Received("r1b", proof), NOW + 1), "refused") == 1
    assert publish(node, "clear/t", sequence=2, now=NOW + 2)
    assert counted(r1a(world).handle(Received("site", kept), NOW + 2), "refused") == 1


def test_a_header_of_another_life_or_key_than_its_key_has_is_its_authors_fault(world: World) -> None:
    node, key = r1a(world), forge_key(world, "site", "plant/#")
    subscribe_at(node, world, "reader", "plant/#")
    node.handle(Received("site", craft(world, "site", "plant/t", sequence=1, key=key,
                                       properties=key.properties(key.shares[:1]))), NOW)  # fmt: skip
    for sequence, order in ((2, (1, 0)), (3, (0, 1))):
        lie = craft(world, "site", "plant/t", sequence=sequence, key=key, order=order)
        effects = node.handle(Received("site", lie), NOW)
        assert [e.of for e in effects if isinstance(e, Count) and e.name == "refused"] == [key.header.publisher]


def test_what_the_life_before_sealed_before_the_present_one_began_is_taken(world: World) -> None:
    node, before, present = r1a(world), life(world, NOW), life(world, LATER)
    late = publish(before, "plant/t", sequence=1, now=LATER - 1)["r1a"]
    told(node, present, 2, LATER + 1)
    assert counted(node.handle(Received("site", late), LATER + 2), "forwarded") == 1


@pytest.mark.attack(5, 6)
def test_a_restored_backup_and_a_lost_directory_are_later_lives(world: World) -> None:
    """Whatever the disk says: the start is later, so the number is greater, and the copy that still runs stops."""
    node, before = r1a(world), life(world, NOW)
    told(node, before, 100, NOW + 1)
    assert counted(told(node, life(world, LATER), 1 << 20, LATER), "forwarded") == 1
    assert proofs(told(node, before, 101, LATER + 1))


@pytest.mark.attack(19)
def test_nobody_is_muted_by_somebody_elses_word(world: World) -> None:
    node = life(world, NOW)
    own = key_of(publish(node, "plant/t", sequence=1)["r1a"])
    later = replace(own, order=Order(int(LATER * 1000), 1))
    foreign = forge_key(world, "evil", "plant/#").header
    foreign = replace(foreign, order=Order(int(LATER * 1000), 1))
    foreign = replace(foreign, signature=world.identities["evil"].sign(KEY_DOMAIN, foreign.signed_bytes))
    for claim in (later.encode(), foreign.encode(), b"", later.encode()[:-1], b"\xff" * 500):
        effects = node.handle(Received("r1b", Wire(GENERATION_TOPIC, claim)), NOW + 1)
        assert suspected(effects) == {"r1b"}
    replayed = node.handle(Received("r1b", Wire(GENERATION_TOPIC, own.encode())), NOW + 1)
    assert counted(replayed, "refused") == 1
    assert publish(node, "plant/t", sequence=2, previous=1, now=NOW + 2)


@pytest.mark.attack(19)
def test_a_key_of_a_start_with_a_clock_far_ahead_mutes_no_later_life(world: World) -> None:
    """Attack: a gateway was once started with a clock a year ahead. Honest replicas refused its keys; a liar kept one,
    and shows it to every life that follows."""
    year_s = 365 * 86_400
    ahead = life(world, NOW + year_s)
    kept = key_of(publish(ahead, "plant/t", sequence=1, now=NOW + year_s)["r1c"])
    node = life(world, NOW)
    effects = node.handle(Received("r1c", Wire(GENERATION_TOPIC, kept.encode())), NOW + 1)
    assert counted(effects, "refused") == 1
    assert node.life.outlived_by == 0
    assert publish(node, "plant/t", sequence=2, now=NOW + 2)


@pytest.mark.attack(19)
def test_when_the_time_of_a_start_with_a_clock_far_ahead_has_come_it_mutes_nobody(world: World) -> None:
    """Attack: the liar waits for that time, and shows the key to replicas and to the gateway that goes on since."""
    then = NOW + 4000
    ahead = life(world, then)
    told(ahead_at := r1a(world), ahead, 1, then)  # what any liar can make a replica believe then
    node = life(world, NOW, passed_over={int(then * 1000): int(then * 1000) + 3})
    assert counted(told(ahead_at, node, 2, then - 1), "forwarded") == 1
    refused = told(ahead_at, node, 3, then + 1)
    assert counted(refused, "forwarded") == 0
    (proof,) = proofs(refused)
    heard = node.handle(Received("r1a", proof), then + 1)
    assert (counted(heard, "generations_passed"), counted(heard, "outlived")) == (1, 0)
    wire = publish(node, "plant/t", sequence=4, now=then + 2)["r1a"]
    assert key_of(wire).order == Order(int(then * 1000) + 3, 1)
    assert counted(ahead_at.handle(Received("site", wire), then + 2), "forwarded") == 1
    assert counted(node.handle(Received("r1a", proof), then + 3), "refused") == 1, "once"
    clone = key_of(publish(life(world, then + 5), "plant/t", sequence=5, now=then + 5)["r1a"])
    assert counted(node.handle(Received("r1a", Wire(GENERATION_TOPIC, clone.encode())), then + 6), "outlived") == 1


def test_a_liar_that_claims_a_generation_shuts_nobody_out(world: World) -> None:
    """Its signature does not fit, so the replica learns nothing from it."""
    node, honest = r1a(world), life(world, NOW)
    wire = publish(honest, "plant/t", sequence=1, now=NOW + 1)["r1a"]
    claimed = replace(key_of(wire), order=Order(int(LATER * 1000), 1)).encode()
    lie = with_properties(wire, (PROPERTY_KEY, to_property(claimed)), without=(PROPERTY_KEY,))
    assert suspected(node.handle(Received("site", lie), NOW + 1)) == {"site"}
    assert counted(told(node, honest, 2, NOW + 2), "forwarded") == 1


def test_a_start_that_is_still_to_come_is_refused(world: World) -> None:
    key = forge_key(world, "site", "plant/#").header
    known = Generations(world.overlay)
    known.learn("site", replace(key, order=Order(int((NOW + AHEAD_S) * 1000), 1)), NOW)
    with pytest.raises(NotFresh):
        known.learn("site", replace(key, order=Order(int((NOW + AHEAD_S) * 1000) + 1, 1)), NOW)
    node = r1a(world)
    early = life(world, NOW + 2 * AHEAD_S)
    effects = told(node, early, 1, NOW)
    assert (counted(effects, "forwarded"), counted(effects, "refused")) == (0, 1)
    assert not suspected(effects)


def test_one_proof_is_enough_for_a_while(world: World) -> None:
    node, clone = r1a(world), life(world, NOW)
    told(node, clone, 1, NOW)
    told(node, life(world, LATER), 2, LATER)
    assert len(proofs(told(node, clone, 3, LATER + 1))) == 1
    assert not proofs(told(node, clone, 4, LATER + 1 + PROOF_EVERY_S / 2))
    assert len(proofs(told(node, clone, 5, LATER + 2 + PROOF_EVERY_S))) == 1


def test_what_is_known_of_a_key_that_left_the_overlay_is_forgotten(world: World) -> None:
    key = forge_key(world, "site", "plant/#").header
    known = Generations(world.overlay)
    known.learn("site", replace(key, order=Order(int(LATER * 1000), 1)), LATER)
    with pytest.raises(Superseded):
        known.check_life("site", key.publisher, 1, int(LATER * 1000))
    known.adopt_overlay(world.with_policy())
    assert known.proof("site", LATER) is not None
    known.adopt_overlay(rotated(rotated(world, "site"), "site", seed=9).overlay)
    known.check_life("site", key.publisher, 1, int(LATER * 1000))


def test_an_outlived_gateway_keeps_what_its_devices_publish(world: World) -> None:
    node = life(world, NOW)
    told(r := r1a(world), life(world, LATER), 1, LATER)
    (proof,) = proofs([*told(r, node, 2, NOW + 1), *told(r, node, 3, LATER + 1)])
    node.handle(Received("r1a", proof), LATER + 1)
    depth = node.publisher.depth
    assert not publish(node, "plant/t", sequence=4, now=LATER + 2)
    assert node.publisher.depth == depth + 1
    assert not sent(node.handle(Unstored(5, Publication("plant/t", b"")), LATER + 2))


def key_with(world: World, generation: int) -> KeyHeader:
    """A key header of the member `site`'s, of that generation."""
    key = replace(forge_key(world, "site", "plant/#").header, order=Order(generation, 1))
    return replace(key, signature=world.identities["site"].sign(KEY_DOMAIN, key.signed_bytes))


def test_only_what_an_earlier_life_sealed_after_a_later_ones_start_is_refused(world: World) -> None:
    known, began = Generations(world.overlay), int(NOW * 1000)
    site, other = (world.identities[name].party_id for name in ("site", "reader"))
    known.check_life("site", site, 0, 2 * began)
    known.learn("site", key_with(world, began), NOW)
    known.check_life("site", site, began - 1, began - 1)
    known.check_life("site", site, began, began + 5)
    known.check_life("reader", other, 0, 2 * began)
    for sealed_ms in (began, began + 1):
        with pytest.raises(Superseded):
            known.check_life("site", site, began - 1, sealed_ms)


def test_the_greatest_generation_stays_and_is_proven_once_a_second(world: World) -> None:
    known, later, site = Generations(world.overlay), key_with(world, 9), world.identities["site"].party_id
    for key in (key_with(world, 5), later, replace(later, first_sequence=77), key_with(world, 7)):
        known.learn("site", key, NOW)
    with pytest.raises(Superseded):
        known.check_life("site", site, 8, 9)
    assert known.proof("site", NOW) == Wire(GENERATION_TOPIC, later.encode())
    assert known.proof("site", NOW + PROOF_EVERY_S - 0.001) is None
    assert known.proof("site", NOW + PROOF_EVERY_S) is not None
    known.adopt_overlay(world.with_policy())
    assert known.proof("site", NOW + PROOF_EVERY_S + 0.5) is None
    known.adopt_overlay(rotated(rotated(world, "site"), "site", seed=9).overlay)
    known.adopt_overlay(world.overlay)
    known.learn("site", later, NOW)
    with pytest.raises(Superseded):
        known.check_life("site", site, 8, 9)
    assert known.proof("site", NOW + PROOF_EVERY_S + 0.6) is not None


def test_a_life_counts_its_keys_and_hears_of_each_later_one_once(world: World) -> None:
    life = OwnLife(5)
    assert (life.next_key(), life.next_key(), life.outlived_by) == (Order(5, 1), Order(5, 2), 0)

    def heard(key: KeyHeader, name: str = "site") -> list[Effect]:
        event = Received("r1a", Wire(GENERATION_TOPIC, key.encode()))
        return life.take_proof(event, world.overlay, name, world.identities["site"].party_id, NOW)

    assert counted(heard(key_with(world, 5)), "refused") == 1
    assert counted(heard(key_with(world, 6), "reader"), "refused") == 1
    assert counted(heard(replace(key_with(world, 6), publisher=b"s" * 16)), "refused") == 1, "of a stranger"
    assert life.outlived_by == 0
    assert heard(key_with(world, 7)) == [Count("outlived"), Outlived(7)]
    for generation in (6, 7):
        assert heard(key_with(world, generation)) == []
    assert heard(key_with(world, 8)) == [Count("outlived"), Outlived(8)]


@pytest.mark.attack(67)
def test_who_has_the_former_key_mutes_nobody_by_starts_that_never_were(world: World) -> None:
    """Attack: it was stolen, hence the rotation. While its certificate lasts replicas believe it, and an hour later
    one bad replica shows what it signed."""
    after = rotated(world, "site")
    node, present = r1a(after), life(after, NOW)
    key = key_with(world, int((NOW + AHEAD_S) * 1000))
    told_by_thief = Wire(KEYS_TOPIC, b"", properties=((PROPERTY_KEY, to_property(key.encode())),))
    assert counted(node.handle(Received("site", told_by_thief), NOW), "refused") == 0
    assert key.publisher != after.identities["site"].party_id
    effects = told(node, present, 1, NOW + AHEAD_S + 1)
    assert (counted(effects, "forwarded"), proofs(effects)) == (1, [])
    for at in (NOW + AHEAD_S + 1, NOW + 3600):
        shown = key_with(world, int(at * 1000))
        heard = present.handle(Received("r1b", Wire(GENERATION_TOPIC, shown.encode())), at)
        assert (counted(heard, "outlived"), suspected(heard)) == (0, set())
    assert not present.life.outlived_by


@pytest.mark.attack(67)
def test_a_clone_under_the_former_key_is_refused_and_stops(world: World) -> None:
    after = rotated(world, "site")
    node, clone, present = r1a(after), life(world, NOW), life(after, LATER)
    assert counted(told(node, clone, 1, NOW + 1), "forwarded") == 1
    assert counted(told(node, present, 2, LATER + 1), "forwarded") == 1
    refused = told(node, clone, 3, LATER + 2)
    (proof,) = proofs(refused)
    clone.offered(canonical(after.overlay), LATER + 2)
    assert counted(clone.handle(Received("r1a", proof), LATER + 2), "outlived") == 1
