"""One replica: what it passes on and to whom, and that nothing a neighbour sends makes it leak, stall or forget."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bridge.contract.machine import (
    Committed,
    Effect,
    LinkDown,
    LinkUp,
    Publication,
    Received,
    Refuse,
    Subscribed,
    Tick,
    Wire,
)
from bridge.contract.refusing import Reason
from bridge.document.overlay import Overlay
from bridge.document.policy import Scope
from bridge.membership.adopting import canonical
from bridge.node import ReplicaNode
from bridge.replica.forwarder import NEWCOMER_BURST, NEWCOMER_EVERY_S, RETELLS_BURST, RETELLS_EVERY_S
from bridge.replica.retained import RETAINED_OVERHEAD_BYTES
from bridge.wire.admission import SEQUENCE_MAX
from bridge.wire.statements import KEYS_TOPIC, RENEW_AFTER_S, SUBSCRIBE_TOPIC
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, KeyHeader, Mode, from_property
from tests.bridge.helpers import (
    NOW,
    counted,
    craft,
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
    wire_topic,
    with_properties,
)
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


def key_id_of(wire: Wire) -> bytes:
    return KeyHeader.decode(from_property(dict(wire.properties)[PROPERTY_KEY])).key_id


def first_hop(world: World, name: str = "r1a") -> ReplicaNode:
    node = replica(world, name, [*REGION_2, "site", "evil", "local"])
    subscribe_at(node, world, "control", "plant/#", via="r2a")
    return node


def second_hop(world: World, name: str = "r2a") -> ReplicaNode:
    return replica(world, name, [*REGION_1, "control", "nosy"])


def through(world: World, wire: Wire, sender: str = "site", name: str = "r1a") -> dict[str, Wire]:
    """A publication's wires from a fresh honest replica of region 1 to the replicas of region 2."""
    effects = first_hop(world, name).handle(Received(sender, wire), NOW)
    return {send.peer: send.wire for send in sent(effects)}


# ------------------------------------------------------------------------------------------- honest ways


def test_only_the_first_copy_goes_on(world: World):
    wire = publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]
    node = first_hop(world)
    assert sent(node.handle(Received("site", wire), NOW))
    again = node.handle(Received("site", wire), NOW)
    assert not sent(again)
    assert counted(again, "duplicates_dropped") == 1


def test_nothing_goes_where_nobody_asked(world: World):
    wire = publish(gateway(world, "site"), "open/t", sequence=1)["r1a"]
    assert not sent(first_hop(world).handle(Received("site", wire), NOW))


def test_a_gateway_of_the_region_gets_the_shares_as_they_are_but_never_its_own_publication(world: World):
    node = first_hop(world)
    subscribe_at(node, world, "local", "plant/#")
    subscribe_at(node, world, "site", "plant/#")
    wire = publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]
    effects = node.handle(Received("site", wire), NOW)
    assert {s.peer for s in sent(effects)} == {"local", *REGION_2}
    assert shares_in(sent(effects, "local")[0].wire) == shares_in(wire)


def test_a_peer_that_comes_back_gets_key_and_statements_again(world: World):
    node, site = first_hop(world), gateway(world, "site")
    node.handle(Received("site", publish(site, "plant/t", sequence=1)["r1a"]), NOW)
    second = node.handle(Received("site", publish(site, "plant/t", sequence=2, previous=1)["r1a"]), NOW)
    assert not shares_in(sent(second, "r2b")[0].wire)
    node.handle(LinkDown("r2b"), NOW)
    assert not sent(node.handle(Received("site", publish(site, "plant/t", sequence=3, previous=2)["r1a"]), NOW), "r2b")
    missed = [send.wire for send in sent(node.handle(LinkUp("r2b"), NOW), "r2b") if send.wire.topic == "veilmq/batch/1"]
    assert len(missed) == 3, "what passed while it was away, and what may have been on its way before"
    assert [bool(shares_in(wire)) for wire in missed] == [True, False, False]
    after = node.handle(Received("site", publish(site, "plant/t", sequence=4, previous=3)["r1a"]), NOW)
    assert not shares_in(sent(after, "r2b")[0].wire)


@pytest.mark.attack(115)
@pytest.mark.parametrize(("reader", "away_s"), [("local", 59 * 60), ("job", 3 * 3600), ("job", 7 * 86_400 - 60)])
def test_a_reader_that_is_back_while_its_session_lives_finds_all_of_it_there(reader: str, away_s: float):
    """It was killed just before it renewed; its session goes on here, so nobody tells us that it is away."""
    scopes = [Scope("plant/#")]
    world = make_world({1: 3}, [], {"site": 1, "local": 1, "job": 1}, scopes, jobs={"job"})
    site, wants, node = gateway(world, "site"), gateway(world, reader), replica(world, "r1a", ("site", reader))
    said = sent(wants.handle(Subscribed("plant/#"), NOW), "r1a")
    node.handle(Received(reader, next(each.wire for each in said if each.wire.topic == SUBSCRIBE_TOPIC)), NOW)
    at = NOW + RENEW_AFTER_S - 1
    assert not sent(wants.handle(Tick(), at))
    at += away_s
    wire = publish(site, "plant/t", sequence=1, now=at, qos=2)["r1a"]
    assert reader in {each.peer for each in sent(node.handle(Received("site", wire), at))}


@pytest.mark.attack(116)
@pytest.mark.parametrize("slow_s", [3000, 3700, 7200])
def test_a_reader_whose_clock_is_slow_does_not_believe_that_it_is_subscribed(slow_s: float):
    """Only what it says itself is refused: a neighbour may pass an old statement on, or replay it."""
    world = make_world({1: 3}, [], {"local": 1}, [Scope("plant/#")])
    local, node = gateway(world, "local"), replica(world, "r1a", ("local", "r1b"))
    said = sent(local.handle(Subscribed("plant/#"), NOW - slow_s), "r1a")
    wire = next(each.wire for each in said if each.wire.topic == SUBSCRIBE_TOPIC)
    effects = node.handle(Received("local", wire), NOW)
    assert (Refuse(Reason.TIME) in effects) == (slow_s > 3600)
    assert bool(counted(effects, "statements")) == (slow_s <= 3600)
    assert Refuse(Reason.TIME) not in node.handle(Received("r1b", wire), NOW)


# ---------------------------------------------------------------------------------------- a lying neighbour


@pytest.mark.invariant(6)
def test_a_key_of_another_scope_that_rides_along_leaks_no_shares_to_that_topics_readers(world: World):
    """`nosy` may not read plant/#. A bad replica puts the key of a plant publication on an open/# one."""
    node = second_hop(world)
    subscribe_at(node, world, "control", "plant/#")
    subscribe_at(node, world, "nosy", "open/#")
    site = gateway(world, "site")
    secret = through(world, publish(site, "plant/t", sequence=1)["r1a"])["r2a"]
    assert shares_in(sent(node.handle(Received("r1a", secret), NOW), "control")[0].wire)
    key = next(p for p in secret.properties if p[0] == PROPERTY_KEY)
    bait = with_properties(publish(site, "open/t", sequence=2)["r1a"], key, without=(PROPERTY_KEY, PROPERTY_SHARES))
    effects = node.handle(Received("r1b", bait), NOW)
    assert not [s for s in sent(effects, "nosy") if shares_in(s.wire)]


@pytest.mark.invariant(6)
def test_a_publication_that_names_anothers_key_leaks_no_shares_of_it(world: World):
    """The same by a publisher: `evil` may publish on open/# and names the key id of a plant/# key."""
    node = second_hop(world)
    subscribe_at(node, world, "control", "plant/#")
    subscribe_at(node, world, "nosy", "open/#")
    secret = through(world, publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"])["r2a"]
    key_id = key_id_of(secret)
    node.handle(Received("r1a", secret), NOW)
    bait = craft(world, "evil", "open/t", sequence=1, key_id=key_id, content=b"garbage")
    effects = node.handle(Received("r1a", bait), NOW)
    assert not [s for s in sent(effects, "nosy") if shares_in(s.wire)]


@pytest.mark.invariant(6)
def test_a_key_that_is_named_before_it_comes_leaks_no_shares_either(world: World):
    node = second_hop(world)
    subscribe_at(node, world, "nosy", "open/#")
    secret = through(world, publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"])["r2a"]
    bait = craft(world, "evil", "open/t", sequence=1, key_id=key_id_of(secret), content=b"garbage")
    assert sent(node.handle(Received("r1a", bait), NOW), "nosy")
    effects = node.handle(Received("r1a", secret), NOW)
    assert not [s for s in sent(effects, "nosy") if shares_in(s.wire)]


def test_a_retained_publication_that_came_before_its_key_is_served_with_it(world: World):
    node = second_hop(world)
    wire = through(world, publish(gateway(world, "site"), "plant/t", sequence=1, retain=True)["r1a"])["r2a"]
    node.handle(Received("r1a", with_properties(wire, without=(PROPERTY_KEY, PROPERTY_SHARES))), NOW)
    node.handle(Received("r1a", wire), NOW)
    served = [s.wire for s in sent(subscribe_at(node, world, "control", "plant/#"), "control") if s.wire.retain]
    assert shares_in(served[0])


def test_a_key_header_without_shares_does_not_stop_statements(world: World):
    """Stripping `vmq-shares` once must not make a replica swallow every later subscription of the scope."""
    node = second_hop(world)
    wire = through(world, publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"])["r2a"]
    key = next(p for p in wire.properties if p[0] == PROPERTY_KEY)
    node.handle(Received("r1b", Wire(KEYS_TOPIC, b"", properties=(key,))), NOW)
    effects = subscribe_at(node, world, "control", "plant/#")
    assert {s.peer for s in sent(effects)} >= set(REGION_1)
    assert not suspected(effects)


def test_a_publication_from_off_the_way_is_refused(world: World):
    wire = publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]
    for peer in ("r2a", "evil"):
        node = first_hop(world)
        same_version(node, peer)
        assert suspected(node.handle(Received(peer, wire), NOW)) == {peer}


@pytest.mark.parametrize("topic", ["$veil/other", "$SYS/x", "elsewhere", "veilmq/batch/+", "veilmq/retained/1/#"])
def test_topics_outside_scopes_or_with_wildcards_are_refused(world: World, topic: str):
    node = first_hop(world)
    effects = node.handle(Received("site", craft(world, "site", topic, sequence=1, key_id=b"k" * 16)), NOW)
    assert counted(effects, "refused") == 1
    assert not sent(effects)


def test_previous_must_precede(world: World):
    wire = craft(world, "site", "plant/t", sequence=5, previous=9, key_id=b"k" * 16)
    assert counted(first_hop(world).handle(Received("site", wire), NOW), "refused") == 1


@pytest.mark.parametrize("how", ["spoiled", "of a time that nothing can show"])
def test_the_key_on_a_copy_whose_header_is_refused_counts(world: World, how: str):
    """Behind the first region each copy has another sub-share: lost with the header, a liar on another copy decides."""
    node = second_hop(world)
    subscribe_at(node, world, "control", "plant/#")
    wires = publish(gateway(world, "site"), "plant/t", sequence=1)
    first, second = (through(world, wires[name], name=name)["r2a"] for name in ("r1a", "r1b"))
    header = dict(first.properties)[PROPERTY_HEADER]
    bad = header[:-4] + ("AAAA" if header[-4:] != "AAAA" else "BBBB")
    if how != "spoiled":
        to_come = craft(world, "site", "plant/t", sequence=2, key_id=b"k" * 16, time_ms=1 << 61)
        bad = dict(to_come.properties)[PROPERTY_HEADER]
    told = with_properties(first, (PROPERTY_HEADER, bad), without=(PROPERTY_HEADER,))
    effects = node.handle(Received("r1a", told), NOW)
    assert counted(effects, "refused") == 1
    assert counted(effects, "shares_received") == 1
    after = node.handle(Received("r1b", second), NOW)
    assert len(shares_in(sent(after, "control")[0].wire)) == 2


def test_content_that_was_changed_does_not_block_the_true_one(world: World):
    node = first_hop(world)
    wire = publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]
    changed = Wire(wire.topic, b"other", 1, False, wire.properties)
    assert not sent(node.handle(Received("site", changed), NOW))
    assert sent(node.handle(Received("site", wire), NOW))


# -------------------------------------------------------------------------------- a publisher with a certificate


def test_a_flood_of_retained_topics_evicts_only_the_flooders(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.replica.retained.RETAINED_BYTES", 9 * RETAINED_OVERHEAD_BYTES - 1)
    node = first_hop(world)
    for n in range(1, 21):
        node.handle(Received("evil", craft(world, "evil", f"open/{n}", sequence=n, key_id=b"k" * 16, retain=True)), NOW)
    node.handle(Received("site", publish(gateway(world, "site"), "plant/t", sequence=1, retain=True)["r1a"]), NOW)
    served = sent(subscribe_at(node, world, "local", "plant/#"), "local")
    assert [s for s in served if s.wire.retain], "the honest publisher's retained publication was not kept"


def test_a_retained_publication_from_the_future_does_not_pin_the_topic(world: World):
    node = first_hop(world)
    future = craft(world, "evil", "open/t", sequence=1, key_id=b"k" * 16, retain=True, time_ms=1 << 62)
    node.handle(Received("evil", future), NOW)
    node.handle(Received("site", publish(gateway(world, "site"), "open/t", sequence=1, retain=True)["r1a"]), NOW)
    served = [s.wire for s in sent(subscribe_at(node, world, "local", "open/#"), "local") if s.wire.retain]
    assert [shares_in(w) != [] for w in served] == [True]


@pytest.mark.parametrize("sequence", [1 << 40, SEQUENCE_MAX])
def test_a_huge_sequence_harms_nobody_else(world: World, sequence: int):
    node = first_hop(world)
    subscribe_at(node, world, "local", "open/#")
    huge = craft(world, "evil", "open/t", sequence=sequence, key_id=b"k" * 16)
    assert sent(node.handle(Received("evil", huge), NOW))
    assert sent(node.handle(Received("site", publish(gateway(world, "site"), "open/t", sequence=1)["r1a"]), NOW))


def test_a_publication_sealed_anew_under_its_sequence_is_passed_on(world: World):
    """A gateway that was killed seals its outbox again: the first sealing may have reached one replica only."""
    node = second_hop(world)
    subscribe_at(node, world, "control", "plant/#")
    old = through(world, publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"])["r2a"]
    reborn = world.node("site", random.Random("another life"))
    reborn.handle(LinkUp("r1b"), NOW + 5)
    entry = (1, 0, Publication("plant/t", b"x", 1, time_ms=int(NOW * 1000)))
    anew = sent(reborn.handle(Committed((entry,)), NOW + 5), "r1b")[0].wire
    assert sent(node.handle(Received("r1a", old), NOW), "control")
    assert sent(node.handle(Received("r1b", through(world, anew, name="r1b")["r2a"]), NOW + 5), "control")
    assert not sent(node.handle(Received("r1a", old), NOW + 6), "control"), "the older sealing is a duplicate"


def test_certificates_end_while_a_replica_runs(world: World):
    node = first_hop(world)
    later = world.overlay.certificate("site").not_after_ms / 1000 + 1
    wire = publish(gateway(world, "site"), "plant/t", sequence=1, now=later)["r1a"]
    assert counted(node.handle(Received("site", wire), later), "refused") == 1


# ------------------------------------------------------------------------------------------------ newcomers


def test_a_newcomer_gets_live_keys_and_retained_publications_with_keys(world: World):
    node = first_hop(world)
    site = gateway(world, "site")
    node.handle(Received("site", publish(site, "plant/t", sequence=1, retain=True)["r1a"]), NOW)
    served = sent(subscribe_at(node, world, "local", "plant/#"), "local")
    assert [s.wire.topic for s in served] == [KEYS_TOPIC, wire_topic(world, "site", "plant/t", retain=True)]
    assert all(shares_in(s.wire) for s in served)


def test_a_newcomer_in_the_publishers_direction_is_not_served_but_its_statement_goes_on():
    """What came from its region cannot go back there; trying must not cost the regions behind us the statement."""
    world = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], {"site": 1, "local": 1, "far": 3})
    near = replica(world, "r1a", [*REGION_2, "site"])
    subscribe_at(near, world, "far", "plant/#", via="r2a")
    wire = publish(gateway(world, "site"), "plant/t", sequence=1, retain=True)["r1a"]
    node = replica(world, "r2a", [*REGION_1, "r3a", "r3b", "r3c"])
    node.handle(Received("r1a", sent(near.handle(Received("site", wire), NOW), "r2a")[0].wire), NOW)
    effects = subscribe_at(node, world, "local", "plant/#", via="r1a")
    assert {s.peer for s in sent(effects)} == {"r3a", "r3b", "r3c"}
    assert not suspected(effects)


def test_retained_publications_and_keys_do_not_enter_a_region_outside_the_scope():
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, [Scope("plant/#", regions=(1,))])
    node = replica(world, "r1a", [*REGION_2, "site"])
    node.handle(Received("site", publish(gateway(world, "site"), "plant/t", sequence=1, retain=True)["r1a"]), NOW)
    assert not sent(subscribe_at(node, world, "control", "plant/#", via="r2a"))


def test_a_subscriber_that_restates_without_end_is_not_served_without_end(world: World):
    """Else one statement a millisecond makes every replica send all that is retained, each time."""
    node = first_hop(world)
    node.handle(Received("site", publish(gateway(world, "site"), "plant/t", sequence=1, retain=True)["r1a"]), NOW)
    served = 0
    for version in range(1, 101):
        wire = statement(world, "local", "plant/#", version)
        served += len(sent(node.handle(Received("local", wire), NOW + version / 1000), "local")) > 0
    assert served <= 10
    wire = statement(world, "local", "plant/#", 1000)
    assert sent(node.handle(Received("local", wire), NOW + 600), "local"), "it recovers"


def replay(world: World, node: ReplicaNode, liar: str, count: int) -> None:
    """Old keys of an honest publisher, as it signed them."""
    for salt in range(count):
        wire = Wire(KEYS_TOPIC, b"", properties=forge_key(world, "site", "plant/#", salt).properties())
        node.handle(Received(liar, wire), NOW)


def test_newcomers_are_served_after_a_publisher_has_left():
    world = make_world({1: 3}, [], {"site": 1, "evil": 1, "control": 1})
    node = replica(world, "r1a", ["site", "evil", "control"])
    for publisher, topic in (("evil", "plant/a"), ("site", "plant/b")):
        wire = publish(gateway(world, publisher), topic, sequence=1, retain=True)["r1a"]
        node.handle(Received(publisher, wire), NOW)
    overlay = world.overlay
    members = [member for name, member in overlay.members.items() if name != "evil"]
    policy = replace(overlay.policy, version=overlay.policy.version + 1)
    node.offered(canonical(Overlay.sign(world.owner, policy, overlay.views.values(), members)), NOW)
    effects = subscribe_at(node, world, "control", "plant/#")
    assert counted(effects, "refused") == 0
    assert {send.wire.topic for send in sent(effects, "control")} == {
        KEYS_TOPIC,
        wire_topic(world, "site", "plant/b", retain=True),
    }


@pytest.mark.attack(138)
def test_a_newcomer_that_comes_too_often_is_served_later_and_once(world: World):
    """A dashboard on a bad link subscribes again and again: its gateway had the former retained value for a minute and
    more, or none."""
    node = replica(world, "r1a", [*REGION_2, "local"])
    wires = publish(gateway(world, "site"), "plant/t", sequence=1, retain=True)
    node.handle(Received("site", wires["r1a"]), NOW)

    def retained(effects: list[Effect]) -> int:
        return sum(PROPERTY_HEADER in dict(send.wire.properties) for send in sent(effects, "local"))

    def flap(version: int, at: float) -> int:
        node.handle(Received("local", statement(world, "local", "plant/#", 2 * version, on=False)), at)
        return retained(node.handle(Received("local", statement(world, "local", "plant/#", 2 * version + 1)), at))

    assert sum(flap(version, NOW) for version in range(1, 30)) == NEWCOMER_BURST
    at = node.next_deadline
    assert at is not None
    assert NOW < at <= NOW + NEWCOMER_EVERY_S
    assert retained(node.handle(Tick(), NOW + NEWCOMER_EVERY_S)) == 1
    assert not retained(node.handle(Tick(), NOW + 9 * NEWCOMER_EVERY_S)), "once"


def test_a_newcomer_that_is_gone_by_then_is_not_served(world: World):
    node = replica(world, "r1a", [*REGION_2, "local"])
    node.handle(Received("site", publish(gateway(world, "site"), "plant/t", sequence=1, retain=True)["r1a"]), NOW)
    for version in range(1, NEWCOMER_BURST + 2):
        node.handle(Received("local", statement(world, "local", "plant/#", 2 * version)), NOW)
        node.handle(Received("local", statement(world, "local", "plant/#", 2 * version + 1, on=False)), NOW)
    assert not sent(node.handle(Tick(), NOW + NEWCOMER_EVERY_S), "local")


@pytest.mark.attack(63)
def test_a_replica_that_comes_back_without_end_hears_all_statements_a_few_times_and_then_later(world: World):
    """Attack: a bad replica connects again and again, and is told the whole table each time. An honest one whose link
    flaps as often hears it in the end."""
    node = replica(world, "r1a", [*REGION_2, "local"])
    subscribe_at(node, world, "local", "plant/#")
    told = 0
    for _ in range(100):
        node.handle(LinkDown("r2a"), NOW)
        told += sum(send.wire.topic == SUBSCRIBE_TOPIC for send in sent(node.handle(LinkUp("r2a"), NOW), "r2a"))
    assert RETELLS_BURST - 1 <= told <= RETELLS_BURST
    at = node.next_deadline
    assert at is not None
    assert at <= NOW + RETELLS_EVERY_S
    later = sent(node.handle(Tick(), NOW + RETELLS_EVERY_S), "r2a")
    assert [send.wire.topic for send in later] == [SUBSCRIBE_TOPIC]
    assert not sent(node.handle(Tick(), NOW + 3 * RETELLS_EVERY_S), "r2a")
