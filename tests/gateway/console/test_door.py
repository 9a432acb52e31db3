"""Connections to the console, without sockets: how many stay, from where, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from gateway.base.config_console import CONNECTIONS_MAX
from gateway.console import door
from gateway.console.door import OF_ADDRESS_MAX, ConsoleDoor
from tests.waits import until


class Transport(asyncio.Transport):
    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1)})
        self.is_cut = False

    def abort(self) -> None:
        self.is_cut = True


class Inner(asyncio.Protocol):
    """In place of aiohttp's."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def connection_made(self, transport: Any) -> None:
        self.said.append("made")

    def connection_lost(self, error: Any) -> None:
        self.said.append("lost")


def opened(one: ConsoleDoor, address: str = "127.0.0.1") -> tuple[Any, Transport]:
    protocol, transport = one(), Transport(address)
    protocol.connection_made(transport)
    return protocol, transport


@pytest.mark.parametrize("addresses", [["192.0.2.1"], ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:1"]])
def test_one_address_block_has_a_share_and_gets_it_back(addresses: list[str]) -> None:
    async def check() -> None:
        one = ConsoleDoor(Inner)
        held = [opened(one, addresses[number % len(addresses)]) for number in range(OF_ADDRESS_MAX)]
        _, refused = opened(one, addresses[0])
        assert refused.is_cut
        assert not any(transport.is_cut for _, transport in held)
        assert not opened(one, "198.51.100.1")[1].is_cut
        held[0][0].connection_lost(None)
        assert not opened(one, addresses[0])[1].is_cut
        assert len(one) == OF_ADDRESS_MAX + 1

    asyncio.run(check())


def test_whoever_has_waited_longest_goes_when_more_come_and_nobody_who_is_answered() -> None:
    async def check() -> None:
        one = ConsoleDoor(Inner)
        held = [opened(one) for _ in range(CONNECTIONS_MAX)]
        with one.without_timer(held[0][1]):
            assert not opened(one)[1].is_cut
            assert [transport.is_cut for _, transport in held[:3]] == [False, True, False]
            assert held[1][0]._inner.said == ["made", "lost"]
            held[1][0].connection_lost(None)  # the loop says so later
            assert held[1][0]._inner.said == ["made", "lost"]
        assert len(one) == CONNECTIONS_MAX

    asyncio.run(check())


@pytest.mark.attack(159)
def test_a_few_addresses_that_keep_all_connections_busy_lock_nobody_out() -> None:
    """Attack: four addresses send bodies that never end, and a console has no connection left."""

    async def check() -> None:
        one = ConsoleDoor(Inner)
        held = [opened(one, f"192.0.2.{number % 4}") for number in range(CONNECTIONS_MAX)]
        with contextlib.ExitStack() as busy:
            for _, transport in held:
                busy.enter_context(one.without_timer(transport))
            newcomers = [opened(one, "198.51.100.1") for _ in range(2)]
            assert not any(transport.is_cut for _, transport in newcomers)
            assert sum(transport.is_cut for _, transport in held) == 2
            assert len(one) == CONNECTIONS_MAX
            assert opened(one, "192.0.2.1")[1].is_cut, "nobody takes from others more than they have"

    asyncio.run(check())


def test_half_a_request_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HEADER_S", 0.02)
    monkeypatch.setattr(door, "IDLE_S", 0.02)

    async def check() -> None:
        one = ConsoleDoor(Inner)
        (half, half_transport), (_, asking), (_, again) = (opened(one) for _ in range(3))
        half.data_received(b"GET / HTTP/1.1\r\nX: ")
        with one.without_timer(asking):
            with one.without_timer(again):
                await until(lambda: half_transport.is_cut)
                _, later = opened(one)
                await until(lambda: later.is_cut)
                assert not again.is_cut, "which is older, and is answered"
            await until(lambda: again.is_cut)  # it got its answer and asks nothing more
            assert not asking.is_cut
        with one.without_timer(None):
            assert len(one) == 1

    asyncio.run(check())
