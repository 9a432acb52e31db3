"""Passing on at a replica: whose far requests go on, in which turn, and which pages come back
(docs/protocol-options.md §12.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from bridge.contract import (
    FAR_PAGE_BYTES,
    FAR_TOPIC,
    Blame,
    Count,
    Effect,
    FarPage,
    FarRequest,
    HistoryPage,
    HistoryRequest,
    LinkUp,
    Offered,
    Recall,
    Recalled,
    Received,
    Send,
    Tick,
    Wire,
    read_page,
)
from bridge.document import History, Scope
from bridge.membership.adopting import canonical
from bridge.node import ReplicaNode
from bridge.replica import far_passing
from bridge.replica.far_passing import ASKS_BURST, FORGOTTEN_S, HELD_S, OPEN_MAX, OPEN_S, TAKEN_MOST
from keys.sealedbox import BoxKey
from tests.sim.world import NOW, World, make_world
from tests.support.regions import fresh, row_of_regions

SCOPE = Scope("plant/#", history=History(7, 100, (1,)))
GATEWAYS = {"late": 3, "greedy": 3, "stranger": 3, "desk": 1}
KEY = BoxKey(bytes(32), bytes(64))
NUMBERS = count(1 << 20)


world = fresh(row_of_regions, 3, GATEWAYS, [SCOPE], rights={"stranger": (("#",), ())})


def a_node(world: World, name: str) -> ReplicaNode:
    node = ReplicaNode(world.overlay, world.identities[name], name, lambda epoch: bytes(32))
    for peer in node.peers:
        node.handle(LinkUp(peer), NOW)
    return node


def a_request(
    world: World, reader: str = "late", way: Sequence[str] = ("r3a", "r2a", "r1a"), **about: int
) -> FarRequest:
    inner = HistoryRequest(7, 1, 0, int(NOW * 1000), most_bytes=about.pop("most", FAR_PAGE_BYTES)).encode()
    number = about.pop("number", 0) or next(NUMBERS)
    made = FarRequest(reader, way[-1], number, KEY.agreement_bytes, inner, tuple(way))
    return made.signed(world.identities[reader])


def give(node: ReplicaNode, peer: str, frame: FarRequest | FarPage, now: float = NOW) -> list[Effect]:
    return node.handle(Received(peer, Wire(FAR_TOPIC, frame.encode())), now)


def passed(effects: Sequence[Effect]) -> list[str]:
    return [effect.peer for effect in effects if isinstance(effect, Send) and effect.wire.topic == FAR_TOPIC]


def refused(effects: Sequence[Effect]) -> list[str]:
    return [effect.label for effect in effects if isinstance(effect, Count) and effect.name == "refused"]


def test_a_request_goes_its_way_and_its_page_comes_back_once(world: World) -> None:
    node, request = a_node(world, "r2a"), a_request(world)
    assert passed(give(node, "r3a", request)) == ["r1a"]
    page = FarPage.for_request(request, HistoryPage(7, 1).encode(), world.identities["r1a"])
    assert passed(give(node, "r1b", page)) == [], "the request went another way"
    assert passed(give(node, "r1a", page)) == ["r3a"]
    assert passed(give(node, "r1a", page)) == [], "one page for a request"


def test_the_asked_replica_seals_the_page_to_the_reader(world: World) -> None:
    node, request = a_node(world, "r1a"), a_request(world)
    (recall,) = [effect for effect in give(node, "r2a", request) if isinstance(effect, Recall)]
    (sent,) = [e for e in node.handle(Recalled("late", recall.request), NOW) if isinstance(e, Send)]
    page = FarPage.decode(sent.wire.payload)
    assert (sent.peer, page.digest) == ("r2a", request.digest)
    assert read_page(KEY.open(page.box, page.info))[0].number == 7


def test_a_page_that_the_asked_replica_did_not_sign_is_charged_to_the_link(world: World) -> None:
    node, request = a_node(world, "r2a"), a_request(world)
    give(node, "r3a", request)
    page = FarPage.for_request(request, HistoryPage(7, 1).encode(), world.identities["r1a"])
    for forged in (
        replace(page, box=page.box[:-1] + b"x"),
        replace(page, signature=bytes(64)),
        FarPage.for_request(request, HistoryPage(7, 1).encode(), world.identities["r1b"]),
    ):
        effects = give(node, "r1a", forged)
        assert passed(effects) == []
        assert [effect.member for effect in effects if isinstance(effect, Blame)] == ["r1a"]
    assert passed(give(node, "r1a", page)) == ["r3a"], "the true one counts still"


@pytest.mark.parametrize(
    ("peer", "reader", "way"),
    [
        ("r3b", "late", ("r3a", "r2a", "r1a")),  # not from the one before
        ("late", "late", ("r2a", "r1a")),  # a reader of another region, directly
        ("r1a", "late", ("r1a", "r2a", "r3a")),  # not along the tree from the reader's region
        ("r3a", "late", ("r3a", "r2a", "r2b")),  # no neighbour
        ("r3a", "late", ("r3a", "r2a", "r3b", "r2c", "r1a")),  # back
        ("r3a", "r3b", ("r3a", "r2a", "r1a")),  # a replica reads nothing
        ("r3a", "stranger", ("r3a", "r2a", "r1a")),  # without the right
    ],
)
def test_what_goes_another_way_or_is_of_somebody_else_is_dropped(
    world: World, peer: str, reader: str, way: tuple[str, ...]
) -> None:
    node = a_node(world, "r2a")
    effects = give(node, peer, a_request(world, reader, way))
    assert passed(effects) == []
    assert not [effect for effect in effects if isinstance(effect, Recall)]


@pytest.mark.attack(183)
@pytest.mark.parametrize(
    "behind", [("x" * 60_000, "r1a"), ("late", "r1a"), ("r3b", "r1a"), ("r2b", "r1a"), ("r1b", "r1a"), ("r1a", "r2b")]
)
def test_a_way_is_looked_at_whole_before_a_request_is_passed_on(world: World, behind: tuple[str, ...]) -> None:
    """Else the next replica refused it, charged the link of an honest one for it, and long names filled tables."""
    node = a_node(world, "r3a")
    effects = give(node, "late", a_request(world, way=("r3a", "r2a", *behind)))
    assert passed(effects) == []
    assert refused(effects) == ["NotAuthorised"]
    assert passed(give(node, "late", a_request(world))) == ["r2a"]


@pytest.mark.attack(183)
def test_a_request_without_a_right_costs_no_verification(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    node, verified = a_node(world, "r2a"), list[object]()
    monkeypatch.setattr(far_passing, "verify_author", lambda *told: verified.append(told))
    assert refused(give(node, "r3a", a_request(world, "stranger"))) == ["NotAuthorised"]
    assert refused(give(node, "r3a", a_request(world, most=FAR_PAGE_BYTES + 1))) == ["BadFrame"]
    assert not verified
    assert passed(give(node, "r3a", a_request(world))) == ["r1a"]
    assert len(verified) == 1


def test_a_signature_that_does_not_fit_is_charged_and_uses_up_no_number(world: World) -> None:
    node, request = a_node(world, "r2a"), a_request(world)
    forged = replace(request, signature=world.identities["greedy"].sign("veilmq/1 far request", request.signed_bytes()))
    assert refused(give(node, "r3a", forged)) == ["BadSignature"]
    assert passed(give(node, "r3a", request)) == ["r1a"]


@pytest.mark.attack(183)
def test_a_number_passes_once_by_whichever_way(world: World) -> None:
    node, request = a_node(world, "r2a"), a_request(world)
    other = replace(request, way=("r3b", "r2a", "r1a"))
    assert passed(give(node, "r3a", request)) == ["r1a"]
    for again in (request, other):
        assert give(node, again.way[0], again) == [Count("far_repeated")]
    old = a_request(world, number=5)
    assert give(node, "r3a", old) == [Count("far_repeated")], "what is far below counts as taken"
    assert passed(give(node, "r3a", old, NOW + FORGOTTEN_S + 1)) == ["r1a"], "a reader that is silent is forgotten"


@pytest.mark.parametrize("form", ["classical", "hybrid"])
@pytest.mark.parametrize("point", [bytes(32), b"\1" + bytes(31)])
def test_a_key_to_which_no_box_can_be_sealed_is_refused_before_a_page_is_read(
    world: World, form: str, point: bytes
) -> None:
    node, key = a_node(world, "r1a"), KEY.hybrid_bytes[:-32] + point if form == "hybrid" else point
    request = replace(a_request(world), box_key=key).signed(world.identities["late"])
    effects = give(node, "r2a", request)
    assert refused(effects) == ["BadFrame"]
    for recall in [effect for effect in effects if isinstance(effect, Recall)]:
        node.handle(Recalled("late", recall.request), NOW)


def test_a_quantum_safe_overlay_passes_on_no_request_for_classical_boxes() -> None:
    world = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], GATEWAYS, [SCOPE], is_quantum_safe=True)
    world.overlay = world.with_policy(quantum_safe=True)
    node = a_node(world, "r2a")
    effects = give(node, "r3a", a_request(world))
    assert (passed(effects), refused(effects)) == ([], ["BadFrame"])
    hybrid = replace(a_request(world), box_key=KEY.hybrid_bytes).signed(world.identities["late"])
    assert passed(give(node, "r3a", hybrid)) == ["r1a"]


@pytest.mark.attack(183)
def test_requests_that_nobody_answers_make_room_for_a_reader_with_fewer(world: World) -> None:
    node = a_node(world, "r2a")
    for _ in range(30):
        give(node, "r3a", a_request(world, "greedy"))
    assert passed(give(node, "r3a", a_request(world))) == []
    effects = node.handle(Tick(), NOW + HELD_S / 2)
    assert passed(effects) == [], "an honest page is on its way for a while"
    assert node.next_deadline is not None
    assert node.next_deadline <= NOW + HELD_S
    sent = [e for e in node.handle(Tick(), NOW + HELD_S) if isinstance(e, Send) and e.wire.topic == FAR_TOPIC]
    assert [FarRequest.decode(each.wire.payload).reader for each in sent] == ["late"]
    assert passed(node.handle(Tick(), NOW + HELD_S + 0.1)) == [], "of its own a reader replaces none"
    assert node.next_deadline is None or node.next_deadline > NOW + HELD_S + 0.1, "it looks again without end"
    went = [passed(give(node, "r3a", a_request(world), NOW + HELD_S + 0.1)) for _ in range(OPEN_MAX)]
    assert went == [["r1a"]] * 3 + [[]] * 5, "half for each of two"


def test_few_are_open_on_a_link_and_readers_take_turns(world: World) -> None:
    node = a_node(world, "r2a")
    for number in range(60):
        went = passed(give(node, "r3a", a_request(world, "greedy")))
        assert len(went) == (number < OPEN_MAX)
    mine = a_request(world)
    assert passed(give(node, "r3a", mine)) == []
    effects = node.handle(Tick(), NOW + OPEN_S + 0.01)
    assert passed(effects) == [], "what waited so long is asked by another way"
    requests = [a_request(world, "greedy") for _ in range(30)]
    for request in requests:
        give(node, "r3a", request, NOW + 10)
    assert passed(give(node, "r3a", a_request(world), NOW + 10)) == []
    page = FarPage.for_request(requests[0], HistoryPage(7, 1).encode(), world.identities["r1a"])
    sent = [e for e in give(node, "r1a", page, NOW + 10) if isinstance(e, Send) and e.peer == "r1a"]
    assert [FarRequest.decode(each.wire.payload).reader for each in sent] == ["late"]


def test_a_reader_that_asks_more_than_a_reading_needs_is_cut_short(world: World) -> None:
    node = a_node(world, "r1a")
    effects = [
        effect for _ in range(TAKEN_MOST * ASKS_BURST + 20) for effect in give(node, "r2a", a_request(world, "greedy"))
    ]
    assert refused(effects) == ["TooOften"] * 20
    assert not [effect for effect in effects if isinstance(effect, Blame)], "who passes on is not to blame"
    assert not refused(give(node, "r2a", a_request(world)))


@pytest.mark.long
@pytest.mark.attack(183)
def test_readers_that_ask_by_all_ways_at_once_charge_no_honest_link(world: World) -> None:
    """Each first replica lets through what a reading needs; together it is more than the next one takes."""
    firsts = ("r3a", "r3b", "r3c")
    nodes = {name: a_node(world, name) for name in (*firsts, "r2a", "r1a")}
    charged, came = list[str](), Counter[str]()
    for _ in range(ASKS_BURST):
        for first in firsts:
            request = a_request(world, "greedy", (first, "r2a", "r1a"))
            give(nodes[first], "greedy", request)
            effects = give(nodes["r2a"], first, request)
            charged += refused(effects)
            if "r1a" not in passed(effects):
                continue
            came["r1a"] += 1
            charged += refused(give(nodes["r1a"], "r2a", request))
            page = FarPage.for_request(request, HistoryPage(7, 1).encode(), world.identities["r1a"])
            give(nodes[first], "r2a", page)
            give(nodes["r2a"], "r1a", page)
    assert not charged
    assert came["r1a"] <= ASKS_BURST, "a reader got more than a reading needs"


def test_a_longer_page_than_is_good_between_regions_is_refused(world: World) -> None:
    assert refused(give(a_node(world, "r2a"), "r3a", a_request(world, most=FAR_PAGE_BYTES + 1))) == ["BadFrame"]


def test_a_reader_whose_right_ended_is_passed_on_no_more(world: World) -> None:
    node = a_node(world, "r2a")
    assert passed(give(node, "r3a", a_request(world))) == ["r1a"]
    node.handle(Offered(canonical(world.revoked("late", -1))), NOW + 1)
    effects = give(node, "r3a", a_request(world), NOW + 2)
    assert refused(effects) == ["NotAuthorised"]
    assert passed(effects) == []
