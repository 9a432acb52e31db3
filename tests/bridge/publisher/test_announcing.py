"""How a publication leaves for one replica: key before it, on it or not at all, and until when a broker keeps it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bridge.contract import Publication, Send, Wire
from bridge.document import Scope
from bridge.publisher.data_keys import ANNOUNCE_EVERY, DataKeys, LiveKey, key_alone, sends
from bridge.wire import OwnLife, key_topic
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES
from keys.sharetree import Place
from tests.bridge.helpers import shares_in
from tests.sim.world import NOW, make_world

WORLD = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#"), Scope("open/#", keys_on_topic=True)])
VIEW = WORLD.overlay.views[1]
WIRE = Wire("plant/t", b"sealed", properties=(("vmq", "header"),))
CLEAR = Publication("plant/t", b"x", 1, time_ms=int(NOW * 1000))


def key_of(wire_filter: str) -> LiveKey:
    keys = DataKeys(WORLD.overlay, WORLD.identities["site"], 1, WORLD.keys, random.Random(1).randbytes, OwnLife(1))
    scope = WORLD.overlay.scope_named(wire_filter)
    assert scope is not None
    name = keys.epoch_key_name(scope, NOW)
    assert name is not None
    return keys.live_key(scope, name, 1, NOW)


def send(
    key: LiveKey | None, peer: str = "r1b", wire: Wire = WIRE, of: Publication = CLEAR, hosted: bool = False
) -> list[Send]:
    return sends(peer, VIEW, wire, key, of, 7, NOW, hosted=hosted)


def carries(wire: Wire) -> bool:
    return any(name == PROPERTY_KEY for name, _ in wire.properties)


def test_what_has_no_key_leaves_as_it_is() -> None:
    assert send(None) == [Send("r1b", WIRE, 7)]


def test_a_key_rides_on_the_first_with_that_replicas_share() -> None:
    key = key_of("plant/#")
    (first,) = send(key)
    assert first.wire.properties[0] == ("vmq", "header")
    assert [name for name, _ in first.wire.properties[1:]] == [PROPERTY_KEY, PROPERTY_SHARES]
    assert [share.label[0].place for share in shares_in(first.wire)] == [2]
    assert send(key) == [Send("r1b", WIRE, 7)]
    assert carries(send(key, "r1c")[0].wire), "each replica is told"


def test_what_is_retained_always_carries_its_key() -> None:
    key = key_of("plant/#")
    retained = replace(WIRE, retain=True)
    assert all(carries(send(key, wire=retained)[0].wire) for _ in range(3))
    assert carries(send(key)[0].wire), "and that announced it to nobody for what comes next"


def test_a_key_that_stands_alone_goes_before_what_it_sealed_once() -> None:
    key = key_of("open/#")
    before, after = send(key)
    assert after == Send("r1b", WIRE, 7)
    assert (before.wire.topic, before.wire.payload, before.wire.retain, before.ticket) == (
        key_topic("open/#", WORLD.identities["site"].party_id), b"", True, 0,
    )  # fmt: skip
    assert [share.label[0].place for share in shares_in(before.wire)] == [2]
    assert [len(send(key)) for _ in range(ANNOUNCE_EVERY + 1)] == [1] * (ANNOUNCE_EVERY + 1)
    assert len(send(key, "r1c")) == 2


def test_key_alone_tells_whom_it_is_for() -> None:
    key = key_of("open/#")
    assert not key.was_told_to("r1a")
    assert key_alone("r1a", VIEW, key).wire == key.wire(Place(1, 1, 1))
    assert key.was_told_to("r1a")
    assert not key.was_told_to("r1b")


def test_a_hosted_broker_gets_every_publication_with_its_key() -> None:
    """Who subscribes late at it gets what comes next, and no live keys."""
    for key in (key_of("plant/#"), key_of("open/#")):
        for _ in range(3):
            (sent,) = send(key, hosted=True)
            assert carries(sent.wire)


@pytest.mark.parametrize(("age_s", "left_s"), [(0, 60), (0.5, 60), (10, 50), (59.9, 1), (60, 1), (100, 1)])
def test_a_hosted_broker_keeps_it_for_as_long_as_it_counts(age_s: float, left_s: int) -> None:
    expiring = replace(CLEAR, expiry_s=60, time_ms=int((NOW - age_s) * 1000))
    assert send(None, of=expiring, hosted=True)[0].wire.expiry_s == left_s
    assert send(None, of=expiring)[0].wire.expiry_s is None, "replicas of ours read the signed deadline"
    assert send(None, hosted=True)[0].wire.expiry_s is None
