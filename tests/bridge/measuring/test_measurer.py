"""One replica measures by hand: probes, failures, what it tells, and wires that an attacker sends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import Acked, Blame, Count, Effect, LinkDown, LinkUp, Received, Rotated, Send, Tick, Wire, Worked
from bridge.document.organise import Organising
from bridge.measuring import PROBE_TOPIC, SUMMARY_TOPIC, InterestSummary, ReplicaSummary, decode_said
from bridge.measuring.measurer import AWAY_S, CACHE_IDS, TOLD_INTERVALS
from bridge.measuring.summaries import EARLY_S, UNKNOWN_US
from bridge.node import ReplicaNode
from bridge.organising import InterestFilter, estimated
from keys.envelope import Mode
from tests.bridge.helpers import craft, replica
from tests.sim.world import NOW, World
from tests.support.regions import fresh, organising, row_of_regions

INTERVAL_S = 40
START = NOW // INTERVAL_S * INTERVAL_S + 1
INTERVAL = int(NOW) // INTERVAL_S


world = fresh(organising, Organising(((1, 3),), INTERVAL_S), row_of_regions, 3, {"g1": 1, "g2": 1})


def begun(world: World, *links: str) -> ReplicaNode:
    node = replica(world, "r1a")
    for peer in links or ("r2a", "r2b", "r2c", "r3a"):
        node.handle(LinkUp(peer), START)
    return node


def probes(effects: list[Effect]) -> dict[str, int]:
    return {e.peer: e.ticket for e in effects if isinstance(e, Send) and e.wire.topic == PROBE_TOPIC}


def told(effects: list[Effect], peer: str = "r2a") -> list[ReplicaSummary | InterestSummary]:
    sent = [e for e in effects if isinstance(e, Send) and e.wire.topic == SUMMARY_TOPIC and e.peer == peer]
    return [decode_said(send.wire.payload) for send in sent]


def summary(effects: list[Effect]) -> ReplicaSummary:
    said = told(effects)[0]
    assert isinstance(said, ReplicaSummary)
    return said


def test_links_take_the_middle_of_what_acknowledgements_took(world: World) -> None:
    node = begun(world)
    asked = probes(node.handle(Tick(), START))
    assert set(asked) == {"r2a", "r2b", "r2c", "r3a"}, "neighbours, and the one at our place where a link could be"
    for peer, took in (("r2a", 0.004), ("r2b", 9.0), ("r2c", 0.002), ("r3a", 0.030)):
        node.handle(Acked(peer, asked[peer]), START + took)
    node.handle(Acked("r3a", asked["r3a"]), START + 5)
    said = summary(node.handle(Tick(), START + INTERVAL_S))
    assert said.links == ((2, 4_000), (3, 30_000))
    assert (said.interval, said.processing_us, said.failed) == (INTERVAL + 1, UNKNOWN_US, ())


def test_who_does_not_answer_is_away_and_a_link_that_ends_too(world: World) -> None:
    node = begun(world)
    asked = probes(node.handle(Tick(), START))
    node.handle(Acked("r2b", asked["r2b"]), START + 0.01)
    node.handle(Acked("r2c", asked["r2c"]), START + 0.01)
    node.handle(Acked("r3a", asked["r3a"]), START + 0.01)
    node.handle(LinkDown("r2c"), START + 2)
    now = START
    while now < START + AWAY_S + 10:
        now += 1
        for peer, ticket in probes(node.handle(Tick(), now)).items():
            assert peer != "r2a", "one probe at a time"
            node.handle(Acked(peer, ticket), now)
    said = summary(node.handle(Tick(), START + INTERVAL_S))
    assert said.failed == (("r2a", int(START)), ("r2c", int(START + 2)))
    node.handle(Acked("r2a", asked["r2a"]), START + INTERVAL_S)
    assert 2 in dict(said.links), "by those that answer"
    node.handle(LinkUp("r2c"), START + INTERVAL_S)
    later = summary(node.handle(Tick(), START + (TOLD_INTERVALS + 2) * INTERVAL_S))
    assert later.failed == (), "told often enough"


def test_work_counts_by_publication(world: World) -> None:
    node = begun(world)
    node.handle(Tick(), START)
    node.handle(Worked(900, 3), START)
    node.handle(Worked(600, 7), START)
    node.measurer._forwarded = 10
    said = summary(node.handle(Tick(), START + INTERVAL_S))
    assert (said.processing_us, said.queued, said.forwarded) == (150, 7, 10)


def of(world: World, member: str = "r2b", **changes: object) -> ReplicaSummary:
    region = world.overlay.certificate(member).region
    said = replace(ReplicaSummary(member, region, INTERVAL, INTERVAL_S, 0, 4), **changes)  # type: ignore[arg-type]
    return said.signed(world.identities[member])


def heard(node: ReplicaNode, said: ReplicaSummary | InterestSummary, peer: str = "r2a") -> list[Effect]:
    return list(node.handle(Received(peer, Wire(SUMMARY_TOPIC, said.encode())), START))


def test_a_summary_goes_on_once_and_no_further_than_its_author_says(world: World) -> None:
    node = begun(world)
    node.handle(Tick(), START)
    effects = heard(node, of(world))
    assert Count("summaries") in effects
    assert {e.peer for e in effects if isinstance(e, Send)} == {"r2c"}, "not back, not to its author"
    assert heard(node, of(world), "r2c") == [], "once"
    assert [said.member for said in node.measurer.summaries] == ["r2b"]
    far = replica(world, "r2a")
    for peer in ("r1a", "r3a", "r3b"):
        far.handle(LinkUp(peer), START)
    far.handle(Tick(), START)
    effects = heard(far, of(world, "r1b", hops=1), "r1a")
    assert not {e.peer for e in effects if isinstance(e, Send)} & {"r3a", "r3b"}, "two regions away"
    effects = heard(far, of(world, "r1c", hops=2), "r1a")
    assert {e.peer for e in effects if isinstance(e, Send)} == {"r3a", "r3b"}


def test_what_does_not_hold_goes_nowhere(world: World) -> None:
    node = begun(world)
    node.handle(Tick(), START)
    early = int((START + EARLY_S) // INTERVAL_S) + 2
    for wrong in (
        of(world, interval=early),
        of(world, interval=INTERVAL - 20),
        replace(of(world), queued=1),
        replace(of(world), member="r2c"),
    ):
        effects = heard(node, wrong)
        assert [e.name for e in effects if isinstance(e, Count)] == ["refused"]
        assert not [e for e in effects if isinstance(e, Send | Blame)]
    assert heard(node, of(world, interval_s=7)) == [Count("summaries_unknown")]
    small = InterestSummary("r2b", 2, INTERVAL, INTERVAL_S, 4, b"x").signed(world.identities["r2b"])
    assert [e.member for e in heard(node, small) if isinstance(e, Blame)] == ["r2a"]
    assert node.measurer.summaries == ()
    effects = node.handle(Received("r2a", Wire(SUMMARY_TOPIC, b"")), START)
    assert [e.member for e in effects if isinstance(e, Blame)] == ["r2a"]


def test_of_interests_the_three_newest_of_each_are_kept(world: World) -> None:
    node = begun(world)
    node.handle(Tick(), START)
    empty = InterestFilter().encode()
    for interval in range(INTERVAL - 3, INTERVAL + 1):
        said = InterestSummary("r2b", 2, interval, INTERVAL_S, 4, empty).signed(world.identities["r2b"])
        assert Count("summaries") in heard(node, said)
    assert [each.interval for each in node.measurer._filters["r2b"]] == [INTERVAL - 2, INTERVAL - 1, INTERVAL]


def test_with_another_key_it_signs_by_that(world: World) -> None:
    node = begun(world)
    node.handle(Tick(), START)
    other = world.identities["r1b"]
    node.handle(Rotated(other), START)
    said = summary(node.handle(Tick(), START + INTERVAL_S))
    assert replace(said, signature=b"").signed(other) == said


def test_who_is_no_neighbour_any_more_is_forgotten(world: World) -> None:
    node = begun(world)
    node.handle(Tick(), START)
    heard(node, of(world))
    assert node.measurer.up == {"r2a", "r2b", "r2c", "r3a"} & node.measurer.up
    node.measurer.adopt_overlay(world.with_policy(organising=None))
    assert "r3a" not in node.measurer.up
    assert node.measurer.next_deadline is None
    assert node.handle(Tick(), START + INTERVAL_S) == []


@pytest.mark.attack(201)
@pytest.mark.parametrize("seconds", [INTERVAL_S // 2, INTERVAL_S * 2])
def test_others_are_heard_on_when_the_owner_changes_the_length_of_intervals(world: World, seconds: int) -> None:
    node = begun(world)

    def heard(length_s: int, now: float) -> int:
        said = ReplicaSummary("r2a", 2, int(now) // length_s, length_s, 0, 4).signed(world.identities["r2a"])
        effects = node.handle(Received("r2a", Wire(SUMMARY_TOPIC, said.encode())), now)
        return sum(isinstance(effect, Count) and effect.name == "summaries" for effect in effects)

    assert heard(INTERVAL_S, START) == 1
    world.overlay = world.with_policy(organising=Organising(((1, 3),), seconds))
    node.measurer.adopt_overlay(world.overlay)
    assert heard(seconds, START + 4 * INTERVAL_S) == 1
    assert heard(seconds, START + 4 * INTERVAL_S) == 0, "once"


@pytest.mark.long
@pytest.mark.attack(202)
def test_a_publisher_that_floods_hides_nothing_that_others_have_in_common(world: World) -> None:
    node = begun(world)
    node.handle(Tick(), START)

    def passes(publisher: str, numbers: range) -> None:
        for sequence in numbers:
            wire = craft(world, publisher, "open/a", sequence=sequence, mode=Mode.PLAIN)
            node.measurer.passed_on(Received(publisher, wire), [])

    passes("g2", range(1, 6))
    passes("g1", range(1, CACHE_IDS + 100))
    seen = [said for said in told(node.handle(Tick(), START + INTERVAL_S)) if isinstance(said, InterestSummary)]
    bits = int.from_bytes(seen[0].filter)
    of_g2 = InterestFilter()
    of_g2.add_ids(world.identities["g2"].party_id + sequence.to_bytes(8) for sequence in range(1, 6))
    assert int.from_bytes(of_g2.encode()) & ~bits == 0, "all that the other published counts"
    assert estimated(bits) == pytest.approx(CACHE_IDS, rel=0.02)
    again = [said for said in told(node.handle(Tick(), START + 2 * INTERVAL_S)) if isinstance(said, InterestSummary)]
    assert not any(again[0].filter), "an interval has what came in it"
