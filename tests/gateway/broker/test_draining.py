"""What was read before the end is decided and acknowledged; what comes later is not read."""

from __future__ import annotations

from gateway.broker.draining import drain
from gateway.mqtt5.packets import PubAck, Publish
from tests.gateway.harness import Wire, on_loop, serving


@on_loop
async def test_what_was_read_is_acknowledged_and_nothing_more_is_read() -> None:
    async with serving() as broker:
        wire = await Wire.connect(broker, "a")
        wire.send(Publish("t", b"x", 1, packet_id=1))
        assert (await wire.expect(PubAck)).packet_id == 1
        await drain(broker.lifecycle.connections, 1.0)
        assert not any(one._transport.is_reading() for one in broker.lifecycle.connections if one._transport)
