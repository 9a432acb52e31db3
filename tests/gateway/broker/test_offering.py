"""What the overlay refuses is for nobody here either; what it takes is acknowledged when it says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bridge.contract import Publication
from gateway.base import Defects
from gateway.broker.offering import offer, offer_for, offer_run
from gateway.clients import Client, OwedAck
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Properties, Publish
from gateway.mqtt5.session import ServerSession
from gateway.plugins import EdgeSession
from keys.envelope import PROPERTY_HEADER

NOW = 1000.0


class Overlay:
    """Takes what it is told to, and answers at once (`code`) or when the test does; of a run, so many (`most`)."""

    def __init__(self, takes: bool = True, code: int | None = None, most: int = 0) -> None:
        self.takes, self.code, self.most = takes, code, most
        self.offered: list[tuple[str, Publication]] = []
        self.answer: Callable[[int], None] = lambda code: None

    def publish_run(self, client_id: str, run: Sequence[Publication], done: Callable[[int], None]) -> int:
        if self.most < 0:
            raise RuntimeError("a defect")
        self.offered += [(client_id, publication) for publication in run[: self.most]]
        self.answer = done
        return min(self.most, len(run))

    def publish(self, client_id: str, publication: Publication, done: Callable[[int], None]) -> bool:
        self.offered.append((client_id, publication))
        self.answer = done
        if self.takes and self.code is not None:
            done(self.code)
        return self.takes


def message(**fields: Any) -> Message:
    return Message("t", b"x", 1, **fields)


@pytest.mark.parametrize(("overlay", "said", "for_us"), [
    (Overlay(takes=False), [0], True), (Overlay(code=0), [0], True), (Overlay(), [], True),
    (Overlay(code=0x87), [0x87], False), (Overlay(code=0x10), [0x10], True),
])  # fmt: skip
def test_only_a_refusal_at_once_keeps_it_from_local_receivers(overlay: Overlay, said: list[int], for_us: bool) -> None:
    told: list[int] = []
    assert offer(overlay, "c", message(), NOW, told.append, Defects()) is for_us  # type: ignore[arg-type]
    assert told == said
    assert overlay.offered[0][0] == "c"
    assert overlay.offered[0][1].topic == "t"


def test_what_members_say_in_reserved_properties_no_client_can_say() -> None:
    overlay, one = Overlay(), message(properties=Properties(user=((PROPERTY_HEADER, "forged"), ("k", "v"))))
    offer(overlay, "c", one, NOW, lambda code: None, Defects())  # type: ignore[arg-type]
    assert overlay.offered[0][1].properties == one.properties.user == (("k", "v"),)


def client() -> Client:
    return Client(ServerSession("c"), EdgeSession())


def offered(overlay: Overlay, qos: int = 1) -> tuple[Client, OwedAck, list[Client], bool]:
    one, owed, settled = client(), OwedAck(Publish("t", b"x", qos, packet_id=1 if qos else 0)), list[Client]()
    goes_on = offer_for(overlay, one, owed, message(), NOW, settled.append, Defects())  # type: ignore[arg-type]
    return one, owed, settled, goes_on


def test_an_acknowledgement_waits_for_the_overlay_and_for_us() -> None:
    overlay = Overlay()
    one, owed, settled, goes_on = offered(overlay)
    assert goes_on
    assert (owed.code, settled) == (None, [])
    overlay.answer(0)
    assert (owed.code, settled) == (None, [one]), "it is ours as well, and we have not said so"
    owed.answer(0)
    assert owed.code == 0


def test_a_late_refusal_outweighs_our_own_acceptance() -> None:
    overlay = Overlay()
    _, owed, _, _ = offered(overlay)
    owed.answer(0)
    overlay.answer(0x97)
    assert owed.code == 0x97


class Crossing:
    """Marks of a bridge on one topic."""

    def crossing(self, topic: str, user: Any) -> Any:
        return (("vmq", "bridge"),) if topic == "bridged" else user


def test_one_acknowledgement_is_owed_of_what_the_overlay_takes_of_a_run() -> None:
    one, settled, run = client(), list[Client](), [Publish("t", b"%d" % n, 1, packet_id=n + 1) for n in range(5)]

    def of(overlay: Overlay, run: list[Publish], circles: Any = None) -> int:
        return offer_run(overlay, one, run, settled.append, Defects(), circles)  # type: ignore[arg-type]

    overlay = Overlay(most=3)
    assert of(overlay, run, Crossing()) == 3
    assert [(owed.code, owed.run) for owed in one.acks] == [(None, run[:3])]
    assert [publication.payload for _, publication in overlay.offered] == [b"0", b"1", b"2"]
    overlay.answer(0)
    assert (one.acks[0].code, settled) == (0, [one])
    assert of(Overlay(most=0), run) == of(Overlay(most=-1), run) == 0, "what it does not take so goes one by one"
    assert of(overlay, [*run, Publish("bridged", b"", 1, packet_id=9)], Crossing()) == 0
    assert len(one.acks) == 1


def test_a_refusal_at_once_is_told_in_its_turn() -> None:
    one, owed, settled, goes_on = offered(Overlay(code=0x97))
    assert not goes_on
    assert owed.code == 0x97
    assert list(one.acks) == [owed]
    assert settled == [one, one]
    one, owed, _, goes_on = offered(Overlay(code=0x97), qos=0)
    assert not goes_on
    assert not one.acks, "QoS 0 is not answered"
