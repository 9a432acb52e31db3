"""Subscriptions that begin in the past, at a broker: who is refused, and when they are live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bridge.contract import Publication
from gateway.broker import subscribing
from gateway.broker.subscribing import READINGS_MAX
from gateway.mqtt5.packets import UnsubAck, Unsubscribe, Version
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, serving
from tests.gateway.test_broker_overlay import FakeOverlay


class Past(FakeOverlay):
    """An overlay with a history. `give`, `done`: what the reading of each filter calls."""

    has_history = True

    def __init__(self) -> None:
        super().__init__()
        self.readings: dict[str, tuple[Callable[[Publication], None], Callable[[], None]]] = {}
        self.stopped: list[str] = []

    def read_again(
        self,
        topic_filter: str,
        since_ms: int,
        give: Callable[[Publication], None],
        has_room: Callable[[], bool],
        done: Callable[[], None],
        owner: str,
    ) -> Callable[[], None]:
        assert since_ms > 0
        assert owner
        assert has_room()
        self.readings[topic_filter] = give, done
        return lambda: self.stopped.append(topic_filter)


def test_the_past_comes_first_and_the_subscription_is_live_when_it_is_over() -> None:
    async def check() -> None:
        overlay = Past()
        async with serving(overlay=overlay) as broker:
            dev = await Wire.connect(broker, "dev")
            for version in (Version.V5, Version.V311):
                late = await Wire.connect(broker, f"late{version}", version)
                await late.subscribe("$since/2h/a/#", qos=1)
                give, done = overlay.readings["a/#"]
                dev.publish("a/live", b"too early: the past has it")
                await dev.barrier()
                give(Publication("a/1", b"past", 1))
                assert [topic for topic, _ in await late.published()] == ["a/1"]
                done()
                dev.publish("a/2", b"live")
                await dev.barrier()
                assert [topic for topic, _ in await late.published()] == ["a/2"]

    asyncio.run(check())


def test_groups_and_what_is_no_time_are_refused() -> None:
    async def check() -> None:
        async with serving(overlay=Past()) as broker:
            late = await Wire.connect(broker, "late")
            for refused in ("$share/g/$since/2h/a/#", "$since/2h/$share/g/a/#", "$since/never/a/#"):
                assert await late.subscribe(refused) == ReasonCode.TOPIC_FILTER_INVALID

    asyncio.run(check())


def test_one_client_has_few_readings_and_leaves_others_theirs() -> None:
    async def check() -> None:
        overlay = Past()
        async with serving(overlay=overlay) as broker:
            greedy, other = await Wire.connect(broker, "greedy"), await Wire.connect(broker, "other")
            for number in range(READINGS_MAX):
                assert await greedy.subscribe(f"$since/2h/{number}/#") == 0
            assert await greedy.subscribe("$since/2h/more/#") == ReasonCode.QUOTA_EXCEEDED
            assert await greedy.subscribe("$since/2h/0/#") == 0  # again: the former one ends
            assert overlay.stopped == ["0/#"]
            assert await other.subscribe("$since/2h/more/#") == 0
            greedy.send(Unsubscribe(9, ("$since/2h/0/#",)))
            await greedy.expect(UnsubAck)
            assert overlay.stopped == ["0/#", "0/#"]
            assert overlay.filters[-1] == "-0/#"
            assert await greedy.subscribe("$since/2h/more/#") == 0

    asyncio.run(check())


@pytest.mark.attack(167)
def test_a_user_with_many_clients_has_no_more_readings_than_it_leaves_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attack: one user asks for the past under ever new client ids."""
    monkeypatch.setattr(subscribing, "ALL_READINGS_MAX", 8)
    monkeypatch.setattr(subscribing, "owner_of", lambda view: str(view.client_id).partition("-")[0])

    async def check() -> None:
        async with serving(overlay=Past()) as broker:
            greedy = [await Wire.connect(broker, f"greedy-{number}") for number in range(6)]
            granted = [await each.subscribe(f"$since/2h/{number}/#") for number, each in enumerate(greedy)]
            assert granted == [0] * 4 + [ReasonCode.QUOTA_EXCEEDED] * 2
            other = await Wire.connect(broker, "other")
            assert await other.subscribe("$since/2h/a/#") == 0
            assert await other.subscribe("$since/2h/b/#") == 0

    asyncio.run(check())
