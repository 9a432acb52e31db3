"""Statements in two steps, and what neighbours that compare tell each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from bridge.contract import Received, Send, Wire
from bridge.document import Scope
from bridge.replica.statement_relay import ANSWERS_BURST, COMPARE_S, COMPARE_TOPIC, StatementRelay
from bridge.topology import Routes
from bridge.wire import SUBSCRIBE_TOPIC, RoutingTable, Statement
from keys.envelope import Mode
from keys.errors import BadFrame, NotAuthorised
from tests.sim.world import NOW, make_world

pytestmark = pytest.mark.invariant(20)

PLANES = Scope("plant/#", Mode.PLAIN, planes=True)
WORLD = make_world(
    {1: 3, 2: 3, 3: 3, 4: 3}, [(1, 2), (2, 3), (2, 4)], {"site": 1, "far": 3}, [PLANES, Scope("all/#", Mode.PLAIN)]
)
HOST = Routes(WORLD.overlay, "r3a").planes.host(PLANES, "far")
LETTERS = "abc"


def at(region: int, plane: int = HOST) -> str:
    return f"r{region}{LETTERS[plane % 3]}"


def said(wire_filter: str = "plant/#", version: int = 1) -> Statement:
    expires_ms = int((NOW + 1000) * 1000)
    return Statement("far", wire_filter, version, True, expires_ms).signed(WORLD.identities["far"])


class Replica:
    """`name`, whose links are all up."""

    def __init__(self, name: str) -> None:
        self.routes, self.routing = Routes(WORLD.overlay, name), RoutingTable(WORLD.overlay)
        self.routes.up = {peer for peer in WORLD.overlay.members if peer != name}
        self.relay = StatementRelay(self.routes, self.routing)
        self.relay.begin_comparing(NOW)
        self.now = NOW

    def knows(self, statement: Statement) -> Replica:
        self.routing.accept(statement, NOW)
        return self

    def digest(self) -> Wire:
        self.now += COMPARE_S
        sends = self.relay.tick(self.now)
        return next(send.wire for send in sends if isinstance(send, Send))

    def hears(self, peer: str, wire: Wire) -> list[Statement]:
        sends = self.relay.compared(Received(peer, wire), NOW)
        assert all(isinstance(send, Send) and (send.peer, send.wire.topic) == (peer, SUBSCRIBE_TOPIC) for send in sends)
        return [Statement.decode(send.wire.payload) for send in sends if isinstance(send, Send)]


def test_the_host_passes_it_on_in_its_plane_and_others_that_the_gateway_told_do_not() -> None:
    assert Replica(at(3)).relay.onwards(said(), "far") == [at(2)]
    assert Replica(at(3, HOST + 1)).relay.onwards(said(), "far") == []


def test_whoever_gets_it_along_the_plane_tells_its_region_and_the_next_ones() -> None:
    others = [at(2, plane) for plane in range(3) if plane != HOST]
    assert sorted(Replica(at(2)).relay.onwards(said(), at(3))) == sorted([at(1), at(4), *others])
    assert Replica(others[0]).relay.onwards(said(), at(2)) == []


def test_every_replica_hears_it_once() -> None:
    """V - 1 messages between replicas and from the gateway's host to the others of its region."""
    replicas = [at(region, plane) for region in (1, 2, 3, 4) for plane in range(3)]
    waiting, heard = [("far", at(3, plane)) for plane in range(3)], list[str]()
    while waiting:
        sender, name = waiting.pop(0)
        heard.append(name)
        waiting += [(name, peer) for peer in Replica(name).relay.onwards(said(), sender)]
    assert sorted(heard) == sorted(replicas)


def test_where_the_next_one_is_gone_all_of_its_region_are_told() -> None:
    replica = Replica(at(3))
    replica.routes.up.discard(at(2))
    assert sorted(replica.relay.onwards(said(), "far")) == sorted(at(2, plane) for plane in range(3) if plane != HOST)


def test_where_the_host_is_gone_the_others_pass_on() -> None:
    replica = Replica(at(3, HOST + 1))
    replica.routes.up.discard(at(3))
    assert replica.relay.onwards(said(), "far") == [at(2, HOST + 1)]


def test_who_stands_by_passes_nothing_on() -> None:
    """Its region has a replica more than the scope has planes."""
    sizes = {1: 3, 2: 4, 3: 3}
    overlay = make_world(sizes, [(1, 2), (2, 3)], {"site": 1, "far": 3}, [PLANES]).overlay
    routes = Routes(overlay, "r2d")
    routes.up = {peer for peer in overlay.members if peer != "r2d"}
    relay = StatementRelay(routes, RoutingTable(overlay))
    assert [relay.onwards(said(), sender) for sender in (at(2), at(3))] == [[], []]
    routes = Routes(overlay, at(2))
    routes.up = {peer for peer in overlay.members if peer != at(2)}
    assert "r2d" in StatementRelay(routes, RoutingTable(overlay)).onwards(said(), at(3)), "but it is told"


def test_statements_of_other_scopes_flood() -> None:
    assert sorted(Replica(at(3)).relay.onwards(said("all/#"), "far")) == ["r2a", "r2b", "r2c"]
    assert sorted(Replica(at(2)).relay.onwards(said("all/#"), at(3))) == ["r1a", "r1b", "r1c", "r4a", "r4b", "r4c"]


def test_neighbours_that_compare_tell_what_the_other_lacks() -> None:
    one, other = Replica(at(2)).knows(said()), Replica(at(2, HOST + 1))
    assert one.hears(at(2, HOST + 1), other.digest()) == [said()]
    assert other.hears(at(2), one.digest()) == []
    assert one.hears(at(2, HOST + 1), other.knows(said()).digest()) == []
    newer = said(version=2)
    assert other.knows(newer).hears(at(2), one.digest()) == [newer]


def test_who_compares_with_whom() -> None:
    sends = Replica(at(2)).relay.tick(NOW + COMPARE_S)
    others = [at(2, plane) for plane in range(3) if plane != HOST]
    assert sorted(send.peer for send in sends if isinstance(send, Send)) == sorted([at(1), at(3), at(4), *others])


def test_what_ended_or_floods_is_not_compared() -> None:
    one, other = Replica(at(2)).knows(said("all/#")), Replica(at(1))
    assert one.hears(at(1), other.digest()) == []
    ended = Statement("far", "plant/#", 1, True, int((NOW + 1) * 1000)).signed(WORLD.identities["far"])
    assert one.knows(ended).digest() == other.digest()


def test_made_up_digests_are_answered_a_few_times_only() -> None:
    replica = Replica(at(2)).knows(said())
    told = [replica.hears(at(1), Wire(COMPARE_TOPIC, bytes([n]) * 512)) for n in range(ANSWERS_BURST + 3)]
    assert [len(rows) for rows in told] == [1] * ANSWERS_BURST + [0] * 3


class Chosen(Replica):
    """One that knows rows whose signatures begin as their authors chose."""

    def says(self, rows: Iterable[Statement]) -> Chosen:
        self.routing.live = lambda now: tuple(rows)  # type: ignore[method-assign,assignment]
        return self


@pytest.mark.attack(57)
@pytest.mark.parametrize("combine", ["xor", "sum"])
def test_statements_whose_signatures_cancel_an_honest_one_hide_it_not(combine: str) -> None:
    """Attack: who signs chooses the first half of a signature. With four rows of one bucket it finds, by a generalised
    birthday search over a few million nonces, such that their XOR (or sum) is that of an honest statement, and a host
    that withholds the honest one tells these to those from whom it hides it: their digests would agree."""
    honest, whole = said(), 1 << 64
    mine = [replace(honest, signature=n.to_bytes(8) + honest.signature[8:]) for n in (5, 1 << 63, 7 << 40)]
    heads = [int.from_bytes(row.signature[:8]) for row in mine]
    first = int.from_bytes(honest.signature[:8])
    left = first ^ heads[0] ^ heads[1] ^ heads[2] if combine == "xor" else (first - sum(heads)) % whole
    mine.append(replace(honest, signature=left.to_bytes(8) + honest.signature[8:]))
    knows, lacks = Chosen(at(2)).says([honest]), Chosen(at(2, HOST + 1)).says(mine)
    assert knows.hears(at(2, HOST + 1), lacks.digest()) == [honest]


def test_in_whatever_order_statements_came_digests_agree() -> None:
    rows = [said(version=version) for version in (1, 2, 3)]
    one, other = Chosen(at(2)).says(rows), Chosen(at(2, HOST + 1)).says(rows[::-1])
    assert one.digest() == other.digest()


@pytest.mark.parametrize("payload", [b"", b"x" * 511, b"x" * 513])
def test_what_is_no_digest(payload: bytes) -> None:
    with pytest.raises(BadFrame):
        Replica(at(2)).hears(at(1), Wire(COMPARE_TOPIC, payload))


def test_gateways_compare_nothing() -> None:
    with pytest.raises(NotAuthorised):
        Replica(at(1)).hears("site", Wire(COMPARE_TOPIC, bytes(512)))


def test_without_planes_nothing_is_compared() -> None:
    overlay = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1}, [Scope("all/#", Mode.PLAIN)]).overlay
    routes = Routes(overlay, "r1a")
    relay = StatementRelay(routes, RoutingTable(overlay))
    relay.begin_comparing(NOW)
    assert relay.next_deadline is None
