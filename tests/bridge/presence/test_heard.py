"""Words of presence: how they spread over regions, and which words of an attacker count for nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from bridge.contract import Beat, Blame, Count, Effect, LinkUp, Received, Send, Wire
from bridge.node import GatewayNode, ReplicaNode
from bridge.presence import BEAT_S, LOST_S, PRESENCE_TOPIC, PresenceWord, RegionPresence
from bridge.presence.heard import EARLY_S
from tests.bridge.helpers import gateway, replica
from tests.sim.world import NOW, World, make_world
from tests.support.regions import fresh, row_of_regions

REPLICAS = tuple(f"r{region}{letter}" for region in (1, 2, 3) for letter in "abc")


world = fresh(row_of_regions, 3, {"g1": 1, "g3": 3})


class Line:
    """Three regions in a line and their gateways, all connected but those that are `dead`."""

    def __init__(self, world: World) -> None:
        self.nodes: dict[str, ReplicaNode | GatewayNode] = {name: replica(world, name) for name in REPLICAS}
        self.nodes |= {name: gateway(world, name) for name in ("g1", "g3")}
        self.dead: set[str] = set()
        self.sent = 0
        self.beat(NOW - BEAT_S)  # from now on every replica knows its links

    def beat(self, now: float) -> None:
        """Lets every living replica beat, and carries all words to their ends."""
        alive = self.nodes.keys() - self.dead
        for name in sorted(alive & set(REPLICAS)):
            up = tuple(sorted(self.nodes[name].peers & alive))
            self._carry(name, self.nodes[name].handle(Beat(up), now), now)

    def _carry(self, sender: str, effects: Iterable[Effect], now: float) -> None:
        for effect in effects:
            assert not isinstance(effect, Blame), effect
            if isinstance(effect, Send) and effect.wire.topic == PRESENCE_TOPIC:
                self.sent += 1
                if effect.peer not in self.dead:
                    self._carry(effect.peer, self.nodes[effect.peer].handle(Received(sender, effect.wire), now), now)

    def regions(self, name: str, now: float) -> dict[str, RegionPresence]:
        node = self.nodes[name]
        return {region.name: region for region in node.presence.regions(now)}


def word(world: World, member: str, beat: int = int(NOW // BEAT_S), *linked: str) -> PresenceWord:
    region = world.overlay.certificate(member).region
    return PresenceWord(member, region, beat, linked).signed(world.identities[member])


def heard(node: ReplicaNode | GatewayNode, peer: str, said: PresenceWord, now: float = NOW) -> list[Effect]:
    return list(node.handle(Received(peer, Wire(PRESENCE_TOPIC, said.encode())), now))


def test_every_member_hears_of_every_replica(world: World) -> None:
    line = Line(world)
    line.beat(NOW)
    for name in ("g1", "g3", "r2a"):
        for region in line.regions(name, NOW).values():
            assert set(region.heard) == set(region.members) - {name}
            assert (region.silent, set(region.reaches.values())) == ((), {3})
    assert set(line.regions("r1a", NOW)["region-1"].heard) == {"r1b", "r1c"}, "by way of the next region"
    line.sent = 0
    line.beat(NOW + BEAT_S)
    first, line.sent = line.sent, 0
    line.beat(NOW + 2 * BEAT_S)
    assert 0 < line.sent == first, "no word goes round again"


def test_replicas_that_die_far_away_are_silent_and_their_links_missing(world: World) -> None:
    line = Line(world)
    line.beat(NOW)
    line.dead = {"r3a", "r3b"}
    line.beat(NOW + BEAT_S)
    seen = line.regions("g1", NOW + BEAT_S)
    assert seen["region-2"].reaches == {"region-1": 3, "region-3": 1}, "their neighbours say so at once"
    assert seen["region-3"].silent == ()
    line.beat(NOW + 2 * BEAT_S)
    line.beat(NOW + 3 * BEAT_S)
    seen = line.regions("g1", NOW + LOST_S)
    assert seen["region-3"].silent == ("r3a", "r3b")
    assert seen["region-3"].heard["r3a"] == LOST_S
    assert seen["region-3"].reaches == {}, "one replica of three is no median"
    line.dead.clear()
    line.beat(NOW + 4 * BEAT_S)
    assert line.regions("g1", NOW + 4 * BEAT_S)["region-3"].silent == ()


def test_a_replica_that_was_never_heard_is_silent_only_after_a_while(world: World) -> None:
    line = Line(world)
    assert all(region.silent == () for region in line.regions("g1", NOW).values())
    assert all(len(region.silent) == 3 for region in line.regions("g1", NOW + LOST_S).values())


def test_a_gateway_that_comes_later_hears_at_once_what_passed_before(world: World) -> None:
    line = Line(world)
    line.dead = {"g1"}
    line.beat(NOW)
    line.dead = {"r3a"}
    told = line.nodes["r1a"].handle(LinkUp("g1"), NOW + 5)
    line._carry("r1a", told, NOW + 5)
    seen = line.regions("g1", NOW + 5)
    assert set(seen["region-3"].heard) == {"r3a", "r3b", "r3c"}
    late = line.nodes["r1b"].handle(LinkUp("g1"), NOW + LOST_S)
    assert not [each for each in late if isinstance(each, Send) and each.wire.topic == PRESENCE_TOPIC]
    passed = line.nodes["r1a"].handle(LinkUp("r2a"), NOW + 5)
    assert not [each for each in passed if isinstance(each, Send) and each.wire.topic == PRESENCE_TOPIC]


@pytest.mark.attack(150)
def test_one_liar_moves_no_region(world: World) -> None:
    """A liar says that it is linked to nobody, or to everybody."""
    node = gateway(world, "g1")
    for beat, lie in enumerate(((), ("r3a", "r3b", "r3c")), int(NOW // BEAT_S)):
        honest = ("r3a", "r3b")
        for member, linked in (("r2a", lie), ("r2b", honest), ("r2c", honest)):
            heard(node, "r1a", word(world, member, beat, *linked))
        region2 = next(region for region in node.presence.regions(NOW) if region.name == "region-2")
        assert region2.reaches["region-3"] == 2


@pytest.mark.attack(150)
def test_nobody_speaks_for_another_replica(world: World) -> None:
    node = replica(world, "r2a")
    forged = replace(word(world, "r1a"), member="r1b")
    assert Count("refused", 1, "BadSignature") in heard(node, "r1a", forged)
    stranger = PresenceWord("g1", 1, int(NOW // BEAT_S)).signed(world.identities["g1"])
    assert Count("refused", 1, "NotAuthorised") in heard(node, "r1a", stranger)
    elsewhere = PresenceWord("r1a", 3, int(NOW // BEAT_S)).signed(world.identities["r1a"])
    assert Count("refused", 1, "NotAuthorised") in heard(node, "r1a", elsewhere)
    assert not any(region.heard for region in node.presence.regions(NOW))


@pytest.mark.parametrize("off_s", [-EARLY_S - BEAT_S, EARLY_S + BEAT_S])
def test_words_of_another_time_make_nobody_live(world: World, off_s: float) -> None:
    node = replica(world, "r2a")
    effects = heard(node, "r1a", word(world, "r1b", int((NOW + off_s) // BEAT_S)))
    assert Count("refused", 1, "NotFresh") in effects
    assert not any(isinstance(effect, Send | Blame) for effect in effects)


def test_a_word_that_is_repeated_or_older_goes_nowhere(world: World) -> None:
    node = replica(world, "r2a")
    node.handle(Beat(("r1a", "r1b", "r3a")), NOW)
    first = heard(node, "r1a", word(world, "r1a"))
    told = {effect.peer for effect in first if isinstance(effect, Send)}
    assert told == {"r1b", "r3a"}, "neighbours that are connected: for others words would only fill a queue"
    assert heard(node, "r1b", word(world, "r1a")) == []
    assert heard(node, "r3a", word(world, "r1a", int(NOW // BEAT_S) - 1)) == []


def test_a_region_without_neighbours_tells_nobody() -> None:
    alone = make_world({1: 3}, [], {"g1": 1})
    assert replica(alone, "r1a").handle(Beat(("g1",)), NOW) == []


def test_members_that_left_are_forgotten(world: World) -> None:
    node = gateway(world, "g1")
    heard(node, "r1a", word(world, "r3a"))
    smaller = make_world({1: 3, 2: 3}, [(1, 2)], {"g1": 1}).overlay
    node.presence.adopt_overlay(smaller)
    assert [region.heard for region in node.presence.regions(NOW)] == [{}, {}]
