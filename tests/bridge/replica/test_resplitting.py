"""Shares at one replica: whose they are, split anew for whom, and what a liar or a flooder of keys gets."""

from __future__ import annotations

import pytest

from bridge.contract.machine import Committed, Effect, LinkDown, LinkUp, Lost, Publication, Received, Tick, Wire
from bridge.document.policy import Scope
from bridge.node import ReplicaNode
from bridge.replica.untold_keys import RETELL_S
from bridge.wire.statements import KEYS_TOPIC
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, Mode, to_property
from keys.sharetree import Share, encode_shares
from tests.bridge.helpers import (
    NOW,
    counted,
    forge_key,
    gateway,
    publish,
    replica,
    sent,
    shares_in,
    subscribe_at,
    suspected,
    with_properties,
)
from tests.bridge.replica.test_forwarder import first_hop, key_id_of, replay, second_hop, through
from tests.sim.world import World, make_world
from tests.support.regions import fresh, row_of_regions

REGION_1 = ("r1a", "r1b", "r1c")
REGION_2 = ("r2a", "r2b", "r2c")


# `site` publishes everything in region 1; in region 2 `control` reads all, `nosy` only open/#.
world = fresh(
    row_of_regions,
    2,
    {"site": 1, "evil": 1, "control": 2, "nosy": 2, "local": 1},
    [Scope("plant/#"), Scope("open/#"), Scope("clear/#", Mode.PLAIN)],
    rights={"evil": (["open/#", "clear/#"], ["open/#"]), "nosy": ([], ["open/#"])},
)


@pytest.mark.invariant(7)
def test_each_replica_of_the_next_region_gets_its_own_sub_share_only(world: World):
    site = gateway(world, "site")
    wires = through(world, publish(site, "plant/t", sequence=1)["r1a"])
    assert set(wires) == set(REGION_2)
    for place, member in enumerate(REGION_2, 1):
        (share,) = shares_in(wires[member])
        assert [c.place for c in share.label] == [1, place]
    assert len({shares_in(w)[0].value for w in wires.values()}) == 3


@pytest.mark.invariant(25)
def test_a_retransmission_repeats_the_same_sub_shares(world: World):
    wire = publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]
    assert through(world, wire) == through(world, wire)


@pytest.mark.attack(8)
@pytest.mark.parametrize("scope", ["plant/#", "alone/#"])
def test_a_replica_whose_seed_is_not_durable_splits_nothing_rather_than_twice(scope: str):
    """Attack on itself: two starts with seeds that no disk keeps split one share in two ways. Together they speak
    against nobody but this replica, which would be named. It withholds, passes content on, and begins when it may."""
    world = make_world(
        {1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2, "local": 1},
        [Scope("plant/#"), Scope("alone/#", keys_on_topic=True)],
    )  # fmt: skip
    disk: list[bytes] = []
    node = ReplicaNode(world.overlay, world.identities["r1a"], "r1a", lambda epoch: disk[0] if disk else None)
    for peer in ("site", "local", *REGION_2):
        node.handle(LinkUp(peer), NOW)
    subscribe_at(node, world, "control", scope, via="r2a")
    subscribe_at(node, world, "local", scope)
    site, topic = gateway(world, "site"), scope[:-1] + "t"

    def forwarded(sequence: int) -> tuple[list[Effect], dict[str, list[Share]]]:
        effects = site.handle(Committed(((sequence, 0, Publication(topic, b"x", 1, time_ms=1)),)), NOW)
        passed = [e for s in sent(effects, "r1a") for e in node.handle(Received("site", s.wire), NOW)]
        return passed, {
            peer: [x for s in sent(passed, peer) for x in shares_in(s.wire)] for peer in (*REGION_2, "local")
        }

    effects, shares = forwarded(1)
    assert counted(effects, "forwarded") == 1
    assert all(any(s.wire.topic.startswith("veilmq/batch/") for s in sent(effects, peer)) for peer in REGION_2)
    assert not any(shares[peer] for peer in REGION_2)
    assert len(shares["local"]) == 1, "as it is, to a reader of its own region"
    disk.append(bytes(32))
    effects, shares = forwarded(2)
    assert [len(shares[peer]) for peer in REGION_2] == [1, 1, 1]


@pytest.mark.attack(18)
def test_news_of_a_key_reach_those_who_had_the_publication_first(world: World):
    node = second_hop(world)
    subscribe_at(node, world, "control", "plant/#")
    site = gateway(world, "site")
    wires = {r: through(world, w, name=r)["r2a"] for r, w in publish(site, "plant/t", sequence=1).items()}
    bare = with_properties(wires["r1a"], without=(PROPERTY_KEY, PROPERTY_SHARES))
    assert not shares_in(sent(node.handle(Received("r1a", bare), NOW), "control")[0].wire)
    for sender in ("r1b", "r1c"):
        (news,) = sent(node.handle(Received(sender, wires[sender]), NOW), "control")
        assert news.wire.topic == KEYS_TOPIC
        assert shares_in(news.wire) == shares_in(wires[sender])


@pytest.mark.attack(18)
def test_a_foreign_key_does_not_displace_the_publications_own(world: World):
    """Else a retained publication would be kept with a key that cannot open it."""
    node = second_hop(world)
    site = gateway(world, "site")
    first = publish(site, "open/t", sequence=1)["r1a"]
    subscribe_at(node, world, "nosy", "open/#")
    wire = publish(site, "plant/t", sequence=2, retain=True)["r1a"]
    foreign = next(p for p in first.properties if p[0] == PROPERTY_KEY)
    node.handle(Received("r1b", with_properties(wire, foreign, without=(PROPERTY_KEY, PROPERTY_SHARES))), NOW)
    node.handle(Received("r1a", through(world, wire)["r2a"]), NOW)
    served = sent(subscribe_at(node, world, "control", "plant/#"), "control")
    retained = [s.wire for s in served if s.wire.retain]
    assert len(retained) == 1
    assert key_id_of(retained[0]) == key_id_of(wire)
    assert shares_in(retained[0])


def test_shares_that_come_after_a_peer_reconnected_reach_it_with_those_that_it_may_have_forgotten(world: World):
    """The last publication under a key may be long past by then."""
    node = second_hop(world)
    subscribe_at(node, world, "control", "plant/#")
    site = gateway(world, "site")
    wires = {r: through(world, w, name=r)["r2a"] for r, w in publish(site, "plant/t", sequence=1).items()}
    node.handle(Received("r1a", wires["r1a"]), NOW)
    node.handle(LinkUp("control"), NOW)
    (news,) = sent(node.handle(Received("r1b", wires["r1b"]), NOW), "control")
    assert news.wire.topic == KEYS_TOPIC
    assert len(shares_in(news.wire)) == 2
    (news,) = sent(node.handle(Received("r1c", wires["r1c"]), NOW), "control")
    assert len(shares_in(news.wire)) == 1
    node.handle(LinkUp("control"), NOW)
    following = publish(site, "plant/t", sequence=2, previous=1)["r1a"]
    (forwarded,) = sent(node.handle(Received("r1a", through(world, following)["r2a"]), NOW), "control")
    assert len(shares_in(forwarded.wire)) == 3


@pytest.mark.attack(137)
def test_a_key_that_found_no_room_at_a_reader_goes_with_the_next_publication(world: World):
    """Else what the reader has room for again stays closed to it until the publisher's next key."""
    node = second_hop(world)
    subscribe_at(node, world, "control", "plant/#")
    site = gateway(world, "site")
    (first,) = sent(_passed(world, node, publish(site, "plant/t", sequence=1)["r1a"]), "control")
    assert len(shares_in(first.wire)) == 1
    (second,) = sent(_passed(world, node, publish(site, "plant/t", sequence=2, previous=1)["r1a"]), "control")
    assert not shares_in(second.wire)
    node.handle(Lost("control", key_text(first.wire)), NOW)
    (third,) = sent(_passed(world, node, publish(site, "plant/t", sequence=3, previous=2)["r1a"]), "control")
    assert shares_in(third.wire) == shares_in(first.wire)


@pytest.mark.attack(137)
@pytest.mark.parametrize("times", [1, 3])
def test_a_key_that_found_no_room_goes_by_itself_if_nothing_follows(world: World, times: int):
    """The batches that went before it, or on another replica's word, can be opened then."""
    node = second_hop(world)
    subscribe_at(node, world, "control", "plant/#")
    (lost,) = sent(_passed(world, node, publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]), "control")
    now = NOW
    for _ in range(times):
        node.handle(Lost("control", key_text(lost.wire)), now)
        at = node.next_deadline
        assert at is not None
        assert now < at <= now + RETELL_S
        assert not sent(node.handle(Tick(), now + RETELL_S - 0.1), "control")
        now += RETELL_S
        (lost,) = sent(node.handle(Tick(), now), "control")
        assert lost.wire.topic == KEYS_TOPIC
        assert len(shares_in(lost.wire)) == 1
    assert not sent(node.handle(Tick(), now + RETELL_S), "control"), "told once"


@pytest.mark.attack(137)
def test_a_key_that_stands_alone_and_found_no_room_goes_again():
    world = make_world({1: 3}, [], {"site": 1, "local": 1}, [Scope("alone/#", keys_on_topic=True)])
    node = replica(world, "r1a", ("site", "local"))
    subscribe_at(node, world, "local", "alone/#")
    effects = gateway(world, "site").handle(Committed(((1, 0, Publication("alone/t", b"x", 1, time_ms=1)),)), NOW)
    passed = [e for s in sent(effects, "r1a") for e in node.handle(Received("site", s.wire), NOW)]
    (key,) = [s for s in sent(passed, "local") if shares_in(s.wire)]
    node.handle(Lost("local", key_text(key.wire)), NOW)
    (again,) = sent(node.handle(Tick(), NOW + RETELL_S), "local")
    assert again.wire == key.wire


@pytest.mark.attack(137)
def test_a_key_that_found_no_room_goes_by_itself_once_a_link_that_broke_meanwhile_is_up(world: World):
    node = second_hop(world)
    subscribe_at(node, world, "control", "plant/#")
    (lost,) = sent(_passed(world, node, publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]), "control")
    node.handle(Lost("control", key_text(lost.wire)), NOW)
    node.handle(LinkDown("control"), NOW + 1)
    assert not sent(node.handle(Tick(), NOW + 2 * RETELL_S), "control")
    node.handle(LinkUp("control"), NOW + 20)
    (again,) = sent(node.handle(Tick(), NOW + 20 + RETELL_S), "control")
    assert key_text(again.wire) == key_text(lost.wire)


@pytest.mark.attack(137)
def test_a_reader_that_stays_stuck_is_tried_with_one_key_at_a_time_and_gets_all_once_it_reads():
    """Its replicas would try in vain what they hold otherwise, thousands of keys every few seconds."""
    world = make_world({1: 3}, [], {"site": 1, "local": 1}, [Scope("plant/#")])
    node = replica(world, "r1a", ("site", "local"))
    subscribe_at(node, world, "local", "plant/#")
    site, previous, lost = gateway(world, "site"), 0, list[Wire]()
    for number in range(1, 25):
        now = NOW + 40 * number  # each batch has a key of its own
        publication = Publication("plant/t", b"x", 1, time_ms=round(now * 1000))
        effects = site.handle(Committed(((number, previous, publication),)), now)
        previous = number
        passed = [e for s in sent(effects, "r1a") for e in node.handle(Received("site", s.wire), now)]
        lost += [s.wire for s in sent(passed, "local") if shares_in(s.wire)]
    assert len(lost) >= 10
    began = now
    for wire in lost:
        node.handle(Lost("local", key_text(wire)), now)
    tried = 0
    while now < began + 60:
        at = node.next_deadline
        assert at is not None
        now = at
        for each in sent(node.handle(Tick(), now), "local"):
            tried += 1
            node.handle(Lost("local", key_text(each.wire)), now)
    assert 10 <= tried <= 13
    told: list[Wire] = []
    while now < began + 75:
        told += [each.wire for each in sent(node.handle(Tick(), now), "local")]
        now += 0.05
    assert sorted(map(key_text, told)) == sorted(map(key_text, lost))


def key_text(wire: Wire) -> str:
    return dict(wire.properties)[PROPERTY_KEY]


def _passed(world: World, node: ReplicaNode, wire: Wire) -> list[Effect]:
    return node.handle(Received("r1a", through(world, wire)["r2a"]), NOW)


def test_the_second_value_for_a_label_is_suspicious_and_ignored(world: World):
    node = second_hop(world)
    wire = through(world, publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"])["r2a"]
    (share,) = shares_in(wire)
    forged = Share(share.label, share.tags, bytes(32))
    node.handle(Received("r1a", wire), NOW)
    lie = with_properties(wire, (PROPERTY_SHARES, to_property(encode_shares([forged]))), without=(PROPERTY_SHARES,))
    assert suspected(node.handle(Received("r1a", lie), NOW)) == {"r1a"}
    subscribe = sent(subscribe_at(node, world, "control", "plant/#"), "control")
    assert [shares_in(s.wire) for s in subscribe if s.wire.topic == KEYS_TOPIC] == [[share]]


@pytest.mark.parametrize("place", [0, 1])
def test_a_share_with_a_false_stamp_is_refused(world: World, place: int):
    """Last coordinate: ours. Last but one: the sender's place, whatever it claims."""
    node = second_hop(world)
    wire = through(world, publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"])["r2a"]
    (share,) = shares_in(wire)
    label = list(share.label)
    label[place] = label[place]._replace(place=3)
    forged = encode_shares([Share(tuple(label), share.tags, share.value)])
    lie = with_properties(wire, (PROPERTY_SHARES, to_property(forged)), without=(PROPERTY_SHARES,))
    assert suspected(node.handle(Received("r1a", lie), NOW)) == {"r1a"}


@pytest.mark.invariant(27)
def test_a_level_1_share_that_misfits_is_withheld(world: World):
    """Passing it on would make the honest replica the liar."""
    node = first_hop(world)
    wire = publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]
    (share,) = shares_in(wire)
    forged = encode_shares([Share(share.label, (), bytes(32))])
    lie = with_properties(wire, (PROPERTY_SHARES, to_property(forged)), without=(PROPERTY_SHARES,))
    effects = node.handle(Received("site", lie), NOW)
    assert counted(effects, "complaints") == 1
    assert sent(effects)
    assert not any(shares_in(s.wire) for s in sent(effects))


def test_a_publisher_without_the_right_cannot_make_keys_in_a_scope(world: World):
    key = forge_key(world, "evil", "plant/#")
    effects = first_hop(world).handle(Received("evil", Wire(KEYS_TOPIC, b"", properties=key.properties())), NOW)
    assert counted(effects, "refused") == 1


def test_a_flood_of_keys_evicts_only_the_flooders(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.replica.resplitting.KEYS_HELD_MAX", 8)
    node = first_hop(world)
    site = gateway(world, "site")
    node.handle(Received("site", publish(site, "plant/t", sequence=1)["r1a"]), NOW)
    for salt in range(20):
        key = forge_key(world, "evil", "open/#", salt)
        wire = Wire(KEYS_TOPIC, b"", properties=key.properties(key.shares[:1]))
        node.handle(Received("evil", wire), NOW)
    served = sent(subscribe_at(node, world, "local", "plant/#"), "local")
    assert [s for s in served if shares_in(s.wire)], "the honest publisher's key was evicted"


def test_a_publisher_of_keys_without_end_is_refused_and_nobody_else(monkeypatch: pytest.MonkeyPatch):
    """Behind its own region; there it only waits longer for each acknowledgement."""
    monkeypatch.setattr("bridge.replica.resplitting.BURST_S", 5 / 4 / 1000)
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "evil": 1, "control": 2})
    node = replica(world, "r2a")

    def announce(publisher: str, salt: int, now: float) -> list[Effect]:
        wire = Wire(KEYS_TOPIC, b"", properties=forge_key(world, publisher, "plant/#", salt).properties())
        return node.handle(Received("r1b", wire), now)

    refusals = [counted(announce("evil", salt, NOW), "refused") for salt in range(8)]
    assert refusals == [0] * 5 + [1] * 3
    assert counted(announce("evil", 0, NOW), "refused") == 0, "a key that is known costs nothing"
    assert counted(announce("site", 0, NOW), "refused") == 0
    assert counted(announce("evil", 9, NOW + 2 / 4000), "refused") == 0


@pytest.mark.invariant(4)
@pytest.mark.attack(10)
def test_a_liar_that_replays_old_keys_spends_nothing_of_their_publisher(world: World, monkeypatch: pytest.MonkeyPatch):
    """Else a new key that an honest replica brings is refused, with what it rides on, and does not come again."""
    monkeypatch.setattr("bridge.replica.resplitting.BURST_S", 5 / 4 / 1000)
    node = second_hop(world)
    replay(world, node, "r1c", 20)
    wire = through(world, publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"])["r2a"]
    effects = node.handle(Received("r1a", wire), NOW)
    assert counted(effects, "refused") == 0
    assert counted(effects, "forwarded") == 1


@pytest.mark.attack(17)
@pytest.mark.parametrize("first", ["r1a", "r1c"])
def test_a_liar_that_replays_old_keys_evicts_none_that_others_brought(
    world: World, first: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("bridge.replica.resplitting.KEYS_HELD_MAX", 8)
    node = second_hop(world)
    wires = publish(gateway(world, "site"), "plant/t", sequence=1)
    for sender in (first, *(peer for peer in REGION_1 if peer != first)):
        node.handle(Received(sender, through(world, wires[sender], name=sender)["r2a"]), NOW)
    replay(world, node, "r1c", 20)
    served = sent(subscribe_at(node, world, "control", "plant/#"), "control")
    assert any(len(shares_in(send.wire)) == 3 for send in served)
