"""The publisher side: when keys change and are announced, batches, windows, and what stays in the outbox for whom."""

from __future__ import annotations

import random
from collections import deque

import pytest

from bridge.contract.machine import (
    Acked,
    Committed,
    Effect,
    Forget,
    LinkDown,
    LinkUp,
    OutboxPage,
    Publication,
    Tick,
    Wire,
)
from bridge.document.policy import REFRESH, Scope
from bridge.node import GatewayNode
from bridge.publisher.data_keys import ANNOUNCE_AFTER_S, ANNOUNCE_EVERY
from bridge.publisher.publisher import STRAGGLER_S
from bridge.publisher.residents import LEAD_MAX
from bridge.publisher.windows import WINDOW_MAX
from keys.envelope import NO_KEY, PROPERTY_HEADER, PROPERTY_KEY, Mode, SignedHeader, from_property
from tests.bridge.helpers import NOW, counted, gateway, publish, sent, shares_in
from tests.sim.world import World, make_world

REPLICAS = ("r1a", "r1b", "r1c")


@pytest.fixture
def world() -> World:
    return make_world({1: 3}, [], {"site": 1}, [Scope("plant/#"), Scope("open/#"), Scope("clear/#", Mode.PLAIN)])


def signed(wire: Wire) -> SignedHeader:
    return SignedHeader.decode(from_property(dict(wire.properties)[PROPERTY_HEADER]))


def key_of(wire: Wire) -> bytes:
    return signed(wire).header.key_id


def carries_key(wire: Wire) -> bool:
    assert (PROPERTY_KEY in dict(wire.properties)) == bool(shares_in(wire))
    return bool(shares_in(wire))


def one(node: GatewayNode, sequence: int, now: float, topic: str = "plant/t", size: int = 1) -> Wire:
    wires = publish(node, topic, bytes(size), sequence=sequence, now=now)
    for peer in wires:
        node.handle(Acked(peer, sequence), now)
    return wires["r1a"]


def entry(sequence: int, topic: str = "plant/t", qos: int = 1, **fields: object) -> tuple[int, int, Publication]:
    return sequence, 0, Publication(topic, b"x", qos, time_ms=int(NOW * 1000), **fields)


def forgotten(effects: list[Effect]) -> set[int]:
    return {s for e in effects if isinstance(e, Forget) for s in e.sequences}


# ---------------------------------------------------------------------------------------------------- keys


def test_a_key_serves_so_many_messages(world: World):
    node = gateway(world, "site")
    keys = [key_of(one(node, n, NOW)) for n in range(1, 2 * REFRESH.messages + 2)]
    assert len(set(keys[: REFRESH.messages])) == 1
    assert len(set(keys)) == 3


def test_a_key_serves_so_many_bytes(world: World):
    node = gateway(world, "site")
    first = one(node, 1, NOW, size=REFRESH.sealed_bytes)
    assert key_of(one(node, 2, NOW)) != key_of(first)


def test_a_key_serves_so_long(world: World):
    node = gateway(world, "site")
    first = key_of(one(node, 1, NOW))
    assert key_of(one(node, 2, NOW + REFRESH.age_s / 2)) == first
    assert key_of(one(node, 3, NOW + REFRESH.age_s)) != first


def test_a_clock_step_backwards_ends_every_key(world: World):
    node = gateway(world, "site")
    first = key_of(one(node, 1, NOW))
    assert key_of(one(node, 2, NOW - 61)) != first


def test_each_scope_has_its_own_key_and_plain_ones_none(world: World):
    node = gateway(world, "site")
    assert key_of(one(node, 1, NOW)) != key_of(one(node, 2, NOW, "open/t"))
    assert key_of(one(node, 3, NOW, "clear/t")) == NO_KEY


def test_each_replica_gets_its_own_share(world: World):
    wires = publish(gateway(world, "site"), "plant/t", sequence=1)
    places = {peer: [share.label[0].place for share in shares_in(wire)] for peer, wire in wires.items()}
    assert places == {"r1a": [1], "r1b": [2], "r1c": [3]}


def test_the_key_rides_on_the_first_message_of_each_topic_and_then_on_every_16th(world: World):
    node = gateway(world, "site")
    with_key = [n for n in range(1, 40) if carries_key(one(node, n, NOW))]
    assert with_key == [1, 1 + ANNOUNCE_EVERY, 1 + 2 * ANNOUNCE_EVERY]
    assert carries_key(one(node, 40, NOW, "plant/other"))


def test_the_key_rides_again_after_five_seconds_on_a_topic(world: World):
    node = gateway(world, "site")
    assert carries_key(one(node, 1, NOW))
    assert not carries_key(one(node, 2, NOW + ANNOUNCE_AFTER_S - 0.1))
    assert carries_key(one(node, 3, NOW + ANNOUNCE_AFTER_S))


def test_retained_publications_always_carry_the_key(world: World):
    node = gateway(world, "site")
    for n in range(1, 5):
        assert all(carries_key(w) and w.retain for w in publish(node, "plant/t", sequence=n, retain=True).values())


# ------------------------------------------------------------------------------------------------- batches


def test_what_cannot_be_sealed_is_given_up_alone(world: World):
    """A local client's publication that fits no frame must not stop the outbox, now or after every restart."""
    node = gateway(world, "site")
    bad = [entry(2, properties=(("k", "v"),) * 2000), entry(3, content_type="\ud800")]
    effects = node.handle(Committed((entry(1), *bad, entry(4))), NOW)
    assert [signed(s.wire).header.sequence for s in sent(effects, "r1a")] == [1, 4]
    assert forgotten(effects) == {2, 3}
    assert counted(effects, "unsealable") == 2
    assert len(sent(node.handle(Committed((entry(5),)), NOW))) == 3


def test_a_topic_without_scope_is_forgotten(world: World):
    assert forgotten(gateway(world, "site").handle(Committed((entry(1, "elsewhere"),)), NOW)) == {1}


# ------------------------------------------------------------------------------------------ window and lanes


def test_a_replica_that_does_not_acknowledge_gets_one_window(world: World):
    node = gateway(world, "site")
    effects = node.handle(Committed(tuple(entry(n) for n in range(1, WINDOW_MAX + 11))), NOW)
    assert len(sent(effects, "r1a")) == WINDOW_MAX
    more = node.handle(Acked("r1a", 1), NOW)
    assert [s.ticket for s in sent(more)] == [WINDOW_MAX + 1]


def test_fewer_replicas_than_can_open_anything_do_not_run_far_ahead(world: World):
    """What they pass on waits for its key at every subscriber."""
    node = gateway(world, "site")
    effects = node.handle(Committed(tuple(entry(n) for n in range(1, 4 * LEAD_MAX))), NOW)
    given = [s.ticket for s in sent(effects, "r1a")]
    for ticket in given:  # grows
        given += [s.ticket for s in sent(node.handle(Acked("r1a", ticket), NOW), "r1a")]
    assert given == list(range(1, len(given) + 1))
    assert LEAD_MAX <= len(given) <= LEAD_MAX + WINDOW_MAX
    behind = [s.ticket for s in sent(effects, "r1b")]
    more = []
    for ticket in behind:  # grows
        effects = node.handle(Acked("r1b", ticket), NOW)
        behind += [s.ticket for s in sent(effects, "r1b") if s.ticket <= len(given)]
        more += sent(effects, "r1a")
    assert more, "another has caught up: what both have, subscribers can open"


@pytest.mark.parametrize("seed", range(4))
def test_two_that_lead_each_with_what_the_other_lacks_do_not_wait_for_each_other(world: World, seed: int):
    """One replica withholds, one comes back while a backlog drains: both others may be LEAD_MAX ahead, with different
    entries, and what each lacks stands behind what neither may be the first to get."""
    node, chance = gateway(world, "site", links=False), random.Random(seed)
    waiting: dict[str, deque[int]] = {"r1b": deque(), "r1c": deque()}
    acked: dict[str, set[int]] = {peer: set() for peer in waiting}

    def collect(effects: list[Effect]) -> None:
        for peer, tickets in waiting.items():
            tickets.extend(send.ticket for send in sent(effects, peer) if send.ticket > 0)

    def commit(sequences: range, late: bool = False) -> None:
        entries = tuple(entry(n, f"plant/{n}") for n in sequences)
        collect(node.handle(OutboxPage(entries, None) if late else Committed(entries), NOW))

    def acknowledge(count: int) -> None:
        share_of_b = chance.random()
        while count and any(waiting.values()):
            first, other = ("r1b", "r1c") if chance.random() < share_of_b else ("r1c", "r1b")
            peer = first if waiting[first] else other
            ticket = waiting[peer].popleft()
            acked[peer].add(ticket)
            collect(node.handle(Acked(peer, ticket), NOW))
            count -= 1

    late, before, after = range(1, 901), range(10_001, 11_301), range(20_001, 21_001)
    collect(node.handle(LinkUp("r1a"), NOW) + node.handle(LinkUp("r1c"), NOW))
    commit(before)
    acknowledge(4 * LEAD_MAX)
    collect(node.handle(LinkUp("r1b"), NOW))
    acknowledge(chance.choice([0, 100, 500]))
    commit(late, late=True)
    acknowledge(chance.choice([0, 100, 500]))
    commit(after)
    acknowledge(10_000)
    everything = {*late, *before, *after}
    assert list(acked.values()) == [everything] * len(waiting)


def test_an_entry_is_forgotten_when_all_have_it(world: World):
    node = gateway(world, "site")
    node.handle(Committed((entry(1),)), NOW)
    assert not forgotten(node.handle(Acked("r1a", 1), NOW) + node.handle(Acked("r1b", 1), NOW))
    assert forgotten(node.handle(Acked("r1c", 1), NOW)) == {1}


def test_a_replica_that_comes_back_gets_all_it_lacks_in_order_as_sealed_before(world: World):
    node = gateway(world, "site")
    effects = node.handle(Committed(tuple(entry(n) for n in range(1, 6))), NOW)
    before = {s.ticket: s.wire for s in sent(effects, "r1b")}
    node.handle(Acked("r1b", 2), NOW)
    node.handle(LinkDown("r1b"), NOW)
    again = [send for send in sent(node.handle(LinkUp("r1b"), NOW), "r1b") if send.ticket > 0]
    assert [s.ticket for s in again] == [1, 3, 4, 5]
    assert carries_key(again[0].wire)
    assert all(signed(s.wire) == signed(before[s.ticket]) and s.wire.payload == before[s.ticket].payload for s in again)


def test_sealing_happens_at_first_send(world: World):
    node = gateway(world, "site", links=False)
    assert not counted(node.handle(Committed((entry(1),)), NOW), "sealed")
    effects = node.handle(LinkUp("r1a"), NOW + 3600)
    assert signed(sent(effects)[0].wire).header.time_ms == int((NOW + 3600) * 1000)


# ---------------------------------------------------------------------------------------------- stragglers


def test_what_only_a_straggler_lacks_goes_after_its_bound(world: World):
    node = gateway(world, "site")
    node.handle(Committed((entry(1),)), NOW)
    node.handle(Acked("r1a", 1), NOW)
    node.handle(Acked("r1b", 1), NOW)
    assert not forgotten(node.handle(Tick(), NOW + STRAGGLER_S - 1))
    assert node.next_deadline == NOW + STRAGGLER_S
    assert forgotten(node.handle(Tick(), NOW + STRAGGLER_S)) == {1}
    assert node.next_deadline is None


def test_what_too_few_have_stays_and_its_deadline_does_not_spin(world: World):
    node = gateway(world, "site", links=False)
    node.handle(Committed((entry(1),)), NOW)
    later = NOW + STRAGGLER_S + 1
    assert not forgotten(node.handle(Tick(), later))
    assert node.next_deadline is None or node.next_deadline > later
    for peer in REPLICAS[:2]:
        node.handle(LinkUp(peer), later)
    assert not forgotten(node.handle(Acked("r1a", 1), later))
    assert forgotten(node.handle(Acked("r1b", 1), later)) == {1}, "it is past the stragglers' bound already"


def test_a_replica_that_never_acknowledges_costs_bounded_memory(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.publisher.publisher.STRAGGLER_ENTRIES_MAX", 500)
    node = gateway(world, "site")
    kept: set[int] = set()
    for n in range(1, 2001):
        effects = node.handle(Committed((entry(n),)), NOW)
        kept.add(n)
        for peer in ("r1a", "r1b"):
            effects += node.handle(Acked(peer, n), NOW)
        kept -= forgotten(effects)
    assert len(kept) <= 600
    assert node.publisher.depth == len(kept)
    assert sum(len(lane) for _, lane in node.publisher._lanes) <= 2 * 500 + WINDOW_MAX


def test_the_stragglers_bound_drops_nothing_that_too_few_have(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.publisher.publisher.STRAGGLER_ENTRIES_MAX", 50)
    node = gateway(world, "site", links=False)
    effects = [e for n in range(1, 201) for e in node.handle(Committed((entry(n),)), NOW)]
    assert not forgotten(effects)


def test_qos_0_waits_in_bounded_number_and_never_for_a_straggler(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.publisher.publisher.QOS0_ENTRIES_MAX", 100)
    node = gateway(world, "site", links=False)
    for n in range(1, 501):
        node.handle(Committed((entry(n, qos=0),)), NOW)
    assert node.publisher.depth == 100
    node = gateway(world, "site")
    node.handle(Committed((entry(1, qos=0),)), NOW)
    node.handle(Acked("r1a", 1), NOW)
    node.handle(Acked("r1b", 1), NOW)
    assert node.publisher.depth == 0


def test_randomness_is_the_callers():
    world = make_world({1: 3}, [], {"site": 1})
    wires = []
    for seed in ("a", "a", "b"):
        node = world.node("site", random.Random(seed))
        node.handle(LinkUp("r1a"), NOW)
        wires.append(sent(node.handle(Committed((entry(1),)), NOW))[0].wire)
    assert wires[0] == wires[1]
    assert wires[0].payload != wires[2].payload
