"""Replicas leave out what nobody wants (C10): nothing that is wanted is lost, nothing waits, and wires show no more
than the owner declared, whatever f replicas of each region claim."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from bridge.contract.machine import Effect, Event, Received, Send, Subscribed, Wire
from bridge.document import Scope, ShownAttribute
from bridge.predicates import parse_where
from bridge.reader.waiting import REPAIR_S
from bridge.wire import PROPERTY_PART, PROPERTY_SHOWN, PROPERTY_SKIP, read_list
from keys.envelope import PROPERTY_HEADER, Mode, from_property, header_of
from papers.sim.adversary import Adversary
from papers.sim.checkers import check_blame, check_safety
from papers.sim.kernel import EventTrace
from tests.sim.world import NOW, Traffic, World, make_world

pytestmark = pytest.mark.invariant(37)

ROOMS = ("hall", "attic", "cellar", "attic", "garden")
ATTIC, CELLAR = parse_where("room = 'attic'"), parse_where("room = 'cellar'")
ROOM = ShownAttribute(("room",))


class FilteringLiar(Adversary):
    """Sends nothing that matches, and says of everything else that nothing was left out before it."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        return [lie for effect in self.machine.handle(event, now) for lie in self._lies(effect)]

    def _lies(self, effect: Effect) -> list[Effect]:
        if not isinstance(effect, Send) or PROPERTY_SHOWN not in (told := dict(effect.wire.properties)):
            return [effect]
        header = header_of(from_property(told[PROPERTY_HEADER]))
        if any(ATTIC.holds_for(row) for row in read_list(from_property(told[PROPERTY_SHOWN]), header.attributes).rows):
            return []
        claim = ((PROPERTY_SKIP, "0"),) if header.previous else ()
        kept = tuple(each for each in effect.wire.properties if each[0] != PROPERTY_SKIP)
        wire = effect.wire
        return [Send(effect.peer, type(wire)(wire.topic, wire.payload, 1, wire.retain, kept + claim), effect.ticket)]


class MuteLiar(FilteringLiar):
    """Passes on everything that is wanted, and never says what it left out."""

    def _lies(self, effect: Effect) -> list[Effect]:
        if not isinstance(effect, Send):
            return [effect]
        kept = tuple(each for each in effect.wire.properties if each[0] != PROPERTY_SKIP)
        wire = effect.wire
        return [Send(effect.peer, type(wire)(wire.topic, wire.payload, wire.qos, wire.retain, kept), effect.ticket)]


class Listener(Adversary):
    """Honest; remembers what came."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.received: list[Wire] = []

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if isinstance(event, Received):
            self.received.append(event.wire)
        return self.machine.handle(event, now)


def world_of(scope: Scope, liars: dict[str, type[Adversary]]) -> World:
    world = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], {"site": 1, "near": 1, "far": 3}, [scope])
    honest = world.maker

    def maker(name: str, rng: random.Random) -> object:
        make = honest(name, rng)
        return (lambda: liars[name](make(), (), rng)) if name in liars else make  # type: ignore[arg-type]

    world.maker = maker  # type: ignore[method-assign, assignment]
    return world


def run(scope: Scope, liars: dict[str, type[Adversary]]) -> tuple[EventTrace, Traffic, World]:
    """`near` and `far` want the attic, later the cellar too, then the attic again."""
    world = world_of(scope, liars)
    kernel = world.kernel(random.Random(7))
    traffic = Traffic("site")
    for reader in ("near", "far"):
        kernel.plan_event(NOW + 2, reader, Subscribed("plant/#", ATTIC))
        kernel.plan_event(NOW + 14, reader, Subscribed("plant/#", CELLAR))
        kernel.plan_event(NOW + 24, reader, Subscribed("plant/#", ATTIC, narrows=True))
    for at in range(90):
        begin = NOW + (4, 16, 36)[at // 30]
        properties = (("room", ROOMS[at % 5]), ("owner", "unseen"))
        traffic.publish(kernel, begin + 0.02 * (at % 30), "plant/rooms", b"secret %d" % at, properties=properties)
    return kernel.run(NOW + 60), traffic, world


def wanted(traffic: Traffic) -> set[int]:
    """The first and last thirty: the attic; those between: the cellar too."""
    rooms = {sequence: dict(each.properties)["room"] for sequence, each in traffic.published.items()}
    return {s for s, room in rooms.items() if room == "attic" or (room == "cellar" and 30 < s <= 60)}


def check(trace: EventTrace, traffic: Traffic) -> None:
    for reader in ("near", "far"):
        found = trace.delivered[reader]
        check_safety(traffic.published, found)
        missing = wanted(traffic) - {delivery.sequence for delivery in found}
        assert not missing, f"{reader} lacks {sorted(missing)}"
        late = [at - d.publication.time_ms / 1000 for at, d in zip(trace.delivered_at[reader], found, strict=True)]
        assert max(late) < REPAIR_S, f"{reader} waited for what nobody would send"


SCOPES = {
    "plain": Scope("plant/#", Mode.PLAIN, shown=(ROOM,)),
    "sealed": Scope("plant/#", shown=(ROOM,)),
    "tokens": Scope("plant/#", tokens=True, shown=(ShownAttribute(("room",), is_token=True),)),
}


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES.keys())
def test_what_nobody_wants_is_left_out_and_no_gap(scope: Scope) -> None:
    trace, traffic, _ = run(scope, {})
    check(trace, traffic)
    for reader in ("near", "far"):
        assert {d.sequence for d in trace.delivered[reader]} == wanted(traffic)
    assert not {"pulls", "holes"} & trace.figures.keys(), "nobody missed what was left out"
    assert not trace.blamed


@pytest.mark.parametrize("way", [FilteringLiar, MuteLiar])
@pytest.mark.parametrize("places", ["aaa", "abc", "cab"])
def test_liars_that_filter_hide_nothing_and_stall_nobody(way: type[Adversary], places: str) -> None:
    liars = {f"r{region}{place}": way for region, place in enumerate(places, 1)}
    trace, traffic, _ = run(SCOPES["sealed"], liars)
    check(trace, traffic)
    check_blame(trace.named_members(), liars)


def test_wires_of_sealed_scopes_show_what_is_declared_and_nothing_else() -> None:
    for scope, shows in ((SCOPES["sealed"], True), (SCOPES["tokens"], False)):
        names = [f"r{region}{place}" for region in (1, 2, 3) for place in "abc"]
        _, _, world = run(scope, dict.fromkeys(names, Listener))
        assert world.running is not None
        seen = b"".join(bytes_of(wire) for name in names for wire in heard(world, name))
        assert (b"attic" in seen) is shows
        assert b"unseen" not in seen
        assert b"secret" not in seen


def heard(world: World, name: str) -> list[Wire]:
    assert world.running is not None
    node = world.running.nodes[name]
    assert isinstance(node, Listener)
    return node.received


def bytes_of(wire: Wire) -> bytes:
    """A wire with its frames taken out of base64."""
    texts = [value for name, value in wire.properties if name not in (PROPERTY_SKIP, PROPERTY_PART)]
    return b"".join((wire.topic.encode(), wire.payload, *map(from_property, texts)))
