"""Each way to lie, on its own, of a machine that always says the same: what honest tests of liars rest on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bridge.contract import Count, Effect, Event, LinkUp, Received, Send, Tick, Wire
from bridge.wire import KEYS_TOPIC, NO_PART, PROPERTY_PART, PULL_TOPIC, PullRequest
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES
from keys.sharetree import Place, Share
from papers.sim.adversary import DELAY_MAX_S, FLOOD_EACH, Adversary, Behaviour, Coalition
from tests.bridge.helpers import forge_key, gateway, publish, shares_in, with_properties
from tests.sim.world import NOW, make_world

WORLD = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1})
KEY = forge_key(WORLD, "site", "plant/#")
WIRE = publish(gateway(WORLD, "site"), "plant/t", b"payload", sequence=1)["r1b"]


@dataclass
class Parrot:
    """Whatever happens, it sends this."""

    says: Sequence[Effect]
    overlay: Any = WORLD.overlay
    peers: frozenset[str] = frozenset({"r2a"})
    removed: bool = False
    versions: dict[str, int] = field(default_factory=lambda: {"r2a": 3})
    next_deadline: float | None = None

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        return self.says


def liar(*ways: Behaviour, says: Sequence[Effect] = (Send("r2a", WIRE, 7),), **options: Any) -> Adversary:
    return Adversary(Parrot(says), ways, random.Random(1), **options)


def told(adversary: Adversary, times: int = 1, now: float = NOW, event: Event | None = None) -> list[Send]:
    effects = [e for _ in range(times) for e in adversary.handle(event or LinkUp("r2a"), now)]
    return [effect for effect in effects if isinstance(effect, Send)]


def lie(*ways: Behaviour, wire: Wire = WIRE, times: int = 1) -> Wire:
    return told(liar(*ways, says=(Send("r2a", wire),)), times)[-1].wire


def without(wire: Wire, *names: str) -> Wire:
    return with_properties(wire, without=names)


def test_who_does_not_lie_now_is_honest_and_keeps_what_is_no_message() -> None:
    adversary = liar(Behaviour.DROP, says=(Send("r2a", WIRE, 7), Count("sealed")), lying=lambda now: now < NOW)
    assert adversary.handle(LinkUp("r2a"), NOW) == [Send("r2a", WIRE, 7), Count("sealed")]
    assert adversary.handle(LinkUp("r2a"), NOW - 1) == [Count("sealed")]


def test_it_looks_like_the_machine_that_it_wraps() -> None:
    adversary = liar(Behaviour.DROP)
    machine = adversary.machine
    assert (adversary.overlay, adversary.peers, adversary.removed, adversary.versions) == (
        machine.overlay, machine.peers, machine.removed, machine.versions,
    )  # fmt: skip


def test_it_lies_as_often_as_it_is_asked_to() -> None:
    adversary = liar(Behaviour.DROP, probability=0.25)
    assert 600 < len(told(adversary, 1000)) < 900


def test_silent_says_and_plans_nothing() -> None:
    adversary = liar(Behaviour.SILENT, says=(Count("sealed"),), lying=lambda now: now >= NOW)
    adversary.machine.next_deadline = NOW + 1
    assert adversary.handle(Tick(), NOW - 1) == [Count("sealed")]
    assert adversary.next_deadline == NOW + 1
    assert adversary.handle(Tick(), NOW) == []
    assert adversary.next_deadline is None


def test_delay_holds_back_for_a_while_and_forgets_nothing() -> None:
    adversary = liar(Behaviour.DELAY)
    assert told(adversary) == []
    at = adversary.next_deadline
    assert at is not None
    assert NOW <= at <= NOW + DELAY_MAX_S
    assert told(adversary, now=at, event=Tick()) == [Send("r2a", WIRE, 7)]


def test_duplicate_says_it_twice_and_is_acknowledged_once() -> None:
    assert told(liar(Behaviour.DUPLICATE)) == [Send("r2a", WIRE, 7), Send("r2a", WIRE, 0)]


def test_reorder_holds_one_back_behind_the_next() -> None:
    first, second = Send("r2a", WIRE, 1), Send("r2a", Wire("plant/u", b"x"), 2)
    adversary = liar(Behaviour.REORDER, says=(first, second, first))
    assert told(adversary) == [second, first]


def test_replay_repeats_what_it_said_before() -> None:
    adversary = liar(Behaviour.REPLAY)
    assert told(adversary) == [Send("r2a", WIRE, 7)]
    assert told(adversary) == [Send("r2a", WIRE, 7), Send("r2a", WIRE)]


def test_flood_and_pulls_add_what_nobody_asked_for() -> None:
    flood = told(liar(Behaviour.FLOOD), 30)
    assert len(flood) == 30 * (1 + FLOOD_EACH)
    assert {KEYS_TOPIC, "$veil/subscribe", "plant/x"} < {send.wire.topic for send in flood}
    pulls = [send.wire for send in told(liar(Behaviour.PULLS), 30) if send.wire.topic == PULL_TOPIC]
    asked = [PullRequest.decode(wire.payload) for wire in pulls]
    assert len(asked) == 30 * FLOOD_EACH
    assert {request.publisher for request in asked} == {WORLD.identities["site"].party_id}
    assert min(request.sequence for request in asked) == 1 < max(request.sequence for request in asked)
    bare = told(liar(Behaviour.PULLS, says=(Send("r2a", Wire("$veil/x", b"")),)))
    assert [send.wire.topic for send in bare[1:]] == [PULL_TOPIC] * FLOOD_EACH


@pytest.mark.parametrize(("way", "changed"), [
    (Behaviour.HEADER, PROPERTY_HEADER), (Behaviour.KEY, PROPERTY_KEY), (Behaviour.SHARES, PROPERTY_SHARES),
    (Behaviour.LABELS, PROPERTY_SHARES), (Behaviour.POSITION, PROPERTY_SHARES), (Behaviour.PATH, PROPERTY_SHARES),
    (Behaviour.VIEW, PROPERTY_SHARES),
])  # fmt: skip
def test_one_property_is_falsified_and_nothing_else(way: Behaviour, changed: str) -> None:
    found = lie(way)
    assert dict(found.properties)[changed] != dict(WIRE.properties)[changed]
    assert without(found, changed) == without(WIRE, changed)


def test_content_differs_in_one_bit() -> None:
    found = lie(Behaviour.CONTENT)
    assert sum((a ^ b).bit_count() for a, b in zip(found.payload, WIRE.payload, strict=True)) == 1
    assert found.properties == WIRE.properties
    assert lie(Behaviour.CONTENT, wire=Wire("t", b"")) == Wire("t", b"")


def test_topic_and_retain_are_falsified() -> None:
    assert lie(Behaviour.TOPIC).topic == "veilmq/batch/1x"
    assert lie(Behaviour.RETAIN).retain


def test_strip_takes_the_shares_and_leaves_the_key() -> None:
    assert lie(Behaviour.STRIP) == without(WIRE, PROPERTY_SHARES)


def test_withhold_and_hoard_give_no_content() -> None:
    found = lie(Behaviour.WITHHOLD)
    assert (found.payload, dict(found.properties)[PROPERTY_PART]) == (b"", NO_PART)
    assert without(found, PROPERTY_PART).properties == WIRE.properties
    announced = with_properties(Wire(WIRE.topic, b"", properties=WIRE.properties), (PROPERTY_PART, NO_PART))
    assert told(liar(Behaviour.HOARD)) == []
    assert lie(Behaviour.HOARD, wire=announced) == announced
    assert lie(Behaviour.HOARD, wire=Wire(KEYS_TOPIC, b"x")) == Wire(KEYS_TOPIC, b"x")


def test_parts_claims_other_blocks() -> None:
    parts = {dict(send.wire.properties)[PROPERTY_PART] for send in told(liar(Behaviour.PARTS), 50)}
    assert parts == {"0", "1", "2"}


def test_false_shares_have_the_labels_of_true_ones() -> None:
    (true,), (false,) = shares_in(WIRE), shares_in(lie(Behaviour.SHARES))
    assert (false.label, false.tags) == (true.label, true.tags)
    assert false.value != true.value


@pytest.mark.parametrize(("way", "field", "to"), [
    (Behaviour.LABELS, "place", 3), (Behaviour.PATH, "region", 101), (Behaviour.VIEW, "view", 2),
    (Behaviour.POSITION, "place", 3),
])  # fmt: skip
def test_labels_claim_what_is_not_so(way: Behaviour, field: str, to: int) -> None:
    (true,), (false,) = shares_in(WIRE), shares_in(lie(way))
    assert false.value == true.value
    assert false.label[0] == true.label[0]._replace(**{field: to})


def test_a_foreign_key_comes_without_shares() -> None:
    other = with_properties(WIRE, *KEY.properties(), without=(PROPERTY_KEY, PROPERTY_SHARES))
    adversary = liar(Behaviour.FOREIGN_KEY, says=(Send("r2a", other), Send("r2a", WIRE)))
    keys = {dict(send.wire.properties)[PROPERTY_KEY] for send in told(adversary, 20) if not shares_in(send.wire)}
    assert keys == {dict(wire.properties)[PROPERTY_KEY] for wire in (other, WIRE)}
    assert lie(Behaviour.FOREIGN_KEY, wire=Wire("t", b"x")) == Wire("t", b"x")


# ---------------------------------------------------------------------------------------------- together


def test_one_that_equivocates_is_always_honest_to_some() -> None:
    peers = [f"p{n}" for n in range(40)]
    adversary = liar(Behaviour.EQUIVOCATE, says=[Send(peer, WIRE) for peer in peers])
    first, second = told(adversary), told(adversary)
    honest = {send.peer for send in first if send.wire == WIRE}
    assert honest == {send.peer for send in second if send.wire == WIRE}
    assert 8 < len(honest) < 32
    (deceived,) = {send.wire.payload == WIRE.payload for send in first if send.peer not in honest}
    assert not deceived, "without another way, content and shares are false"


@pytest.mark.parametrize("way", [Behaviour.COLLUDE, Behaviour.FRAME])
def test_accomplices_do_not_deceive_each_other(way: Behaviour) -> None:
    friends = Coalition({"liar": (1, 2), "r2a": (2, 1)}, random.Random(2))
    adversary = liar(way, Behaviour.DROP, says=(Send("r2a", WIRE), Send("r2b", WIRE)), coalition=friends)
    assert told(adversary) == [Send("r2a", WIRE)]


def test_shares_of_a_coalition_are_shifted_alike_so_that_they_fit_together() -> None:
    friends = Coalition({"x": (1, 1)}, random.Random(2))
    shifts = set()
    for place in range(3):
        (share,) = KEY.shares[place : place + 1]
        wire = with_properties(WIRE, *KEY.properties([share]), without=(PROPERTY_KEY, PROPERTY_SHARES))
        adversary = liar(Behaviour.COLLUDE, says=(Send("r2a", wire),), coalition=friends)
        (false,) = shares_in(told(adversary)[0].wire)
        shifts.add(bytes(a ^ b for a, b in zip(share.value, false.value, strict=True)))
    assert shifts == {friends.shift}


def test_each_accomplice_replays_what_another_one_received() -> None:
    friends = Coalition({"x": (1, 1), "y": (1, 2)}, random.Random(2))
    says = (Send("r2a", Wire("$veil/own", b"")),)
    one = liar(Behaviour.COLLUDE, Behaviour.REPLAY, says=says, coalition=friends)
    other = liar(Behaviour.COLLUDE, Behaviour.REPLAY, says=says, coalition=friends)
    told(one, event=Received("site", WIRE))
    assert told(other)[-1] == Send("r2a", WIRE)


def test_framing_shifts_what_came_through_one_honest_replica_only() -> None:
    friends = Coalition({"liar": (1, 3), "r2a": (2, 1)}, random.Random(2))

    def through(place: int) -> Share:
        label = (Place(1, 1, place), Place(2, 1, 1))  # of what came to the accomplice
        return Share(label, (b"tag!",), bytes(32))

    adversary = liar(Behaviour.FRAME, coalition=friends)
    shifted = {place: adversary._framing(through(place)) != through(place) for place in (1, 2, 3)}
    assert friends.victim == (1, 1)
    assert shifted == {1: True, 2: False, 3: False}
    assert replace(through(1), value=friends.shift) == adversary._framing(through(1))
