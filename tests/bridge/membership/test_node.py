"""What every node does as a member: who its neighbours are, and that nobody else is heard."""

from __future__ import annotations

import pytest

from bridge.contract.machine import Acked, Blame, Count, Event, LinkDown, LinkUp, Received, Wire
from bridge.membership.adopting import OVERLAY_TOPIC
from bridge.membership.node import peers_of
from tests.bridge.helpers import gateway, replica
from tests.sim.world import NOW, make_world

WORLD = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], {"west": 1, "east": 3})
HOSTED = make_world({1: 3}, [], {"west": 1}, hosted=("r1c",))
ONE, TWO, THREE = ({f"r{n}a", f"r{n}b", f"r{n}c"} for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("name", "peers"),
    [
        ("west", ONE),
        ("east", THREE),
        ("r1a", {"west"} | TWO),
        ("r2a", ONE | THREE),
        ("r3b", {"east"} | TWO),
    ],
)
def test_who_has_a_link_with_whom(name: str, peers: set[str]) -> None:
    assert peers_of(WORLD.overlay, name) == peers


def test_a_hosted_broker_is_dialled_and_dials_nobody() -> None:
    assert peers_of(HOSTED.overlay, "west") == ONE
    assert peers_of(HOSTED.overlay, "r1c") == set()


def test_links_are_had_by_both_sides() -> None:
    for name in WORLD.overlay.members:
        for peer in peers_of(WORLD.overlay, name):
            assert name in peers_of(WORLD.overlay, peer), (name, peer)


@pytest.mark.parametrize("stranger", ["r3a", "west-2", "east", ""])
@pytest.mark.parametrize(
    "make", [LinkUp, LinkDown, lambda peer: Received(peer, Wire("plant/a", b"")), lambda peer: Acked(peer, ())],
    ids=["link up", "link down", "wire", "acknowledgement"],
)  # fmt: skip
def test_what_a_stranger_brings_is_refused_whatever_it_is(stranger: str, make: type[LinkUp]) -> None:
    event: Event = make(stranger)
    node = gateway(WORLD, "west")
    assert node.handle(event, NOW) == [
        Count("refused", 1, "stranger"), Blame(stranger, False, "not a neighbour of ours"),
    ]  # fmt: skip


def test_a_hosted_broker_only_carries() -> None:
    """Whoever may publish there would speak of overlays and views in its name."""
    node = gateway(HOSTED, "west")
    for topic in (OVERLAY_TOPIC, "$veil/views", "$veil/anything"):
        effects = node.handle(Received("r1c", Wire(topic, b"whatever")), NOW)
        assert Count("refused", 1, "topic") in effects
        assert Blame("r1c", False, "a hosted broker only carries") in effects


def test_a_neighbour_that_keeps_bringing_what_does_not_hold_is_not_read_for_a_while() -> None:
    node = replica(WORLD, "r2a", ["r3a"])
    counted = []
    for _ in range(2_000):
        effects = node.handle(Received("r3a", Wire(OVERLAY_TOPIC, b"garbage")), NOW)
        counted.append(any(isinstance(one, Count) and one.name == "link_throttled" for one in effects))
    assert not counted[0]
    assert counted[-1]
    other = node.handle(Received("r1a", Wire(OVERLAY_TOPIC, b"garbage")), NOW)
    assert Count("link_throttled", 1, "r1a") not in other
