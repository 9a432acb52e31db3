"""Which pieces go to whom, and over whom where a link is full, in a sealed scope with planes."""

from __future__ import annotations

import pytest

from bridge.contract.loads import Loads
from bridge.contract.machine import Effect, Received, Wire
from bridge.document import Scope
from bridge.node import ReplicaNode
from bridge.wire import PROPERTY_ROUTE
from bridge.wire.pieces import PROPERTY_PART
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, Mode
from tests.bridge.helpers import (
    NOW,
    counted,
    gateway,
    publish,
    replica,
    same_version,
    sent,
    subscribe_at,
    suspected,
    with_properties,
)
from tests.sim.world import World
from tests.support.regions import fresh, row_of_regions

pytestmark = pytest.mark.invariant(16)

LONG = bytes(2000)
REGION_1, REGION_2, REGION_3 = (tuple(f"r{region}{letter}" for letter in "abc") for region in (1, 2, 3))
FULL = 50


SCOPES = [Scope("plant/#", Mode.BLOCKS, planes=True), Scope("strict/#", Mode.BLOCKS), Scope("whole/#", planes=True)]
world = fresh(row_of_regions, 3, {"site": 1, "local": 2, "control": 3}, SCOPES)


def node(world: World, name: str, *, full: tuple[str, ...] = ()) -> ReplicaNode:
    """A replica all of whose links are up; on some of them much waits."""
    found = replica(world, name, sorted(world.overlay.members.keys() - {name}))
    for scope in ("plant/#", "strict/#", "whole/#"):
        region = int(name[1])
        subscribe_at(found, world, "control", scope, via=f"r{region + 1}a" if region < 3 else "control")
        if region <= 2:
            subscribe_at(found, world, "local", scope, via="r2a" if region == 1 else "local")
    found.handle(Loads(tuple((peer, 60, 10, FULL) for peer in full)), NOW)
    return found


def pieces_in(effects: list[Effect], peer: str) -> list[tuple[str | None, str | None]]:
    """Of publications for a peer, which pieces they are and the planes they name."""
    told = [dict(send.wire.properties) for send in sent(effects, peer) if not send.wire.topic.startswith("$")]
    return [(each.get(PROPERTY_PART), each.get(PROPERTY_ROUTE)) for each in told]


def detoured(world: World, scope: str = "plant") -> tuple[Wire, list[Effect]]:
    """What r1a sends to r2b or r2c for r2a, whose link is full; and all that it sends."""
    wires = publish(gateway(world, "site"), f"{scope}/t", LONG, sequence=1)
    effects = node(world, "r1a", full=("r2a",)).handle(Received("site", wires["r1a"]), NOW)
    (over,) = [send.wire for send in sent(effects) if PROPERTY_ROUTE in dict(send.wire.properties)]
    return over, effects


def test_pieces_for_a_replica_whose_link_is_full_go_over_another_and_its_header_does_not(world: World) -> None:
    over, effects = detoured(world)
    assert pieces_in(effects, "r2a") == [("-", None)]
    assert sorted(pieces_in(effects, "r2b") + pieces_in(effects, "r2c"), key=str) == [
        ("-", None), ("-", None), ("0", "1")
    ]  # fmt: skip
    assert counted(effects, "detours") == 1
    assert over.payload


def test_who_gets_them_passes_them_on_to_their_owner_without_any_share(world: World) -> None:
    over, _ = detoured(world)
    effects = node(world, "r2b").handle(Received("r1a", over), NOW)
    assert pieces_in(effects, "r2a") == [("0", None)]
    (to_owner,) = sent(effects, "r2a")
    assert not {PROPERTY_KEY, PROPERTY_SHARES} & dict(to_owner.wire.properties).keys()
    owner = node(world, "r2a").handle(Received("r2b", to_owner.wire), NOW)
    assert pieces_in(owner, "r3a") == [("0", None)]
    assert pieces_in(owner, "local") == [("0", None)]
    assert not suspected(owner)


def test_who_gets_them_does_the_work_of_an_owner_whose_link_is_full_as_well(world: World) -> None:
    over, _ = detoured(world)
    effects = node(world, "r2b", full=("r2a",)).handle(Received("r1a", over), NOW)
    assert pieces_in(effects, "r2a") == []
    assert ("0", None) in pieces_in(effects, "local")
    assert ("0", None) in pieces_in(effects, "r3a")


def test_a_plane_is_served_once_however_often_somebody_names_it(world: World) -> None:
    over, _ = detoured(world)
    other = node(world, "r2b")
    first = other.handle(Received("r1a", over), NOW)
    again = other.handle(Received("r1a", over), NOW) + other.handle(Received("r1c", over), NOW)
    assert (len(sent(first, "r2a")), len(sent(again))) == (1, 0)


@pytest.mark.attack(55)
@pytest.mark.parametrize("liar", ["r1c", "r2c"])
def test_a_vector_beside_nothing_uses_up_no_detour(world: World, liar: str) -> None:
    """Attack: a bad replica of the region before, or of ours, names all planes beside an announcement, or beside a
    piece of its own, before the pieces come that are to be passed on."""
    over, _ = detoured(world)
    header = tuple(pair for pair in over.properties if pair[0] == PROPERTY_HEADER)
    announced = Wire(over.topic, b"", 1, False, (*header, (PROPERTY_PART, "-"), (PROPERTY_ROUTE, "7")))
    other = node(world, "r2b")
    assert not sent(other.handle(Received(liar, announced), NOW), "r2a")
    if liar == "r1c":
        wires = publish(gateway(world, "site"), "plant/t", LONG, sequence=1)
        (own,) = sent(node(world, "r1c").handle(Received("site", wires["r1c"]), NOW), "r2c")
        other.handle(Received(liar, with_properties(own.wire, (PROPERTY_ROUTE, "1"))), NOW)
    assert pieces_in(other.handle(Received("r1a", over), NOW), "r2a") == [("0", None)]


def test_what_is_whole_here_already_goes_on_to_its_owner_all_the_same(world: World) -> None:
    over, _ = detoured(world, "whole")
    wires = publish(gateway(world, "site"), "whole/t", LONG, sequence=1)
    (own,) = sent(node(world, "r1b").handle(Received("site", wires["r1b"]), NOW), "r2b")
    other = node(world, "r2b")
    assert not sent(other.handle(Received("r1b", own.wire), NOW), "r2a")
    assert len(sent(other.handle(Received("r1a", over), NOW), "r2a")) == 1


def test_an_altered_piece_is_charged_to_who_sent_it_and_goes_no_further(world: World) -> None:
    over, _ = detoured(world)
    altered = Wire(over.topic, b"x" + over.payload[1:], 1, False, over.properties)
    effects = node(world, "r2b").handle(Received("r1a", altered), NOW)
    assert suspected(effects) == {"r1a"}
    assert not sent(effects, "r2a")
    (to_owner,) = sent(node(world, "r2b").handle(Received("r1a", over), NOW), "r2a")
    altered = Wire(over.topic, b"x" + over.payload[1:], 1, False, to_owner.wire.properties)
    assert suspected(node(world, "r2a").handle(Received("r2b", altered), NOW)) == {"r2b"}


def test_what_went_into_a_link_that_stands_still_goes_another_way_too(world: World) -> None:
    wires = publish(gateway(world, "site"), "plant/t", LONG, sequence=1)
    sender = node(world, "r1a")
    assert pieces_in(sender.handle(Received("site", wires["r1a"]), NOW), "r2a") == [("0", None)]
    sender.handle(Loads((("r2a", 1, 0, 1),)), NOW)
    effects = sender.handle(Loads((("r2a", 0, 0, 1),)), NOW + 0.5)
    assert ("0", "1") in pieces_in(effects, "r2b") + pieces_in(effects, "r2c")


def test_nothing_takes_a_detour_where_the_owner_did_not_say_so(world: World) -> None:
    wires = publish(gateway(world, "site"), "strict/t", LONG, sequence=1)
    effects = node(world, "r1a", full=("r2a",)).handle(Received("site", wires["r1a"]), NOW)
    assert pieces_in(effects, "r2a") == [("0", None)]
    assert counted(effects, "detours") == 0
    (own,) = sent(effects, "r2a")
    named = with_properties(own.wire, (PROPERTY_ROUTE, "2"))
    effects = node(world, "r2a").handle(Received("r1a", named), NOW)
    assert not sent(effects, "r2b")
    other = node(world, "r2b")
    same_version(other, "r2a")
    assert suspected(other.handle(Received("r2a", own.wire), NOW)) == {"r2a"}, "of our own region"


def test_what_is_retained_takes_no_detour(world: World) -> None:
    wires = publish(gateway(world, "site"), "whole/t", LONG, sequence=1, retain=True)
    effects = node(world, "r1a", full=("r2a",)).handle(Received("site", wires["r1a"]), NOW)
    assert counted(effects, "detours") == 0
    assert [len(each.wire.payload) > len(LONG) for each in sent(effects, "r2a")] == [True]
