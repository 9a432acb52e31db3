"""A gateway keeps to its owner's budget: what is too much waits, in order, and no replica ever sees an excess."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from bridge.contract.machine import Acked, Delay, OutboxEntry, Publication, Received, Send, Wire
from bridge.document.member_budgets import MemberBudgets
from bridge.document.overlay import Overlay
from bridge.document.policy import Refresh, Scope
from bridge.node import ReplicaNode
from bridge.publisher.publisher import Publisher
from bridge.wire import OwnLife
from tests.bridge.helpers import NOW, counted
from tests.sim.world import World, make_world

pytestmark = pytest.mark.invariant(28)

REPLICAS = ("r1a", "r1b", "r1c")
SCOPES = [Scope("plant/#"), Scope("new/#", refresh=Refresh(messages=1))]


class AcknowledgedPublisher:
    """A publisher whose replicas acknowledge at once, and what each of them got when."""

    def __init__(self, world: World, overlay: Overlay) -> None:
        draw = random.Random(1).randbytes
        self.publisher = Publisher(
            overlay, world.identities["site"], "site", world.secrets, world.keys, draw, OwnLife(1)
        )
        self.got: dict[str, list[tuple[float, int, Wire]]] = {peer: [] for peer in REPLICAS}
        for peer in REPLICAS:
            self.publisher.link_up(peer, NOW)

    def run(self, entries: list[OutboxEntry]) -> Mapping[str, list[tuple[float, int, Wire]]]:
        """Everything that there is, sent; in how many turns."""
        waiting = [e for e in self.publisher.take_entries(entries, NOW) if isinstance(e, Send)]
        now, turns = NOW, 0
        while waiting or (self.publisher.depth and turns < 2_000):
            for send in waiting:
                self.got[send.peer].append((now, send.ticket, send.wire))
            acks = [e for s in waiting for e in self.publisher.acked(Acked(s.peer, s.ticket), now)]
            waiting = [e for e in acks if isinstance(e, Send)]
            if waiting:
                continue
            at = self.publisher.next_deadline
            if at is None or not self.publisher.depth:
                break
            now, turns = max(now, at), turns + 1
            waiting = [e for e in self.publisher.tick(now) if isinstance(e, Send)]
        assert turns < 2_000, "deadlines spin"
        return self.got


def entries(count: int, topic: str = "plant/t", size: int = 1) -> list[OutboxEntry]:
    made = Publication(topic, bytes(size), 1, time_ms=int(NOW * 1000))
    return [(n, n - 1, made) for n in range(1, count + 1)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("budgets", "sent", "lasts_s"),
    [
        (MemberBudgets(), entries(300), 0),
        (MemberBudgets(batches=20), entries(300), 14),
        (MemberBudgets(sealed_bytes=10_000), entries(100, size=1_000), 10.2),
        (MemberBudgets(keys=5), entries(60, "new/t"), 11),
        (MemberBudgets(batches=1, sealed_bytes=100, keys=1), entries(5, "new/t"), 3.2),
    ],
    ids=["defaults", "batches", "bytes", "keys", "least"],
)
def test_what_is_too_much_waits_in_order_and_no_replica_has_to_slow_it(
    budgets: MemberBudgets, sent: list[OutboxEntry], lasts_s: float
) -> None:
    world = make_world({1: 3}, [], {"site": 1}, SCOPES)
    overlay = world.with_policy(budgets=budgets)
    got = AcknowledgedPublisher(world, overlay).run(sent)
    node = ReplicaNode(overlay, world.identities["r1a"], "r1a", lambda epoch: bytes(32))
    assert all([number for _, number, _ in of_peer] == [number for number, _, _ in sent] for of_peer in got.values())
    effects = [effect for at, _, wire in got["r1a"] for effect in node.handle(Received("site", wire), at)]
    assert counted(effects, "forwarded") == len(sent)
    assert not [effect for effect in effects if isinstance(effect, Delay)]
    took_s = got["r1a"][-1][0] - NOW
    assert lasts_s * 0.9 <= took_s <= lasts_s * 1.5 + 0.1


def test_another_policy_brings_other_budgets() -> None:
    world = make_world({1: 3}, [], {"site": 1}, SCOPES)
    site = AcknowledgedPublisher(world, world.with_policy(budgets=MemberBudgets(batches=1)))
    sent = [e for e in site.publisher.take_entries(entries(50), NOW) if isinstance(e, Send)]
    assert len(sent) == 3
    effects = site.publisher.adopt_overlay(world.with_policy(), world.secrets, NOW)
    assert len([e for e in effects if isinstance(e, Send)]) == 3 * 49, "what waited is as new as before"


def test_what_a_budget_does_not_cover_waits_and_the_same_budget_is_not_filled_anew() -> None:
    world = make_world({1: 3}, [], {"site": 1}, SCOPES)
    overlay = world.with_policy(budgets=MemberBudgets(batches=10))
    publisher = AcknowledgedPublisher(world, overlay).publisher
    tickets = [e.ticket for e in publisher.take_entries(entries(50), NOW) if isinstance(e, Send) and e.peer == "r1a"]
    assert tickets == list(range(1, 11))
    world.overlay = overlay
    again = world.with_policy(budgets=MemberBudgets(batches=10))
    assert not [e for e in publisher.adopt_overlay(again, world.secrets, NOW) if isinstance(e, Send)]
    at = publisher.next_deadline
    assert at is not None
    assert NOW < at <= NOW + 0.11
    assert not [e for e in publisher.tick(NOW) if isinstance(e, Send)]
    later = [e.ticket for e in publisher.tick(NOW + 0.5) if isinstance(e, Send) and e.peer == "r1a"]
    assert later == list(range(11, 16))


def test_a_budget_of_bytes_covers_one_that_is_larger_and_no_more() -> None:
    world = make_world({1: 3}, [], {"site": 1}, SCOPES)
    overlay = world.with_policy(budgets=MemberBudgets(sealed_bytes=1_000))
    publisher = AcknowledgedPublisher(world, overlay).publisher
    large, small = entries(2, size=3_000), [(n, n - 1, of) for n, _, of in entries(4)[2:]]
    tickets = [e.ticket for e in publisher.take_entries(large + small, NOW) if isinstance(e, Send) and e.peer == "r1a"]
    assert tickets == [1], "what is smaller does not go past"


def test_a_budget_that_is_used_up_to_the_last_byte_is_used_up() -> None:
    world = make_world({1: 3}, [], {"site": 1}, SCOPES)
    publisher = AcknowledgedPublisher(world, world.with_policy(budgets=MemberBudgets(sealed_bytes=1_000))).publisher
    taken = publisher.take_entries(entries(3, size=500 - len("plant/t")), NOW)
    assert [e.ticket for e in taken if isinstance(e, Send) and e.peer == "r1a"] == [1, 2]
