"""A SUBACK waits until the subscription counts at a quorum of replicas, and not for ever."""

from __future__ import annotations

import asyncio

import pytest

from bridge.contract.machine import Acked, LinkUp, Send, Subscribed
from bridge.wire.statements import SUBSCRIBE_TOPIC
from gateway.overlay import accepting
from gateway.overlay.accepting import Accepting
from tests.bridge.helpers import NOW, gateway, subscriber
from tests.sim.world import make_world
from tests.waits import until


def test_who_waits_is_told_when_all_count_and_others_not_at_all() -> None:
    async def check() -> None:
        lacking = {"a/#", "b/#"}
        made, told = Accepting(lacking.__contains__), list[str]()
        assert not made.wait_for_quorum(["c/#"], lambda: told.append("nothing to wait for"))
        assert made.wait_for_quorum(["a/#", "b/#"], lambda: told.append("both"))
        assert made.wait_for_quorum(["a/#", "c/#"], lambda: told.append("a"))
        lacking.discard("a/#")
        made.look_for_quorum()
        assert told == ["a"]
        made.stop()
        assert told == ["a", "both"]

    asyncio.run(check())


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "ACCEPT_S", 0.01)

    async def check() -> None:
        made, told = Accepting(lambda _: True), list[str]()
        assert made.wait_for_quorum(["a/#"], lambda: told.append("given up"))
        await until(lambda: told)

    asyncio.run(check())


def test_a_subscription_is_awaited_until_a_quorum_acknowledged_and_then_by_nobody_in_its_scope() -> None:
    world = make_world({1: 3}, [], {"control": 1})
    node = gateway(world, "control")
    assert not node.awaits("plant/#"), "nobody asked for it"
    node = subscriber(world, "control", "plant/a/#")
    assert node.awaits("plant/a/#")
    assert not node.awaits("elsewhere/#")
    told: list[Send] = []
    again = gateway(world, "control", links=False)
    again.handle(Subscribed("plant/a/#"), NOW)
    for peer in ("r1a", "r1b"):
        told += [e for e in again.handle(LinkUp(peer), NOW) if isinstance(e, Send) and e.wire.topic == SUBSCRIBE_TOPIC]
    again.handle(Acked(told[0].peer, told[0].ticket), NOW)
    assert again.awaits("plant/a/#")
    again.handle(Subscribed("plant/b"), NOW)
    assert again.awaits("plant/b"), "another client asked for the scope, which does not count yet"
    again.handle(Acked(told[1].peer, told[1].ticket), NOW)
    assert not again.awaits("plant/a/#")
    assert not again.awaits("plant/b")
    again.handle(Subscribed("plant/c"), NOW)
    assert not again.awaits("plant/c"), "the gateway has the scope already"


def test_all_that_wait_have_one_wait_and_after_it_nobody_waits_before_a_quorum_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accepting, "ACCEPT_S", 0.05)

    async def check() -> None:
        lacking, told = {"a", "b", "c"}, list[str]()
        made = Accepting(lacking.__contains__)
        began = asyncio.get_running_loop().time()
        for name in "abc" * 10:
            assert made.wait_for_quorum([name], lambda name=name: told.append(name))  # type: ignore[misc]
            await asyncio.sleep(0)
        await until(lambda: len(told) == 30)
        assert asyncio.get_running_loop().time() - began < 10 * accepting.ACCEPT_S
        assert not made.wait_for_quorum(["b"], lambda: told.append("again")), "it was waited for in vain already"
        lacking.discard("a")
        assert made.wait_for_quorum(["b"], lambda: told.append("again")), (
            "there is a quorum: it may come for others, too"
        )
        made.stop()
        assert told[-1] == "again"

    asyncio.run(check())
