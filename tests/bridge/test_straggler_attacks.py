"""Attacks on what becomes of publications that n - f replicas have and one lacks, when keys or views change."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import pytest

from bridge.contract.machine import Acked, Committed, Effect, Forget, LinkDown, LinkUp, Publication, Tick
from bridge.document.policy import Scope
from bridge.node import GatewayNode
from bridge.publisher.resealing import AWAY_S, STRAGGLERS_MAX
from keys.envelope import PROPERTY_KEY, KeyHeader, Mode, check_share, from_property, open_key
from keys.epochs import Calendar
from tests.bridge.helpers import NOW, gateway, sent, shares_in
from tests.bridge.test_live_views import attached, detached, in_force
from tests.keys.helpers import recombine
from tests.sim.changing import changed, endorsed_by
from tests.sim.test_secrecy import pool
from tests.sim.world import World, make_world

EPOCH = 7
CALENDAR = Calendar(int((NOW - EPOCH * 100) * 1000), length_s=100, ahead_s=20, grace_s=20, skew_s=5)
REPLICAS = ("r1a", "r1b", "r1c")
OTHERS = ("r1a", "r1b")  # than the one that lacks something
MANY = 2 * STRAGGLERS_MAX
MODES = [Mode.COPIES, Mode.ONE, Mode.BLOCKS]
CONTENT = bytes(range(256)) * 4


def entry(sequence: int, topic: str = "plant/t", retain: bool = False, now: float = NOW) -> Committed:
    return Committed(((sequence, 0, Publication(topic, CONTENT, 1, retain, time_ms=int(now * 1000))),))


def acked(node: GatewayNode, sequence: int, now: float, peers: Sequence[str] = REPLICAS) -> list[Effect]:
    return [effect for peer in peers for effect in node.handle(Acked(peer, sequence), now)]


def epochs_world(*scopes: Scope, size: int = 3) -> World:
    made = make_world({1: size}, [], {"site": 1, "control": 1}, scopes or [Scope("plant/#")], calendar=CALENDAR)
    made.learn(made.keys, [EPOCH])
    return made


def missed(node: GatewayNode, sequences: Iterable[int], now: float) -> list[Effect]:
    """Publications that r1a and r1b acknowledge; what else follows."""
    effects: list[Effect] = []
    for sequence in sequences:
        effects += node.handle(entry(sequence, now=now), now)
        effects += acked(node, sequence, now, OTHERS)
    return effects


@pytest.mark.attack(133)
@pytest.mark.parametrize("mode", MODES)
def test_a_replica_that_was_away_cannot_open_what_it_carries_after_a_change_of_views(mode: Mode):
    """It got the share of the place that it has in the new view, too, and two shares open the key."""
    world = make_world({1: 3}, [], {"site": 1, "far": 1}, [Scope("plant/#", mode, shares_only=True)])
    node = gateway(world, "site")
    effects = node.handle(entry(1), NOW)
    acked(node, 1, NOW)
    node.handle(LinkDown("r1c"), NOW + 1)
    effects += missed(node, range(2, MANY), NOW + 2)
    newer = in_force(world, detached(world, "r1a"))
    assert newer.views[1].members == ("r1b", "r1c", "r1d")
    effects += node.publisher.adopt_overlay(newer, world.secrets_under(newer), NOW + 3)
    effects += node.handle(LinkUp("r1c"), NOW + 4)
    wires = [send.wire for send in sent(effects, "r1c")]
    of_former = [share.label[0] for wire in wires for share in shares_in(wire) if share.label[0].view == 1]
    assert {place.place for place in of_former} == {3}, "its own"
    for header, shares in pool(wires).values():
        hops = [world.overlay.views[header.hops[0].region].hop]
        if header.hops[0].view != hops[0].view:
            continue
        found = recombine(shares.values(), hops, lambda p, v, h=header: check_share(h, p, v), lambda _: True)
        assert found is None, f"it opened {open_key(header, found.secret, None)}"


@pytest.mark.parametrize("mode", MODES)
def test_who_was_away_for_longer_than_the_grace_gets_nothing_that_is_over_in_any_mode(mode: Mode):
    """Pieces of it are kept for those that ask; its lane went on from them, and the replica refused them all."""
    world = epochs_world(Scope("plant/#", mode))
    node, now = gateway(world, "site"), NOW + 100 + CALENDAR.grace_s
    node.handle(LinkDown("r1c"), NOW)
    missed(node, range(1, MANY + 1), NOW)
    world.learn(world.keys, [EPOCH + 1])
    node.handle(Tick(), NOW + 100)
    effects = node.handle(LinkUp("r1c"), now)
    effects += node.handle(entry(MANY + 1, now=now), now)
    assert [send.ticket for send in sent(effects, "r1c")] == [MANY + 1]


@pytest.mark.parametrize("mode", MODES)
def test_after_a_bump_nothing_of_before_is_sent_to_anybody(mode: Mode):
    world = epochs_world(Scope("plant/#", mode))
    node = gateway(world, "site")
    node.handle(LinkDown("r1c"), NOW)
    missed(node, range(1, MANY), NOW)
    newer = world.revoked("control", EPOCH - 1, bump=1)
    world.learn(world.keys, [EPOCH], bump=1)
    effects = node.publisher.adopt_overlay(newer, world.secrets_under(newer), NOW + 1)
    effects += node.handle(LinkUp("r1c"), NOW + 2)
    keys = [dict(send.wire.properties).get(PROPERTY_KEY) for send in sent(effects, "r1c")]
    assert {KeyHeader.decode(from_property(key)).bump for key in keys if key is not None} == {1}


@pytest.mark.parametrize("change", ["bump", "suspended"])
def test_all_that_is_retained_is_sealed_anew_though_one_replica_acknowledges_nothing(change: str):
    """More than a window of it was done with as publications, and lost as what is retained."""
    world = epochs_world()
    node, many = gateway(world, "site"), STRAGGLERS_MAX + 44
    for sequence in range(1, many + 1):
        node.handle(entry(sequence, f"plant/{sequence}", retain=True), NOW)
        acked(node, sequence, NOW, OTHERS)
    if change == "bump":
        newer = world.revoked("control", EPOCH - 1, bump=1)
        world.learn(world.keys, [EPOCH], bump=1)
        now = NOW + 30
        effects = node.publisher.adopt_overlay(newer, world.secrets_under(newer), now)
    else:  # the machine slept over the end and the grace
        world.learn(world.keys, [EPOCH + 1])
        now = NOW + 125
        effects = node.handle(Tick(), now)
    waiting, got = deque(sent(effects)), set[int]()
    while waiting:
        send = waiting.popleft()
        if send.peer in OTHERS:
            got.add(send.ticket)
            waiting += sent(node.handle(Acked(send.peer, send.ticket), now))
    assert got == set(range(1, many + 1))


@pytest.mark.attack(132)
def test_no_more_than_a_window_is_sealed_anew_when_one_is_replaced_while_another_acknowledges_nothing():
    """r1a had everything, and leaves: too few of the new view had any of it."""
    world = make_world({1: 3}, [], {"site": 1, "far": 1}, [Scope("plant/#")])
    node, now = gateway(world, "site"), NOW + AWAY_S + 1
    missed(node, range(1, 4 * STRAGGLERS_MAX), NOW)
    newer = in_force(world, detached(world, "r1a"))
    effects = node.publisher.adopt_overlay(newer, world.secrets_under(newer), now)
    effects += node.publisher.link_up("r1d", now)
    new = 4 * STRAGGLERS_MAX
    effects += node.handle(entry(new), now)
    waiting, before = deque(sent(effects)), 0
    while (send := waiting.popleft()) and (send.peer, send.ticket) != ("r1b", new):
        before += send.peer == "r1b"
        if send.peer in ("r1b", "r1d"):
            waiting += sent(node.publisher.acked(Acked(send.peer, send.ticket), now))
    assert before <= STRAGGLERS_MAX


@pytest.mark.attack(132)
@pytest.mark.parametrize("change", ["bump", "grace", "attach"])
def test_a_liar_that_lacks_what_is_newer_takes_no_place_of_what_another_one_lacks(change: str):
    """It acknowledges what an honest replica lacks, and nothing of a window of newer ones."""
    world = epochs_world(Scope("slow/#"), Scope("fast/#"))
    node, behind = gateway(world, "site"), 100
    start = NOW + (119 if change == "grace" else 0)  # the next epoch's key is late: all are young when the grace ends
    node.handle(LinkDown("r1c"), start)
    for sequence in range(1, behind + 1):
        node.handle(entry(sequence, "slow/t", now=start), start)
        acked(node, sequence, start, OTHERS)
    node.handle(LinkUp("r1c"), start)
    for sequence in range(behind + 1, behind + STRAGGLERS_MAX + 44):
        got = [send.ticket for send in sent(node.handle(entry(sequence, "fast/t", now=start), start), "r1c")]
        acked(node, sequence, start, ("r1a", "r1c") if sequence in got else ("r1a",))
    lacked = {s for s, e in node.publisher._entries.items() if "r1c" not in e.acked}
    assert len(lacked) < STRAGGLERS_MAX
    if change == "bump":
        newer = world.revoked("control", EPOCH - 1, bump=1)
        world.learn(world.keys, [EPOCH], bump=1)
        node.publisher.adopt_overlay(newer, world.secrets_under(newer), start + 1)
    elif change == "attach":
        newer = in_force(world, attached(world))
        node.publisher.adopt_overlay(newer, world.secrets_under(newer), start + 1)
    else:
        world.learn(world.keys, [EPOCH + 1])
        node.publisher.keys_changed(start + 0.9)
        node.handle(Tick(), start + 1.1)
    assert lacked <= {s for s, e in node.publisher._entries.items() if "r1c" not in e.acked}


@pytest.mark.attack(134)
def test_a_clock_set_back_over_an_epoch_for_a_moment_does_not_take_what_a_replica_lacks():
    """An epoch that is to come is not over."""
    world = epochs_world()
    node = gateway(world, "site")
    world.learn(world.keys, [EPOCH + 1])
    node.handle(Tick(), NOW + 100)
    node.handle(LinkDown("r1c"), NOW + 100.5)
    missed(node, [1], NOW + 101)
    effects = node.handle(LinkUp("r1c"), NOW + 99)
    effects += node.handle(Tick(), NOW + 101)
    assert {send.ticket for send in sent(effects, "r1c")} == {1}


def test_who_leads_is_counted_right_after_what_became_enough_with_a_smaller_view():
    """In clear the acknowledgements stay: of five, three are enough, of three two. Then the epoch and its grace end."""
    world = epochs_world(Scope("clear/#", Mode.PLAIN), size=5)
    node = gateway(world, "site")
    for sequence in range(1, 101):
        node.handle(entry(sequence, "clear/t"), NOW)
        acked(node, sequence, NOW, OTHERS)
    newer = changed(world, world.overlay, 1, REPLICAS, NOW)
    newer = newer.endorsed(endorsed_by(world, newer, 1, *REPLICAS), NOW)
    node.publisher.adopt_overlay(newer, world.secrets_under(newer), NOW + 1)
    world.learn(world.keys, [EPOCH + 1])
    node.handle(Tick(), NOW + 100)
    node.handle(Tick(), NOW + 100 + CALENDAR.grace_s)
    residents = node.publisher._residents
    assert residents.lacked_by("r1c") == residents.lacked_by("r1a") == 0


def test_rows_of_what_is_done_with_are_deleted_and_nothing_of_it_stays():
    world = epochs_world()
    node, gone = gateway(world, "site"), set[int]()
    node.handle(LinkDown("r1c"), NOW)
    effects = missed(node, range(1, MANY), NOW)
    world.learn(world.keys, [EPOCH + 1])
    effects += node.handle(Tick(), NOW + 100)
    effects += node.handle(LinkUp("r1c"), NOW + 100 + CALENDAR.grace_s)
    for effect in effects:
        gone.update(effect.sequences if isinstance(effect, Forget) else ())
    assert gone == set(range(1, MANY))
    assert node.publisher.depth == 0
    assert all(not lane.in_flight and not len(lane) for _, lane in node.publisher._lanes)
