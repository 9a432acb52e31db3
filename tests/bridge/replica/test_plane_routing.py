"""What a replica does with a publication that goes by planes: its own plane, vectors, and links that are not free."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.contract import LOADS_EVERY_S, PeerLoad
from bridge.document import Scope
from bridge.replica.plane_routing import STILL_S, PlaneRouting
from bridge.topology import Routes, Topology, planes_of, static
from bridge.wire import Admitted
from keys.envelope import Mode
from keys.identity import Certificate
from tests.sim.world import NOW, make_world

pytestmark = pytest.mark.invariant(18)

SCOPE = Scope("plant/#", Mode.PLAIN, planes=True)
GATEWAYS = {"site": 1, **{f"far{number}": 3 for number in range(12)}, **{f"near{number}": 2 for number in range(12)},
            **{f"home{number}": 1 for number in range(12)}}  # fmt: skip
OVERLAY = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], GATEWAYS, [SCOPE]).overlay
SITE = OVERLAY.certificate("site")
NAME = (SITE.party_id, 7)
FULL, EMPTY = 50, 0


def admitted(scope: Scope, publisher: Certificate = SITE) -> Admitted:
    """What somebody published in a scope, as far as routing asks."""
    return Admitted(None, b"", publisher, scope, 0, True, None, 0)  # type: ignore[arg-type]


class Replica:
    """`name`, whose links are all up; `readers` want the scope."""

    def __init__(self, name: str, readers: list[str], scope: Scope = SCOPE) -> None:
        self.routes, self.scope = Routes(OVERLAY, name), scope
        self.routes.up = {peer for peer in OVERLAY.members if peer != name}
        self.routing = PlaneRouting(self.routes, lambda scope, now: readers)

    def gets(self, vector: int = 0, sequence: int = 7) -> dict[str, int] | None:
        name = (SITE.party_id, sequence)
        peers = self.routing.peers(name, admitted(self.scope), vector, NOW)
        return None if peers is None else {peer: self.routing.vector(name, peer) for peer in peers}

    def loaded(self, *links: PeerLoad, now: float = NOW) -> list[str]:
        return self.routing.loaded(links, now)


def on(plane: int, kind: str) -> str:
    """A gateway that hangs on the plane."""
    planes = Routes(OVERLAY, "r1a").planes
    return next(name for name in GATEWAYS if name.startswith(kind) and planes.host(SCOPE, name) == plane)


FAR = [on(plane, "far") for plane in range(3)]
NEAR = [on(plane, "near") for plane in range(3)]


def test_a_publication_stays_in_its_plane_and_reaches_those_that_hang_on_it() -> None:
    assert Replica("r1b", FAR).gets() == {"r2b": 0}
    assert Replica("r2b", FAR + NEAR).gets() == {"r3b": 0, NEAR[1]: 0}
    assert Replica("r3b", FAR).gets() == {FAR[1]: 0}
    assert Replica("r1b", [FAR[0]]).gets() == {}


def test_a_vector_names_planes_that_we_are_responsible_for() -> None:
    assert Replica("r2b", FAR + NEAR).gets(0b110) == {"r3b": 0, NEAR[1]: 0, "r2c": 0}


def test_each_plane_is_served_once() -> None:
    replica = Replica("r2b", FAR)
    assert replica.gets() == {"r3b": 0}
    assert replica.gets() == {}
    assert replica.gets(0b001) == {"r2a": 0}
    assert replica.gets(0b011) == {}


def test_what_is_not_to_go_by_planes_is_left_to_others() -> None:
    assert Replica("r2b", FAR, Scope("plant/#", Mode.PLAIN)).gets() is None


def test_another_replica_takes_over_where_the_link_along_the_plane_is_full() -> None:
    replica = Replica("r1b", FAR)
    replica.loaded(("r2b", 60, 10, FULL), ("r2a", 9, 3, 6))
    assert replica.gets() == {"r2c": 0b010}


def test_whoever_took_over_goes_on_while_its_link_is_free() -> None:
    replica = Replica("r1b", FAR)
    replica.loaded(("r2b", 60, 10, FULL), ("r2a", 9, 3, 6), ("r2c", 1, 1, 0))
    assert replica.gets(sequence=1) == {"r2c": 0b010}
    replica.loaded(("r2b", 60, 10, FULL), ("r2a", 1, 1, 0), ("r2c", 9, 3, 6))
    assert replica.gets(sequence=2) == {"r2c": 0b010}
    replica.loaded(("r2b", 60, 10, FULL), ("r2a", 1, 1, 0), ("r2c", 60, 10, FULL))
    assert replica.gets(sequence=3) == {"r2a": 0b010}
    replica.loaded(("r2b", 1, 1, EMPTY))
    assert replica.gets(sequence=4) == {"r2b": 0}


def test_where_all_are_full_the_own_plane_is_kept() -> None:
    replica = Replica("r1b", FAR)
    replica.loaded(*[(peer, 60, 10, FULL) for peer in ("r2a", "r2b", "r2c")])
    assert replica.gets() == {"r2b": 0}


def test_we_do_the_work_of_a_neighbour_whose_link_is_full() -> None:
    replica = Replica("r2b", [FAR[2], NEAR[2]])
    replica.loaded(("r2c", 60, 0, FULL))
    assert replica.gets(0b110) == {"r3c": 0, NEAR[2]: 0}


def test_a_neighbour_whose_link_is_full_is_reached_over_another() -> None:
    replica = Replica("r2b", [FAR[0], FAR[2]])
    replica.loaded(("r2c", 60, 0, FULL))
    assert replica.gets(0b101) == {"r2a": 0b101}


def test_nothing_goes_back_to_the_region_from_which_it_came() -> None:
    """The replica that a detour leads over passes it on, and everybody knows where the publisher is."""
    readers = [on(plane, "home") for plane in range(3)]
    for vector in (0, 0b101, 0b111):
        assert Replica("r2b", readers).gets(vector) == {}
    full = Replica("r2b", [*readers, FAR[1]])
    full.loaded(("r3b", 60, 10, FULL), ("r1b", 60, 10, FULL))
    assert full.gets() == {"r3a": 0b010}


def test_a_link_stands_still_when_nothing_was_acknowledged_for_a_while() -> None:
    replica, now = Replica("r1b", FAR), NOW
    while now < NOW + STILL_S - LOADS_EVERY_S:
        assert replica.loaded(("r2b", 0, 0, 3), now=now) == []
        now += LOADS_EVERY_S
    assert replica.gets() == {"r2b": 0}
    assert replica.loaded(("r2b", 0, 0, 3), now=now) == ["r2b"]
    assert replica.loaded(("r2b", 0, 0, 3), now=now + LOADS_EVERY_S) == []
    assert replica.gets(sequence=8) == {"r2a": 0b010}
    assert replica.loaded(("r2b", 0, 3, EMPTY), now=now + 2 * LOADS_EVERY_S) == []
    assert replica.gets(sequence=9) == {"r2b": 0}


def test_what_went_into_a_link_that_stands_still_goes_another_way_once() -> None:
    replica = Replica("r1b", FAR)
    assert replica.gets() == {"r2b": 0}
    replica.loaded(("r2b", 1, 0, 1), now=NOW)
    assert replica.loaded(("r2b", 0, 0, 1), now=NOW + STILL_S) == ["r2b"]
    assert replica.routing.other_receivers(NAME, admitted(SCOPE), "r2b", NOW) == ["r2a"]
    assert replica.routing.vector(NAME, "r2a") == 0b010
    assert replica.routing.other_receivers(NAME, admitted(SCOPE), "r2b", NOW) == []


@pytest.mark.parametrize("gone", ["r2b", "r2c"])
def test_a_link_that_is_down_is_like_a_full_one(gone: str) -> None:
    replica = Replica("r1b", FAR)
    replica.routes.up.discard(gone)
    assert replica.gets() == ({"r2a": 0b010} if gone == "r2b" else {"r2b": 0})


TREE = [(1, 2), (2, 3), (2, 4)]
REGIONS, PLANES, DIAMETER = (1, 2, 3, 4), 3, 2
READERS = [f"at{region}{letter}" for region in REGIONS for letter in "abcdef"]
BRANCHED = make_world(
    dict.fromkeys(REGIONS, PLANES), TREE, {"site": 1, "site2": 2, **{name: int(name[2]) for name in READERS}}, [SCOPE]
).overlay
Copy: TypeAlias = tuple[str, str, int]
"""From whom, to whom, with which vector."""


def carried(
    site: str, readers: list[str], waits: Callable[[str, str], int], goes: Callable[[str, str], bool]
) -> list[Copy]:
    """Every copy of one publication, in order, where so many wait on a link from one to another, and some are down."""
    names = [f"r{region}{letter}" for region in REGIONS for letter in "abc"]
    home = BRANCHED.certificate(site)
    routing = dict[str, PlaneRouting]()
    for name in names:
        routes = Routes(BRANCHED, name)
        routes.up = {peer for peer in BRANCHED.members if peer not in names or (peer != name and goes(name, peer))}
        routing[name] = PlaneRouting(routes, lambda scope, now: readers)
        routing[name].loaded([(peer, 60, 10, waits(name, peer)) for peer in names if peer != name], NOW)
    copies: list[Copy] = [(site, f"r{home.region}{letter}", 0) for letter in "abc"]
    for _, name, vector in copies:  # grows meanwhile
        assert len(copies) < 1000, "it does not end"
        if name in routing:
            found = routing[name].peers((home.party_id, 7), admitted(SCOPE, home), vector, NOW) or []
            copies += [(name, peer, routing[name].vector((home.party_id, 7), peer)) for peer in found]
    return copies


def drawn(seed: int, *names: str) -> int:
    return crc32(f"{seed} {names}".encode())


@given(st.sampled_from(["site", "site2"]), st.sets(st.sampled_from(READERS)), st.integers(0, 1 << 30), st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_is_congested_every_gateway_gets_one_and_no_copy_comes_back(
    site: str, readers: set[str], seed: int, some_down: bool
) -> None:
    """Each region is entered once in each plane at most, from the side of the publisher."""
    copies = carried(
        site, sorted(readers), lambda here, to: drawn(seed, here, to) % 24,
        lambda here, to: not some_down or drawn(seed, "down", *sorted((here, to))) % 8 > 0 or here[2] == to[2],
    )  # fmt: skip
    topology = Topology(BRANCHED)
    home = BRANCHED.certificate(site).region
    received = [to for _, to, _ in copies if to in readers]
    assert sorted(received) == sorted(readers)
    entered, hops = list[tuple[int, int]](), {site: 0}
    for here, to, vector in copies:
        hops.setdefault(to, hops[here] + 1)
        one, other = (BRANCHED.certificate(name).region for name in (here, to))
        if one != other:
            assert topology.last_before(home, other, 0) == one, "a copy goes back"
            entered += [(other, plane) for plane in (planes_of(vector) or ["abc".index(to[2])])]
    assert len(entered) == len(set(entered))
    assert len(copies) <= PLANES + len(readers) + PLANES * (2 * len(REGIONS) - 1)
    assert max(hops.values()) <= PLANES * (DIAMETER + 1) + 1


@given(st.sets(st.sampled_from(READERS)))
def test_where_nothing_waits_routing_is_static(readers: set[str]) -> None:
    """One copy on each link of a plane's tree behind which somebody hangs on it, and no vector."""
    topology, planes, expected = Topology(BRANCHED), Routes(BRANCHED, "r1a").planes, set[tuple[str, str]]()
    for reader in readers:
        letter, region = "abc"[planes.host(SCOPE, reader)], int(reader[2])
        expected.add((f"r{region}{letter}", reader))
        while (before := topology.last_before(1, region, 0)) is not None:
            for copy in static((before, "abc".index(letter)), [region], 0):
                expected.add((f"r{before}{letter}", planes.replica(copy.to)))
            region = before
    copies = carried("site", sorted(readers), lambda here, to: 0, lambda here, to: True)[PLANES:]
    assert sorted((here, to) for here, to, _ in copies) == sorted(expected)
    assert not any(vector for _, _, vector in copies)
