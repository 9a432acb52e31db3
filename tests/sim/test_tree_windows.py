"""Flow control while two trees of regions are open, with windows of one publication: nobody waits in a circle.

The replicas' acknowledgements go by the rule of `gateway.overlay.backpressure`, each lane between two replicas has one
publication in flight. Four regions in a circle, of whose edges each tree lacks another: with one rule for both trees,
every lane could wait for the next one around.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import pytest

from bridge.contract import Acked, Effect, Event, Received, Send, Wire
from bridge.document.overlay import Overlay
from bridge.node import ReplicaNode
from bridge.publisher import windows
from gateway.mqtt5.packets import Properties, Publish
from gateway.overlay import backpressure
from gateway.overlay.backpressure import Backpressure, is_control
from papers.sim.checkers import check_liveness, check_safety
from papers.sim.kernel import Kernel
from tests.sim.changing import regrown
from tests.sim.test_trees import PLAIN, Deaf, deaf, ring, tell, without
from tests.sim.world import NOW, Traffic, subscribe

pytestmark = pytest.mark.invariant(52)


class Lane:
    """From one replica to another: at most one publication is in flight."""

    def __init__(self, send: Callable[[Wire], None]) -> None:
        self._send, self.waiting, self.in_flight = send, deque[Wire](), 0
        self.heard: Callable[[], None] | None = None

    @property
    def load(self) -> tuple[int, int, int]:
        return self.in_flight, len(self.waiting), 0

    def put(self, wire: Wire) -> None:
        self.waiting.append(wire)
        self.go_on()

    def go_on(self) -> None:
        if self.waiting and not self.in_flight:
            self.in_flight = 1
            self._send(self.waiting.popleft())

    def acknowledged(self) -> None:
        self.in_flight = 0
        self.go_on()
        if self.heard is not None:
            self.heard()


class Windows(Deaf):
    """Publications are acknowledged when the flow control of the replica that got them says so."""

    def prepare(self) -> None:
        self.lanes: dict[str, dict[str, Lane]] = {}
        self.flows: dict[str, Backpressure] = {}
        self.tickets: dict[int, int] = {}  # what is on its way, by identity of its event -> the gateway's ticket
        for name, node in self.nodes.items():
            if isinstance(node, ReplicaNode):
                self.lanes[name] = {}
                self.flows[name] = Backpressure(lambda node=node: node.overlay, self.lanes[name], lambda _: None)  # type: ignore[misc,arg-type]

    def _effect(self, name: str, effect: Effect) -> None:
        if not isinstance(effect, Send) or is_control(effect.wire.topic):
            super()._effect(name, effect)
        elif name in self.flows and effect.peer in self.flows:
            lane = self.lanes[name].setdefault(effect.peer, Lane(lambda wire: self._carry(name, effect.peer, wire)))
            lane.heard = self.flows[name].passing(effect.peer, lane) or lane.heard  # type: ignore[arg-type]
            lane.put(effect.wire)
        elif effect.peer in self.flows:
            self._carry(name, effect.peer, effect.wire, effect.ticket)
        else:
            super()._effect(name, effect)

    def _carry(self, name: str, peer: str, wire: Wire, ticket: int = 0) -> None:
        event = Received(name, wire)
        self.tickets[id(event)] = ticket
        self.plan_event(self._arrival(name, peer), peer, event)

    def _apply(self, name: str, event: Event) -> None:
        if not isinstance(event, Received) or id(event) not in self.tickets:
            super()._apply(name, event)
            return
        ticket, flow, wire = self.tickets.pop(id(event)), self.flows[name], event.wire
        flow.begin_publication()
        super()._apply(name, event)
        done: Callable[[int], None] = lambda _: self._acknowledge(name, event.peer, ticket)  # noqa: E731
        hold = flow.hold_publication(
            event.peer, Publish(wire.topic, wire.payload, 1, properties=Properties(user=wire.properties))
        )
        if hold is None:
            done(0)
        else:
            hold(done)

    def _acknowledge(self, name: str, peer: str, ticket: int) -> None:
        if ticket:
            self.plan_event(self._arrival(name, peer), peer, Acked(name, ticket))
        elif peer in self.flows:
            self.plan_event(self._arrival(name, peer), peer, _Answered(self.lanes[peer][name]))  # type: ignore[arg-type]

    def _passes(self, name: str, event: Any) -> bool:
        if isinstance(event, _Answered):
            event.lane.acknowledged()
            return False
        return super()._passes(name, event)


class _Answered:
    """An acknowledgement between replicas, which no machine sees."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane


def run(monkeypatch: pytest.MonkeyPatch) -> tuple[Windows, dict[str, Traffic]]:
    """`site` goes on along the former tree while all others are on the next one; both have much to say."""
    monkeypatch.setattr(backpressure, "MARK_MESSAGES", 1)
    monkeypatch.setattr(windows, "WINDOW_MAX", 1)
    world = ring(PLAIN)
    kernel: Kernel = world.kernel(random.Random(1), (0.01, 0.02))
    deaf(kernel, ["site"], NOW + 25)
    kernel.__class__ = Windows
    assert isinstance(kernel, Windows)
    kernel.prepare()
    subscribe(kernel, "far", "plant/#")
    subscribe(kernel, "second", "plant/#")
    newer: Overlay = regrown(world, world.overlay, without((2, 3)), NOW + 4, grace_s=30)
    kernel.run(NOW + 4)
    tell(kernel, world, newer, "third")
    traffic = {name: Traffic(name) for name in ("site", "third")}
    for each in traffic.values():
        for n in range(60):
            each.publish(kernel, NOW + 7, f"plant/{each.gateway}", b"%d" % n)
    kernel.run(NOW + 25)
    return kernel, traffic


def held(kernel: Windows, names: Collection[str]) -> int:
    return sum(kernel.flows[name].acks_held for name in names)


def test_nobody_waits_in_a_circle_while_two_trees_are_open(monkeypatch: pytest.MonkeyPatch):
    kernel, traffic = run(monkeypatch)
    for reader in ("far", "second"):
        for name, each in traffic.items():
            of_one = [got for got in kernel.trace.delivered[reader] if got.publisher == name]
            check_safety(each.published, of_one)
            check_liveness(each.published, of_one)
    assert held(kernel, kernel.flows) == 0
    assert kernel.trace.blamed == []


def test_with_one_rule_for_both_trees_they_would(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Backpressure, "_is_former", lambda self, header: False)
    kernel, traffic = run(monkeypatch)
    assert held(kernel, kernel.flows) > 0, "lanes that wait for each other"
    got = {(each.publisher, each.sequence) for each in kernel.trace.delivered["second"]}
    assert len(got) < sum(len(each.published) for each in traffic.values())
