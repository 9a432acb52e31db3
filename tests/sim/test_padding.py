"""With padding the length of content on every link is a multiple, and readers get what was published."""

from __future__ import annotations

import random

import pytest

from bridge.contract.machine import Subscribed
from bridge.document import Scope
from bridge.node import GatewayNode
from keys.envelope import PROPERTY_HEADER, Mode, from_property
from keys.sealedbox import TAG_BYTES
from keys.signedheader import header_of
from tests.sim.test_secrecy import Recorder
from tests.sim.world import NOW, Traffic, make_world

SIZES = (*range(0, 200, 7), 3000, 70_000)


def lengths(padding: int, mode: Mode) -> set[tuple[Mode, int]]:
    """Mode and length of all content that replicas see of these publications."""
    world = make_world({1: 3}, [], {"site": 1, "control": 1}, [Scope("plant/#", mode)])
    kernel = world.kernel(random.Random(1))
    site = kernel.nodes["site"]
    assert isinstance(site, GatewayNode)
    site.publisher.sealer.padding = padding
    recorders = {name: Recorder(node) for name, node in kernel.nodes.items()}
    kernel.nodes.update(recorders)
    traffic = Traffic("site")
    kernel.plan_event(NOW + 1, "control", Subscribed("plant/#"))
    for place, size in enumerate(SIZES):
        traffic.publish(kernel, NOW + 2 + place, "plant/t", b"x" * size)
    trace = kernel.run(NOW + 60)
    assert [len(each.publication.payload) for each in trace.delivered["control"]] == [*SIZES]
    found = set()
    for recorder in recorders.values():
        for wire in recorder.wires:
            properties = dict(wire.properties)
            if PROPERTY_HEADER in properties and wire.payload:
                found.add((header_of(from_property(properties[PROPERTY_HEADER])).mode, len(wire.payload)))
    return found


@pytest.mark.parametrize("padding", [64, 1000])
def test_all_that_a_link_shows_of_a_length_is_a_multiple(padding: int) -> None:
    seen = lengths(padding, Mode.COPIES)
    assert {(size - TAG_BYTES) % padding for _, size in seen} == {0}
    assert len(seen) < len(lengths(0, Mode.COPIES))


def test_blocks_are_cut_from_padded_content() -> None:
    """A block has its part of the content: as many lengths as there are multiples, whatever was published."""
    padded, bare = lengths(64, Mode.AUTO), lengths(0, Mode.AUTO)
    assert {mode for mode, _ in padded} == {Mode.COPIES, Mode.BLOCKS} == {mode for mode, _ in bare}
    assert {(size - TAG_BYTES) % 64 for mode, size in padded if mode is Mode.COPIES} == {0}


def test_a_plain_scope_is_not_padded() -> None:
    assert lengths(64, Mode.PLAIN) == lengths(0, Mode.PLAIN)
