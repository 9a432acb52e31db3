"""A client of our own broker within its process: let in by its name, which nobody outside may take."""

from __future__ import annotations

import asyncio

from gateway.client import LocalEnd
from gateway.clients import INTERNAL
from gateway.mqtt5.packets import Publish
from tests.gateway.harness import Wire, serving
from tests.waits import until


def test_it_needs_no_login_and_nobody_outside_can_be_it() -> None:
    async def go() -> None:
        async with serving({"allow_anonymous": False}) as broker:
            told: list[str] = []
            broker.exchange.watchers.append(lambda event: told.append(event.client_id))
            inside = LocalEnd(f"{INTERNAL}test", broker)
            got: list[Publish] = []
            inside.on_publish = got.append
            await inside.connect()
            inside.subscribe("a/#", 1)
            inside.publish("a/1", b"x", 1)
            await until(lambda: got)
            outside = await Wire.connect(broker, f"{INTERNAL}test")
            assert outside.connack is not None
            assert outside.connack.code == 0x85
            assert inside.connected
            await inside.close()
            assert told == [], "a part of this process is no entity that anybody traces"

    asyncio.run(go())
