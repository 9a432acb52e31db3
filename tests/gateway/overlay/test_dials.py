"""The connections that we make follow the overlay: who is gone is left, who moved is dialled anew, nobody else is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from gateway.client.mqtt_client import MqttClient
from gateway.mqtt5.packets import Publish
from gateway.overlay.dials import Dials


class FakeClient:
    """Comes up when started, goes down when closed, each at the next turn of the loop."""

    def __init__(self, address: str, log: list[str], reachable: bool) -> None:
        self.address, self.connected, self.log, self.reachable = address, False, log, reachable
        self.clock_ahead_s: float | None = None
        self.on_up: Callable[[], object] = lambda: None
        self.on_down: Callable[[], object] = lambda: None
        self.on_publish: Callable[[Publish], object] = lambda publish: None

    def start(self) -> None:
        self.log.append(f"dial {self.address}")
        if self.reachable:
            asyncio.get_running_loop().call_soon(self._up)

    def _up(self) -> None:
        self.connected = True
        self.on_up()

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.log.append(f"leave {self.address}")
        if self.connected:
            self.connected = False
            self.on_down()


class World:
    """Who listens where, what happened, and the dials under test."""

    def __init__(self, **addresses: str) -> None:
        self.addresses, self.log, self.away = addresses, list[str](), set[str]()
        self.dials = Dials(self._dial)

    def _dial(self, peer: str) -> MqttClient:
        return cast(MqttClient, FakeClient(self.addresses[peer], self.log, peer not in self.away))

    def link_up(self, peer: str) -> None:
        self.log.append(f"up {peer}")

    def link_down(self, peer: str) -> None:
        self.log.append(f"down {peer}")

    def link_published(self, peer: str, publish: Publish, client: MqttClient) -> None:
        self.log.append(f"from {peer}: {publish.topic}")

    async def begin(self) -> None:
        self.dials.start(self.addresses, self)
        await self.settle()
        self.log.clear()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


def run(check: Callable[[World], Any], **addresses: str) -> None:
    async def whole() -> None:
        world = World(**addresses)
        await world.begin()
        await check(world)
        await world.dials.close()

    asyncio.run(whole())


def test_who_is_gone_is_left_who_is_new_is_dialled_and_the_others_are_let_alone() -> None:
    async def check(world: World) -> None:
        kept = world.dials["a"]
        world.addresses["c"] = "3"
        world.dials.adopt_peers(["a", "c"])
        await world.settle()
        assert sorted(world.log) == ["dial 3", "leave 2", "up c"]  # nothing of b: it is no peer any more
        assert world.dials["a"] is kept
        assert world.dials.connected_peers == ("a", "c")

    run(check, a="1", b="2")


def test_whoever_moved_is_dialled_where_it_listens_now() -> None:
    async def check(world: World) -> None:
        world.addresses["b"] = "9"
        world.dials.adopt_peers(["a", "b"])
        await world.settle()
        assert world.log[:2] == ["down b", "dial 9"]
        assert sorted(world.log[2:]) == ["leave 2", "up b"]

    run(check, a="1", b="2")


def test_the_log_names_the_member_whose_link_is_up_or_down(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def nothing_else(world: World) -> None:
        pass

    run(nothing_else, a="1")
    told = [(record.getMessage(), vars(record)["member"]) for record in caplog.records]
    assert told == [("link is up", "a"), ("link is down", "a")]


def test_what_a_left_client_still_says_is_nobodys() -> None:
    async def check(world: World) -> None:
        left = world.dials["b"]
        world.dials.adopt_peers(["a"])
        left.on_publish(Publish("late", b""))
        left.on_up()
        await world.settle()
        assert world.log == ["leave 2"]

    run(check, a="1", b="2")


def test_after_a_rotation_links_are_made_anew_one_after_another() -> None:
    async def check(world: World) -> None:
        world.dials.redial()
        await world.settle()
        assert world.log == [
            step for name, at in (("a", "1"), ("b", "2"), ("c", "3"))
            for step in (f"leave {at}", f"down {name}", f"dial {at}", f"up {name}")
        ]  # fmt: skip
        assert len(world.dials.connected_peers) == 3

    run(check, a="1", b="2", c="3")


def test_a_link_that_is_down_does_not_hold_up_the_others() -> None:
    async def check(world: World) -> None:
        cast(FakeClient, world.dials["a"]).connected = False
        world.dials.redial()
        await world.settle()
        assert world.log == ["leave 2", "down b", "dial 2", "up b"]

    run(check, a="1", b="2")


def test_our_clock_is_compared_with_the_median_of_those_that_said_theirs() -> None:
    async def check(world: World) -> None:
        assert world.dials.clock_ahead_s == 0.0
        for name, ahead_s in (("a", 2.0), ("b", -9000.0), ("c", 2.5)):
            cast(FakeClient, world.dials[name]).clock_ahead_s = ahead_s
        assert world.dials.clock_ahead_s == 2.0, "whatever one of three says"

    run(check, a="1", b="2", c="3", d="4")
