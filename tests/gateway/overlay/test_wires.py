"""How a node's wires leave: lanes towards replicas, what they refuse, and what is begun anew with."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.contract.machine import Acked, Effect, Event, LinkDown, LinkUp, Lost, NotTaken, Send, Tick, Wire
from bridge.contract.refusing import Reason
from bridge.node import ReplicaNode
from gateway.base.figures import Figures
from gateway.mqtt5.packets import NO_PROPERTIES, Properties
from gateway.overlay import wires
from gateway.overlay.backpressure import MARK_MESSAGES
from gateway.overlay.peer_refusals import refusal
from gateway.overlay.replica_overlay import ReplicaOverlay
from gateway.overlay.wires import PACKET_TOO_LARGE, Wires
from keys.envelope import PROPERTY_KEY
from tests.sim.world import make_world
from tests.waits import until


class Peer:
    """A `Client`, as far as `BrokerOverlay` knows one."""

    def __init__(self) -> None:
        self.figures = SimpleNamespace(connections=0)
        self.load, self.takes = (0, 0, 0), True
        self.session_present = self.connected = False

    def publish(self, *wire: object) -> bool:
        return self.takes


class Node:
    """A replica's machine that only notes what it is told of links."""

    def __init__(self, machine: ReplicaNode) -> None:
        self.machine, self.next_deadline = machine, None
        self.told: list[Event] = []
        self.effects: list[Effect] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, LinkUp | LinkDown):
            self.told.append(event)
        effects, self.effects = self.effects, []
        return effects


def linked() -> tuple[ReplicaOverlay, Node, dict[str, Peer]]:
    world = make_world({1: 3, 2: 3}, [(1, 2)], {})
    peers = {name: Peer() for name in world.overlay.views[2].members}
    name = world.overlay.views[1].members[0]
    node = Node(ReplicaNode(world.overlay, world.identities[name], name, lambda epoch: bytes(32)))
    dials: Any = peers
    keeping: Any = SimpleNamespace(overlay=world.overlay, live=None, data=SimpleNamespace(sealing_key=bytes))
    store: Any = SimpleNamespace()
    links = ReplicaOverlay(node, Figures("r", "replica"), store, keeping, dials, Path("unopened"))
    return links, node, peers


def test_the_node_hears_of_a_link_again_if_the_peer_lost_the_session():
    async def check() -> None:
        links, node, peers = linked()
        name, peer = next(iter(peers.items()))
        links._wires._lanes = dict(links._dials)
        for session_present, told in ((False, 0), (True, 0), (False, 1)):
            peer.figures.connections += 1
            peer.session_present = session_present
            links.link_up(name)
            assert len(node.told) == told
            links.link_down(name)
        peers[name] = Peer()  # the overlay says that it listens elsewhere: another client, with nothing in it
        links.link_up(name)
        assert node.told == [LinkUp(name)] * 2

    asyncio.run(check())


@pytest.mark.long
def test_a_lane_that_overflowed_begins_anew_once_there_is_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gateway.overlay.wires.RELINK_S", 0.001)

    async def check() -> None:
        links, node, peers = linked()
        name, peer = next(iter(peers.items()))
        wire = Wire("t", b"")
        peer.takes = False
        node.effects = [Send(name, wire)]
        links._handle(Tick())  # too large for the peer: nothing else of it is lost
        assert not node.told
        peer.load = (256, MARK_MESSAGES, 0)
        node.effects = [Send(name, wire), Send(name, wire)]
        links._handle(Tick())
        assert node.told == [LinkDown(name)]
        assert links.figures.counts[f"link_overflow.{name}"] == 3
        await asyncio.sleep(0.01)
        links.link_up(name)  # it reconnected, and has still to take what is there
        assert node.told == [LinkDown(name)]
        peer.load = (0, 0, 0)
        await until(lambda: node.told == [LinkDown(name), LinkUp(name)])

    asyncio.run(check())


# ----------------------------------------------------------------------------------------- at a gateway


class Taker:
    """A connection that notes what it is given, and answers as it is told."""

    def __init__(self, takes: bool = True) -> None:
        self.takes, self.connected = takes, True
        self.given: list[tuple[Any, ...]] = []
        self.notes: list[str] = []
        self.acks = SimpleNamespace(refusal=NO_PROPERTIES)
        self.clock_ahead_s: float | None = None

    def publish(self, *wire: Any) -> bool:
        self.given.append(wire)
        return self.takes

    def note_failure(self, text: str) -> None:
        self.notes.append(text)


class Connections(dict[str, Any]):
    """`Dials`, as far as they are asked."""

    def __init__(self, peers: dict[str, Taker]) -> None:
        super().__init__(peers)
        self.shown: list[tuple[str, int]] = []

    def showed(self, peer: str, size: int) -> None:
        self.shown.append((peer, size))


def at_gateway(**peers: Taker) -> tuple[Wires, list[Event], Figures]:
    told: list[Event] = []
    figures = Figures("g1", "gateway")
    return Wires(Connections(peers), figures, told.append, None), told, figures  # type: ignore[arg-type]


def test_links_of_a_gateway_are_told_as_they_are() -> None:
    made, told, _ = at_gateway(r1=Taker())
    made.link_up("r1")
    made.link_down("r1")
    made.link_up("r1")
    assert told == [LinkUp("r1"), LinkDown("r1"), LinkUp("r1")]


def test_a_wire_leaves_with_its_properties_and_its_ticket_comes_back() -> None:
    peer = Taker()
    made, told, _ = at_gateway(r1=peer)
    made.send_wire("r1", Wire("t", b"x", retain=True, properties=(("a", "b"),)), 7)
    made.send_wire("r1", Wire("t", b"x", expiry_s=9, properties=(("a", "b"),)), 0)
    (topic, payload, qos, retain, properties, on_ack, on_refused, urgent), second = peer.given
    assert (topic, payload, qos, retain, properties, urgent) == ("t", b"x", 1, True, (("a", "b"),), False)
    on_ack()
    assert told == [Acked("r1", 7)]
    assert on_refused is not None
    assert second[4] == Properties(user=(("a", "b"),), message_expiry_s=9)
    assert second[5:] == (None, None, False)


def test_control_wires_are_urgent() -> None:
    peer = Taker()
    made, _, _ = at_gateway(r1=peer)
    made.send_wire("r1", Wire("$veil/subscribe", b""), 0)
    assert peer.given[0][-1] is True


@pytest.mark.long
def test_what_a_full_connection_did_not_take_is_repeated_by_beginning_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires, "RELINK_S", 0.0)

    async def check() -> None:
        peer = Taker(takes=False)
        made, told, figures = at_gateway(r1=peer)
        made.send_wire("r1", Wire("t", b""), 0)
        assert (told, figures.counts["link_overflow.r1"]) == ([], 1), "nobody waits for that"
        made.send_wire("r1", Wire("t", b""), 7)
        made.send_wire("r1", Wire("t", b""), 8)
        assert told == [LinkDown("r1")], "once"
        await until(lambda: told == [LinkDown("r1"), LinkUp("r1")])
        peer.connected = False
        made.send_wire("r1", Wire("t", b""), 9)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert told[2:] == [LinkDown("r1")], "who is not connected comes up by itself"

    asyncio.run(check())


def test_what_is_too_large_for_a_peer_is_told_as_that_and_a_refusal_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wires, "REFUSED_S", 0.0)

    async def check() -> None:
        peer = Taker()
        made, told, figures = at_gateway(r1=peer)
        made.send_wire("r1", Wire("t", b"12345"), 7)
        refused = peer.given[0][6]
        refused(PACKET_TOO_LARGE)
        assert told == [], "we are in the midst of effects"
        await asyncio.sleep(0)
        assert told == [NotTaken("r1", 7, Reason.SIZE)]
        assert made._dials.shown == [("r1", 5)]  # type: ignore[attr-defined]
        refused(0x97)
        assert told[1:] == [LinkDown("r1")]
        assert "0x97" in peer.notes[0]
        assert figures.counts["link_refused.r1"] == 2
        await until(lambda: told[2:] == [LinkUp("r1")])

    asyncio.run(check())


def test_a_refusal_with_a_reason_is_told_to_the_node_and_sets_the_clock_of_who_refused() -> None:
    async def check() -> None:
        peer = Taker()
        made, told, _ = at_gateway(r1=peer)
        made.send_wire("r1", Wire("t", b""), 7)
        said = refusal(Reason.TIME, time.time() + 7200)
        peer.acks = SimpleNamespace(refusal=said.properties)
        peer.given[0][6](said.code)
        await asyncio.sleep(0)
        assert told == [NotTaken("r1", 7, "time")]
        assert peer.clock_ahead_s is not None
        assert 7190 < peer.clock_ahead_s < 7210

    asyncio.run(check())


def test_who_dialled_us_is_sent_to_by_the_broker() -> None:
    sent: list[tuple[Any, ...]] = []

    def send_to_peer(*wire: Any) -> bool:
        sent.append(wire[:4])
        return len(sent) == 1

    made, told, figures = at_gateway()
    made.start(SimpleNamespace(send_to_peer=send_to_peer))  # type: ignore[arg-type]
    for _ in range(2):
        made.send_wire("g2", Wire("t", b"x", properties=(("a", "b"),)), 0)
    assert sent[0] == ("g2", "t", b"x", (("a", "b"),))
    assert (told, figures.counts) == ([], {"link_overflow.g2": 1})


@pytest.mark.attack(137)
def test_a_key_that_finds_no_room_at_who_dialled_us_is_told_to_the_node_after_the_effects() -> None:
    async def check() -> None:
        made, told, figures = at_gateway()
        made.start(SimpleNamespace(send_to_peer=lambda *wire: False))  # type: ignore[arg-type]
        carrier = Wire("t", b"x", properties=((PROPERTY_KEY, "k"),))
        made.send_wire("g2", carrier, 0)
        made.send_wire("g2", Wire("t", b"x"), 0)
        assert told == []
        await asyncio.sleep(0)
        assert told == [Lost("g2", "k")]
        assert figures.counts == {"link_overflow.g2": 2}

    asyncio.run(check())
