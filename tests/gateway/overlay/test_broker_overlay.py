"""The part of a broker's overlay that all roles have: members that dialled us, refusals, and no local publication."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bridge.contract.machine import Effect, Event, Publication, Refuse
from gateway.base.figures import Figures
from gateway.mqtt5.packets import Publish
from gateway.mqtt5.types import ReasonCode
from gateway.overlay.broker_overlay import REFUSED_SHOWN_S, BrokerOverlay


class Node:
    """A node with one neighbour, which answers every event with `effects`."""

    removed, peers, next_deadline = False, frozenset({"r1"}), None

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.effects: list[Effect] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.told.append(event)
        return self.effects


def overlay_of(node: Node, clock: Any = lambda: 0.0) -> BrokerOverlay:
    keeping: Any = SimpleNamespace(live=None, recognise=lambda certificate: certificate.decode())
    dials: Any = {}
    nothing: Any = None
    return BrokerOverlay(node, Figures("r2", "replica"), nothing, keeping, dials, clock)  # type: ignore[arg-type]


def test_a_member_is_recognised_by_certificate_and_client_id_if_it_is_a_neighbour() -> None:
    links = overlay_of(Node())
    assert links.recognise(b"r1", "r1") == "r1"
    assert links.recognise(b"r1", "r3") is None, "another client id"
    assert links.recognise(b"r9", "r9") is None, "a member of elsewhere"


def test_a_refusal_is_answered_and_shown_for_a_while() -> None:
    node, now = Node(), 100.0
    links = overlay_of(node, lambda: now)
    publish = Publish("v/1", b"x", 1)
    assert links.peer_published("r1", publish) is None
    node.effects = [Refuse("time")]
    assert links.peer_published("r1", publish) is not None
    assert links.refusal_reasons(now + REFUSED_SHOWN_S - 1) == {"r1": "time"}
    assert links.refusal_reasons(now + REFUSED_SHOWN_S) == {}


def test_without_a_gateways_part_publications_of_clients_stay_local_but_in_our_name_they_are_refused() -> None:
    links, codes = overlay_of(Node()), list[int]()
    assert not links.publish("pump", Publication("plant/1", b"", 1), codes.append)
    links.own_topics.add_documents("entities", "r2", "availability")
    own = Publication("entities/r2/pump/availability", b"", 1)
    assert links.publish("pump", own, codes.append)
    assert codes == [ReasonCode.NOT_AUTHORIZED]
    assert not links.publish("", own, codes.append), "the broker itself may"
    assert links.filter_subscribed("plant/#")
    assert (links.rights(), links.reaches(), links.has_history) == ((), [], False)
