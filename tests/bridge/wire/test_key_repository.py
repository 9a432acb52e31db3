"""Data keys on a topic of their own, at single nodes: who is told what, for how long it is kept, and who may not cheat
with how many messages a key serves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract.machine import Acked, Committed, Effect, LinkDown, LinkUp, Publication, Received, Send, Tick, Wire
from bridge.document.policy import REFRESH, REFRESH_MESSAGES_MAX, Refresh, Scope
from bridge.node import GatewayNode, ReplicaNode
from bridge.publisher.own_retained import RETELL_BURST, RETELL_EVERY_S
from bridge.reader.collector import Collector
from bridge.wire.admission import Admission
from bridge.wire.key_repository import KEY_LATE_S, SPENT_LATE_S, SWEEP_S, Use, carries_key_alone, key_topic
from bridge.wire.statements import KEYS_TOPIC
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, KeyHeader, from_property
from keys.errors import NotAuthorised
from tests.bench import growth
from tests.bridge.helpers import (
    NOW,
    ForgedKey,
    counted,
    craft,
    delivered,
    forge_key,
    gateway,
    publish,
    replica,
    same_version,
    sent,
    shares_in,
    statement,
    subscribe_at,
    suspected,
)
from tests.sim.world import World, make_world
from tests.support.regions import fresh, row_of_regions

pytestmark = pytest.mark.invariant(8)

REPLICAS = ("r1a", "r1b", "r1c")
REGION_2 = ("r2a", "r2b", "r2c")


world = fresh(
    row_of_regions,
    2,
    {"site": 1, "evil": 1, "local": 1, "control": 2},
    [Scope("plant/#", keys_on_topic=True), Scope("open/#", keys_on_topic=True)],
    rights={"evil": (["#"], [])},
)


def sends(node: GatewayNode, sequence: int, now: float = NOW, topic: str = "plant/t", **fields: bool) -> list[Send]:
    """All wires to r1a that one publication comes to; every replica acknowledges."""
    publication = publish_effects(node, sequence, now, topic, **fields)
    for peer in REPLICAS:
        node.handle(Acked(peer, sequence), now)
    return sent(publication, "r1a")


def publish_effects(node: GatewayNode, sequence: int, now: float, topic: str, **fields: bool) -> list[Effect]:
    publication = Publication(topic, b"x", 1, time_ms=int(now * 1000), **fields)
    return list(node.handle(Committed(((sequence, 0, publication),)), now))


def kinds(sends: list[Send]) -> str:
    """`k` for a key alone, `p` for a publication, `?` for both in one."""
    names = [dict(s.wire.properties) for s in sends]
    return "".join("?" if {PROPERTY_KEY, PROPERTY_HEADER} <= n.keys() else "k" if PROPERTY_KEY in n else "p"
                   for n in names)  # fmt: skip


def entry(world: World, publisher: str, key: ForgedKey, topic: str | None = None) -> Wire:
    """A key as its publisher tells r1a of it."""
    standing = key_topic(key.header.scope, world.identities[publisher].party_id) if topic is None else topic
    return Wire(standing, b"", 1, True, key.properties(key.shares[:1]))


def first_hop(world: World) -> ReplicaNode:
    return replica(world, "r1a", [*REGION_2, "site", "evil", "local"])


# ------------------------------------------------------------------------------------------------- the publisher


def test_a_key_is_told_once_before_the_first_publication_under_it(world: World):
    node = gateway(world, "site")
    assert [kinds(sends(node, n)) for n in range(1, 4)] == ["kp", "p", "p"]
    assert kinds(sends(node, 4, topic="plant/other")) == "p", "whatever the topic"
    assert kinds(sends(node, 5, topic="open/t")) == "kp", "each scope has its own"
    assert [kinds(sends(node, 6 + n, NOW + n, retain=True)) for n in range(3)] == ["p"] * 3
    assert kinds(sends(node, 10, NOW + REFRESH.age_s)) == "kp"


@pytest.mark.parametrize("messages", [1, 10])
def test_owners_say_how_many_messages_a_key_serves(messages: int):
    scope = Scope("plant/#", keys_on_topic=True, refresh=Refresh(messages=messages))
    node = gateway(make_world({1: 3}, [], {"site": 1}, [scope]), "site")
    assert "".join(kinds(sends(node, n)) for n in range(1, 21)) == ("k" + "p" * messages) * (20 // messages)


def test_owners_say_after_how_many_bytes_and_seconds_a_key_is_renewed():
    scope = Scope("plant/#", keys_on_topic=True, refresh=Refresh(64, 250, 3))
    node = gateway(make_world({1: 3}, [], {"site": 1}, [scope]), "site")
    assert [kinds(sends(node, n)) for n in range(1, 6)] == ["kp", "p", "p", "kp", "p"], "three are more than 250 bytes"
    assert kinds(sends(node, 6, NOW + 3)) == "kp"


def test_a_replica_that_comes_back_is_told_keys_in_use_and_what_is_retained(world: World):
    node = gateway(world, "site")
    kept = sends(node, 1, retain=True)[-1].wire
    sends(node, 2, NOW + 100)
    node.handle(LinkDown("r1a"), NOW + 101)
    told = sent(node.handle(LinkUp("r1a"), NOW + 101), "r1a")
    assert kinds(told) == "kkp", "the present key, and the one of what is retained with that"
    assert told[-1].wire == kept
    assert len({KeyHeader.decode(from_property(dict(s.wire.properties)[PROPERTY_KEY])).key_id for s in told[:2]}) == 2
    assert {share.label[0].place for s in told[:2] for share in shares_in(s.wire)} == {1}


def test_what_was_replaced_is_not_told_again_and_that_it_was_cleared_is(world: World):
    node = gateway(world, "site")
    sends(node, 1, topic="plant/a", retain=True)
    gone = publish(node, "plant/a", b"", sequence=2, retain=True)["r1a"]
    for peer in REPLICAS:
        node.handle(Acked(peer, 2), NOW)
    sends(node, 3, topic="plant/b", retain=True)
    newest = sends(node, 4, topic="plant/b", retain=True)[-1].wire
    node.handle(LinkDown("r1a"), NOW)
    told = sent(node.handle(LinkUp("r1a"), NOW), "r1a")
    assert [s.wire for s in told if PROPERTY_HEADER in dict(s.wire.properties)] == [gone, newest]


def test_a_link_that_flaps_does_not_make_us_send_all_again_without_end(world: World):
    node = gateway(world, "site")
    sends(node, 1, retain=True)

    def flap(now: float) -> bool:
        node.handle(LinkDown("r1a"), now)
        return "p" in kinds(sent(node.handle(LinkUp("r1a"), now), "r1a"))

    assert sum(flap(NOW + n / 10) for n in range(100)) == RETELL_BURST
    assert flap(NOW + 10 + RETELL_EVERY_S)


# -------------------------------------------------------------------------------------------------- the replica


def test_an_entry_goes_at_once_to_all_who_want_the_scope_and_may_read_it(world: World):
    node = first_hop(world)
    subscribe_at(node, world, "control", "plant/#", via="r2a")
    subscribe_at(node, world, "local", "plant/#")
    key = forge_key(world, "site", "plant/#")
    told = sent(node.handle(Received("site", entry(world, "site", key)), NOW))
    assert sorted(s.peer for s in told) == ["local", *REGION_2]
    assert {(s.wire.topic, s.wire.retain) for s in told} == {(entry(world, "site", key).topic, True)}
    by_peer = {s.peer: shares_in(s.wire) for s in told}
    assert by_peer["local"] == key.shares[:1], "readers get the share as it is"
    assert [by_peer[p][0].label[-1].place for p in REGION_2] == [1, 2, 3]
    assert len({by_peer[p][0].value for p in REGION_2} | {key.shares[0].value}) == 4


def test_an_entry_that_stands_elsewhere_is_refused(world: World):
    node, key = first_hop(world), forge_key(world, "site", "plant/#")
    for scope, party in (("open/#", "site"), ("plant/#", "evil")):
        effects = node.handle(
            Received("site", entry(world, "site", key, key_topic(scope, world.identities[party].party_id))), NOW
        )
        assert counted(effects, "refused") == 1
        assert suspected(effects) == {"site"}
    assert not sent(subscribe_at(node, world, "local", "plant/#"), "local")


def test_nobody_puts_an_entry_of_another_publisher_there(world: World):
    node, key = first_hop(world), forge_key(world, "site", "plant/#")
    assert counted(node.handle(Received("evil", entry(world, "site", key)), NOW), "refused") == 1
    assert not carries_key_alone("$veil/keys/x")
    assert counted(node.handle(Received("evil", replace(entry(world, "site", key), topic="$veil/keyx")), NOW),
                   "refused") == 1  # fmt: skip


def served(node: ReplicaNode, world: World, version: int, now: float) -> int:
    """Entries that a reader gets who subscribes now."""
    wire = statement(world, "local", "plant/#", version, now=now)
    return kinds(sent(node.handle(Received("local", wire), now), "local")).count("k")


def test_an_entry_ends_with_its_key(world: World):
    node = first_hop(world)
    node.handle(Received("site", entry(world, "site", forge_key(world, "site", "plant/#"))), NOW)
    last = NOW + REFRESH.age_s + KEY_LATE_S
    assert served(node, world, 1, last - 1) == 1
    assert served(node, world, 2, last) == 0
    node.handle(Tick(), last + SWEEP_S)
    assert not list(node.forwarder._keys), "and it is erased"


def test_an_entry_lives_as_long_as_something_retained_names_it(world: World):
    node, site = first_hop(world), gateway(world, "site")
    for send in sends(site, 1, retain=True):
        node.handle(Received("site", send.wire), NOW)
    for n in range(1, 100):
        node.handle(Tick(), NOW + n * SWEEP_S)
    later = NOW + 100 * SWEEP_S
    wire = statement(world, "local", "plant/#", 1, now=later)
    told = sent(node.handle(Received("local", wire), later), "local")
    assert kinds(told) == "kp", "it comes before what needs it"
    for send in sends(site, 2, later, retain=True):  # under another key by now
        node.handle(Received("site", send.wire), later)
    node.handle(Tick(), later + SWEEP_S)
    assert len(list(node.forwarder._keys)) == 1, "nothing names the first any more"


def test_a_key_that_was_used_up_is_served_for_a_moment_only():
    """With a key a message a newcomer would otherwise get all keys of two minutes."""
    scope = Scope("plant/#", keys_on_topic=True, refresh=Refresh(messages=1))
    world = make_world({1: 3}, [], {"site": 1, "local": 1}, [scope])
    node, site = replica(world, "r1a", ["site", "local"]), gateway(world, "site")
    for n in range(1, 51):
        for send in sends(site, n, NOW + n):
            node.handle(Received("site", send.wire), NOW + n)
    assert served(node, world, 1, NOW + 50) == SPENT_LATE_S


def test_a_key_that_comes_anew_after_its_end_is_passed_on_anew(world: World):
    """Its publisher was cut off meanwhile; who erased it may not take it for told."""
    node = first_hop(world)
    subscribe_at(node, world, "control", "plant/#", via="r2a")
    wire = entry(world, "site", forge_key(world, "site", "plant/#"))
    assert len(sent(node.handle(Received("site", wire), NOW))) == 3
    assert not sent(node.handle(Received("site", wire), NOW + 60))
    assert len(sent(node.handle(Received("site", wire), NOW + REFRESH.age_s + KEY_LATE_S))) == 3


@pytest.mark.invariant(29)
def test_a_flood_of_entries_evicts_only_the_flooders(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.replica.resplitting.KEYS_HELD_MAX", 8)
    node = first_hop(world)
    node.handle(Received("site", entry(world, "site", forge_key(world, "site", "plant/#"))), NOW)
    for salt in range(20):
        node.handle(Received("evil", entry(world, "evil", forge_key(world, "evil", "plant/#", salt))), NOW)
    told = sent(subscribe_at(node, world, "local", "plant/#"), "local")
    party = world.identities["site"].party_id
    assert key_topic("plant/#", party) in {s.wire.topic for s in told}
    assert len(told) == 8


# ---------------------------------------------------------------- an honest reader holds a publisher to its limit


@pytest.mark.invariant(9)
def test_more_messages_under_a_key_than_its_header_says_are_refused(world: World):
    """A publisher that seals on under one key, to have its old traffic opened with its new: for itself only."""
    near = make_world({1: 3}, [], {"site": 1, "evil": 1, "control": 1}, [Scope("plant/#", keys_on_topic=True)])
    node = gateway(near, "control")
    key = forge_key(near, "evil", "plant/#", messages=2)
    key.data_key._message_limit = 10
    for place, peer in enumerate(REPLICAS[:2]):
        wire = Wire(key_topic("plant/#", near.identities["evil"].party_id), b"", 1, True,
                    key.properties(key.shares[place : place + 1]))  # fmt: skip
        node.handle(Received(peer, wire), NOW)
    effects = [
        effect
        for n in range(1, 5)
        for effect in node.handle(Received("r1a", craft(near, "evil", "plant/t", sequence=n, key=key)), NOW)
    ]
    assert [d.sequence for d in delivered(effects)] == [1, 2]
    assert counted(effects, "unopened") == 2
    assert suspected(effects) == {"evil"}


@pytest.mark.invariant(9)
def test_a_key_for_more_messages_than_the_scope_allows_is_refused_by_everybody(world: World):
    small = make_world({1: 3}, [], {"site": 1, "control": 1}, [Scope("plant/#", refresh=Refresh(messages=10))])
    for node in (replica(small, "r1a", ["site"]), gateway(small, "control")):
        sender = "site" if isinstance(node, ReplicaNode) else "r1a"
        same_version(node, sender)
        for messages, refusals in ((10, 0), (11, 1)):
            key = forge_key(small, "site", "plant/#", messages, messages=messages)
            wire = Wire(KEYS_TOPIC, b"", properties=key.properties(key.shares[:1]))
            assert counted(node.handle(Received(sender, wire), NOW), "refused") == refusals


@pytest.mark.parametrize(("shares_only", "bump"), [(True, 0), (False, 1)])
def test_no_key_is_for_more_messages_than_any_scope_may_have(shares_only: bool, bump: int):
    """Each reader remembers the sequences that a key served."""
    small = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#", shares_only=shares_only)])
    small.learn(small.keys, [0], bump=bump)
    admission = Admission(small.overlay, replica=False)
    most = forge_key(small, "site", "plant/#", bump=bump, messages=REFRESH_MESSAGES_MAX)
    more = forge_key(small, "site", "plant/#", bump=bump, messages=REFRESH_MESSAGES_MAX + 1)
    assert admission.key_header(dict(most.properties()), NOW) is not None
    with pytest.raises(NotAuthorised):
        admission.key_header(dict(more.properties()), NOW)


def test_keys_of_before_a_change_of_that_number_go_with_their_bump(world: World):
    """The owner raises the bump with it; before and after, what is made under the other rules still passes."""
    small = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#", refresh=Refresh(messages=10))])
    newer = small.with_policy(
        scopes=tuple(replace(s, bump=1, refresh=Refresh(messages=5)) for s in small.overlay.policy.scopes)
    )
    small.learn(small.keys, [0], bump=1)
    old = dict(forge_key(small, "site", "plant/#", messages=10).properties())
    new = dict(forge_key(small, "site", "plant/#", 1, bump=1, messages=20).properties())
    admission = Admission(small.overlay, replica=True)
    assert admission.key_header(new, NOW) is not None, "we do not know the new number yet"
    admission.adopt_overlay(newer, NOW)
    assert admission.key_header(old, NOW) is not None, "within the grace of the bump"
    with pytest.raises(NotAuthorised, match="for 20 messages"):
        admission.key_header(new, NOW)


def test_a_reader_takes_entries_and_waits_for_those_that_were_overtaken():
    world = make_world({1: 3}, [], {"site": 1, "control": 1}, [Scope("plant/#", keys_on_topic=True)])
    node, site = gateway(world, "control"), gateway(world, "site")
    assert isinstance(node.collector, Collector)
    effects = publish_effects(site, 1, NOW, "plant/t")
    keys = {s.peer: s.wire for s in sent(effects) if carries_key_alone(s.wire.topic)}
    (publication,) = {s.wire for s in sent(effects) if not carries_key_alone(s.wire.topic)}
    assert not delivered(node.handle(Received("r1a", publication), NOW))
    assert not delivered(node.handle(Received("r1c", keys["r1c"]), NOW + 1))
    assert [d.sequence for d in delivered(node.handle(Received("r1b", keys["r1b"]), NOW + 2))] == [1]


# ------------------------------------------------------------------------------------------------ bytes and wires


def far_hop(silent: int) -> tuple[ReplicaNode, list[int], list[Effect]]:
    """A replica behind a region of five, of whom some are silent: how many shares a wire to its reader had, each time
    that one of the others told it a key; and what it says when it has waited."""
    scope = Scope("plant/#", keys_on_topic=True)
    world = make_world({1: 5, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, [scope])
    names = world.overlay.views[1].members
    node = replica(world, "r2a", [*names, "control"])
    subscribe_at(node, world, "control", "plant/#")
    key = forge_key(world, "site", "plant/#")
    told = []
    for place, name in enumerate(names[silent:], silent):
        near = replica(world, name, [*REGION_2, "site"])
        subscribe_at(near, world, "control", "plant/#", via="r2a")
        wire = Wire(key_topic("plant/#", world.identities["site"].party_id), b"", 1, True,
                    key.properties(key.shares[place : place + 1]))  # fmt: skip
        (told_r2a,) = sent(near.handle(Received("site", wire), NOW), "r2a")
        got = sent(node.handle(Received(name, told_r2a.wire), NOW), "control")
        told.append(sum(len(shares_in(send.wire)) for send in got))
    at = node.next_deadline
    return node, told, list(node.handle(Tick(), at)) if at is not None and at < NOW + 1 else []


def test_behind_the_first_region_an_entry_gathers_its_shares_and_loses_none():
    _, told, late = far_hop(silent=0)
    assert told == [0, 0, 3, 0, 2], "k of five, then the rest"
    assert not sent(late)
    _, told, late = far_hop(silent=1)
    assert told == [0, 0, 3, 0]
    assert [len(shares_in(send.wire)) for send in sent(late, "control")] == [1], "the fourth waited for a fifth in vain"


@pytest.mark.long
@pytest.mark.parametrize(("hops", "messages"), [(2, 1), (3, 1), (3, 10)])
def test_on_longer_ways_keys_on_a_topic_of_their_own_need_fewer_bytes(hops: int, messages: int):
    topic, riding = (growth.cost(3, hops, messages, way, 20) for way in (True, False))
    assert topic.wire_bytes < riding.wire_bytes
    assert topic.shares == riding.shares == 3**hops / messages


def test_a_key_is_spent_with_its_last_message_and_not_before():
    use = Use(NOW)
    for number in (1, 2):
        use.count_use(3, NOW + number)
    assert use.live(Refresh(age_s=3600), NOW + 2 + SPENT_LATE_S)
    use.count_use(3, NOW + 3)
    assert use.live(Refresh(age_s=3600), NOW + 2.9 + SPENT_LATE_S)
    assert not use.live(Refresh(age_s=3600), NOW + 3 + SPENT_LATE_S)
