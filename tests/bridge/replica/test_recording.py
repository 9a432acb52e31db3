"""Recording at a replica: who may ask, in which turn, and for how much (docs/protocol-options.md §12.2)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bridge.contract import (
    HISTORY_TOPIC,
    Effect,
    HistoryRecord,
    HistoryRequest,
    LinkUp,
    Recall,
    Recalled,
    Received,
    Send,
    Tick,
    Wire,
    before,
    encode_body,
    read_page,
)
from bridge.document import History, Overlay, Scope
from bridge.node import ReplicaNode
from bridge.replica.recording import PAGE_BYTES_BURST, REQUESTS_MAX
from tests.sim.world import NOW, make_world

SCOPE = Scope("plant/#", history=History(7, 100))
GATEWAYS = {"desk": 1, "far": 2, "other": 1}


@pytest.fixture
def node() -> ReplicaNode:
    world = make_world({1: 3, 2: 3}, [(1, 2)], GATEWAYS, [SCOPE], rights={"other": (("#",), ())})
    made = ReplicaNode(world.overlay, world.identities["r1a"], "r1a", lambda epoch: bytes(32))
    for peer in ("desk", "other", "r1b", "r2a"):
        made.handle(LinkUp(peer), NOW)
    return made


def ask(node: ReplicaNode, number: int = 1, peer: str = "desk", now: float = NOW, scope: int = 1) -> list[Effect]:
    request = HistoryRequest(number, scope, 0, int(NOW * 1000))
    return node.handle(Received(peer, Wire(HISTORY_TOPIC, request.encode())), now)


def recalls(effects: Sequence[Effect]) -> list[Recall]:
    return [effect for effect in effects if isinstance(effect, Recall)]


def pages(effects: Sequence[Effect]) -> list[Wire]:
    return [effect.wire for effect in effects if isinstance(effect, Send) and effect.wire.topic == HISTORY_TOPIC]


def answer(node: ReplicaNode, recall: Recall, size: int = 10, now: float = NOW) -> list[Effect]:
    body = encode_body("veilmq/batch/1", b"header", b"", {0: bytes(size)})
    record = HistoryRecord(1, before(int(NOW * 1000) - 5), b"k" * 16, body)
    return node.handle(Recalled(recall.peer, recall.request, (record,)), now)


def test_a_reader_gets_a_page_not_older_than_the_days(node: ReplicaNode) -> None:
    (recall,) = recalls(ask(node))
    assert recall.oldest_ms == int((NOW - 7 * 86_400) * 1000)
    (wire,) = pages(answer(node, recall))
    page, bodies = read_page(wire.payload)
    assert (page.number, page.is_end, len(bodies)) == (1, True, 1)


@pytest.mark.parametrize("scope", [1, 9])
def test_who_has_no_right_is_refused_and_so_is_what_is_no_scope(node: ReplicaNode, scope: int) -> None:
    effects = ask(node, peer="other" if scope == 1 else "desk", scope=scope)
    assert not recalls(effects)
    assert read_page(pages(effects)[0].payload)[0].is_refused


@pytest.mark.parametrize("peer", ["r1b", "r2a"])
def test_replicas_get_nothing(node: ReplicaNode, peer: str) -> None:
    effects = ask(node, peer=peer)
    assert not recalls(effects)
    assert not pages(effects)


def test_one_page_is_read_at_a_time_and_a_reader_keeps_few_requests(node: ReplicaNode) -> None:
    (first,) = recalls(ask(node))
    for number in range(2, 50):
        assert not recalls(ask(node, number))
    answered = [first.request.number]
    for _ in range(60):
        found = recalls(answer(node, first))
        if not found:
            break
        first = found[0]
        answered.append(first.request.number)
    assert answered == [1, *range(50 - REQUESTS_MAX, 50)]


def test_who_has_spent_its_bytes_waits_and_others_do_not(node: ReplicaNode) -> None:
    now, number = NOW, 0
    for number in range(1, 500):
        found = recalls(ask(node, number))
        if not found:
            break
        answer(node, found[0], 1 << 18)
    assert number > PAGE_BYTES_BURST / (1 << 18)
    assert not recalls(node.handle(Tick(), now + 0.001))
    assert recalls(node.handle(Tick(), now + 1.0))


def test_a_right_that_ends_while_the_page_is_read_counts(node: ReplicaNode) -> None:
    world = make_world({1: 3, 2: 3}, [(1, 2)], GATEWAYS, [SCOPE], rights={"other": (("#",), ())})
    (recall,) = recalls(ask(node))
    node._adopt_overlay(without_rights(world.revoked("desk", -1)), NOW)
    (wire,) = pages(answer(node, recall))
    assert read_page(wire.payload)[0].is_refused


def without_rights(overlay: Overlay) -> Overlay:
    assert not [grant for grant in overlay.policy.grants if grant.member == "desk"]
    return overlay
