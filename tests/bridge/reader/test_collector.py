"""The subscriber side: order, duplicates, replays, floods, and what a bad publisher or replica can do to others."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import pytest

from bridge.contract.machine import (
    COPY,
    Acked,
    Committed,
    Effect,
    Event,
    Keep,
    LinkUp,
    Publication,
    Received,
    Subscribed,
    Tick,
    Unsubscribed,
    Wire,
)
from bridge.document.policy import Scope
from bridge.node import GatewayNode
from bridge.reader.collector import Collector
from bridge.reader.intake import FRESH_S
from bridge.reader.kept import SCOPE, STREAM, WAITING
from bridge.reader.newest_retained import RETAINED_WAIT_S
from bridge.reader.streams import OPEN_MAX
from bridge.reader.waiting import KEPT_OVERHEAD_BYTES, REPAIR_S
from bridge.wire.admission import SEQUENCE_MAX
from bridge.wire.pulling import CHAIN_MAX, PULL_TOPIC
from bridge.wire.skips import PROPERTY_SKIP
from bridge.wire.statements import KEYS_TOPIC
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, Mode, to_property
from keys.keyheader import KEY_DOMAIN
from keys.sharetree import Share, encode_shares
from tests.bridge.helpers import (
    NOW,
    ForgedKey,
    counted,
    craft,
    delivered,
    forge_key,
    gateway,
    named,
    publish,
    replica,
    sent,
    shares_in,
    subscribe_at,
    subscriber,
    suspected,
    wire_topic,
    with_properties,
)
from tests.sim.world import World, make_world
from tests.support.regions import fresh, one_region

pytestmark = pytest.mark.invariant(12)

REPLICAS = ("r1a", "r1b", "r1c")


SCOPES = [Scope("plant/#"), Scope("open/#"), Scope("clear/#", Mode.PLAIN)]
RIGHTS = {"evil": (["open/#", "clear/#"], ["#"])}
world = fresh(one_region, "site", "evil", "control", scopes=SCOPES, rights=RIGHTS)
"""One region, so that a replica's wires to `control` are the publisher's."""


def feed(
    node: GatewayNode, wires: dict[str, Wire], now: float = NOW, peers: tuple[str, ...] = REPLICAS
) -> list[Effect]:
    return [effect for peer in peers for effect in node.handle(Received(peer, wires[peer]), now)]


def told(effects: list[Effect]) -> list[tuple[int, bool]]:
    return [(d.sequence, d.late) for d in delivered(effects)]


def all_from(key: ForgedKey, wire: Wire) -> dict[str, Wire]:
    """An attacker's wire with its true key and shares, by replica."""
    return {r: with_properties(wire, *key.properties([key.shares[i]])) for i, r in enumerate(REPLICAS)}


# ---------------------------------------------------------------------------------------------- the honest way


def test_k_replicas_suffice_and_the_others_repeat(world: World):
    node, wires = subscriber(world, "control"), publish(gateway(world, "site"), "plant/t", b"21", sequence=1)
    assert not delivered(feed(node, wires, peers=("r1a",)))
    (got,) = delivered(feed(node, wires, peers=("r1c",)))
    assert (got.publisher, got.publication.topic, got.publication.payload) == ("site", "plant/t", b"21")
    last = feed(node, wires, peers=("r1b",))
    assert not delivered(last)
    assert counted(last, "duplicates_dropped") == 1


def test_shares_may_come_on_their_own(world: World):
    node, wires = subscriber(world, "control"), publish(gateway(world, "site"), "plant/t", sequence=1)
    feed(node, wires, peers=("r1a",))
    carried = tuple(p for p in wires["r1b"].properties if p[0] in (PROPERTY_KEY, PROPERTY_SHARES))
    assert told(node.handle(Received("r1b", Wire(KEYS_TOPIC, b"", properties=carried)), NOW)) == [(1, False)]


def test_application_properties_survive(world: World):
    node, site = subscriber(world, "control"), gateway(world, "site")
    original = Publication(
        "plant/t", b"x", 2, True, "text/plain", "open/reply", b"\0id", 1, (("k", "v"), ("k", "w")), 60, int(NOW * 1000)
    )
    effects = site.handle(Committed(((1, 0, original),)), NOW)
    (got,) = delivered(feed(node, {s.peer: s.wire for s in sent(effects)}))
    assert got.publication == original


# ------------------------------------------------------------------------------------------------------- order


def test_a_successor_waits_for_what_a_liar_holds_back(world: World):
    node, site = subscriber(world, "control"), gateway(world, "site")
    one, two, three = (publish(site, "plant/t", sequence=n, previous=n - 1) for n in (1, 2, 3))
    assert told(feed(node, one)) == [(1, False)]
    assert told(feed(node, three)) == []
    assert told(feed(node, two)) == [(2, False), (3, False)]


@pytest.mark.attack(28)
def test_a_predecessor_that_does_not_come_is_given_up_and_may_come_late(world: World):
    node, site = subscriber(world, "control"), gateway(world, "site")
    one, two, three = (publish(site, "plant/t", sequence=n, previous=n - 1) for n in (1, 2, 3))
    feed(node, one)
    feed(node, three)
    assert node.next_deadline is not None
    assert told(node.handle(Tick(), NOW + REPAIR_S)) == [(3, False)]
    assert told(feed(node, two, NOW + 11)) == [(2, True)]
    assert told(feed(node, two, NOW + 12)) == []


@pytest.mark.attack(119)
def test_a_gap_is_given_up_after_ten_seconds_also_when_the_clock_is_set_back(world: World):
    site, control = gateway(world, "site"), subscriber(world, "control")
    replicas = world.overlay.replicas(world.overlay.certificate("control").region)
    wires = {n: publish(site, "plant/t", b"%d" % n, sequence=n, previous=n - 1) for n in (1, 2, 3)}
    effects = [e for n in (1, 3) for r in replicas for e in control.handle(Received(r, wires[n][r]), NOW + n)]
    assert [each.sequence for each in delivered(effects)] == [1]
    effects = [e for t in range(1, int(REPAIR_S) + 3) for e in control.handle(Tick(), NOW - 600 + t)]
    assert [each.sequence for each in delivered(effects)] == [3]


@pytest.mark.long
def test_a_gap_of_many_batches_is_filled_before_what_follows_it_is_given_up(world: World):
    """Its batches are asked for by intervals: one by one, each after a wait, a hundred would take longer than that."""
    site, reader = gateway(world, "site"), subscriber(world, "control")
    nodes = {name: replica(world, name, ["site", "control"]) for name in REPLICAS}
    for node in nodes.values():
        subscribe_at(node, world, "control", "plant/#")
    missing = 300
    late: list[Effect] = []
    for number in range(1, missing + 3):
        wires = publish(site, "plant/t", b"%d" % number, sequence=number, previous=number - 1)
        for name, node in nodes.items():
            site.handle(Acked(name, number), NOW)
            for send in sent(node.handle(Received("site", wires[name]), NOW), "control"):
                keys = tuple(p for p in send.wire.properties if p[0] in (PROPERTY_KEY, PROPERTY_SHARES))
                if number in (1, missing + 2):
                    late += reader.handle(Received(name, send.wire), NOW)
                elif keys:  # replicas see to it that readers have those
                    late += reader.handle(Received(name, Wire(KEYS_TOPIC, b"", properties=keys)), NOW)
    assert [entry.publication.payload for entry in delivered(late)] == [b"1"]
    came: list[bytes] = []
    now = NOW
    asked = 0
    while len(came) < missing + 1 and (at := reader.next_deadline) is not None and at < NOW + REPAIR_S:
        now, effects = at, reader.handle(Tick(), at)
        while effects:
            came += [entry.publication.payload for entry in delivered(effects)]
            asks = [send for send in sent(effects) if send.peer in nodes and send.wire.topic == PULL_TOPIC]
            asked += len(asks)
            answers = [
                (send.peer, answer.wire)
                for send in asks
                for answer in sent(nodes[send.peer].handle(Received("control", send.wire), now), "control")
            ]
            effects = [effect for peer, wire in answers for effect in reader.handle(Received(peer, wire), now)]
    assert came == [b"%d" % number for number in range(2, missing + 3)], "all, in order"
    assert asked <= missing / CHAIN_MAX + 2
    assert now < NOW + REPAIR_S / 5


def test_what_was_given_up_comes_late_however_many_batches_came_meanwhile(world: World):
    """Numbers of other scopes lie between a scope's batches, so that each of these is behind a jump. A replica that was
    away for longer than a successor waits still has in its session what nobody else brought."""
    node, site = subscriber(world, "control"), gateway(world, "site")
    wires = [publish(site, "plant/t", sequence=10 * n, previous=10 * (n - 1)) for n in range(1, 3 * OPEN_MAX)]
    feed(node, wires[0])
    for later in wires[2:]:
        feed(node, later)
    assert len(delivered(node.handle(Tick(), NOW + REPAIR_S))) == len(wires) - 2
    assert told(feed(node, wires[1], NOW + REPAIR_S + 1)) == [(20, True)]
    assert told(feed(node, wires[1], NOW + REPAIR_S + 2)) == []


@pytest.mark.attack(16)
def test_the_first_publications_of_a_stream_are_not_lost_if_a_liar_sends_a_later_one_first(world: World):
    node, site = subscriber(world, "control"), gateway(world, "site")
    feed(node, publish(site, "plant/other", sequence=1))  # the key is open
    node.handle(Unsubscribed("#"), NOW)
    node.handle(Subscribed("#"), NOW)
    two, three, four = (publish(site, "plant/t", sequence=n, previous=n - 1 if n > 2 else 0) for n in (2, 3, 4))
    assert told(feed(node, four, peers=("r1c",))) == [(4, False)]
    assert told(feed(node, two) + feed(node, three) + feed(node, two)) == [(2, True), (3, True)]


def test_an_overtaken_qos_0_publication_comes_late_and_is_not_lost(world: World):
    node, site = subscriber(world, "control"), gateway(world, "site")
    feed(node, publish(site, "plant/t", sequence=1))
    two, three = (publish(site, "plant/t", sequence=2, qos=0), publish(site, "plant/t", sequence=3, previous=1))
    assert told(feed(node, three)) == [(3, False)]
    assert told(feed(node, two)) == [(2, True)]
    assert told(feed(node, two)) == []


def test_gaps_are_bounded_and_what_fell_out_counts_as_seen(world: World):
    node, site = subscriber(world, "control"), gateway(world, "site")
    skipped = publish(site, "plant/t", sequence=2, qos=0)
    feed(node, publish(site, "plant/t", sequence=1))
    for n in range(OPEN_MAX + 1):
        feed(node, publish(site, "plant/t", sequence=3 + 2 * n, previous=1 + 2 * n if n else 1))
    assert told(feed(node, skipped)) == []


def test_streams_do_not_wait_for_each_other(world: World):
    node, site = subscriber(world, "control"), gateway(world, "site")
    feed(node, publish(site, "plant/a", sequence=1))
    publish(site, "plant/a", sequence=2, previous=1)
    feed(node, publish(site, "plant/a", sequence=3, previous=2))
    assert told(feed(node, publish(site, "open/b", sequence=4))) == [(4, False)]


def test_what_was_published_while_nobody_subscribed_is_not_waited_for(world: World):
    node, site = subscriber(world, "control", "plant/#"), gateway(world, "site")
    feed(node, publish(site, "plant/t", sequence=1))
    node.handle(Unsubscribed("plant/#"), NOW)
    publish(site, "plant/t", sequence=2, previous=1)
    node.handle(Subscribed("plant/#"), NOW)
    assert told(feed(node, publish(site, "plant/t", sequence=3, previous=2))) == [(3, False)]


# --------------------------------------------------------------------------------------------- lying replicas


def test_altered_content_and_headers_are_refused_and_the_true_ones_delivered(world: World):
    node, wires = subscriber(world, "control"), publish(gateway(world, "site"), "plant/t", sequence=1)
    w = wires["r1a"]
    lies = [
        Wire(w.topic, b"other", properties=w.properties),
        Wire("plant/u", w.payload, properties=w.properties),
        Wire(w.topic, w.payload, properties=(("vmq", "AAAA"), *w.properties[1:])),
        with_properties(w, without=("vmq",)),
        with_properties(w, (PROPERTY_SHARES, "!"), without=(PROPERTY_SHARES,)),
    ]
    for lie in lies:
        effects = node.handle(Received("r1a", lie), NOW)
        assert not delivered(effects)
        assert suspected(effects) == {"r1a"}
    assert told(feed(node, wires, peers=("r1b", "r1c"))) == [(1, False)]


def test_a_share_for_anothers_place_is_refused(world: World):
    node, wires = subscriber(world, "control"), publish(gateway(world, "site"), "plant/t", sequence=1)
    stolen = Wire(wires["r1a"].topic, wires["r1a"].payload, properties=wires["r1b"].properties)
    assert suspected(node.handle(Received("r1a", stolen), NOW)) == {"r1a"}


def test_repeated_user_properties_change_nothing(world: World):
    node, wires = subscriber(world, "control"), publish(gateway(world, "site"), "plant/t", sequence=1)
    doubled = {r: Wire(w.topic, w.payload, properties=w.properties * 3) for r, w in wires.items()}
    assert told(feed(node, doubled)) == [(1, False)]


def test_a_bad_share_does_not_stop_the_others_and_its_sender_is_named_alone(world: World):
    node, wires = subscriber(world, "control"), publish(gateway(world, "site"), "plant/t", sequence=1)
    (share,) = shares_in(wires["r1b"])
    forged = to_property(encode_shares([Share(share.label, (), bytes(32))]))
    wires["r1b"] = with_properties(wires["r1b"], (PROPERTY_SHARES, forged), without=(PROPERTY_SHARES,))
    effects = feed(node, wires) + node.handle(Tick(), NOW + 2)
    assert told(effects) == [(1, False)]
    assert named(effects) == {"r1b"}


def test_old_publications_are_not_delivered_to_a_subscriber_without_memory(world: World):
    old = publish(gateway(world, "site"), "plant/t", sequence=1)
    effects = feed(subscriber(world, "control"), old, NOW + FRESH_S + 1)
    assert not delivered(effects)
    assert counted(effects, "replays_dropped")


@pytest.mark.attack(15)
def test_the_packets_retain_flag_does_not_make_a_replay_pass(world: World):
    old = publish(gateway(world, "site"), "plant/t", sequence=1)
    flagged = {r: Wire(w.topic, w.payload, 1, True, w.properties) for r, w in old.items()}
    node = subscriber(world, "control")
    effects = feed(node, flagged, NOW + FRESH_S + 1) + node.handle(Tick(), NOW + FRESH_S + 20)
    assert not delivered(effects)


def test_a_retained_publication_reaches_a_late_joiner_whatever_the_packets_flag_says(world: World):
    old = publish(gateway(world, "site"), "plant/t", b"kept", sequence=1, retain=True)
    for retain in (True, False):
        node = subscriber(world, "control")
        flagged = {r: Wire(w.topic, w.payload, 1, retain, w.properties) for r, w in old.items()}
        later = NOW + 86_400
        effects = feed(node, flagged, later) + node.handle(Tick(), later + RETAINED_WAIT_S)
        assert [d.publication.payload for d in delivered(effects)] == [b"kept"]
        assert delivered(effects)[0].publication.retain


@pytest.mark.invariant(33)
@pytest.mark.attack(23)
def test_of_retained_publications_the_newest_wins_over_a_replayed_one(world: World):
    """Also over one of another publisher, which has its own stream, and though the old one comes first or last."""
    world = make_world({1: 3}, [], {"site": 1, "other": 1, "control": 1})
    other = publish(gateway(world, "other"), "plant/t", b"old", sequence=90, retain=True)
    site = gateway(world, "site")
    older = publish(site, "plant/t", b"older", sequence=1, retain=True, now=NOW + 1)
    newest = publish(site, "plant/t", b"newest", sequence=7, previous=6, retain=True, now=NOW + 2)
    later = NOW + 86_400
    for order in ((other, older, newest), (newest, older, other)):
        node = subscriber(world, "control")
        effects = [e for wires in order for e in feed(node, wires, later)]
        effects += node.handle(Tick(), later + RETAINED_WAIT_S)
        effects += feed(node, other, later + 1) + feed(node, older, later + 1)
        effects += node.handle(Tick(), later + 1 + RETAINED_WAIT_S)
        assert [d.publication.payload for d in delivered(effects)] == [b"newest"]


@pytest.mark.attack(43)
def test_a_retained_value_that_found_no_room_to_be_marked_is_not_delivered_again_as_live(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Attack: a late joiner has more retained values than it can mark as seen; a liar sends one again when it is no
    longer news to the stream."""
    monkeypatch.setattr("bridge.reader.streams.MARKS_MAX", 1)
    node, late = subscriber(world, "control"), NOW + FRESH_S + 60
    old = [
        craft(world, "site", f"clear/{n}", sequence=n, previous=n - 1, mode=Mode.PLAIN, retain=True)
        for n in (10, 20, 30)
    ]
    for wire in old:
        feed(node, dict.fromkeys(REPLICAS, wire), late)
    assert len(delivered(node.handle(Tick(), late + RETAINED_WAIT_S))) == 3
    live = craft(world, "site", "clear/x", sequence=5, previous=4, mode=Mode.PLAIN, now=late + 1)
    assert len(delivered(feed(node, dict.fromkeys(REPLICAS, live), late + 1))) == 1
    for wire in old:
        assert not delivered(node.handle(Received("r1a", wire), late + 2))
    assert not delivered(node.handle(Tick(), late + 2 + REPAIR_S))


def test_after_a_retained_publication_the_next_live_one_is_not_held_up(world: World):
    site = gateway(world, "site")
    kept = publish(site, "plant/t", sequence=1, retain=True)
    node, later = subscriber(world, "control"), NOW + 3600
    effects = feed(node, kept, later) + node.handle(Tick(), later + RETAINED_WAIT_S)
    live = publish(site, "plant/t", sequence=50, previous=49, now=later + 1)
    assert told(effects + feed(node, live, later + 1)) == [(1, False), (50, False)]


def test_what_was_retained_a_moment_before_the_subscription_waits_for_nothing(world: World):
    """Its predecessors were overwritten, or never retained: nobody sends them any more."""
    site, before = gateway(world, "site"), NOW - 0.5
    one = publish(site, "plant/a", sequence=2, previous=1, retain=True, now=before)
    two = publish(site, "plant/b", sequence=5, previous=4, retain=True, now=before)
    node = subscriber(world, "control")
    live = publish(site, "plant/c", sequence=7, previous=6, now=NOW + 1)
    assert told(feed(node, one) + feed(node, two) + feed(node, live, NOW + 1)) == [(2, False), (5, False), (7, False)]
    assert told(feed(node, two, NOW + 1.1)) == []


def test_an_overtaken_retained_publication_does_not_bring_back_the_old_value(world: World):
    node, site = subscriber(world, "control"), gateway(world, "site")
    one = publish(site, "plant/t", sequence=1, retain=True)
    two = publish(site, "plant/t", sequence=2, previous=1, retain=True, now=NOW + 1)
    effects = feed(node, two, NOW + 1) + feed(node, one, NOW + 1)
    assert [(d.sequence, d.late, d.publication.retain) for d in delivered(effects)] == [
        (2, False, True),
        (1, True, False),
    ]


def test_the_outbox_of_a_killed_gateway_is_delivered_though_its_first_sealing_got_through_in_part(world: World):
    node = subscriber(world, "control")
    old = publish(gateway(world, "site"), "plant/t", b"x", sequence=1)
    assert not delivered(feed(node, old, peers=("r1a",)))
    reborn = world.node("site", random.Random("another life"))
    assert isinstance(reborn, GatewayNode)
    for peer in REPLICAS:
        reborn.handle(LinkUp(peer), NOW + 3)
    anew = publish(reborn, "plant/t", b"x", sequence=1, now=NOW + 3)
    assert told(feed(node, anew, NOW + 3, ("r1b", "r1c"))) == [(1, False)]
    assert told(feed(node, old, NOW + 3)) == []


# ------------------------------------------------------------------------- a bad publisher with a certificate


@pytest.mark.invariant(29)
def test_publications_without_keys_cost_other_publishers_nothing(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.reader.waiting.HELD_MAX", 20)
    node = subscriber(world, "control")
    overflow = 0
    for n in range(1, 41):
        wire = craft(world, "evil", f"open/{n}", sequence=n, key_id=b"k" * 16)
        overflow += counted(node.handle(Received("r1a", wire), NOW), "held_overflow")
    assert overflow == 20
    assert told(feed(node, publish(gateway(world, "site"), "plant/t", sequence=1))) == [(1, False)]
    effects = node.handle(Tick(), NOW + REPAIR_S)
    assert counted(effects, "unopened") == 20
    assert node.next_deadline is None or node.next_deadline > NOW + REPAIR_S


@pytest.mark.long
@pytest.mark.attack(11)
def test_large_batches_without_keys_for_half_an_hour_fill_no_memory_and_cost_others_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """A publisher with a certificate that sends keys to nobody, through one bad replica: what waits is bounded in
    bytes, of one publisher and in all, and somebody else's that waits stays."""
    for name, size in (("waiting.HELD_BYTES_MAX", 4 << 20), ("waiting.KEYLESS_BYTES", 2 << 20)):
        monkeypatch.setattr(f"bridge.reader.{name}", size)
    node, wires = subscriber(world, "control"), publish(gateway(world, "site"), "plant/t", sequence=1)
    feed(node, wires, peers=("r1a",))
    grown = []
    tracemalloc.start()
    try:
        for turn in range(300):
            content = bytes(64 << 10)
            wire = craft(
                world, "evil", "open/~", sequence=turn + 1, now=NOW + 6 * turn, key_id=b"k" * 16, content=content
            )
            node.handle(Received("r1a", wire), NOW + 6 * turn)
            node.handle(Tick(), NOW + 6 * turn)
            del wire, content
            grown.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(grown) < 8 << 20
    assert max(grown[200:]) < 1.1 * max(grown[:200])
    assert told(node.handle(Received("r1b", wires["r1b"]), NOW + 1800)) == [(1, False)]


def test_what_waits_for_its_turn_is_bounded_in_bytes(world: World, monkeypatch: pytest.MonkeyPatch):
    """One that is never sent is named as the predecessor of all."""
    monkeypatch.setattr("bridge.reader.waiting.HELD_BYTES_MAX", 1 << 20)
    node, key = subscriber(world, "control"), forge_key(world, "evil", "open/#")
    first = craft(world, "evil", "open/t", sequence=1, key=key)
    feed(node, all_from(key, first))
    overflow = 0
    for n in range(10):
        wire = craft(world, "evil", "open/t", sequence=3 + n, previous=2, key=key, payload=bytes(64 << 10))
        overflow += counted(feed(node, all_from(key, wire), peers=("r1a",)), "held_overflow")
    assert overflow == 7
    assert told(feed(node, publish(gateway(world, "site"), "plant/t", sequence=1))) == [(1, False)]


def test_what_waited_too_long_for_its_key_is_delivered_in_order_once_the_key_comes(world: World):
    """All copies came while fewer than k replicas had their share: nobody sends them again."""
    node, site = subscriber(world, "control"), gateway(world, "site")
    late = []
    for n in range(1, 31):
        for peer, wire in publish(site, "plant/t", sequence=n, previous=n - 1, now=NOW + n).items():
            carried = tuple(p for p in wire.properties if p[0] in (PROPERTY_KEY, PROPERTY_SHARES))
            if carried and peer != "r1a":
                late.append((peer, Wire(KEYS_TOPIC, b"", properties=carried)))
            without = () if peer == "r1a" else (PROPERTY_KEY, PROPERTY_SHARES)
            assert not told(node.handle(Received(peer, with_properties(wire, without=without)), NOW + n))
            assert not told(node.handle(Tick(), NOW + n))
    got = [one for peer, wire in late for one in told(node.handle(Received(peer, wire), NOW + 31))]
    assert got == [(n, False) for n in range(1, 31)]


def test_a_flood_of_publications_without_keys_evicts_only_the_flooders(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.reader.waiting.KEYLESS_BYTES", 21 * KEPT_OVERHEAD_BYTES - 1)
    node, wires = subscriber(world, "control"), publish(gateway(world, "site"), "plant/t", sequence=1)
    feed(node, wires, peers=("r1a",))
    for n in range(1, 41):
        node.handle(Received("r1a", craft(world, "evil", f"open/{n}", sequence=n, key_id=b"k" * 16)), NOW)
    assert counted(node.handle(Tick(), NOW + REPAIR_S), "keyless_overflow") == 21
    assert told(node.handle(Received("r1b", wires["r1b"]), NOW + REPAIR_S)) == [(1, False)]


def test_a_flood_of_topics_makes_others_forget_nothing(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.reader.collector.STREAMS_MAX", 10)
    node = subscriber(world, "control")
    honest = publish(gateway(world, "site"), "plant/t", sequence=1)
    feed(node, honest)
    for n in range(1, 31):
        wire = craft(world, "evil", f"open/{n}", sequence=n, key_id=b"k" * 16, retain=True, now=NOW - 60)
        node.handle(Received("r1a", wire), NOW)
    node.handle(Tick(), NOW + RETAINED_WAIT_S)  # each waits for its key from now on
    assert len(node.collector._streams) == 10
    assert counted(feed(node, honest), "duplicates_dropped") == 3


def test_a_flood_of_keys_evicts_only_the_flooders(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.reader.key_opening.KEYS_HELD_MAX", 8)
    node, site = subscriber(world, "control"), gateway(world, "site")
    feed(node, publish(site, "plant/t", sequence=1))
    for salt in range(20):
        key = forge_key(world, "evil", "open/#", salt)
        node.handle(Received("r1a", Wire(KEYS_TOPIC, b"", properties=key.properties(key.shares[:1]))), NOW)
    two = {r: with_properties(w, without=(PROPERTY_KEY, PROPERTY_SHARES)) for r, w in
           publish(site, "plant/t", sequence=2, previous=1).items()}  # fmt: skip
    assert told(feed(node, two)) == [(2, False)]


@pytest.mark.invariant(4)
@pytest.mark.attack(17)
def test_a_liar_that_replays_a_publishers_old_keys_evicts_none_that_opened(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """They are signed and count to the publisher; without its key, what comes next would never open."""
    monkeypatch.setattr("bridge.reader.key_opening.KEYS_HELD_MAX", 8)
    node, site = subscriber(world, "control"), gateway(world, "site")
    feed(node, publish(site, "plant/t", sequence=1))
    for salt in range(20):
        key = forge_key(world, "site", "plant/#", salt)
        node.handle(Received("r1a", Wire(KEYS_TOPIC, b"", properties=key.properties(key.shares[:1]))), NOW)
    two = {r: with_properties(w, without=(PROPERTY_KEY, PROPERTY_SHARES)) for r, w in
           publish(site, "plant/t", sequence=2, previous=1).items()}  # fmt: skip
    assert told(feed(node, two)) == [(2, False)]


@pytest.mark.invariant(30)
def test_a_key_of_another_scope_or_publisher_opens_nothing(world: World):
    """Whoever may read plant/# knows its keys; that is no right to seal with them elsewhere."""
    node = subscriber(world, "control")
    key = forge_key(world, "site", "plant/#")
    wires = all_from(key, craft(world, "evil", "open/t", sequence=1, key=key))
    effects = feed(node, wires)
    assert not delivered(effects)
    assert suspected(effects) == {"evil"}


def test_a_huge_sequence_and_a_far_predecessor_cost_nobody_else(world: World):
    node = subscriber(world, "control")
    key = forge_key(world, "evil", "open/#")
    last = SEQUENCE_MAX
    assert told(feed(node, all_from(key, craft(world, "evil", "open/t", sequence=last, previous=0, key=key)))) == [
        (last, False)
    ]
    assert told(feed(node, publish(gateway(world, "site"), "open/t", sequence=1))) == [(1, False)]


def test_a_key_that_commits_to_nothing_is_searched_no_more_once_all_shares_are_there(world: World):
    node, key, identity = subscriber(world, "control"), forge_key(world, "evil", "open/#"), world.identities["evil"]
    garbage = replace(key.header, commitment=bytes(32))
    key.header = replace(garbage, signature=identity.sign(KEY_DOMAIN, garbage.signed_bytes))
    effects: list[Effect] = []
    for n in range(1, 6):
        wire = craft(world, "evil", "open/t", sequence=n, key_id=key.header.key_id, content=b"c")
        effects += feed(node, all_from(key, wire))
    assert not delivered(effects)
    assert counted(effects, "keys_refuted") == 1


@pytest.mark.parametrize(
    "record",
    [
        Publication("plant/other", b"x", 1),
        Publication("open/t", b"x", 1, response_topic="open/#"),
        Publication("open/t", b"x", 1, response_topic="a\0b"),
        Publication("open/t", b"x", 1, content_type="a\0b"),
        Publication("open/t", b"x", 1, properties=(("a", "\0"),)),
    ],
    ids=["topic", "wildcard", "nul", "type", "property"],
)
def test_sealed_fields_that_would_break_local_connections_are_refused(world: World, record: Publication):
    node, key = subscriber(world, "control"), forge_key(world, "evil", "open/#")
    effects = feed(node, all_from(key, craft(world, "evil", "open/t", sequence=1, key=key, record=record)))
    assert not delivered(effects)
    assert suspected(effects) == {"evil"}


@pytest.mark.parametrize("content", [b"", b"short", bytes(100)])
def test_garbage_for_content_is_the_publishers_fault(world: World, content: bytes):
    node, key = subscriber(world, "control"), forge_key(world, "evil", "open/#")
    effects = feed(node, all_from(key, craft(world, "evil", "open/t", sequence=1, key=key, content=content)))
    assert not delivered(effects)
    assert suspected(effects) == {"evil"}


def test_expired_publications_are_not_delivered(world: World):
    wires = publish(gateway(world, "site"), "plant/t", sequence=1, expiry_s=5)
    assert counted(feed(subscriber(world, "control"), wires, NOW + 6), "expired") == 3


def test_what_lacks_its_key_stops_only_what_follows_it_in_its_chain(world: World):
    node, site, former = subscriber(world, "control"), gateway(world, "site"), gateway(world, "site")
    feed(node, publish(site, "plant/t", sequence=1))
    lost = publish(former, "plant/t", sequence=2, previous=1, qos=0)  # killed then: its key came from one replica
    feed(node, lost, peers=("r1a",))
    assert told(feed(node, publish(site, "plant/t", sequence=3, previous=1))) == [(3, False)]
    feed(node, publish(former, "plant/t", sequence=4, previous=3))
    assert told(feed(node, publish(site, "plant/t", sequence=5, previous=4))) == []
    assert sorted(told(feed(node, lost))) == [(2, True), (4, False), (5, False)]


@pytest.mark.attack(98)
def test_what_came_before_its_predecessor_without_a_key_does_not_wait_for_ever(world: World):
    node, site, former = subscriber(world, "control"), gateway(world, "site"), gateway(world, "site")
    feed(node, publish(site, "plant/t", sequence=1))
    lost = publish(former, "plant/t", sequence=2, previous=1)
    assert told(feed(node, publish(site, "plant/t", sequence=3, previous=2), NOW + 0.1)) == []
    feed(node, lost, NOW + 0.2, peers=("r1a",))
    assert told(node.handle(Tick(), NOW + 0.1 + REPAIR_S)) == []
    assert node.next_deadline is not None
    assert node.next_deadline <= NOW + 0.2 + REPAIR_S
    assert told(node.handle(Tick(), NOW + 0.2 + REPAIR_S)) == [(3, False)]


def test_nobody_waits_for_what_expired_on_its_way(world: World):
    node, site = subscriber(world, "control"), gateway(world, "site")
    one, two, three, four = (
        publish(site, "plant/t", sequence=n, previous=n - 1, expiry_s=None if n % 2 else n) for n in range(1, 5)
    )
    feed(node, one)
    assert told(feed(node, three, NOW + 3)) == []
    over = node.handle(Received("r1a", replace(two["r1a"], payload=b"")), NOW + 3)
    assert suspected(over) == {"r1a"}, "what expired is no licence to alter it"
    over = feed(node, two, NOW + 3)
    assert (told(over), counted(over, "expired")) == ([(3, False)], 1)
    assert told(feed(node, four, NOW + 3)) == [(4, False)]


def test_a_word_on_a_gap_counts_for_what_was_asked_for_within_it(world: World):
    """An answer comes without a word of replicas on what was left out before it."""
    node, site = subscriber(world, "control"), gateway(world, "site")
    wires = {at: publish(site, "clear/t", sequence=at, previous=at - 1) for at in (1, 2, 3, 4)}
    assert told(feed(node, wires[1])) == [(1, False)]
    feed(node, wires[3])  # it was asked for
    assert told(feed(node, wires[4])) == []
    said = {r: with_properties(w, (PROPERTY_SKIP, "1")) for r, w in wires[4].items()}
    assert told(feed(node, said)) == [(3, False), (4, False)]
    assert told(feed(node, wires[2])) == [(2, True)]


def test_a_copy_of_what_was_delivered_is_compared_with_its_digest(world: World):
    node, wires = subscriber(world, "control"), publish(gateway(world, "site"), "clear/t", b"true", sequence=1)
    assert [name for name, _ in wires["r1a"].properties] == ["vmq"]
    assert told(node.handle(Received("r1a", wires["r1a"]), NOW)) == [(1, False)]
    (effect,) = node.handle(Received("r1b", wires["r1b"]), NOW)
    assert effect is COPY
    assert suspected(node.handle(Received("r1c", replace(wires["r1c"], payload=b"false")), NOW)) == {"r1c"}
    elsewhere = replace(wires["r1c"], topic=wire_topic(world, "site", "open/t"))
    assert suspected(node.handle(Received("r1c", elsewhere), NOW)) == {"r1c"}


def test_a_copy_of_what_is_late_or_still_to_come_is_none(world: World):
    node, site = subscriber(world, "control"), gateway(world, "site")
    one, two, three = (publish(site, "clear/t", sequence=n, previous=n - 1)["r1a"] for n in (1, 2, 3))
    assert told(node.handle(Received("r1a", one), NOW)) == [(1, False)]
    assert told(node.handle(Received("r1a", three), NOW)) == []
    assert told(node.handle(Received("r1b", three), NOW)) == []
    assert told(node.handle(Received("r1a", two), NOW)) == [(2, False), (3, False)]


def collector_of(world: World) -> Collector:
    collector = Collector(world.overlay, "control", world.secrets, world.keys)
    for scope in world.overlay.policy.scopes:
        collector.subscriptions.resume_scope(scope.stream, NOW)
    return collector


def came(collector: Collector, wires: dict[str, Wire], now: float = NOW) -> list[tuple[int, bool]]:
    return told([effect for peer, wire in wires.items() for effect in collector.take_wire(Received(peer, wire), now)])


def test_a_collector_of_one_scope_goes_on_with_its_rows_and_hands_them_back(world: World):
    site, live, other = gateway(world, "site"), collector_of(world), collector_of(world)
    plant = world.overlay.policy.scopes[0].stream
    for sequence, topic in ((1, "plant/t"), (2, "open/t")):
        came(live, publish(site, topic, sequence=sequence))
    party = world.identities["site"].party_id
    assert live.stream(party, plant) is not None
    assert live.stream(bytes(16), plant) is None
    assert [stream.highest for _, stream in live.streams_of(plant)] == [1]
    assert live.rows_of(plant, [(party, "elsewhere")])[-1][0][:1] == SCOPE, "none of its streams is meant"
    rows = live.rows_of(plant)
    assert [key[:1] for key, _ in rows].count(STREAM) == 1
    other.restore(rows, NOW)
    again = publish(gateway(world, "site"), "plant/t", sequence=1)
    assert came(other, again) == []
    assert came(other, publish(site, "plant/t", sequence=3, previous=1)) == [(3, False)]
    live.goes_on(other.streams_of(plant))
    assert [stream.highest for _, stream in live.streams_of(plant)] == [3]
    assert came(live, publish(gateway(world, "site"), "plant/t", sequence=3)) == []
    assert came(live, publish(site, "plant/t", sequence=5, previous=4)) == [], "it knows what it waits for"
    assert live.changed_rows(NOW), "the next process knows that, too"


def test_nothing_is_stored_where_nothing_changed(world: World):
    live = collector_of(world)
    live.changed_rows(NOW)
    assert live.changed_rows(NOW) == []
    came(live, publish(gateway(world, "site"), "clear/t", sequence=1))
    assert [type(each) for each in live.changed_rows(NOW)] == [Keep]
    assert live.changed_rows(NOW) == []


def test_an_own_publication_is_delivered_only_to_who_asks_for_own_ones(world: World):
    wires = publish(gateway(world, "control"), "clear/t", sequence=1)
    assert came(collector_of(world), wires) == []
    reading = Collector(world.overlay, "control", world.secrets, world.keys, own_too=True)
    reading.subscriptions.resume_scope(world.overlay.policy.scopes[2].stream, NOW)
    assert came(reading, wires) == [(1, False)]


@pytest.mark.parametrize("late_s", [0.0, 1.0])
def test_a_deadline_that_passed_before_arrival_leaves_a_place_and_no_content(world: World, late_s: float):
    node, site = subscriber(world, "control"), gateway(world, "site")
    feed(node, publish(site, "clear/t", sequence=1))
    wires = publish(site, "clear/t", sequence=2, previous=1, expiry_s=5)
    effects = node.handle(Received("r1a", wires["r1a"]), NOW + 5 + late_s)
    assert (told(effects), counted(effects, "expired")) == (([], 1) if late_s else ([(2, False)], 0))


def test_copies_that_wait_are_kept_until_the_sweep_after_they_left(world: World):
    node, site = subscriber(world, "control"), gateway(world, "site")
    one, two, three = (publish(site, "clear/t", sequence=n, previous=n - 1) for n in (1, 2, 3))
    kept: dict[bytes, bytes | None] = {}

    def handle(event: Event, now: float) -> None:
        for effect in node.handle(event, now):
            kept.update(effect.rows if isinstance(effect, Keep) else ())

    handle(Received("r1a", one["r1a"]), NOW)
    handle(Received("r1a", three["r1a"]), NOW)
    waiting = {key for key, row in kept.items() if key[:1] == WAITING and row is not None}
    assert len(waiting) == 1
    handle(Received("r1a", two["r1a"]), NOW + 1)
    assert all(kept[key] is None for key in waiting), "delivered"
