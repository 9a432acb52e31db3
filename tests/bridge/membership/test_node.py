"""What every node does as a member: who its neighbours are, and that nobody else is heard."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from bridge.contract.machine import (
    Acked,
    Adopt,
    Adoption,
    Blame,
    Count,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Received,
    Rotated,
    Tick,
    Wire,
)
from bridge.document.overlay import Overlay
from bridge.membership.adopting import OVERLAY_TOPIC, OfferedVersion, canonical
from bridge.membership.node import Node, peers_of
from tests.bridge.helpers import gateway, replica
from tests.sim.world import NOW, World, make_world

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
    "make", [LinkUp, LinkDown, lambda peer: Received(peer, Wire("plant/a", b"")), lambda peer: Acked(peer, 7)],
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


# ---------------------------------------------------------------------------------------------- what a role hears


class Probe(Node):
    """A role that notes what it is asked."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.overlay, name)
        self.events: list[Event] = []
        self.adopted: list[Overlay] = []
        self.erased = 0
        self.deadlines: list[float | None] = []

    def _handle_event(self, event: Event, now: float) -> list[Effect]:
        self.events.append(event)
        return [Count("event")]

    def _adopt_overlay(self, overlay: Overlay, now: float) -> list[Effect]:
        self.adopted.append(overlay)
        return [Count("adopted")]

    def _erase(self) -> None:
        self.erased += 1

    def _deadlines(self) -> list[float | None]:
        return self.deadlines


CROWD = make_world({1: 3}, [], dict.fromkeys(("east", "north", "south", "west", "yard", "zoo"), 1))


def version(number: int, without: Collection[str] = ()) -> bytes:
    present, owner = CROWD.overlay, CROWD.owner
    assert owner is not None
    grants = tuple(grant for grant in present.policy.grants if grant.member not in without)
    members = [member for name, member in present.members.items() if name not in without]
    return canonical(
        Overlay.sign(owner, replace(present.policy, version=number, grants=grants), present.views.values(), members)
    )


def test_what_concerns_the_overlay_stays_here_and_the_rest_goes_to_the_role() -> None:
    node = Probe(HOSTED, "west")
    assert node.name == "west"
    node.handle(LinkUp("r1a"), NOW)
    node.events.clear()
    for topic in (OVERLAY_TOPIC, "$veil/views"):
        (refused, blame) = node.handle(Received("r1a", Wire(topic, b"garbage")), NOW)
        assert isinstance(refused, Count)
        assert isinstance(blame, Blame)
        assert (refused.name, blame.member, blame.named) == ("refused", "r1a", False)
    assert node.events == []
    for peer, topic in (("r1a", "$veil/anything"), ("r1a", "plant/a"), ("r1c", "plant/a")):
        event = Received(peer, Wire(topic, b"x"))
        assert node.handle(event, NOW) == [Count("event")]
        assert node.events[-1] is event


def test_neighbours_that_left_are_let_go_in_order_before_the_role_follows() -> None:
    node = Probe(CROWD, "r1a")
    left = ("east", "north", "south", "west", "yard")
    effects = node.offered(version(2, left), NOW)
    assert node.events == [LinkDown(peer) for peer in left]
    assert node.adopted == [node.overlay]
    assert node.erased == 0
    assert node.peers == {"zoo"}
    assert effects[-1 - len(left) :] == [Count("event")] * len(left) + [Count("adopted")]
    assert node.handle(Tick(), NOW) == [Count("event")]
    assert len(node.adopted) == 1, "nothing new"


def test_who_left_and_came_back_has_a_budget_again() -> None:
    node = Probe(CROWD, "r1a")
    garbage = Received("zoo", Wire(OVERLAY_TOPIC, b"garbage"))
    node.handle(LinkUp("zoo"), NOW)
    for _ in range(2_000):
        last = node.handle(garbage, NOW)
    assert last == [Count("link_throttled", 1, "zoo")]
    node.offered(version(2, ["zoo"]), NOW)
    node.offered(version(3), NOW)
    node.handle(LinkUp("zoo"), NOW)
    assert node.handle(garbage, NOW)[0] != last[0]


def test_a_removed_node_erases_hears_nothing_and_has_no_deadline_of_its_role() -> None:
    node = Probe(CROWD, "zoo")
    node.deadlines = [NOW + 7]
    assert (node.peers, node.removed, node.next_deadline) == ({"r1a", "r1b", "r1c"}, False, NOW + 7)
    node.offered(version(2, ["zoo"]), NOW)
    assert (node.peers, node.removed, node.next_deadline, node.erased) == (frozenset(), True, None, 1)
    for event in (Tick(), LinkDown("r1a"), Received("r1a", Wire("plant/a", b"x"))):
        assert node.handle(event, NOW) == []
    assert (node.events, node.adopted) == ([], [])
    question = OfferedVersion.of_overlay(node.overlay).encode(1)
    node.handle(LinkUp("r1b"), NOW)
    answers = node.handle(Received("r1b", Wire(OVERLAY_TOPIC, question)), NOW)
    assert Count("overlays_sent") in answers, "the version that removes it is passed on"


def test_a_role_does_not_follow_what_nobody_puts_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one tick puts a view in force and, with the one before, ends our use."""
    node = Probe(CROWD, "zoo")
    node.offered(version(2, ["zoo"]), NOW)
    both = [Adopt(CROWD.overlay, b"", outcome) for outcome in (Adoption.LIVE, Adoption.REMOVED)]
    monkeypatch.setattr(node.keeper, "tick", lambda _: both)
    assert node.handle(Tick(), NOW) == both
    assert (node.adopted, node.erased) == ([], 2)


def test_the_earliest_deadline_counts_and_never_is_none() -> None:
    for deadlines, earliest in (([], None), ([None, float("inf")], None), ([NOW + 9, None, NOW + 8], NOW + 8)):
        node = Probe(CROWD, "zoo")
        node.deadlines = deadlines
        assert node.next_deadline == earliest


def test_a_link_that_falls_ends_what_its_neighbour_said_and_a_new_key_pair_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, rotated = Probe(CROWD, "zoo"), []
    node.handle(LinkUp("r1a"), NOW)
    node.handle(Received("r1a", Wire(OVERLAY_TOPIC, OfferedVersion(1, bytes(32)).encode())), NOW)
    assert node.versions == {"r1a": 1}
    node.handle(LinkDown("r1a"), NOW)
    assert node.versions == {}
    monkeypatch.setattr(node.keeper, "rotate_identity", lambda *what: rotated.append(what))
    node.handle(Rotated(CROWD.identities["zoo"]), NOW)
    assert rotated == [(CROWD.identities["zoo"], NOW)]


def test_a_role_says_for_itself_what_it_does() -> None:
    node = Node(CROWD.overlay, "zoo")
    with pytest.raises(NotImplementedError):
        node.handle(Tick(), NOW)
    with pytest.raises(NotImplementedError):
        assert node.next_deadline
    with pytest.raises(NotImplementedError):
        node.offered(version(2), NOW)
