"""To whom a replica gives a publication, by regions and by planes, and whom it believes about what was left out.

Words of replicas that serve another one's plane: they wait until that one was silent for long enough.
"""

from __future__ import annotations

import pytest

from bridge.document import Scope, ShownAttribute
from bridge.replica.destinations import SILENT_S, WORDS_MAX, Destinations, SilentHosts
from bridge.topology import Routes
from bridge.wire import PROPERTY_ROUTE, PROPERTY_SKIP, Admitted, RoutingTable, ShownList
from keys.message import NO_KEY, MessageHeader, Mode
from tests.sim.world import NOW, make_world

ONE, TWO = b"1" * 16, b"2" * 16


def test_a_word_counts_when_the_host_brought_nothing_for_long_enough_since() -> None:
    hosts: SilentHosts[str] = SilentHosts()
    assert hosts.next_deadline is None
    hosts.said("r1b", ONE, "first", 10.0)
    hosts.said("r1b", ONE, "second", 10.3)
    assert hosts.next_deadline == 10.0 + SILENT_S
    assert hosts.take_due_words(10.0 + SILENT_S - 0.01) == []
    assert not hosts.is_silent("r1b", 10.4)
    assert hosts.take_due_words(10.0 + SILENT_S) == ["first", "second"]
    assert hosts.take_due_words(11.0) == []
    assert hosts.is_silent("r1b", 11.0), "until it brings something"
    assert hosts.next_deadline is None


def test_a_host_that_brings_something_is_not_silent_and_words_for_it_count_no_more() -> None:
    hosts: SilentHosts[str] = SilentHosts()
    hosts.said("r1b", ONE, "of b", 10.0)
    hosts.said("r1c", ONE, "of c", 10.1)
    hosts.brought("r1b")
    assert hosts.take_due_words(11.0) == ["of c"]
    hosts.said("r1b", ONE, "of b", 12.0)
    assert not hosts.is_silent("r1b", 12.4)
    hosts.brought("r1c")
    assert not hosts.is_silent("r1c", 13.0)
    hosts.forget_words()
    assert hosts.take_due_words(14.0) == []


def test_a_publisher_with_many_gaps_loses_its_own_words_first() -> None:
    hosts: SilentHosts[str] = SilentHosts()
    hosts.said("r1b", TWO, "of two", 10.0)
    for number in range(2 * WORDS_MAX):
        hosts.said("r1b", ONE, str(number), 10.1)
    assert len(hosts) == WORDS_MAX
    found = hosts.take_due_words(11.0)
    assert found[0] == "of two"
    assert found[-1] == str(2 * WORDS_MAX - 1)


pytestmark = pytest.mark.invariant(19)

ROOM = ShownAttribute(("room",))
BY_REGIONS = Scope("plant/#", Mode.PLAIN, shown=(ROOM,))
BY_PLANES = Scope("news/#", Mode.PLAIN, shown=(ROOM,), planes=True)
GATEWAYS = {"site": 1, **{f"far{at}": 3 for at in range(9)}}
WORLD = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], GATEWAYS, [BY_REGIONS, BY_PLANES])
SITE = WORLD.overlay.certificate("site")
ATTIC = ShownList(frozenset({("room",)}), ({("room",): "attic"},))


class Wanting(RoutingTable):
    """Those who want a scope, and of them those who do not want the attic."""

    def __init__(self, readers: list[str], uninterested: list[str]) -> None:
        super().__init__(WORLD.overlay)
        self.readers, self.uninterested = readers, frozenset(uninterested)

    def wanting(self, scope: Scope, now: float) -> list[str]:
        return self.readers

    def left_out(self, scope: Scope, shown: ShownList) -> frozenset[str]:
        return self.uninterested


def hung(plane: int) -> list[str]:
    """Gateways that hang on a plane."""
    planes = Routes(WORLD.overlay, "r1a").planes
    return [f"far{at}" for at in range(9) if planes.host(BY_PLANES, f"far{at}") == plane]


def destinations(name: str, readers: list[str], uninterested: list[str]) -> Destinations:
    routes = Routes(WORLD.overlay, name)
    routes.up = {peer for peer in WORLD.overlay.members if peer != name}
    return Destinations(routes, Wanting(readers, uninterested))


def admitted(sequence: int, scope: Scope, *, retain: bool = False) -> Admitted:
    header = MessageHeader(b"p" * 16, NO_KEY, sequence, sequence - 1, 1, 0, 1, retain, False, Mode.PLAIN, (bytes(32),))
    return Admitted(header, b"", SITE, scope, 0, True, None, 0)  # type: ignore[arg-type]


def test_by_regions_all_replicas_before_somebody_interested_get_it() -> None:
    replica = destinations("r2b", ["far0", "far1"], ["far0"])
    assert replica.by_regions(admitted(1, BY_REGIONS), ATTIC, NOW) == ["r3a", "r3b", "r3c"]
    nobody = destinations("r2b", ["far0"], ["far0"])
    assert nobody.by_regions(admitted(1, BY_REGIONS), ATTIC, NOW) == []
    assert nobody.by_regions(admitted(2, BY_REGIONS), None, NOW) == ["r3a", "r3b", "r3c"]
    assert nobody.beside("r3a", admitted(2, BY_REGIONS)) == ((PROPERTY_SKIP, "0"),)


def test_by_planes_a_plane_on_which_nobody_wants_it_is_left_out_and_told_so() -> None:
    readers = [hung(1)[0], hung(2)[0]]
    replica = destinations("r2b", readers, [hung(1)[0]])
    assert replica.by_planes(admitted(1, BY_PLANES), ATTIC, 0, NOW) == []
    assert replica.by_planes(admitted(2, BY_PLANES), None, 0, NOW) == ["r3b"]
    assert replica.beside("r3b", admitted(2, BY_PLANES)) == ((PROPERTY_SKIP, "0"),)


def test_a_plane_on_which_one_of_two_wants_it_carries_it() -> None:
    replica = destinations("r2b", hung(1), hung(1)[:1])
    assert replica.by_planes(admitted(1, BY_PLANES), ATTIC, 0, NOW) == ["r3b"]
    assert replica.beside("r3b", admitted(1, BY_PLANES)) == ()


@pytest.mark.parametrize(
    ("sender", "vector", "believed"),
    [
        ("r2b", "", True),
        ("r2b", "6", True),
        ("r2b", "4", False),
        ("r2a", "", False),
        ("r3a", "", False),
        ("site", "", False),
    ],
)
def test_by_planes_the_replica_of_our_plane_before_us_is_believed_alone_about_our_plane(
    sender: str, vector: str, believed: bool
) -> None:
    (reader, other) = hung(1)[0], hung(2)[0]
    replica = destinations("r3b", [reader, other], [])
    said = {PROPERTY_SKIP: "3", **({PROPERTY_ROUTE: vector} if vector else {})}
    assert replica.take_gap_word(sender, admitted(9, BY_PLANES), said, NOW) == []
    gets = replica.by_planes(admitted(9, BY_PLANES), ATTIC, 0b10, NOW)
    assert gets == [reader]
    claims = replica.beside(reader, admitted(9, BY_PLANES))
    assert claims == (((PROPERTY_SKIP, "3"),) if believed else ())


def test_by_planes_who_serves_a_plane_for_a_silent_replica_is_believed_after_a_while() -> None:
    reader = hung(1)[0]
    replica = destinations("r3b", [reader], [])
    for sequence in (8, 9):
        assert replica.by_planes(admitted(sequence, BY_PLANES), ATTIC, 0, NOW) == [reader]
        assert (
            replica.take_gap_word("r2a", admitted(sequence, BY_PLANES), {PROPERTY_SKIP: str(sequence - 4)}, NOW) == []
        )
    assert replica.silent.next_deadline == NOW + SILENT_S
    assert list(replica.tick(NOW + SILENT_S - 0.01)) == []
    assert list(replica.tick(NOW + SILENT_S)) == [(reader, (b"p" * 16, 8)), (reader, (b"p" * 16, 9))]
    assert replica.beside(reader, admitted(8, BY_PLANES)) == ((PROPERTY_SKIP, "4"),)
    later = admitted(12, BY_PLANES)
    assert replica.take_gap_word("r2a", later, {PROPERTY_SKIP: "9"}, NOW + SILENT_S + 1) == []
    replica.by_planes(later, ATTIC, 0, NOW + SILENT_S + 1)
    assert replica.beside(reader, later) == ((PROPERTY_SKIP, "9"),), "at once, while it is silent"


def test_by_planes_nobody_is_believed_for_a_replica_that_brings_anything() -> None:
    reader = hung(1)[0]
    replica = destinations("r3b", [reader], [])
    replica.by_planes(admitted(9, BY_PLANES), ATTIC, 0, NOW)
    replica.take_gap_word("r2a", admitted(9, BY_PLANES), {PROPERTY_SKIP: "3"}, NOW)
    replica.take_gap_word("r2b", admitted(8, BY_PLANES), {}, NOW + SILENT_S - 0.01)
    assert list(replica.tick(NOW + 10)) == []
    assert replica.beside(reader, admitted(9, BY_PLANES)) == ()


def test_by_regions_it_takes_f_plus_one_and_those_who_got_it_already_are_told() -> None:
    replica = destinations("r3b", ["far0"], [])
    replica.by_regions(admitted(9, BY_REGIONS), ATTIC, NOW)
    assert replica.take_gap_word("r2a", admitted(9, BY_REGIONS), {PROPERTY_SKIP: "3"}, NOW) == []
    assert replica.take_gap_word("r2b", admitted(9, BY_REGIONS), {PROPERTY_SKIP: "3"}, NOW) == [
        ("far0", (b"p" * 16, 9))
    ]


def test_what_is_retained_goes_by_regions_and_to_those_who_do_not_want_it() -> None:
    replica = destinations("r2b", hung(1), hung(1))
    kept = admitted(1, BY_PLANES, retain=True)
    assert replica.by_planes(kept, ATTIC, 0, NOW) is None
    assert replica.by_regions(kept, ATTIC, NOW) == ["r3a", "r3b", "r3c"]
