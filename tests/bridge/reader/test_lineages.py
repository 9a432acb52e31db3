"""One member, one key after another: what it seals anew under the next one is no news."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract.machine import Deliver, Effect, Keep, Received, Restored, Tick, Wire
from bridge.document.overlay import Overlay
from bridge.node import GatewayNode
from bridge.reader.collector import REPAIR_S
from tests.bridge.helpers import delivered, gateway, publish, subscriber
from tests.bridge.reader.test_newest_retained import rotated
from tests.sim.world import NOW, World, make_world

WORLD = make_world({1: 3}, [], {"a": 1, "b": 1})
AFTER = rotated(WORLD, "a")


def to(node: GatewayNode, wires: dict[str, Wire], now: float = NOW) -> list[Deliver]:
    effects = [effect for peer, wire in wires.items() for effect in node.handle(Received(peer, wire), now)]
    return delivered(effects)


def numbers(found: list[Deliver]) -> list[int]:
    return [each.sequence for each in found]


def adopt(node: GatewayNode, world: World, now: float = NOW + 1) -> list[Effect]:
    return node.collector.adopt(world.overlay, world.secrets, now)


def test_what_is_sealed_anew_under_the_next_key_is_delivered_once():
    reader = subscriber(WORLD, "b")
    assert numbers(to(reader, publish(gateway(WORLD, "a"), "plant/t", sequence=1))) == [1]
    adopt(reader, AFTER)
    again = gateway(AFTER, "a")  # killed before its replicas acknowledged, and started with its new key
    assert to(reader, publish(again, "plant/t", sequence=1, now=NOW + 2), NOW + 2) == []
    assert numbers(to(reader, publish(again, "plant/t", sequence=2, previous=1, now=NOW + 2), NOW + 2)) == [2]
