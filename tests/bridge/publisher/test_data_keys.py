"""Data keys of a publisher: when one ends and the next begins, and who is told of it when."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bridge.contract.machine import Wire
from bridge.document import Refresh, Scope
from bridge.document.policy import REFRESH
from bridge.publisher.data_keys import ANNOUNCE_AFTER_S, ANNOUNCE_EVERY, DataKeys, LiveKey
from bridge.wire import OwnLife, key_topic
from keys.envelope import PROPERTY_KEY, KeyHeader, KeyName, MessageHeader, Mode, from_property
from keys.epochs import Calendar, ScopeKeys
from keys.identity import Identity
from keys.sharetree import Place
from tests.bridge.helpers import NOW, gateway, publish, shares_in
from tests.bridge.publisher.test_sealing import carries_key, key_of, one
from tests.sim.world import World, make_world
from tests.support.regions import fresh, one_region

PLANT = Scope("plant/#", refresh=Refresh(messages=3, sealed_bytes=100, age_s=60))
SCOPES = [PLANT, Scope("bare/#", shares_only=True), Scope("clear/#", Mode.PLAIN), Scope("apart/#", keys_on_topic=True)]


world = fresh(one_region, "site", scopes=[Scope("plant/#"), Scope("open/#"), Scope("clear/#", Mode.PLAIN)])


@pytest.fixture
def keys() -> DataKeys:
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1}, SCOPES)
    return DataKeys(world.overlay, world.identities["site"], 1, world.keys, random.Random(1).randbytes, OwnLife(1))


def used(keys: DataKeys, scope: Scope = PLANT, sequence: int = 1, now: float = NOW) -> LiveKey:
    name = keys.epoch_key_name(scope, now)
    assert name is not None
    return keys.live_key(scope, name, sequence, now)


def seal(key: LiveKey, size: int = 1) -> bytes:
    sequence = key.sealed_messages + 1
    header = MessageHeader(
        publisher=key.header.publisher, key_id=key.header.key_id, sequence=sequence, previous=0, time_ms=0,
        deadline_ms=0, qos=1, retain=False, tombstone=False, mode=Mode.COPIES, digests=(),
    )  # fmt: skip
    return key.seal(header.prefix(), sequence, "plant/t", bytes(size))


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


def test_each_replica_gets_its_own_share(world: World):
    wires = publish(gateway(world, "site"), "plant/t", sequence=1)
    places = {peer: [share.label[0].place for share in shares_in(wire)] for peer, wire in wires.items()}
    assert places == {"r1a": [1], "r1b": [2], "r1c": [3]}


def test_the_key_rides_on_the_first_message_and_then_on_every_16th_whatever_the_topic(world: World):
    node = gateway(world, "site")
    with_key = [n for n in range(1, 40) if carries_key(one(node, n, NOW, f"plant/{n}"))]
    assert with_key == [1, 1 + ANNOUNCE_EVERY, 1 + 2 * ANNOUNCE_EVERY]


def test_the_key_rides_again_after_five_seconds_on_a_topic(world: World):
    node = gateway(world, "site")
    assert carries_key(one(node, 1, NOW))
    assert not carries_key(one(node, 2, NOW + ANNOUNCE_AFTER_S - 0.1))
    assert carries_key(one(node, 3, NOW + ANNOUNCE_AFTER_S))


# -------------------------------------------------------------------------------------------- one by one


def test_a_key_ends_with_its_last_message_byte_or_second(keys: DataKeys):
    key = used(keys)
    assert used(keys) is key
    for _ in range(3):
        assert not key.spent(NOW + 59.9)
        seal(key)
    assert key.spent(NOW)
    second = used(keys, sequence=4)
    assert second is not key
    assert second.header.first_sequence == 4
    seal(second, 70)
    assert not second.spent(NOW)
    seal(second, 1)
    assert second.sealed_bytes > 100, "content counts as it is sealed, with its tags"
    assert second.spent(NOW)
    third = used(keys, sequence=6)
    assert (third.spent(NOW + 59.9), third.spent(NOW + 60)) == (False, True)


def test_another_epoch_key_ends_a_data_key(keys: DataKeys):
    key = used(keys)
    assert keys.live_key(PLANT, KeyName("plant/#", 0, 0), 2, NOW) is key
    keys._scope_keys.put_key(KeyName("plant/#", 1, 0), b"k" * 32)
    assert keys.live_key(PLANT, KeyName("plant/#", 1, 0), 2, NOW).header.epoch == 1


def test_the_header_says_for_how_many_messages_and_regions_the_key_is(keys: DataKeys):
    header = used(keys, sequence=7).header
    assert (header.first_sequence, header.message_limit, header.scope) == (7, 3, "plant/#")
    assert [hop.region for hop in header.hops] == [1, 2]


def test_a_plain_scope_is_split_for_nobody_and_without_an_epoch_key_none_is_asked_for(keys: DataKeys):
    assert keys.hops(SCOPES[2]) == ()
    assert keys.epoch_key_name(SCOPES[2], NOW) == KeyName("clear/#", 0, 0)
    assert keys.epoch_key_name(replace(SCOPES[1], bump=3), NOW) == KeyName("bare/#", 0, 3)
    assert used(keys, SCOPES[1]).header.kcv == bytes(16)


def test_without_an_epoch_key_that_may_seal_there_is_no_name():
    world = make_world({1: 3}, [], {"site": 1}, [PLANT], calendar=Calendar(length_s=3600))
    keys = DataKeys(world.overlay, world.identities["site"], 1, ScopeKeys(), random.Random(1).randbytes, OwnLife(1))
    assert keys.epoch_key_name(PLANT, NOW) is None
    world.learn(keys._scope_keys, [world.overlay.policy.calendar.epoch_at(NOW)])
    assert keys.epoch_key_name(PLANT, NOW) == KeyName("plant/#", world.overlay.policy.calendar.epoch_at(NOW), 0)
    assert keys.epoch_key_name(replace(PLANT, bump=1), NOW) is None


def test_a_key_is_announced_to_each_peer_by_itself(keys: DataKeys):
    key = used(keys)
    assert [key.announcement_due("r1a", NOW) for _ in range(ANNOUNCE_EVERY + 1)] == (
        [True] + [False] * (ANNOUNCE_EVERY - 1) + [True]
    )
    assert key.announcement_due("r1b", NOW)
    key.forget_peer("r1a")
    assert key.announcement_due("r1a", NOW)
    assert not key.announcement_due("r1b", NOW)


def test_a_key_that_stands_alone_is_told_once_until_the_peer_forgot(keys: DataKeys):
    key = used(keys, SCOPES[3])
    assert key.alone
    assert [each.alone for each in keys.alone(NOW)] == [True]
    used(keys)
    assert [*keys.alone(NOW)] == [key], "the other one rides along"
    assert [*keys.alone(NOW + REFRESH.age_s)] == []
    key.note_told("r1a")
    assert (key.was_told_to("r1a"), key.was_told_to("r1b")) == (True, False)
    keys.forget_peer("r1a")
    assert not key.was_told_to("r1a")


def test_on_its_own_topic_a_key_carries_the_share_of_that_replica_alone(keys: DataKeys):
    key = used(keys, SCOPES[3])
    wire = key.wire(Place(1, 1, 2))
    assert (wire.topic, wire.payload, wire.retain) == (key_topic("apart/#", key.header.publisher), b"", True)
    assert KeyHeader.decode(from_property(dict(wire.properties)[PROPERTY_KEY])) == key.header
    carried = key.carried(Place(1, 1, 3))
    assert [share.label[0].place for share in shares_in(Wire("", b"", properties=carried))] == [3]


@pytest.mark.attack(133)
def test_a_key_of_another_view_has_no_share_for_anybody(keys: DataKeys):
    """Attack: who holds another place there would get the share of its neighbour, and two are enough."""
    assert used(keys).carried(Place(1, 2, 3)) == ()


def test_after_a_rotation_or_another_overlay_nothing_is_sealed_under_the_former_keys(keys: DataKeys):
    key = used(keys)
    keys.end_all_keys()
    second = used(keys)
    assert second is not key
    other = Identity.generate(bytes(range(3, 35)))
    keys.rotate_identity(other)
    third = used(keys)
    assert (second.header.publisher, third.header.publisher) != (third.header.publisher, second.header.publisher)
    assert third.header.publisher == other.party_id
    world = make_world({1: 3, 3: 3}, [(1, 3)], {"site": 1}, SCOPES)
    keys.adopt_overlay(world.overlay)
    assert [hop.region for hop in used(keys).header.hops] == [1, 3]
