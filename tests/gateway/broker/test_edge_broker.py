"""What clients see of the broker: delivery, retained messages, sessions, wills, refusals."""

from __future__ import annotations

import asyncio

from gateway.broker.edge_broker import EdgeBroker
from gateway.mqtt5.packets import (
    Disconnect,
    Version,
)
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, serving

V3, V5 = Version.V311, Version.V5


def test_shutdown_says_goodbye() -> None:
    async def check() -> None:
        async with serving() as broker:
            new, old = await Wire.connect(broker), await Wire.connect(broker, "old", V3)
        (bye,) = await new.closed()
        assert isinstance(bye, Disconnect)
        assert bye.code == ReasonCode.SERVER_SHUTTING_DOWN
        assert await old.closed() == []

    asyncio.run(check())


def test_amqtts_own_configuration_is_accepted() -> None:
    async def check() -> None:
        broker = EdgeBroker(
            {
                "listeners": {"default": {"type": "tcp", "bind": "127.0.0.1:0"}},
                "plugins": {
                    "amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True},
                },
            }
        )
        await broker.start()
        wire = await Wire.connect(broker, "c", V3)
        assert wire.connack is not None
        assert wire.connack.code == 0
        wire.cut()
        await broker.shutdown()

    asyncio.run(check())


def test_the_end_does_not_wait_for_who_was_refused_and_stays() -> None:
    async def check() -> None:
        async with serving({"allow_anonymous": False, "limits": {"shutdown_s": 1}}) as broker:
            refused = await Wire.connect(broker, "c")
            assert refused.connack is not None
            assert refused.connack.code == ReasonCode.NOT_AUTHORIZED
        assert broker.lifecycle.reached.counts["shutdown_s"] == 0

    asyncio.run(check())
