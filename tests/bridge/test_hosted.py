"""Hosted brokers in the places of replicas: what they are sent, and what is believed of what comes from them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bridge.contract.budgets import REFUSED_BURST
from bridge.contract.machine import Acked, Committed, LinkUp, Publication, Received, Send, Subscribed, Tick, Watch, Wire
from bridge.document.overlay import HOSTED_PROPERTY_CHARS, Overlay, OverlayError
from bridge.document.policy import Scope
from bridge.node import GatewayNode
from bridge.topology import peers_of
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, Mode, to_property
from keys.epochs import Calendar
from keys.sharetree import Share, encode_shares
from tests.bridge.helpers import (
    counted,
    craft,
    delivered,
    forge_key,
    gateway,
    named,
    publish,
    sent,
    shares_in,
    subscriber,
    suspected,
    with_properties,
)
from tests.sim.world import NOW, World, make_world

BROKERS = ("r1a", "r1b", "r1c")
PROPERTIES_MAX = 20


def region(hosted: tuple[str, ...] = BROKERS, **changes: object) -> World:
    return make_world({1: 3}, [], {"g1": 1, "g2": 1}, hosted=hosted, **changes)  # type: ignore[arg-type]


def with_share(wire: Wire, world: World, value: bytes) -> Wire:
    """The same wire with another value in its share, as whoever may publish at that broker can make it."""
    (share,) = shares_in(wire)
    lie = Share(share.label, share.tags, value)
    return with_properties(wire, (PROPERTY_SHARES, to_property(encode_shares([lie]))), without=[PROPERTY_SHARES])


# ------------------------------------------------------------------------------------------- the overlay


def test_hosted_and_own_replicas_share_a_region_and_survive_the_file():
    world = region(hosted=("r1a",))
    loaded = Overlay.from_document(world.overlay.to_document(), int(NOW * 1000))
    assert loaded.hosted == {"r1a"}
    assert peers_of(loaded, "g1") == set(BROKERS)
    assert peers_of(loaded, "r1b") == {"g1", "g2"}
    assert peers_of(loaded, "r1a") == frozenset()


def test_a_hosted_broker_cannot_split_shares_for_another_region():
    with pytest.raises(OverlayError, match=r"^region region-1 is joined to another, and .* r1b .*; give"):
        make_world({1: 3, 2: 3}, [(1, 2)], {"g1": 1}, hosted=("r1b",))


def test_a_scope_whose_keys_fit_no_property_of_a_hosted_broker_is_refused():
    long = "plant/" + "x" * 7000 + "/#"
    make_world({1: 3}, [], {"g1": 1}, [Scope(long)])
    with pytest.raises(OverlayError, match=r"properties of \d+ characters, and hosted brokers carry 8192; shorten"):
        make_world({1: 3}, [], {"g1": 1}, [Scope(long)], hosted=("r1b",))


def test_hosted_brokers_of_one_party_are_refused():
    world = region()
    assert world.owner is not None
    members = dict(world.overlay.members)
    twin = replace(members["r1b"].certificate, domain=members["r1a"].certificate.domain)
    again = type(twin).issue(
        world.owner, **{f: getattr(twin, f) for f in twin.__slots__ if f not in ("signature",)}
    )  # fmt: skip
    members["r1b"] = replace(members["r1b"], certificate=again)
    with pytest.raises(OverlayError, match="must be run by different parties"):
        Overlay.sign(world.owner, world.overlay.policy, world.overlay.views.values(), members.values())


# ------------------------------------------------------------------------------------------ what is sent


@pytest.mark.invariant(60)
def test_a_hosted_broker_is_told_nothing_but_a_subscription():
    node = gateway(region(hosted=("r1a",)), "g2", links=False)
    node.handle(Subscribed("plant/#"), NOW)
    for_hosted, for_own = node.handle(LinkUp("r1a"), NOW), node.handle(LinkUp("r1b"), NOW)
    assert [type(effect) for effect in for_hosted] == [Watch, Watch]
    assert [e.filter for e in for_hosted if isinstance(e, Watch)] == ["veilmq/retained/1/#", "veilmq/batch/1"]
    assert any(isinstance(effect, Send) for effect in for_own)


def test_subscriptions_at_hosted_brokers_are_accepted_with_their_suback():
    node = gateway(region(), "g2")
    told = [e for e in node.handle(Subscribed("plant/#"), NOW) if isinstance(e, Watch)]
    watches = [watch for watch in told if watch.ticket]  # the last one of each broker counts
    assert [watch.peer for watch in watches] == sorted(BROKERS)
    assert all(watch.on for watch in told)
    assert not node.interest.is_accepted("plant/#")
    node.handle(Acked("r1a", watches[0].ticket), NOW)
    node.handle(Acked("r1a", watches[0].ticket), NOW)
    assert not node.interest.is_accepted("plant/#")
    node.handle(Acked("r1c", watches[2].ticket), NOW)
    assert node.interest.is_accepted("plant/#")


def test_every_publication_carries_the_key_and_one_share():
    """A stock broker tells who joins nothing about keys that were announced before."""
    node = gateway(region(hosted=("r1a", "r1b")), "g1")
    for sequence in range(1, 6):
        wires = publish(node, "plant/a", sequence=sequence, previous=sequence - 1)
        for broker in ("r1a", "r1b"):
            names = [name for name, _ in wires[broker].properties]
            assert names == [PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES]
            (share,) = shares_in(wires[broker])
            assert share.label[0].place == BROKERS.index(broker) + 1
        assert (len(wires["r1c"].properties) == 3) is (sequence == 1)


def test_retain_and_expiry_are_for_the_broker_too():
    node = gateway(region(hosted=("r1a",)), "g1")
    wires = publish(node, "plant/a", sequence=1, retain=True, expiry_s=60)
    assert wires["r1a"].retain
    assert wires["r1a"].expiry_s == 60
    assert wires["r1b"].expiry_s is None
    late = Publication("plant/a", b"x", 1, expiry_s=60, time_ms=int((NOW - 59.9) * 1000))
    (send, *_) = [s for s in sent(node.handle(Committed(((2, 1, late),)), NOW)) if s.peer == "r1a"]
    assert send.wire.expiry_s == 1, "0 would mean that it has expired already, to some for ever"


@pytest.mark.invariant(62)
def test_the_largest_region_and_scope_stay_within_what_hosted_brokers_carry():
    members = tuple(f"r1m{i}" for i in range(255))
    scope = Scope("plant/" + "x" * 1878 + "/#")
    world = make_world({1: 255}, [], {"g1": 1}, [scope], hosted=members)
    node = gateway(world, "g1")
    entries = []
    for n in range(1, 17):
        inner = {"properties": tuple(("k" * 100, "v" * 100) for _ in range(50)), "content_type": "c" * 1000}
        publication = Publication(f"{scope.filter[:-2]}/{n}", b"x" * 9000, 2, True, time_ms=int(NOW * 1000), **inner)
        entries.append((n, n - 1, publication))
    wires = [send.wire for send in sent(node.handle(Committed(tuple(entries)), NOW))]
    assert len(wires) == 16 * 255
    assert max(len(wire.properties) for wire in wires) <= PROPERTIES_MAX
    sizes = {name: max(len(v) for w in wires for n, v in w.properties if n == name) for name, _ in wires[0].properties}
    assert max(sizes.values()) <= HOSTED_PROPERTY_CHARS, sizes
    assert sizes[PROPERTY_KEY] > HOSTED_PROPERTY_CHARS - 200, "the case is the largest"


# -------------------------------------------------------------------------------------- what is believed


@pytest.mark.invariant(61)
def test_lies_that_came_through_hosted_brokers_name_nobody():
    """Who may publish at a stock broker can put shares in its mouth: docs/protocol.md §3.4 would frame it."""
    world = region()
    source, reader = gateway(world, "g1"), subscriber(world, "g2")
    wires = publish(source, "plant/a", sequence=1)
    effects = reader.handle(Received("r1a", with_share(wires["r1a"], world, bytes(32))), NOW)
    assert suspected(effects) == {"r1a"}
    for broker in ("r1b", "r1c"):
        effects += reader.handle(Received(broker, wires[broker]), NOW)
    effects += reader.handle(Tick(), NOW + 5)
    assert len(delivered(effects)) == 1
    assert not named(effects)


def test_of_own_replicas_beside_them_liars_are_named_all_the_same():
    world = region(hosted=("r1b",))
    source, reader = gateway(world, "g1"), subscriber(world, "g2")
    wires = publish(source, "plant/a", sequence=1)
    effects = reader.handle(Received("r1a", with_share(wires["r1a"], world, bytes(32))), NOW)
    for broker in ("r1b", "r1c"):
        effects += reader.handle(Received(broker, wires[broker]), NOW)
    effects += reader.handle(Tick(), NOW + 5)
    assert named(effects) == {"r1a"}


@pytest.mark.invariant(61)
def test_a_false_share_through_a_hosted_broker_does_not_keep_the_true_one_out():
    """With one broker away, another alters now and then: what it repeats unaltered must count."""
    world = region()
    source, reader = gateway(world, "g1"), subscriber(world, "g2")
    wires = publish(source, "plant/a", sequence=1)
    assert not delivered(reader.handle(Received("r1a", wires["r1a"]), NOW))
    assert not delivered(reader.handle(Received("r1b", with_share(wires["r1b"], world, bytes(32))), NOW))
    again = publish(source, "plant/a", sequence=2, previous=1)["r1b"]
    assert [d.sequence for d in delivered(reader.handle(Received("r1b", again), NOW))] == [1, 2]


@pytest.mark.invariant(61)
def test_a_flood_through_one_hosted_broker_closes_that_link_only():
    world = region()
    source, reader = gateway(world, "g1"), subscriber(world, "g2")
    garbage = Wire("plant/a", b"?", 1, False, ((PROPERTY_HEADER, "AAAA"),))
    refused = 0
    for _ in range(int(REFUSED_BURST) * 2):
        refused += counted(reader.handle(Received("r1a", garbage), NOW), "refused")
    assert refused <= REFUSED_BURST
    wires = publish(source, "plant/a", sequence=1)
    assert counted(reader.handle(Received("r1a", wires["r1a"]), NOW), "link_throttled") == 1
    got = [e for broker in ("r1b", "r1c") for e in reader.handle(Received(broker, wires[broker]), NOW)]
    assert len(delivered(got)) == 1


@pytest.mark.invariant(60)
def test_nothing_about_the_overlay_or_keys_is_taken_from_a_hosted_broker():
    world = region(hosted=("r1a",))
    reader = subscriber(world, "g2")
    key = forge_key(world, "g1", "plant/#")
    for topic in ("$veil/overlay", "$veil/keys", "$veil/subscribe", "$veil/grant"):
        effects = reader.handle(Received("r1a", Wire(topic, b"", 1, False, key.properties(key.shares[:1]))), NOW)
        assert counted(effects, "refused") == 1
        assert [type(effect).__name__ for effect in effects] == ["Count", "Blame"]


def test_nobody_publishes_in_the_name_of_a_hosted_broker():
    """The owner could keep its key, and rights could be `#`: the role alone forbids it."""
    world = region()
    reader = subscriber(world, "g2")
    wire = craft(world, "r1a", "open/a", sequence=1, mode=Mode.PLAIN)
    assert counted(reader.handle(Received("r1a", wire), NOW), "refused") == 1


def test_hosted_brokers_do_not_vouch_for_dead_epochs():
    """Ours let nothing in that is of a dead epoch; a stock broker takes whatever a revoked publisher brings."""
    calendar = Calendar(int((NOW - 1000) * 1000), 100, 4, 20, 1)

    def delivers(hosted: tuple[str, ...]) -> bool:
        world = region(hosted=hosted, calendar=calendar)
        epoch = calendar.epoch_at(NOW)
        for present in (epoch - 3, epoch):
            world.learn(world.keys, [present])
        source, reader = gateway(world, "g1"), subscriber(world, "g2")
        fresh = publish(source, "plant/a", sequence=9)
        effects = [e for broker, wire in fresh.items() for e in reader.handle(Received(broker, wire), NOW)]
        assert len(delivered(effects)) == 1
        old = GatewayNode(
            world.overlay, world.identities["g1"], "g1", world.secrets, world.keys, random.Random(7).randbytes
        )
        for broker in BROKERS:
            old.handle(LinkUp(broker), NOW - 300)
        past = publish(old, "plant/a", sequence=5, previous=4, now=NOW - 300)
        effects = [e for broker, wire in past.items() for e in reader.handle(Received(broker, wire), NOW)]
        effects += reader.handle(Tick(), NOW + 11)
        return bool(delivered(effects))

    assert delivers(hosted=())
    assert delivers(hosted=("r1a",))
    assert not delivers(hosted=("r1a", "r1b"))
    assert not delivers(hosted=BROKERS)
