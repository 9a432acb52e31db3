"""Starting and ending: what cannot start says so in one line."""

from __future__ import annotations

import asyncio

import pytest

from gateway.base.config import StartError, parse
from gateway.broker.edge_broker import EdgeBroker
from gateway.broker.running import make_broker, run_broker
from gateway.mqtt5.packets import (
    Disconnect,
    Version,
)
from gateway.mqtt5.types import ReasonCode
from gateway.sockets.gone import tell_unless_gone
from tests.gateway.harness import LOOPBACK, Wire, serving
from tests.waits import until

V3, V5 = Version.V311, Version.V5


def test_a_port_in_use_is_one_clear_line() -> None:
    async def check() -> None:
        async with serving() as broker:
            second = make_broker(parse({"listeners": {"default": {"bind": f"127.0.0.1:{broker.port()}"}}}))
            with pytest.raises(StartError, match=r"listener default: .*the port is in use") as caught:
                await second.start()
            assert "\n" not in str(caught.value)

    asyncio.run(check())


@pytest.mark.parametrize("bind", ["no.such.host.invalid:1", "8.8.8.8:1883"])
def test_an_address_that_cannot_be_bound_is_one_clear_line(bind: str) -> None:
    async def check() -> None:
        with pytest.raises(StartError, match=r"listener default: .*correct bind"):
            await make_broker(parse({"listeners": {"default": {"bind": bind}}})).start()

    asyncio.run(check())


def test_a_plugin_that_does_not_exist_is_one_clear_line() -> None:
    async def check() -> None:
        with pytest.raises(StartError, match=r"no\.such\.Plugin"):
            make_broker(parse({"listeners": LOOPBACK, "plugins": {"no.such.Plugin": {}}}))

    asyncio.run(check())


def test_a_broker_serves_until_it_is_told_to_stop_and_says_when_it_begins() -> None:
    async def check() -> None:
        begun: list[EdgeBroker] = []
        stop = asyncio.Event()
        settings = parse({"listeners": LOOPBACK, "allow_anonymous": True})
        running = asyncio.create_task(run_broker(settings, started=begun.append, stop=stop))
        await until(lambda: bool(begun) and begun[0].transitions.state == "started")
        assert asyncio.get_running_loop().get_exception_handler() is tell_unless_gone
        wire = await Wire.connect(begun[0], "c")
        stop.set()
        await running
        (bye,) = await wire.closed()
        wire.cut()
        assert isinstance(bye, Disconnect)
        assert bye.code == ReasonCode.SERVER_SHUTTING_DOWN
        assert begun[0].transitions.state == "stopped"

    asyncio.run(check())


def test_what_does_not_finish_in_time_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        begun: list[EdgeBroker] = []
        stop = asyncio.Event()
        settings = parse({"listeners": LOOPBACK, "limits": {"shutdown_s": 0.05}})
        running = asyncio.create_task(run_broker(settings, started=begun.append, stop=stop))
        await until(lambda: bool(begun) and begun[0].transitions.state == "started")
        ends = begun[0].shutdown
        monkeypatch.setattr(begun[0], "shutdown", asyncio.Event().wait)
        stop.set()
        await running
        await ends()
        assert "limits.shutdown_s is over" in caplog.text

    asyncio.run(check())


def test_a_broker_that_cannot_start_ends_without_being_stopped() -> None:
    async def check() -> None:
        async with serving() as broker:
            taken = parse({"listeners": {"default": {"bind": f"127.0.0.1:{broker.port()}"}}})
            with pytest.raises(StartError, match="in use"):
                await run_broker(taken)

    asyncio.run(check())
