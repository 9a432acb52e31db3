"""Batches at a subscriber: each record judged alone, by its scope and by its publisher's rights."""

from __future__ import annotations

import random

import pytest

from bridge.contract import Committed, Deliver, Numbered, Publication, packed
from bridge.contract.machine import Received, Subscribed, Wire
from bridge.document.policy import Scope
from bridge.node import GatewayNode
from keys.envelope import Mode
from papers.sim.adversary import Behaviour
from papers.sim.checkers import check_blame, check_liveness, check_safety
from tests.bridge.helpers import NOW, counted, craft, delivered, gateway, same_version, suspected, wire_topic
from tests.sim.world import World, make_world, subscribe

pytestmark = pytest.mark.invariant(13)

MS = int(NOW * 1000)


def plain_world(publish: tuple[str, ...] = ("#",)) -> World:
    return make_world({1: 3}, [], {"site": 1, "control": 1}, [Scope("plant/#", Mode.PLAIN)], publish=publish)


def record(number: int, topic: str = "plant/a", payload: bytes = b"x", **fields: object) -> Numbered:
    return Numbered(number, Publication(topic, payload, 1, time_ms=MS, **fields))  # type: ignore[arg-type]


def reader_of(world: World) -> GatewayNode:
    node = gateway(world, "control")
    node.handle(Subscribed("plant/#"), NOW)
    return node


def arrive(node: GatewayNode, wire: Wire) -> tuple[list[Deliver], int, set[str]]:
    effects = node.handle(Received("r1a", wire), NOW)
    return delivered(effects), counted(effects, "unopened"), suspected(effects)


def batch_wire(world: World, records: list[Numbered], topic: str = "plant/a", retain: bool = False) -> Wire:
    content = packed(topic, records).payload
    first = records[0].number
    return craft(world, "site", topic, sequence=first, mode=Mode.PLAIN, content=content, retain=retain)


def test_records_are_delivered_in_order_with_their_own_numbers() -> None:
    world = plain_world()
    found, refused, _ = arrive(reader_of(world), batch_wire(world, [record(5), record(6, "plant"), record(9)]))
    assert [(d.sequence, d.publication.topic, d.publisher, d.scope) for d in found] == [
        (5, "plant/a", "site", "plant/#"),
        (6, "plant", "site", "plant/#"),
        (9, "plant/a", "site", "plant/#"),
    ]
    assert refused == 0


@pytest.mark.attack(27)
@pytest.mark.parametrize(
    "bad",
    [
        record(6, "elsewhere/a"),
        record(6, "plant/+"),
        record(6, "plant/\0"),
        record(6, "$SYS/a"),
        record(6, response_topic="a/#"),
        record(6, properties=(("n", "\0"),)),
    ],
)
def test_one_bad_record_among_many_is_refused_alone(bad: Numbered) -> None:
    world = plain_world()
    node = reader_of(world)
    many = [record(5), bad, *(record(n) for n in range(7, 105))]
    found, refused, blamed = arrive(node, batch_wire(world, many))
    assert [d.sequence for d in found] == [5, *range(7, 105)]
    assert (refused, blamed) == (1, {"site"})
    again = craft(world, "site", "plant/a", sequence=200, previous=5, mode=Mode.PLAIN)
    assert [d.sequence for d in arrive(node, again)[0]] == [200]  # the chain goes on


def test_a_record_that_expired_on_its_way_is_left_out() -> None:
    world = plain_world()
    old = Numbered(6, Publication("plant/a", b"x", 1, expiry_s=1, time_ms=MS - 5000))
    effects = reader_of(world).handle(Received("r1a", batch_wire(world, [record(5), old])), NOW)
    assert [d.sequence for d in delivered(effects)] == [5]
    assert counted(effects, "expired") == 1


def kept(number: int, topic: str = "plant/a", **fields: object) -> Numbered:
    return record(number, topic, retain=True, **fields)


@pytest.mark.parametrize(
    "records",
    [
        [kept(5), kept(6)],
        [kept(5), record(6)],
        [kept(5, "plant/b")],
        [kept(5, "elsewhere/a")],
        [record(5)],
    ],
    ids=["two", "one of them", "another topic", "another scope", "not retained"],
)
def test_retained_is_one_record_of_the_topic_that_the_wire_topic_stands_for(records: list[Numbered]) -> None:
    world = plain_world()
    found, refused, blamed = arrive(reader_of(world), batch_wire(world, records, retain=True))
    assert (found, refused, blamed) == ([], 1, {"site"})
    (good,) = arrive(reader_of(world), batch_wire(world, [kept(5)], retain=True))[0]
    assert (good.sequence, good.publication.retain) == (5, True)


def test_a_retained_record_of_another_number_than_its_header_is_refused() -> None:
    world = plain_world()
    content = packed("plant/a", [kept(4), kept(7)]).payload  # the second one carries its number
    single = packed("plant/a", [Numbered(7, kept(7).publication)])
    wire = craft(world, "site", "plant/a", sequence=5, mode=Mode.PLAIN, content=content, retain=True)
    assert arrive(reader_of(world), wire)[1] == 1
    wire = craft(world, "site", "plant/a", sequence=5, mode=Mode.PLAIN, content=single.payload, retain=True)
    assert [d.sequence for d in arrive(reader_of(world), wire)[0]] == [5]


def test_a_record_that_claims_to_be_retained_among_others_is_refused_alone() -> None:
    world = plain_world()
    found, refused, blamed = arrive(reader_of(world), batch_wire(world, [record(5), kept(6), record(7)]))
    assert ([d.sequence for d in found], refused, blamed) == ([5, 7], 1, {"site"})


@pytest.mark.parametrize("retain", [False, True])
def test_what_is_retained_and_nothing_else_has_a_topic_of_its_own(retain: bool) -> None:
    world = plain_world()
    topic = wire_topic(world, "site", "plant/a", retain=not retain)
    wire = craft(world, "site", topic, sequence=5, mode=Mode.PLAIN, retain=retain, content=b"c")
    effects = reader_of(world).handle(Received("r1a", wire), NOW)
    assert (delivered(effects), counted(effects, "refused")) == ([], 1)


@pytest.mark.attack(26)
def test_of_who_may_publish_in_a_part_of_the_scope_only_that_part_is_delivered() -> None:
    world = plain_world(publish=("plant/+",))
    many = [record(5), record(6, "plant/a/b"), record(7, "plant"), record(8)]
    found, refused, blamed = arrive(reader_of(world), batch_wire(world, many))
    assert [d.sequence for d in found] == [5, 8]
    assert (refused, blamed) == (2, {"site"})


def test_who_may_publish_nowhere_in_the_scope_sends_no_batch() -> None:
    world = plain_world(publish=("open/#",))
    reader = reader_of(world)
    same_version(reader, "r1a")
    effects = reader.handle(Received("r1a", batch_wire(world, [record(5)])), NOW)
    assert (delivered(effects), counted(effects, "refused")) == ([], 1)


def test_a_record_of_a_scope_inside_does_not_come_with_this_one() -> None:
    scopes = [Scope("plant/#", Mode.PLAIN), Scope("plant/secret/#")]
    world = make_world({1: 3}, [], {"site": 1, "control": 1}, scopes, publish=("#",))
    many = [record(5), record(6, "plant/secret/a"), record(7)]
    found, refused, _ = arrive(reader_of(world), batch_wire(world, many))
    assert ([d.sequence for d in found], refused) == ([5, 7], 1)


def test_what_is_retained_and_what_is_not_have_one_order() -> None:
    world = plain_world()
    node = reader_of(world)
    assert len(arrive(node, batch_wire(world, [record(5)]))[0]) == 1
    value = craft(world, "site", "plant/a", sequence=8, previous=7, mode=Mode.PLAIN, retain=True)
    after = craft(world, "site", "plant/b", sequence=9, previous=8, mode=Mode.PLAIN)
    assert arrive(node, after)[0] == arrive(node, value)[0] == []
    late = craft(world, "site", "plant/c", sequence=7, previous=5, mode=Mode.PLAIN)
    assert [d.sequence for d in arrive(node, late)[0]] == [7, 8, 9]


@pytest.mark.parametrize("seed", range(4))
def test_with_a_liar_in_each_region_every_record_of_every_batch_arrives_once_and_in_order(seed: int) -> None:
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, seed=seed)
    rng = random.Random(seed)
    world.liars.update({"r1b": frozenset(Behaviour), "r2a": frozenset(Behaviour)})
    world.probability = 0.5
    kernel = world.kernel(rng)
    subscribe(kernel, "control", "plant/#")
    number = previous = 1
    published: dict[int, Publication] = {}
    for at in range(40):
        when = NOW + 5 + at * 0.05
        records = []
        for _ in range(rng.randrange(1, 30)):
            made = Publication(f"plant/{rng.randrange(5)}", rng.randbytes(9), 1, time_ms=int(when * 1000))
            records.append(Numbered(number, made))
            published[number] = made
            number += 1
        first = records[0].number
        kernel.plan_event(when, "site", Committed(((first, previous if at else 0, packed("plant/#", records)),)))
        previous = first
    trace = kernel.run(NOW + 60)
    check_safety(published, trace.delivered["control"])
    check_liveness(published, trace.delivered["control"])
    check_blame(trace.named_members(), set(world.liars))
