"""A reader puts pieces together: what it asks for, what it bears, and that nobody holds up its streams with headers."""

from __future__ import annotations

import pytest

from bridge.contract.machine import Effect, Received, Tick, Wire
from bridge.document.policy import Scope
from bridge.node import GatewayNode
from bridge.reader import assembling
from bridge.reader import collector as collecting
from bridge.reader.assembling import Assembling
from bridge.wire.pieces import cut, read, wire
from bridge.wire.pulling import GIVE_UP_S, PULL_S, PULL_TOPIC, PullRequest
from keys.envelope import NO_KEY, MessageHeader, Mode, content_digest
from tests.bridge.helpers import (
    NOW,
    counted,
    delivered,
    gateway,
    publish,
    replica,
    sent,
    subscribe_at,
    subscriber,
    suspected,
)
from tests.sim.world import World, make_world

pytestmark = pytest.mark.invariant(23)

REGION = ("r1a", "r1b", "r1c")
LONG = bytes(2000)


@pytest.fixture(params=[Mode.ONE, Mode.BLOCKS, Mode.COPIES], ids=lambda mode: mode.name.lower())
def world(request: pytest.FixtureRequest) -> World:
    return make_world({1: 3}, [], {"site": 1, "local": 1}, [Scope("plant/#", request.param)])


def passed_on(world: World, *, count: int = 1, payload: bytes = LONG) -> list[dict[str, Wire]]:
    """By publication, what each honest replica sends to `local`, whole where it is asked to be."""
    site = gateway(world, "site")
    near = {name: replica(world, name, ["site", "local"]) for name in REGION}
    for node in near.values():
        subscribe_at(node, world, "local", "plant/#")
    told = []
    for number in range(1, count + 1):
        wires = publish(site, "plant/t", payload, sequence=number, previous=number - 1)
        effects = {name: node.handle(Received("site", wires[name]), NOW) for name, node in near.items()}
        told.append({name: sent(effects[name], "local")[0].wire for name in REGION})
    return told


def bare(told: Wire) -> Wire:
    """The same as an announcement."""
    properties = tuple(p for p in told.properties if p[0] != "vmq-part")
    return Wire(told.topic, b"", 1, False, (*properties, ("vmq-part", "-")))


def requests(effects: list[Effect]) -> list[tuple[str, tuple[int, ...]]]:
    asked = [send for send in sent(effects) if send.wire.topic == PULL_TOPIC]
    return [(send.peer, PullRequest.decode(send.wire.payload).parts) for send in asked]


def ticks(node: GatewayNode, until: float) -> list[Effect]:
    effects: list[Effect] = []
    while (at := node.next_deadline) is not None and at <= until:
        effects += node.handle(Tick(), at)
    return effects


def receive(node: GatewayNode, name: str, told: Wire, now: float = NOW) -> list[Effect]:
    return node.handle(Received(name, told), now)


def test_pieces_from_all_are_put_together_and_delivered_once(world: World) -> None:
    node, (told,) = subscriber(world, "local"), passed_on(world)
    effects = [effect for name in (*REGION, *REGION) for effect in receive(node, name, told[name])]
    assert [delivery.publication.payload for delivery in delivered(effects)] == [LONG]
    assert not requests(ticks(node, NOW + 5))


def test_what_is_only_announced_is_asked_for_in_turn(world: World) -> None:
    node, (told,) = subscriber(world, "local"), passed_on(world)
    effects = [effect for name in ("r1c", "r1a", "r1b") for effect in receive(node, name, bare(told[name]))]
    assert not delivered(effects)
    asked = requests(ticks(node, NOW + 1))
    assert [name for name, _ in asked[:4]] == ["r1c", "r1a", "r1b", "r1c"]
    parts = (0, 1) if world.overlay.policy.scopes[0].mode is Mode.BLOCKS else (0,)
    assert [wanted for _, wanted in asked[:4]] == [parts, parts, parts, ()]
    effects = [effect for name in REGION for effect in receive(node, name, told[name], NOW + 1)]
    assert len(delivered(effects)) == 1
    assert counted(effects, "repairs") == 1
    assert not requests(ticks(node, NOW + 60))


def test_corrupt_content_is_charged_to_its_link_and_any_other_counts(world: World) -> None:
    node, (told,) = subscriber(world, "local"), passed_on(world)
    liar = next(name for name in REGION if told[name].payload)
    corrupt = told[liar]
    flipped = Wire(corrupt.topic, corrupt.payload[:-1] + b"!", 1, False, corrupt.properties)
    effects = receive(node, liar, flipped)
    assert suspected(effects) == {liar}
    effects = [effect for name in REGION for effect in receive(node, name, told[name])]
    assert len(delivered(effects)) == 1


def test_a_later_one_waits_for_one_that_is_announced_but_not_for_ever(world: World) -> None:
    node, (first, second) = subscriber(world, "local"), passed_on(world, count=2)
    effects = [effect for name in REGION for effect in receive(node, name, bare(first[name]))]
    effects += [effect for name in REGION for effect in receive(node, name, second[name], NOW + 1)]
    assert not delivered(effects)
    effects = ticks(node, NOW + 1 + collecting.REPAIR_S)
    assert [delivery.sequence for delivery in delivered(effects)] == [2]
    assert counted(effects, "incomplete") == 1
    late = [effect for name in REGION for effect in receive(node, name, first[name], NOW + 20)]
    assert [(delivery.sequence, delivery.late) for delivery in delivered(late)] == [(1, True)]


def test_old_headers_that_a_liar_tells_again_hold_nothing_up(world: World) -> None:
    """Their content is nowhere any more: else each would stop the stream for ten seconds."""
    node, told = subscriber(world, "local"), passed_on(world, count=5)
    now = NOW + collecting.REPAIR_S + 1
    for old in told[:4]:
        receive(node, "r1a", bare(old["r1a"]), now)
    later = publish(gateway(world, "site"), "plant/t", LONG, sequence=9, previous=5, now=now)
    near = {name: replica(world, name, ["site", "local"]) for name in REGION}
    effects: list[Effect] = []
    for name, one in near.items():
        subscribe_at(one, world, "local", "plant/#")
        for send in sent(one.handle(Received("site", later[name]), now), "local"):
            effects += receive(node, name, send.wire, now)
    assert [delivery.sequence for delivery in delivered(effects)] == [9]


def header_of(sequence: int, content: bytes, publisher: bytes = b"p" * 16) -> MessageHeader:
    pieces = cut(content, Mode.BLOCKS, 3)
    digests = tuple(map(content_digest, pieces))
    return MessageHeader(publisher, b"k" * 16, sequence, 0, 1, 0, 1, False, False, Mode.BLOCKS, digests)


def test_a_flood_of_incomplete_publications_loses_the_flooders_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembling, "ASSEMBLING_BYTES", 100_000)
    content = bytes(1000)
    some = {0: cut(content, Mode.BLOCKS, 3)[0]}
    other = {1: cut(content, Mode.BLOCKS, 3)[1]}
    table = Assembling(REGION)
    honest = header_of(1, content, b"h" * 16)
    assert table.take_pieces("r1a", honest, some, 1, NOW) is None
    for sequence in range(1000):
        assert table.take_pieces("r1a", header_of(sequence, content), some, 1, NOW) is None
    assert len(table._parts) <= 100
    assert table.take_pieces("r1b", honest, other, 1, NOW) == content
    effects = table.tick(NOW + 1)
    assert len(requests(effects)) <= 100, "what was evicted is not asked for"
    for _ in range(40):
        effects = table.tick(NOW + 1 + GIVE_UP_S)
    assert table.next_deadline is None
    assert len(table._parts) == 0


@pytest.mark.invariant(29)
def test_holes_of_one_publisher_leave_others_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a publisher signs gaps that nothing fills."""
    monkeypatch.setattr(assembling, "REQUESTS_BURST", 40.0)
    monkeypatch.setattr(assembling, "REQUESTS_PER_S", 20.0)
    table, honest = Assembling(REGION), b"z" * 16
    for number in range(1000):
        assert table.miss((b"p" * 16, number), 0, NOW)
    for second in range(1, 5):
        table.miss((honest, second), 0, NOW)
        asked = [PullRequest.decode(send.wire.payload).publisher for send in sent(table.tick(NOW + second))]
        assert honest in asked
        assert len(asked) <= 40


def test_a_later_sealing_takes_the_place_of_an_earlier_one() -> None:
    content, anew = b"sealed once" * 9, b"sealed again" * 9
    table = Assembling(REGION)
    first = header_of(1, content)
    second = MessageHeader(**{f: getattr(header_of(1, anew), f) for f in first.__slots__ if f != "time_ms"}, time_ms=2)
    old, new = cut(content, Mode.BLOCKS, 3), cut(anew, Mode.BLOCKS, 3)
    assert table.take_pieces("r1a", first, {0: old[0]}, 1, NOW) is None
    assert table.take_pieces("r1a", second, {0: new[0]}, 1, NOW) is None
    assert table.take_pieces("r1b", first, {1: old[1]}, 1, NOW) is None, "of two sealings nothing is put together"
    assert table.take_pieces("r1b", second, {1: new[1]}, 1, NOW) == anew


def test_plain_wires_need_no_table() -> None:
    header = MessageHeader(b"p" * 16, NO_KEY, 1, 0, 1, 0, 1, False, False, Mode.PLAIN, (content_digest(b"x"),))
    told = wire("t", header, (), {0: b"x"})
    pieces = read(header, told.payload, None)
    assert pieces is not None
    table = Assembling(REGION)
    assert table.take_pieces("r1a", header, pieces, 1, NOW) == b"x"
    assert table.next_deadline is None


@pytest.mark.parametrize("hops", [0, 1, 5])
def test_pieces_are_asked_for_the_later_the_longer_their_way_is(hops: int) -> None:
    content, table = bytes(1000), Assembling(REGION)
    blocks = cut(content, Mode.BLOCKS, 3)
    assert table.take_pieces("r1b", header_of(1, content), {1: blocks[1]}, hops, NOW) is None
    at = NOW + PULL_S * (hops + 1)
    assert table.next_deadline == at
    assert table.tick(at - 0.01) == []
    effects = table.tick(at + 0.01)
    assert counted(effects, "pulls") == 1
    (send,) = sent(effects)
    assert send.peer == "r1b", "who announced it comes first"
    assert PullRequest.decode(send.wire.payload).parts == (0,), "what needs no arithmetic"
    assert table.take_pieces("r1a", header_of(1, content), {0: blocks[0]}, hops, at) == content
    assert table.next_deadline is None


def test_what_nobody_gives_is_given_up_and_counted() -> None:
    content, table = bytes(1000), Assembling(REGION)
    table.take_pieces("r1b", header_of(1, content), {1: cut(content, Mode.BLOCKS, 3)[1]}, 0, NOW)
    table.miss((b"p" * 16, 9), 0, NOW)
    assert len(table) == 3, "pieces of one, and requests for two"
    effects: list[Effect] = []
    while (at := table.next_deadline) is not None:
        assert at <= NOW + GIVE_UP_S + 1
        effects += table.tick(at)
    assert counted(effects, "content_given_up") == 2
    assert len(table) == 0
