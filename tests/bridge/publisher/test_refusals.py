"""What replicas refuse is not acknowledged, is offered again at a bounded rate, and is sealed anew when it is old."""

from __future__ import annotations

import random

import pytest

from bridge.contract import (
    Acked,
    Committed,
    Count,
    Effect,
    Forget,
    LinkUp,
    Publication,
    Received,
    Refuse,
    Send,
    Subscribed,
    Tick,
)
from bridge.contract.machine import NotTaken
from bridge.contract.refusing import Reason
from bridge.document.policy import Refresh, Scope
from bridge.node import GatewayNode, ReplicaNode
from bridge.publisher.windows import AGAIN_MAX_S, AGAIN_S, RESEAL_AFTER_S, Refusals
from bridge.wire.admission import AGE_S, AHEAD_S
from keys.envelope import PROPERTY_HEADER, from_property, header_of
from tests.bridge.helpers import NOW, counted, craft, forge_key, replica, sent, subscribe_at, suspected
from tests.sim.world import World, make_world
from tests.support.regions import fresh, one_region

HOUR_S = 3600.0


world = fresh(one_region, "site", "reader")


class LateGateway:
    """A gateway with a clock of its own, and the three replicas of its region: what is refused there comes back."""

    def __init__(self, world: World, behind_s: float) -> None:
        self.behind_s = behind_s
        self.node = GatewayNode(
            world.overlay, world.identities["site"], "site", world.secrets, world.keys, random.Random(1).randbytes
        )
        self.replicas: dict[str, ReplicaNode] = {}
        for name in world.overlay.views[1].members:
            self.replicas[name] = replica(world, name, ["site", "reader"])
            subscribe_at(self.replicas[name], world, "reader", "plant/#")
            self.handle(LinkUp(name), NOW)

    def handle(self, event: object, now: float) -> list[Effect]:
        """The gateway's effects, and what follows from its publications at the replicas and back."""
        effects = list(self.node.handle(event, now - self.behind_s))  # type: ignore[arg-type]
        for send in sent(effects):
            if send.ticket <= 0:
                continue
            answers = self.replicas[send.peer].handle(Received("site", send.wire), now)
            refused = [effect for effect in answers if isinstance(effect, Refuse)]
            effects += [effect for effect in answers if isinstance(effect, Count)]
            answer = NotTaken(send.peer, send.ticket, refused[0].reason) if refused else Acked(send.peer, send.ticket)
            effects += self.handle(answer, now)
        return effects

    def publish(self, sequence: int, now: float) -> list[Effect]:
        publication = Publication("plant/t", b"x", 1, time_ms=int(now * 1000))
        return self.handle(Committed(((sequence, 0, publication),)), now)

    def tick(self, now: float) -> list[Effect]:
        return self.handle(Tick(), now)


def forgotten(effects: list[Effect]) -> set[int]:
    return {sequence for effect in effects if isinstance(effect, Forget) for sequence in effect.sequences}


@pytest.mark.attack(12)
def test_a_gateway_two_hours_slow_loses_nothing(world: World) -> None:
    """What it publishes is refused with the reason, kept, and sealed anew once its clock is right."""
    site = LateGateway(world, 2 * HOUR_S)
    effects = site.publish(1, NOW)
    assert Count("refused_by_replica", 1, Reason.TIME) in effects
    assert not forgotten(effects)
    assert not suspected(effects)
    assert set(site.node.publisher.refusals.reasons.values()) == {"time"}
    assert not forgotten(site.tick(NOW + 60))
    site.behind_s = 0.0
    effects = site.tick(NOW + 200)
    assert forgotten(effects) == {1}
    assert counted(effects, "forwarded") == 3
    assert not site.node.publisher.refusals.reasons


def test_a_gateway_whose_clock_is_ahead_is_refused_as_well(world: World) -> None:
    site = LateGateway(world, -2 * AHEAD_S)
    assert not forgotten(site.publish(1, NOW))
    site.behind_s = 0.0
    assert forgotten(site.tick(NOW + 200 + 2 * AHEAD_S)) == {1}


def test_refusals_of_f_replicas_hold_nothing_up(world: World) -> None:
    """A liar that refuses everything is one that is away."""
    site = LateGateway(world, 0.0)
    liar = site.replicas["r1a"]
    liar.handle = lambda event, now: [Refuse(Reason.RIGHT)]  # type: ignore[method-assign,assignment]
    effects = [effect for n in range(1, 20) for effect in site.publish(n, NOW)]
    assert counted(effects, "forwarded") == 2 * 19
    assert site.node.publisher.refusals.reasons == {"r1a": "right"}
    again = site.tick(NOW + AGAIN_S)
    assert len([send for send in sent(again, "r1a") if send.ticket > 0]) == 19
    assert not [send for send in sent(site.tick(NOW + AGAIN_S + 0.5)) if send.ticket > 0]


def test_offers_of_what_was_refused_become_rarer_until_something_is_taken() -> None:
    refusals = Refusals()
    now, pauses = NOW, []
    for _ in range(9):
        refusals.note_refused("r1a", 1, "time", now)
        refusals.note_refused("r1a", 2, "time", now)
        due_at = refusals.next_deadline
        assert due_at is not None
        assert not list(refusals.due_offers(due_at - 0.01))
        assert sorted(refusals.due_offers(due_at)) == [("r1a", 1), ("r1a", 2)]
        pauses.append(due_at - now)
        now = due_at
    assert pauses[:3] == [AGAIN_S, 2 * AGAIN_S, 4 * AGAIN_S]
    assert pauses[-1] == AGAIN_MAX_S
    for _ in range(2):
        refusals.note_acknowledged("r1a")
    refusals.note_refused("r1a", 1, "time", now)
    assert refusals.next_deadline == now + AGAIN_S
    assert refusals.reasons == {"r1a": "time"}


def test_a_statement_that_is_refused_does_not_count(world: World) -> None:
    node = GatewayNode(world.overlay, world.identities["reader"], "reader", world.secrets, world.keys, bytes)
    for name in world.overlay.views[1].members:
        node.handle(LinkUp(name), NOW)
    stated = [send for send in node.handle(Subscribed("plant/#"), NOW) if isinstance(send, Send)]
    for send in stated:
        node.handle(NotTaken(send.peer, send.ticket, Reason.RIGHT), NOW)
        node.handle(Acked(send.peer, send.ticket), NOW)
    assert node.awaits("plant/#")
    again = [send for send in node.handle(Tick(), NOW + 60) if isinstance(send, Send)]
    assert {send.peer for send in again} == {send.peer for send in stated}


def test_sealed_bytes_that_are_half_an_hour_old_are_sealed_anew_and_acknowledgements_of_the_old_ones_void(
    world: World,
) -> None:
    site = LateGateway(world, 0.0)
    down = {name: site.replicas.pop(name) for name in ("r1b", "r1c")}
    node = site.node
    publication = Publication("plant/t", b"x", 1, time_ms=int(NOW * 1000))
    effects = node.handle(Committed(((1, 0, publication),)), NOW)
    node.handle(Acked("r1a", 1), NOW)
    later = NOW + RESEAL_AFTER_S + 1
    site.replicas |= down
    effects = node.handle(LinkUp("r1b"), later)
    wires = {send.peer: send.wire for send in sent(effects) if send.ticket > 0}
    assert wires.keys() == {"r1a", "r1b", "r1c"}
    for wire in wires.values():
        assert header_of(from_property(dict(wire.properties)[PROPERTY_HEADER])).time_ms == int(later * 1000)


@pytest.mark.attack(13)
def test_what_is_sealed_anew_under_a_key_that_lives_longer_has_another_nonce() -> None:
    """Attack: two ciphertexts under one key and nonce, with different headers, give away what authenticates them."""
    scope = Scope("plant/#", refresh=Refresh(messages=64, age_s=86_400))
    site = LateGateway(make_world({1: 3}, [], {"site": 1, "reader": 1}, [scope]), 0.0)
    site.replicas.pop("r1b")
    site.replicas.pop("r1c")
    publication = Publication("plant/t", b"x", 1, time_ms=int(NOW * 1000))
    effects = site.node.handle(Committed(((1, 0, publication),)), NOW)
    effects += site.node.handle(LinkUp("r1b"), NOW + RESEAL_AFTER_S + 1)
    sealings = {
        (header.key_id, header.sequence): (header.prefix(), send.wire.payload)
        for send in sent(effects)
        if send.ticket > 0
        for header in [header_of(from_property(dict(send.wire.properties)[PROPERTY_HEADER]))]
    }
    assert len(sealings) == len({content for _, content in sealings.values()}) == 2


def test_what_is_older_than_a_session_lives_is_refused_unless_it_is_retained(world: World) -> None:
    node = replica(world, "r1a", ["site", "reader"])
    subscribe_at(node, world, "reader", "plant/#")
    key = forge_key(world, "site", "plant/#")
    old_ms = int((NOW - AGE_S - 1) * 1000)
    live = craft(world, "site", "plant/t", sequence=1, key=key, time_ms=old_ms, properties=key.properties())
    kept = craft(
        world, "site", "plant/t", sequence=2, key=key, time_ms=old_ms, retain=True, properties=key.properties()
    )
    assert Refuse(Reason.TIME) in node.handle(Received("site", live), NOW)
    assert counted(node.handle(Received("site", kept), NOW), "forwarded") == 1


@pytest.mark.long
@pytest.mark.attack(61)
def test_a_liar_that_takes_one_in_many_is_not_offered_the_others_every_second(world: World) -> None:
    """Attack: a replica refuses all, but for one publication a second, which made the next offer of all others the
    first one: the whole of what a replica may lack went up the gateway's link each second."""
    site = GatewayNode(
        world.overlay, world.identities["site"], "site", world.secrets, world.keys, random.Random(1).randbytes
    )
    for name in ("r1a", "r1b", "r1c"):
        site.handle(LinkUp(name), NOW)
    offered = 0

    def answer(effects: list[Effect], now: float) -> None:
        nonlocal offered
        for send in [send for send in sent(effects) if send.ticket > 0]:
            offered += send.peer == "r1c"
            lies = send.peer == "r1c" and send.ticket <= 200
            told = NotTaken("r1c", send.ticket, Reason.BUDGET) if lies else Acked(send.peer, send.ticket)
            answer(site.handle(told, now), now)

    for sequence in range(1, 201):
        publication = Publication("plant/t", b"x", 1, time_ms=int(NOW * 1000))
        answer(site.handle(Committed(((sequence, 0, publication),)), NOW), NOW)
    assert offered == 200
    for second in range(1, 121):
        now = NOW + second
        answer(site.handle(Tick(), now), now)
        publication = Publication("plant/t", b"x", 1, time_ms=int(now * 1000))
        answer(site.handle(Committed(((200 + second, 0, publication),)), now), now)
    assert offered <= 120 + 200 * 8, "each of those that it refused eight times in two minutes"


def test_who_takes_as_much_as_it_refused_begins_anew() -> None:
    refusals, now = Refusals(), NOW
    for _ in range(5):
        for sequence in range(10):
            refusals.note_refused("r1c", sequence, Reason.TIME, now)
        now = refusals.next_deadline or now
        assert len(list(refusals.due_offers(now))) == 10
    for _ in range(9):
        refusals.note_acknowledged("r1c")
    refusals.note_refused("r1c", 1, Reason.TIME, now)
    assert refusals.next_deadline == now + AGAIN_S * 32
    refusals.note_acknowledged("r1c")
    list(refusals.due_offers(now + AGAIN_S * 32))
    refusals.note_refused("r1c", 1, Reason.TIME, now)
    assert refusals.next_deadline == now + AGAIN_S


@pytest.mark.attack(61)
def test_in_whatever_order_a_round_takes_and_refuses_offers_become_rarer() -> None:
    for taken_at in (0, 1, 5, 9):
        refusals, now, pauses = Refusals(), NOW, list[float]()
        for _ in range(6):
            for sequence in range(10):
                if sequence == taken_at:
                    refusals.note_acknowledged("r1c")
                refusals.note_refused("r1c", sequence, Reason.TIME, now)
            due_at = refusals.next_deadline
            assert due_at is not None
            assert len(list(refusals.due_offers(due_at))) == 10
            pauses.append(due_at - now)
            now = due_at
        assert pauses == [AGAIN_S * 2**n for n in range(6)]
