"""Leases on their way through one replica: to whom, once, and not for whoever asks without end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from bridge.contract.machine import Effect, LinkDown, LinkUp, Received, Tick, Wire
from bridge.document.overlay import Overlay
from bridge.groups.lease_relay import COMEBACKS_BURST, COMEBACKS_EVERY_S, TOLD_BURST, TOLD_EVERY_S
from bridge.groups.leases import GROUPS_TOPIC, Lease
from keys.frames import Kind, opening
from tests.bridge.groups.test_leases import NOW_MS, WORLD, lease_of
from tests.bridge.helpers import NOW, counted, replica, sent, statement, subscribe_at, suspected
from tests.sim.world import World


def leases_in(effects: list[Effect]) -> Counter[str]:
    return Counter(s.peer for s in sent(effects) if s.wire.topic == GROUPS_TOPIC)


def wire(lease: Lease) -> Wire:
    return Wire(GROUPS_TOPIC, lease.encode())


def test_a_replica_passes_a_lease_on_once_to_other_regions_and_to_gateways_here_that_want_the_scope():
    node = replica(WORLD, "r1a", ["a", "site", "nosy", "r2a", "r2b"])
    subscribe_at(node, WORLD, "site", "plant/#")
    effects = node.handle(Received("a", wire(lease_of("a"))), NOW)
    assert leases_in(effects) == {"site": 1, "r2a": 1, "r2b": 1}
    assert leases_in(node.handle(Received("r2b", wire(lease_of("a"))), NOW)) == {}
    assert leases_in(node.handle(Received("r2b", wire(lease_of("b"))), NOW)) == {"site": 1}, "not back to its region"
    # Its own, so that a former process's lease is known after a restart, and everybody else's.
    assert leases_in(node.handle(LinkUp("site"), NOW)) == {"site": 2}
    assert leases_in(node.handle(LinkUp("nosy"), NOW)) == {}
    assert leases_in(subscribe_at(node, WORLD, "a", "plant/#")) == {"a": 2}
    assert leases_in(node.handle(LinkUp("r2a"), NOW)) == {"r2a": 1}, "what came from there it has"


def test_a_replica_charges_forgeries_to_the_link_and_passes_nothing_on():
    node = replica(WORLD, "r1a", ["a", "site", "r2a"])
    subscribe_at(node, WORLD, "site", "plant/#")
    garbage = Wire(GROUPS_TOPIC, opening(Kind.GROUP_LEASE) + bytes(200))
    for forged in (garbage, wire(replace(lease_of("a"), ends_ms=NOW_MS + 59_000))):
        effects = node.handle(Received("r2a", forged), NOW)
        assert counted(effects, "refused") == 1
        assert suspected(effects) == {"r2a"}
        assert not sent(effects)


def test_a_gateway_that_states_without_end_is_not_told_without_end():
    node = replica(WORLD, "r1a", ["a", "site"])
    node.handle(Received("a", wire(lease_of("a"))), NOW)
    told = sum(leases_in(node.handle(e, NOW))["site"] for e in _statements(WORLD, 50))
    assert told == 8


def _statements(world: World, count: int) -> list[Received]:
    return [Received("site", statement(world, "site", "plant/#", version)) for version in range(1, count + 1)]


def test_an_older_lease_of_the_same_author_goes_no_further():
    node = replica(WORLD, "r1a", ["a", "r2a"])
    assert leases_in(node.handle(Received("a", wire(lease_of("a", version=NOW_MS))), NOW)) == {"r2a": 1}
    assert not sent(node.handle(Received("a", wire(lease_of("a", version=NOW_MS - 1))), NOW))


@pytest.mark.attack(139)
def test_who_stated_again_and_again_is_told_once_a_minute_and_in_the_end():
    node = replica(WORLD, "r1a", ["a", "site"])
    node.handle(Received("a", wire(lease_of("a"))), NOW)
    for event in _statements(WORLD, TOLD_BURST):
        assert leases_in(node.handle(event, NOW)) == {"site": 1}
    for at, told in ((TOLD_EVERY_S - 1, 0), (TOLD_EVERY_S, 1), (TOLD_EVERY_S + 1, 0)):
        event = Received("site", statement(WORLD, "site", "plant/#", 100 + int(at)))
        assert leases_in(node.handle(event, NOW + at))["site"] == told
    at = node.next_deadline
    assert at is not None
    assert at <= NOW + 2 * TOLD_EVERY_S
    assert leases_in(node.handle(Tick(), NOW + 2 * TOLD_EVERY_S)) == {"site": 1}
    assert leases_in(node.handle(Tick(), NOW + 9 * TOLD_EVERY_S)) == {}, "once"


def test_a_link_that_came_up_too_often_is_told_the_leases_later():
    node = replica(WORLD, "r1a", ["a", "r2a"])
    node.handle(Received("a", wire(lease_of("a"))), NOW)
    for _ in range(COMEBACKS_BURST + 1):
        node.handle(LinkDown("r2a"), NOW)
        node.handle(LinkUp("r2a"), NOW)
    assert leases_in(node.handle(Tick(), NOW + COMEBACKS_EVERY_S)) == {"r2a": 1}
    assert leases_in(node.handle(Tick(), NOW + 9 * COMEBACKS_EVERY_S)) == {}, "once"


@pytest.mark.attack(62)
def test_a_link_that_goes_up_and_down_is_not_told_all_leases_without_end():
    """Attack: a gateway or a replica of a neighbouring region connects again and again, and is told tens of thousands
    of leases each time."""
    node = replica(WORLD, "r1a", ["a", "site", "r2a"])
    subscribe_at(node, WORLD, "site", "plant/#")
    node.handle(Received("a", wire(lease_of("a"))), NOW)
    for peer in ("site", "r2a"):
        told = 0
        for _ in range(100):
            node.handle(LinkDown(peer), NOW)
            told += leases_in(node.handle(LinkUp(peer), NOW))[peer]
        assert COMEBACKS_BURST - 1 <= told <= COMEBACKS_BURST
        node.handle(LinkDown(peer), NOW)
        assert leases_in(node.handle(LinkUp(peer), NOW + COMEBACKS_EVERY_S)) == {peer: 1}
    renewed = wire(lease_of("a", version=NOW_MS + 1))
    assert leases_in(node.handle(Received("a", renewed), NOW + 20)) == {"site": 1, "r2a": 1}, "what is new it hears"


def test_of_a_gateways_statement_the_scope_alone_counts_and_nobody_elses():
    node = replica(WORLD, "r1a", ["a", "site", "b"])
    node.handle(Received("a", wire(lease_of("a"))), NOW)
    assert leases_in(subscribe_at(node, WORLD, "site", "open/#")) == {}
    assert leases_in(subscribe_at(node, WORLD, "b", "plant/#", via="site")) == {}, "who passes it on asks for nothing"
    gone = Received("site", statement(WORLD, "site", "plant/#", 9, on=False))
    assert leases_in(node.handle(gone, NOW)) == {}


def test_who_leaves_the_overlay_is_forgotten_with_what_it_was_told():
    node = replica(WORLD, "r1a", ["a", "site"])
    node.handle(Received("a", wire(lease_of("a"))), NOW)
    for event in _statements(WORLD, TOLD_BURST + 1):
        node.handle(event, NOW)
    members = [m for m in WORLD.overlay.members.values() if m.certificate.name != "site"]
    assert WORLD.owner is not None
    policy = replace(WORLD.overlay.policy, version=2, grants=tuple(
        grant for grant in WORLD.overlay.policy.grants if grant.member != "site"
    ))  # fmt: skip
    relay = node._leases
    relay.adopt_overlay(Overlay.sign(WORLD.owner, policy, WORLD.overlay.latest.values(), members))
    assert not relay._told
    relay.adopt_overlay(WORLD.overlay)
    assert leases_in(relay.link_up("site", NOW)) == {"site": 1}
