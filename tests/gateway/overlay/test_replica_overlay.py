"""The overlay of a replica: beats say the links, and a publication may be acknowledged later."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bridge.contract.machine import Beat, Delay, Effect, Event
from bridge.presence import BEAT_S
from gateway.base.figures import Figures
from gateway.mqtt5.packets import Publish
from gateway.overlay.replica_overlay import ReplicaOverlay
from tests.sim.world import make_world
from tests.waits import until


class Node:
    """A node that answers every event with `effects`."""

    def __init__(self, peers: frozenset[str]) -> None:
        self.removed, self.peers, self.next_deadline = False, peers, None
        self.told: list[Event] = []
        self.effects: list[Effect] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.told.append(event)
        return self.effects


class NoDials(dict[str, Any]):
    """Dials of a replica without a link."""

    connected_peers: tuple[str, ...] = ()


def replica_overlay() -> tuple[ReplicaOverlay, Node]:
    world = make_world({1: 3}, [], {})
    first, second = world.overlay.views[1].members[:2]
    node = Node(frozenset({second}))
    keeping: Any = SimpleNamespace(
        overlay=world.overlay, live=None, data=SimpleNamespace(sealing_key=bytes), listeners=list
    )
    nothing: Any = None
    links = ReplicaOverlay(
        node, Figures(first, "replica"), nothing, keeping, NoDials(), Path("unopened")  # type: ignore[arg-type]
    )  # fmt: skip
    return links, node


def test_a_beat_without_links_waits_for_its_time_and_then_comes_again_only_after_another() -> None:
    async def scenario() -> None:
        links, node = replica_overlay()
        broker: Any = None
        links._each_second(broker)
        assert [type(event) for event in node.told] == [Beat], "the time for the first one had come"
        links._each_second(broker)
        assert len(node.told) == 1
        links._beat_at -= BEAT_S
        links._each_second(broker)
        assert node.told == [Beat(())] * 2

    asyncio.run(scenario())


def test_the_acknowledgement_of_a_publication_that_is_delayed_comes_later() -> None:
    async def scenario() -> None:
        links, node = replica_overlay()
        codes: list[int] = []
        node.effects = [Delay(0.01)]
        hold = links.peer_published(next(iter(node.peers)), Publish("v/1", b"x", 1))
        assert callable(hold)
        assert hold(codes.append)
        assert codes == []
        await until(lambda: codes == [0])

    asyncio.run(scenario())
