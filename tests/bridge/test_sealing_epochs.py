"""The publisher over epochs, bumps and grants: its keys, what it seals anew, what waits and for how long."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import pytest

from bridge.contract.machine import (
    Acked,
    Committed,
    Effect,
    Event,
    Keep,
    LinkDown,
    LinkUp,
    Publication,
    Restored,
    Tick,
    Wire,
)
from bridge.document.overlay import Overlay
from bridge.document.policy import Scope
from bridge.document.scope_secret import ScopeSecret
from bridge.node import GatewayNode
from bridge.publisher.own_retained import LOOK_AGAIN_S
from bridge.publisher.publisher import UNAUTHORISED_S
from bridge.publisher.resealing import AWAY_S, STRAGGLERS_MAX, YOUNG_MAX
from bridge.publisher.windows import WINDOW_MAX
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, KeyHeader, Mode, SignedHeader, from_property
from keys.epochs import Calendar, KeyName
from keys.identity import Identity
from tests.bridge.helpers import NOW, counted, gateway, sent
from tests.sim.world import World
from tests.support.regions import fresh, one_region, with_keys

EPOCH = 7  # it begins at NOW
CALENDAR = Calendar(int((NOW - EPOCH * 100) * 1000), length_s=100, ahead_s=20, grace_s=20, skew_s=5)
REPLICAS = ("r1a", "r1b", "r1c")


SCOPES = [Scope("plant/#"), Scope("clear/#", Mode.PLAIN), Scope("sealed/#", shares_only=True)]
world = fresh(with_keys, [EPOCH], one_region, "site", "control", scopes=SCOPES, calendar=CALENDAR)


def entry(sequence: int, topic: str = "plant/t", payload: bytes = b"x", retain: bool = False) -> Committed:
    return Committed(((sequence, 0, Publication(topic, payload, 1, retain, time_ms=int(NOW * 1000))),))


def key_in(wire: Wire) -> KeyHeader:
    return KeyHeader.decode(from_property(dict(wire.properties)[PROPERTY_KEY]))


def sealed_ms(wire: Wire) -> int:
    return SignedHeader.decode(from_property(dict(wire.properties)[PROPERTY_HEADER])).header.time_ms


def acked(node: GatewayNode, sequence: int, now: float, peers: tuple[str, ...] = REPLICAS) -> list[Effect]:
    return [effect for peer in peers for effect in node.handle(Acked(peer, sequence), now)]


@pytest.mark.parametrize("topic", ["plant/t", "sealed/t"])
def test_each_epoch_has_data_keys_of_its_own(world: World, topic: str):
    node = gateway(world, "site")
    world.learn(world.keys, [EPOCH + 1])
    epochs = []
    for sequence, now in ((1, NOW), (2, NOW + 99), (3, NOW + 100), (4, NOW + 101)):
        (wire, *_) = [send.wire for send in sent(node.handle(entry(sequence, topic), now), "r1a")]
        acked(node, sequence, now)
        epochs.append(key_in(wire).epoch if PROPERTY_KEY in dict(wire.properties) else None)
    assert epochs == [EPOCH, EPOCH, EPOCH + 1, None]


def test_within_the_grace_the_last_key_serves_and_then_the_entry_waits(world: World):
    node = gateway(world, "site")
    node.handle(entry(1), NOW)
    acked(node, 1, NOW)
    assert sent(node.handle(entry(2), NOW + 119.9))
    effects = node.handle(entry(3), NOW + 120)
    assert not sent(effects)
    assert counted(effects, "key_waits") >= 1
    assert sent(node.handle(entry(4, "clear/t"), NOW + 120)), "other scopes go on"
    world.learn(world.keys, [EPOCH + 1])
    effects = node.publisher.keys_changed(NOW + 130)
    assert [send.ticket for send in sent(effects, "r1a")] == [2, 3], "what nobody acknowledged is sealed anew, in order"
    assert {key_in(send.wire).epoch for send in sent(effects) if PROPERTY_KEY in dict(send.wire.properties)} == {
        EPOCH + 1
    }


def test_waiting_entries_are_counted_once_and_their_order_is_kept(world: World):
    node = gateway(world, "site")
    sequences = [n * n * 1000 + n for n in range(1, 301)]  # more than a window
    for sequence in sequences:
        node.handle(entry(sequence), NOW + 100 + CALENDAR.grace_s)
    assert node.publisher.depth == 300
    assert counted(node.publisher.keys_changed(NOW + 130), "key_waits") == 0
    world.learn(world.keys, [EPOCH + 1])
    effects = node.publisher.keys_changed(NOW + 131)
    for sequence in sequences:
        effects += node.handle(Acked("r1b", sequence), NOW + 131)
    assert [send.ticket for send in sent(effects, "r1b")] == sequences


def test_what_was_sealed_in_an_ended_epoch_is_sealed_anew_for_everybody_who_lacks_it(world: World):
    node = gateway(world, "site")
    first = {send.peer: send.wire for send in sent(node.handle(entry(1), NOW))}
    acked(node, 1, NOW, ("r1a",))
    world.learn(world.keys, [EPOCH + 1])
    effects = node.publisher.tick(NOW + 100)
    again = {send.peer: send.wire for send in sent(effects)}
    assert set(again) == set(REPLICAS)
    assert sealed_ms(again["r1b"]) > sealed_ms(first["r1b"])
    assert key_in(again["r1b"]).epoch == EPOCH + 1


def test_a_clock_that_is_set_back_over_an_epoch_takes_what_was_sealed_with_it(world: World):
    node = gateway(world, "site")
    world.learn(world.keys, [EPOCH + 1])
    node.handle(entry(1), NOW + 190)
    (again, *_) = sent(node.handle(entry(2), NOW + 10), "r1b")
    assert again.ticket == 1
    assert key_in(again.wire).epoch == EPOCH
    assert sealed_ms(again.wire) == (NOW + 10) * 1000


def test_an_acknowledgement_of_a_former_sealing_does_not_count(world: World):
    node = gateway(world, "site")
    node.handle(entry(1), NOW)
    world.learn(world.keys, [EPOCH + 1])
    assert len(sent(node.publisher.tick(NOW + 100))) == 3
    acked(node, 1, NOW + 100)
    assert node.publisher.depth == 1
    acked(node, 1, NOW + 100)
    assert node.publisher.depth == 0


def missed(world: World, number: int) -> GatewayNode:
    """A gateway with publications of an epoch that has ended, which r1c lacks: it was away."""
    node = gateway(world, "site", links=False)
    for peer in ("r1a", "r1b"):
        node.handle(LinkUp(peer), NOW)
    for sequence in range(1, number + 1):
        node.handle(entry(sequence), NOW)
        acked(node, sequence, NOW, ("r1a", "r1b"))
    world.learn(world.keys, [EPOCH + 1])
    assert not sent(node.handle(Tick(), NOW + 100))
    return node


def answered(node: GatewayNode, effects: list[Effect], now: float) -> list[tuple[str, int]]:
    """What replicas get and acknowledge, each in its order, until nothing is left."""
    waiting, found = deque(sent(effects)), list[tuple[str, int]]()
    while waiting:
        send = waiting.popleft()
        found.append((send.peer, send.ticket))
        waiting += sent(node.handle(Acked(send.peer, send.ticket), now))
    return found


@pytest.mark.attack(132)
def test_what_only_an_absent_replica_lacks_it_gets_as_it_was_sealed_while_replicas_take_it(world: World):
    """Sealed anew for all, it went before what was new: in a scope there is one order."""
    many = 4 * WINDOW_MAX
    node, now = missed(world, many), NOW + 100 + CALENDAR.grace_s - 1
    (first, *_) = sent(node.handle(LinkUp("r1c"), now))
    assert key_in(first.wire).epoch == EPOCH
    effects = node.handle(LinkUp("r1c"), now)
    effects += node.handle(entry(many + 1), now)
    assert {send.peer for send in sent(effects) if send.ticket == many + 1} == {"r1a", "r1b"}
    assert set(answered(node, effects, now)) == {
        *(("r1c", sequence) for sequence in range(1, many + 2)),
        *((peer, many + 1) for peer in ("r1a", "r1b")),
    }
    assert node.publisher.depth == 0


@pytest.mark.attack(132)
def test_who_was_away_for_longer_than_the_grace_gets_what_is_new_at_once(world: World):
    """Its absence was the fault that the others made up for. All that it lacked was sealed anew, for all."""
    many = 4 * WINDOW_MAX
    node, now = missed(world, many), NOW + 100 + CALENDAR.grace_s
    effects = node.handle(LinkUp("r1c"), now)
    assert node.publisher.depth == 0
    effects += node.handle(entry(many + 1), now)
    assert answered(node, effects, now) == [(peer, many + 1) for peer in REPLICAS]


def test_what_too_few_have_is_sealed_anew_also_after_the_grace(world: World):
    node, now = gateway(world, "site"), NOW + 100 + CALENDAR.grace_s
    for sequence in (1, 2):
        node.handle(entry(sequence), NOW)
    acked(node, 1, NOW, ("r1a", "r1b"))
    acked(node, 2, NOW, ("r1a",))
    world.learn(world.keys, [EPOCH + 1])
    assert {(send.peer, send.ticket) for send in sent(node.handle(Tick(), now))} == {(peer, 2) for peer in REPLICAS}


def test_what_is_retained_is_sealed_anew_though_one_lacks_it_and_the_grace_is_over(world: World):
    """It is both: done with as a publication, and due as what is retained."""
    node, now = gateway(world, "site"), NOW + 100 + CALENDAR.grace_s
    node.handle(entry(1, retain=True), NOW)
    acked(node, 1, NOW, ("r1a", "r1b"))
    world.learn(world.keys, [EPOCH + 1])
    assert {(send.peer, send.ticket) for send in sent(node.handle(Tick(), now))} == {(peer, 1) for peer in REPLICAS}
    acked(node, 1, now)  # r1c's is of the former sealing
    acked(node, 1, now, ("r1c",))
    assert node.publisher.depth == 0


@pytest.mark.attack(132)
@pytest.mark.parametrize(("age_s", "most"), [(1.0, YOUNG_MAX), (AWAY_S + 1, STRAGGLERS_MAX)])
def test_a_replica_that_acknowledges_nothing_does_not_stop_all_when_keys_change(world: World, age_s: float, most: int):
    """Attack: up to 20,000 publications were sealed anew because of it, for all, before what was new."""
    many, now = 2 * YOUNG_MAX, NOW + age_s
    node = gateway(world, "site")
    for sequence in range(1, many + 1):
        node.handle(entry(sequence), NOW)
        acked(node, sequence, NOW, ("r1a", "r1b"))
    assert node.publisher.depth == many
    newer = world.revoked("control", EPOCH - 1, bump=1)
    world.learn(world.keys, [EPOCH], bump=1)
    waiting = deque(sent(node.publisher.adopt_overlay(newer, world.secrets_under(newer), now)))
    got = list[int]()
    while waiting:
        send = waiting.popleft()
        got += [send.ticket] if send.peer == "r1a" else []
        waiting += sent(node.handle(Acked(send.peer, send.ticket), now)) if send.peer != "r1c" else ()
    assert got == list(range(many - most + 1, many + 1))
    assert node.publisher.depth == most


def test_after_a_bump_nothing_is_sealed_under_the_old_keys(world: World):
    node = gateway(world, "site")
    newer = world.revoked("control", EPOCH - 1, bump=1)
    node.publisher.adopt_overlay(newer, world.secrets_under(newer), NOW)
    effects = node.handle(entry(1), NOW + 1)
    assert not sent(effects)
    assert counted(effects, "key_waits") >= 1
    world.learn(world.keys, [EPOCH], bump=1)
    wires = [send.wire for send in sent(node.publisher.keys_changed(NOW + 2))]
    assert {key_in(wire).epoch_key for wire in wires} == {KeyName("plant/#", EPOCH, 1)}


# ------------------------------------------------------------------------------------------------- rights


def test_without_the_right_an_entry_waits_counted_and_goes_by_age(world: World):
    node = gateway(world, "site")
    newer = world.revoked("site", EPOCH - 1)
    node.publisher.adopt_overlay(newer, world.secrets_under(newer), NOW)
    assert not node.publisher.sealer.may_publish("plant/t", NOW)
    effects = node.handle(entry(1), NOW)
    assert not sent(effects)
    assert counted(effects, "not_authorised") == 1
    for now in (NOW + 101, NOW + 201):
        assert counted(node.publisher.tick(now), "not_authorised") == 0
    effects = node.publisher.tick(NOW + UNAUTHORISED_S)
    assert counted(effects, "not_authorised_dropped") == 1
    assert node.publisher.depth == 0


def test_a_right_that_comes_back_frees_what_waits(world: World):
    node = gateway(world, "site")
    before = world.overlay
    newer = world.revoked("site", EPOCH - 1)
    node.publisher.adopt_overlay(newer, world.secrets, NOW)
    node.handle(entry(1), NOW)
    assert len(sent(node.publisher.adopt_overlay(before, world.secrets, NOW + 1))) == 3


def test_the_right_ends_with_its_epoch_and_the_topic_stays_protected(world: World):
    newer = world.revoked("site", EPOCH)
    node = gateway(world, "site")
    node.publisher.adopt_overlay(newer, world.secrets, NOW)
    assert node.publisher.sealer.may_publish("plant/t", NOW + 99)
    assert not node.publisher.sealer.may_publish("plant/t", NOW + 100)
    assert node.publisher.sealer.secret_for("plant/t") is not None, "refused, not local"
    assert not node.publisher.sealer.may_publish("elsewhere", NOW)


def test_nothing_is_published_in_a_retiring_scope(world: World):
    retiring = tuple(replace(s, retiring=s.filter == "plant/#") for s in world.overlay.policy.scopes)
    newer = world.with_policy(scopes=retiring)
    node = gateway(world, "site")
    node.publisher.adopt_overlay(newer, world.secrets_under(newer), NOW)
    assert node.publisher.sealer.secret_for("plant/t") is None
    assert not node.publisher.sealer.may_publish("plant/t", NOW)


def test_the_successor_of_a_retiring_scope_takes_its_topics(world: World):
    wire = "0" * 4 + "/#"
    scopes = (*(replace(s, retiring=s.filter == "plant/#") for s in world.overlay.policy.scopes), Scope(wire))
    newer = world.with_policy(scopes=scopes)
    node = gateway(world, "site")
    node.handle(entry(1), NOW)
    successor = ScopeSecret(Scope(wire), "plant/#", bytes(range(32)))
    node.publisher.adopt_overlay(newer, [*world.secrets_under(newer), successor], NOW)
    assert node.publisher.sealer.secret_for("plant/t") == successor


def test_after_a_rotation_new_entries_are_signed_with_the_new_key(world: World):
    node = gateway(world, "site")
    (old, *_) = sent(node.handle(entry(1), NOW), "r1a")
    fresh = Identity.generate(bytes(range(32)))
    node.publisher.rotate_identity(fresh)
    (new, *_) = sent(node.handle(entry(2), NOW), "r1a")
    assert key_in(old.wire).publisher == world.identities["site"].party_id
    assert key_in(new.wire).publisher == fresh.party_id


# ----------------------------------------------------------------------------------------------- retained


def headers(effects: list[Effect], peer: str = "r1b") -> list[tuple[int, int, bool]]:
    """Number, predecessor and whether it is a snapshot of what goes to a replica."""
    found = [SignedHeader.decode(from_property(dict(s.wire.properties)[PROPERTY_HEADER])).header
             for s in sent(effects, peer)]  # fmt: skip
    return [(header.sequence, header.previous, header.snapshot) for header in found]


@pytest.mark.attack(24)
@pytest.mark.parametrize("topic", ["plant/t", "clear/t", "sealed/t"])
@pytest.mark.parametrize("payload", [b"x", b""], ids=["value", "tombstone"])
def test_what_is_retained_is_sealed_anew_under_its_number_in_every_epoch_and_after_every_bump(
    world: World, topic: str, payload: bytes
):
    """Under a number of its own it would overtake what is newer and not committed yet."""
    node = gateway(world, "site")
    node.handle(entry(1, topic), NOW)
    node.handle(entry(2, topic, payload, retain=True), NOW)
    acked(node, 1, NOW)
    acked(node, 2, NOW)
    world.learn(world.keys, [EPOCH + 1])
    assert headers(node.publisher.tick(NOW + 100)) == [(2, 0, True)]
    assert headers(node.publisher.tick(NOW + 101)) == []
    acked(node, 2, NOW + 101)
    newer = world.revoked("control", EPOCH, bump=1)
    world.learn(world.keys, [EPOCH + 1], bump=1)
    assert headers(node.publisher.adopt_overlay(newer, world.secrets_under(newer), NOW + 102)) == [(2, 0, True)]
    assert headers(node.handle(entry(3, topic), NOW + 103))[0][0] == 3


@pytest.mark.attack(25)
def test_what_is_retained_is_sealed_anew_though_the_key_came_late(world: World):
    node = gateway(world, "site")
    node.handle(entry(1, retain=True), NOW)
    acked(node, 1, NOW)
    assert headers(node.publisher.tick(NOW + 120)) == []
    world.learn(world.keys, [EPOCH + 1])
    assert headers(node.publisher.keys_changed(NOW + 130)) == [(1, 0, True)]


def test_what_is_retained_and_still_in_the_outbox_is_not_published_twice(world: World):
    node = gateway(world, "site")
    node.handle(entry(1, retain=True), NOW)
    world.learn(world.keys, [EPOCH + 1])
    effects = node.publisher.tick(NOW + 100)
    assert headers(effects) == [(1, 0, False)], "nobody has it yet: it is in its chain still"
    assert len(sent(effects)) == 3


@pytest.mark.attack(136)
def test_what_is_retained_and_on_its_way_when_its_epoch_ends_is_a_snapshot_once_it_has_arrived(world: World):
    """Readers would get a snapshot before what it follows, or never as something live."""
    node = gateway(world, "site")
    node.handle(entry(1, retain=True), NOW + 95)
    acked(node, 1, NOW + 95, ("r1a", "r1b"))
    node.handle(LinkDown("r1c"), NOW + 96)
    world.learn(world.keys, [EPOCH + 1])
    assert sent(node.handle(Tick(), NOW + 100)) == []
    assert headers(node.handle(LinkUp("r1c"), NOW + 101), "r1c") == [(1, 0, False)]
    node.handle(Acked("r1c", 1), NOW + 101)
    assert (at := node.publisher.next_deadline) is not None
    assert at <= NOW + 101 + LOOK_AGAIN_S
    assert headers(node.handle(Tick(), at)) == [(1, 0, True)]


@pytest.mark.attack(136)
@pytest.mark.parametrize("ends_s", [10, 19])
def test_it_is_one_no_later_than_a_grace_after_it_was_sealed_whoever_acknowledges_nothing(world: World, ends_s: float):
    node = gateway(world, "site")
    node.handle(entry(1, retain=True), NOW + 80 + ends_s)
    acked(node, 1, NOW + 80 + ends_s, ("r1a", "r1b"))
    world.learn(world.keys, [EPOCH + 1])
    found = list[tuple[float, tuple[int, int, bool]]]()
    now = NOW + 99
    while now < NOW + 130:
        node.publisher.tick(now)
        now = max(now + 0.1, node.publisher.next_deadline or now + 1)
        found += [(now, header) for header in headers(node.publisher.tick(now))]
    ((at, header),) = found
    assert header == (1, 0, True)
    assert NOW + 100 < at <= NOW + 100 + ends_s + LOOK_AGAIN_S + 1


@pytest.mark.attack(136)
@pytest.mark.parametrize("age_s", [1, AWAY_S + 1])
def test_after_a_bump_what_is_retained_and_young_goes_in_its_chain_and_then_as_a_snapshot(world: World, age_s: float):
    """Whoever has it, and much since, takes it for a repetition, and would retain it no longer."""
    node = gateway(world, "site")
    node.handle(entry(1), NOW)
    acked(node, 1, NOW)
    node.handle(entry(2, retain=True), NOW)
    acked(node, 2, NOW, ("r1a", "r1b"))
    newer, now = world.revoked("control", EPOCH - 1, bump=1), NOW + age_s
    world.learn(world.keys, [EPOCH], bump=1)
    effects = node.publisher.adopt_overlay(newer, world.secrets_under(newer), now)
    if age_s > AWAY_S:
        assert headers(effects) == [(2, 0, True)]
        return
    assert [header[::2] for header in headers(effects)] == [(2, False)]
    acked(node, 2, now, ("r1c", *REPLICAS))  # its first one is of the former sealing
    assert headers(node.handle(Tick(), now + LOOK_AGAIN_S)) == [(2, 0, True)]
    acked(node, 2, now + LOOK_AGAIN_S)
    assert headers(node.handle(Tick(), now + 3 * LOOK_AGAIN_S)) == []


@pytest.mark.attack(136)
def test_the_snapshot_follows_though_the_key_came_after_the_overlay(world: World):
    """Nobody looked again: what is sealed when its key comes had been unsealed before."""
    node = gateway(world, "site")
    node.handle(entry(1, retain=True), NOW)
    acked(node, 1, NOW, ("r1a", "r1b"))
    newer = world.revoked("control", EPOCH - 1, bump=1)
    assert headers(node.publisher.adopt_overlay(newer, world.secrets_under(newer), NOW + 30)) == []
    world.learn(world.keys, [EPOCH], bump=1)
    assert headers(node.publisher.keys_changed(NOW + 31)) == [(1, 0, False)]
    acked(node, 1, NOW + 31, ("r1c", *REPLICAS))
    assert headers(node.handle(Tick(), NOW + 31 + LOOK_AGAIN_S)) == [(1, 0, True)]


@pytest.mark.attack(136)
def test_a_snapshot_follows_what_a_former_life_had_sealed(world: World):
    """The outbox has it, since one replica never acknowledged it; the others may take it for a repetition."""
    node, rows = gateway(world, "site"), dict[bytes, bytes | None]()
    for effect in [*node.handle(entry(1, retain=True), NOW), *acked(node, 1, NOW, ("r1a", "r1b"))]:
        rows.update(effect.rows if isinstance(effect, Keep) else ())
    world.learn(world.keys, [EPOCH + 1])
    node = gateway(world, "site", links=False)
    node.handle(Restored(tuple((key, row) for key, row in rows.items() if row is not None)), NOW + 110)
    node.handle(entry(1, retain=True), NOW + 110)
    effects = [effect for peer in REPLICAS for effect in node.handle(LinkUp(peer), NOW + 111)]
    assert headers(effects) == [(1, 0, False)]
    acked(node, 1, NOW + 111, ("r1a", "r1b"))
    assert headers(node.handle(Tick(), NOW + 112 + AWAY_S)) == [(1, 0, True)]


@pytest.mark.attack(25)
def test_an_old_value_that_is_sealed_anew_does_not_overtake_the_newer_one_behind_it(world: World):
    """The newer one is committed, and waits for its key, when the epoch passes."""
    node = gateway(world, "site")
    node.handle(entry(1, payload=b"old", retain=True), NOW)
    acked(node, 1, NOW)
    node.handle(entry(2, payload=b"new", retain=True), NOW + 121)
    world.learn(world.keys, [EPOCH + 1])
    assert headers(node.publisher.keys_changed(NOW + 130)) == [(2, 0, False)]


@pytest.mark.attack(25)
def test_a_stopped_gateway_seals_what_it_retains_anew_in_its_next_life(world: World):
    """A whole region may have restarted meanwhile; what was cleared must not come back then."""
    node = gateway(world, "site")
    rows: dict[bytes, bytes | None] = {}

    def handle(event: Event, now: float) -> list[Effect]:
        effects = node.handle(event, now)
        for effect in effects:
            if isinstance(effect, Keep):
                rows.update(effect.rows)
        return effects

    for number, topic, payload in ((1, "plant/a", b"x"), (2, "plant/b", b"x"), (3, "plant/b", b"")):
        handle(entry(number, topic, payload, retain=True), NOW)
        acked(node, number, NOW)
    node = gateway(world, "site", links=False)
    handle(Restored(tuple((key, row) for key, row in rows.items() if row is not None)), NOW + 50)
    assert headers(handle(LinkUp("r1b"), NOW + 51)) == [(1, 0, True), (3, 0, True)]
    assert headers(handle(Acked("r1b", 1), NOW + 52)) == []


def test_what_was_protected_never_leaves_in_clear_whatever_the_owner_says_later(world: World):
    node = world.node("site", random.Random(1))
    assert isinstance(node, GatewayNode)
    assert not sent(node.handle(entry(1), NOW)), "no replica is there yet"
    plain = [replace(scope, mode=Mode.PLAIN) if scope.filter == "plant/#" else scope for scope in
             world.overlay.policy.scopes]  # fmt: skip
    newer = world.with_policy(scopes=tuple(plain))
    node.publisher.adopt_overlay(newer, world.secrets_under(newer), NOW)
    effects = [effect for peer in REPLICAS for effect in node.publisher.link_up(peer, NOW)]
    assert not sent(effects)
    assert counted(effects, "not_authorised") == 1
    assert node.publisher.depth == 1, "it is kept: the owner may think again"
    again = replace(newer.policy, version=newer.policy.version + 1, scopes=world.overlay.policy.scopes)
    before = Overlay.sign(world.owner, again, newer.views.values(), newer.members.values())
    (send, *_) = sent(node.publisher.adopt_overlay(before, world.secrets, NOW + 1))
    assert PROPERTY_KEY in dict(send.wire.properties)
    assert send.wire.payload != b"x"
