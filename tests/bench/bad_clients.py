"""Bad clients, each a process of its own that does one thing without end: see `fairness`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
from collections.abc import Callable, Coroutine
from multiprocessing.process import BaseProcess
from types import SimpleNamespace
from typing import Any

from gateway.mqtt5.packets import PubAck, Subscribe, Subscription, Unsubscribe
from tests.bench.load import pin
from tests.gateway.harness import Wire

USER, PASSWORD = "bad", b"bad"
WINDOW = 500
FILTERS = 5_000
PLACES = 8
"""Connections of a bad client that connects or asks the console."""
DEVICES = 20_000
SHARED = 1_024
"""Devices that name one availability topic."""
NICE = 10
"""The bad client shares a core with those who measure: it takes the broker's time, not theirs."""

Bad = Callable[[Any, int], Coroutine[Any, Any, None]]


async def _come(broker: Any, client_id: str = "bad", **fields: Any) -> Wire:
    return await Wire.connect(broker, client_id, username=USER, password=PASSWORD, **fields)


async def _answered(wire: Wire) -> Any:
    """Returns the next packet, however late: a machine with other work lets a bad client starve."""
    while True:
        with contextlib.suppress(TimeoutError):
            return await wire.next()


async def _publishes(wire: Wire, messages: list[tuple[str, bytes]], retain: bool = False) -> None:
    for topic, payload in messages:
        wire.publish(topic, payload, 1, retain=retain)
    for _ in messages:
        packet = await _answered(wire)
        assert isinstance(packet, PubAck), packet


async def publish(broker: Any, console: int) -> None:
    """QoS 1, as fast as it is acknowledged."""
    wire = await _come(broker)
    while True:
        await _publishes(wire, [("bad/x", bytes(100))] * WINDOW)


async def subscribe(broker: Any, console: int) -> None:
    """SUBSCRIBE and UNSUBSCRIBE of thousands of filters in one packet, deep and with wildcards."""
    wire = await _come(broker)
    filters = tuple("/".join("+" if n >> bit & 1 else "bad" for bit in range(13)) + "/#" for n in range(FILTERS))
    while True:
        wire.send(Subscribe(1, tuple(Subscription(each, 1) for each in filters)))
        await _answered(wire)
        wire.send(Unsubscribe(2, filters))
        await _answered(wire)


async def connect(broker: Any, console: int) -> None:
    """Persistent sessions under ever new client ids, and wrong passwords."""
    numbers = itertools.count()

    async def comes() -> None:
        while True:
            number = next(numbers)
            fields = {"password": b"wrong"} if number % 4 == 0 else {"password": PASSWORD}
            wire = await Wire.connect(
                broker,
                f"bad{number}",
                clean_start=False,
                properties={"session_expiry_s": 3600},
                username=USER,
                **fields,
            )
            wire.cut()

    await asyncio.gather(*(comes() for _ in range(PLACES)))


async def retained(broker: Any, console: int) -> None:
    """Retained messages of 1 KiB under ever new names."""
    wire, numbers = await _come(broker), itertools.count()
    while True:
        await _publishes(wire, [(f"bad/{next(numbers)}", bytes(1024)) for _ in range(WINDOW)], retain=True)


async def discovery(broker: Any, console: int) -> None:
    """Home Assistant's discovery messages, then states of a topic that a thousand devices share."""
    wire = await _come(broker)

    def config(number: int) -> tuple[str, bytes]:
        shared = "bad/state" if number < SHARED else f"bad/{number}"
        content = {"unique_id": f"d{number}", "availability_topic": shared, "device": {"identifiers": [f"d{number}"]}}
        return f"homeassistant/sensor/d{number}/config", json.dumps(content).encode()

    for at in itertools.cycle(range(0, DEVICES, WINDOW)):
        await _publishes(wire, [config(at + number) for number in range(WINDOW)])
        await _publishes(wire, [("bad/state", state) for state in (b"online", b"offline") * 20])


async def console(broker: Any, console: int) -> None:
    """Wrong passwords, half headers, and questions for all that is retained."""

    async def asks(number: int) -> None:
        kinds = (
            b"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nX-Requested-By: x\r\nContent-Type: application/json\r\n"
            b'Content-Length: 31\r\n\r\n{"user": "bad","password": "x"}',
            b"GET /api/v1/retained?filter=%23 HTTP/1.1\r\nHost: localhost\r\nX-Half: ",
            b"GET /api/v1/retained?filter=%23 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        )
        for kind in itertools.cycle(kinds):
            with contextlib.suppress(OSError, TimeoutError):
                reader, writer = await asyncio.open_connection("127.0.0.1", console)
                writer.write(kind)
                await asyncio.wait_for(reader.read(4096), 0.2)
                writer.close()

    await asyncio.gather(*(asks(number) for number in range(PLACES)))


async def busy(broker: Any, console: int) -> None:
    """Nothing at the broker: keeps the core of all clients busy, which is what the machine itself costs."""
    while True:
        pass


KINDS: dict[str, Bad] = {
    each.__name__: each for each in (publish, subscribe, connect, retained, discovery, console, busy)
}


def started(kind: str, port: int, console_port: int, core: int) -> BaseProcess:
    """A bad client of this kind, until it is killed."""
    process = multiprocessing.get_context("spawn").Process(
        target=_run, args=(kind, port, console_port, core), daemon=True
    )
    process.start()
    return process


def _run(kind: str, port: int, console_port: int, core: int) -> None:
    pin(core)
    os.nice(NICE)
    broker = SimpleNamespace(port=lambda listener="default": port)
    asyncio.run(KINDS[kind](broker, console_port))
