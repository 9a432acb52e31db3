"""A scope whose names are hidden anew (`overlay sign --new-tokens`) is one stream over both numbers: nothing comes
twice or out of order, whoever knows of it first, over restarts; and who has rights elsewhere gains nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bridge.contract.machine import Acked, Deliver, Effect, Keep, LinkUp, Received, Restored, Subscribed, Tick, Wire
from bridge.document.policy import Scope
from bridge.membership.adopting import canonical
from bridge.node import GatewayNode
from bridge.reader.intake import FRESH_S
from bridge.reader.waiting import REPAIR_S
from keys.envelope import Mode
from tests.bridge.helpers import NOW, counted, craft, delivered, gateway, publish, same_version, sent, subscriber
from tests.sim.world import World, make_world

pytestmark = pytest.mark.attack(94)

REPLICAS = ("r1a", "r1b", "r1c")
RIGHTS = {"stranger": (["open/#"], ["open/#"])}


@pytest.fixture(params=[Mode.COPIES, Mode.PLAIN], ids=["sealed", "plain"])
def world(request: pytest.FixtureRequest) -> World:
    scopes = [Scope("plant/#", request.param, tokens=True), Scope("open/#", Mode.PLAIN)]
    return make_world({1: 3}, [], {"site": 1, "control": 1, "stranger": 1}, scopes, rights=RIGHTS)


def brought(node: GatewayNode, wires: dict[str, Wire], now: float = NOW) -> list[Deliver]:
    return [each for peer, wire in wires.items() for each in delivered(node.handle(Received(peer, wire), now))]


def numbers(deliveries: Sequence[Deliver]) -> list[int]:
    return [each.sequence for each in deliveries]


def wires_in(effects: Sequence[Effect]) -> dict[str, Wire]:
    return {send.peer: send.wire for send in sent(effects) if send.ticket > 0}


def adopt(node: GatewayNode, document: bytes, now: float) -> list[Effect]:
    return node.offered(document, now)


@pytest.mark.parametrize("reader_first", [False, True])
def test_what_is_on_its_way_is_sealed_anew_under_the_next_number_and_delivered_once(world: World, reader_first: bool):
    site, control = gateway(world, "site"), subscriber(world, "control")
    assert numbers(brought(control, publish(site, "plant/t", sequence=1, qos=2))) == [1]
    document = canonical(world.renew_tokens("plant/#"))
    if reader_first:
        adopt(control, document, NOW + 1)
    again = wires_in(adopt(site, document, NOW + 1))
    assert {wire.topic for wire in again.values()} == {"veilmq/batch/3"}
    assert not brought(control, again, NOW + 1)
    late = adopt(control, document, NOW + 2)
    assert not delivered(late)
    assert numbers(brought(control, publish(site, "plant/t", sequence=2, previous=1, qos=2, now=NOW + 3), NOW + 3)) == [
        2
    ]


def test_a_replica_that_was_away_brings_nothing_again(world: World):
    site, control = gateway(world, "site", links=False), subscriber(world, "control")
    for replica in REPLICAS[:2]:
        site.handle(LinkUp(replica), NOW)
    for number in range(1, 51):
        wires = publish(site, "plant/t", b"%d" % number, sequence=number, previous=number - 1, qos=2)
        assert numbers(brought(control, wires)) == [number]
        for replica in wires:
            site.handle(Acked(replica, number), NOW)
    document = canonical(world.renew_tokens("plant/#"))
    adopt(site, document, NOW + 60)
    adopt(control, document, NOW + 60)
    told = [send for send in sent(site.handle(LinkUp("r1c"), NOW + 300)) if send.ticket > 0]
    assert len({send.ticket for send in told}) == 50
    assert not [d for s in told for d in delivered(control.handle(Received(s.peer, s.wire), NOW + 300))]


def test_what_follows_under_the_next_number_waits_for_what_precedes_it_under_the_former(world: World):
    site, control = gateway(world, "site"), subscriber(world, "control")
    brought(control, publish(site, "plant/t", sequence=1))
    second = publish(site, "plant/t", sequence=2, previous=1)
    for replica in REPLICAS:
        site.handle(Acked(replica, 1), NOW)
        site.handle(Acked(replica, 2), NOW)
    document = canonical(world.renew_tokens("plant/#"))
    adopt(site, document, NOW + 1)
    adopt(control, document, NOW + 1)
    third = publish(site, "plant/t", sequence=3, previous=2, now=NOW + 2)
    assert third["r1a"].topic != second["r1a"].topic
    assert not brought(control, third, NOW + 2)
    assert numbers(brought(control, second, NOW + 3)) == [2, 3]


@pytest.mark.attack(128)
@pytest.mark.parametrize("cut_s", [FRESH_S - 100, FRESH_S + 400])
def test_what_was_sealed_under_new_tokens_while_our_links_were_cut_is_delivered(world: World, cut_s: float):
    """The reader ran all the while. What replicas kept comes before the version that lists the new tokens."""
    site, control = gateway(world, "site"), subscriber(world, "control")
    brought(control, publish(site, "plant/t", sequence=1, now=NOW + 5), NOW + 5)
    newer = world.renew_tokens("plant/#")
    site, at = gateway(world, "site"), NOW + 10 + cut_s
    for number in (2, 3):
        wires = publish(site, "plant/t", sequence=number, previous=number - 1, now=NOW + 10 + number)
        assert not brought(control, wires, at)
    effects = adopt(control, canonical(newer), at)
    effects += [e for s in range(1, 20) for e in control.handle(Tick(), at + s)]
    assert numbers(delivered(effects)) == [2, 3]


@pytest.mark.parametrize("ended", [False, True], ids=["the former retires", "the former is gone"])
def test_a_restart_between_two_renewals_goes_on_with_the_stream(world: World, ended: bool):
    site, control, rows = gateway(world, "site"), gateway(world, "control"), dict[bytes, bytes | None]()

    def handle(node: GatewayNode, event: Received | Restored | Subscribed, now: float) -> list[Deliver]:
        effects = node.handle(event, now)
        for effect in effects:
            rows.update(effect.rows if isinstance(effect, Keep) else ())
        return delivered(effects)

    handle(control, Subscribed("plant/#"), NOW)
    for number in range(1, 6):
        for peer, wire in publish(site, "plant/t", b"%d" % number, sequence=number, previous=number - 1, qos=2).items():
            handle(control, Received(peer, wire), NOW)
    for generation in (1, 2):
        adopt(site, canonical(world.renew_tokens("plant/#", generation)), NOW + 10 * generation)
        if ended or generation == 1:
            adopt(site, canonical(world.retire()), NOW + 10 * generation + 1)
    now = NOW + 60
    again = gateway(world, "control")
    handle(again, Restored(tuple((key, row) for key, row in rows.items() if row is not None)), now)
    handle(again, Subscribed("#"), now)
    sealed = {s.ticket: (s.peer, s.wire) for s in sent(site.handle(LinkUp("r1a"), now)) if s.ticket > 0}
    assert sorted(sealed) == [1, 2, 3, 4, 5]
    assert not [d for peer, wire in sealed.values() for d in handle(again, Received(peer, wire), now)]
    beyond = publish(site, "plant/t", sequence=7, previous=6, qos=2, now=now)
    assert not brought(again, beyond, now), "it waits for number 6"
    assert numbers(delivered(again.handle(Tick(), now + REPAIR_S))) == [7]


@pytest.mark.attack(95)
def test_what_comes_before_its_scope_is_known_here_waits_over_a_restart_too(world: World):
    site, control, rows = gateway(world, "site"), subscriber(world, "control"), dict[bytes, bytes | None]()
    knew = world.overlay, world.secrets
    brought(control, publish(site, "plant/t", sequence=1, qos=2))
    for replica in REPLICAS:
        site.handle(Acked(replica, 1), NOW)
    document = canonical(world.renew_tokens("plant/#"))
    adopt(site, document, NOW + 1)
    for peer, wire in publish(site, "plant/t", sequence=2, previous=1, qos=2, now=NOW + 2).items():
        effects = control.handle(Received(peer, wire), NOW + 2)
        assert counted(effects, "publications_ahead") == 1
        assert not counted(effects, "refused")
    for effect in control.handle(Tick(), NOW + 4):
        rows.update(effect.rows if isinstance(effect, Keep) else ())
    assert numbers(delivered(adopt(control, document, NOW + 5))) == [2]

    world.overlay, world.secrets = knew
    control = subscriber(world, "control")
    site = gateway(world, "site")
    adopt(site, document, NOW + 5)
    again = publish(site, "plant/t", sequence=3, previous=2, qos=2, now=NOW + 6)
    for peer, wire in again.items():
        for effect in control.handle(Received(peer, wire), NOW + 6):
            rows.update(effect.rows if isinstance(effect, Keep) else ())
    later = gateway(world, "control")
    later.handle(Restored(tuple((key, row) for key, row in rows.items() if row is not None)), NOW + 7)
    later.handle(Subscribed("#"), NOW + 7)
    assert numbers(delivered(adopt(later, document, NOW + 8))) == [3]


@pytest.mark.attack(111)
@pytest.mark.parametrize("restarts", [False, True])
def test_the_first_of_a_stream_that_is_late_is_delivered_over_other_tokens_and_a_restart(world: World, restarts: bool):
    """It was sealed after the subscription, which is one over both numbers: so it did not come, and is no replay."""
    site, control, rows = gateway(world, "site"), gateway(world, "control"), dict[bytes, bytes | None]()
    later = NOW + 2 * FRESH_S
    before = publish(gateway(world, "stranger"), "open/t", sequence=1, now=NOW - FRESH_S - 1)
    for effect in control.handle(Subscribed("#"), NOW) + control.handle(Tick(), NOW + 1):
        rows.update(effect.rows if isinstance(effect, Keep) else ())
    late = publish(site, "plant/t", sequence=1, qos=2, now=NOW + 2)
    document = canonical(world.renew_tokens("plant/#"))
    effects = adopt(control, document, NOW + 3) + control.handle(Tick(), NOW + 4)
    for effect in effects:
        rows.update(effect.rows if isinstance(effect, Keep) else ())
    if restarts:
        control = gateway(world, "control")
        control.handle(Restored(tuple((key, row) for key, row in rows.items() if row is not None)), later - 1)
        control.handle(Subscribed("#"), later - 1)
    assert numbers(brought(control, late, later)) == [1]
    again = wires_in(adopt(site, document, later))
    assert {wire.topic for wire in again.values()} == {"veilmq/batch/3"}
    assert not brought(control, again, later)
    assert not brought(control, before, later), "that was sealed before"


def test_who_may_publish_elsewhere_uses_up_no_number_and_moves_nothing_over(world: World):
    """Attack: a member signs, under each number of a scope in which it has no right, and moves what another published
    from one number to the other."""
    site, control = gateway(world, "site"), subscriber(world, "control")
    first = publish(site, "plant/t", sequence=1, qos=2)
    brought(control, first)
    document = canonical(world.renew_tokens("plant/#"))
    adopt(control, document, NOW + 1)
    assert not brought(control, wires_in(adopt(site, document, NOW + 1)), NOW + 1)
    same_version(control, *REPLICAS)
    for topic in ("veilmq/batch/1", "veilmq/batch/3"):
        effects = control.handle(Received("r1a", craft(world, "stranger", topic, sequence=9, mode=Mode.PLAIN)), NOW + 1)
        assert counted(effects, "refused") == 1
    moved = publish(site, "plant/t", sequence=2, previous=1, qos=2, now=NOW + 2)
    for peer, wire in moved.items():
        other = Wire("veilmq/batch/1", wire.payload, wire.qos, wire.retain, wire.properties)
        assert counted(control.handle(Received(peer, other), NOW + 2), "refused") == 1
    assert numbers(brought(control, moved, NOW + 2)) == [2]


def test_only_what_a_member_signed_waits_for_a_scope_to_come(world: World):
    control = subscriber(world, "control")
    wire = craft(world, "stranger", "veilmq/batch/7", sequence=1, mode=Mode.PLAIN)
    assert counted(control.handle(Received("r1a", wire), NOW), "publications_ahead") == 1
    forged = Wire("veilmq/batch/8", wire.payload, 1, False, wire.properties)
    assert counted(control.handle(Received("r1a", forged), NOW), "refused") == 1


def test_what_is_retained_and_sealed_anew_is_not_delivered_again(world: World):
    site, control = gateway(world, "site"), subscriber(world, "control")
    wires = publish(site, "plant/kept", sequence=1, qos=2, retain=True)
    assert numbers(brought(control, wires)) == [1]
    for replica in REPLICAS:
        site.handle(Acked(replica, 1), NOW)
    document = canonical(world.renew_tokens("plant/#"))
    again = [s for s in sent(adopt(site, document, NOW + 60)) if s.wire.topic.startswith("veilmq/retained/3/")]
    assert {send.peer for send in again} == set(REPLICAS)
    adopt(control, document, NOW + 60)
    assert not [d for s in again for d in delivered(control.handle(Received(s.peer, s.wire), NOW + 60))]
    assert not delivered(control.handle(Tick(), NOW + 62))
