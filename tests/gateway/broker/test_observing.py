"""The look at the whole broker adds up what its sessions and stores hold."""

from __future__ import annotations

from gateway.broker.observing import observe
from gateway.mqtt5.packets import Publish
from tests.gateway.harness import Wire, on_loop, serving


@on_loop
async def test_what_is_shown_is_what_is_there() -> None:
    async with serving({"limits": {"queue_messages": 2, "in_flight": 1}}) as broker:
        lasting = {"session_expiry_s": 100}
        away = await Wire.connect(broker, "away", properties=lasting)
        await away.subscribe("t", 1)
        await away.subscribe("$share/g/u", 0)
        here = await Wire.connect(broker, "here")
        await here.subscribe("u", 1)
        away.cut()
        pub = await Wire.connect(broker, "pub")
        for topic in ("t", "t", "t", "u", "u"):
            pub.publish(topic, b"x", 1, retain=True)
        await pub.barrier()
        found = observe(broker.lifecycle, broker.exchange)
        assert (found.clients_connected, found.sessions, found.members) == (2, 3, 0)
        assert (found.subscriptions, found.shared_subscriptions) == (3, 1)
        assert found.retained_messages >= 2
        assert found.retained_bytes == broker.exchange.retained.held_bytes > 0
        assert found.queued_messages == 3, "two for who is away, one for who has one in flight"
        assert found.in_flight == 1
        assert found.queued_bytes > 0
        assert found.figures.dropped_queue_full == found.reached["queue_messages"] == 1
        assert found.connections == 2
        assert found.uptime_s >= 0
        assert isinstance(await here.next(), Publish)


@on_loop
async def test_what_ended_sessions_counted_is_not_lost() -> None:
    async with serving() as broker:
        gone = await Wire.connect(broker, "gone")
        await gone.subscribe("t")
        gone.publish("t")
        assert await gone.published() == [("t", b"x")]
        before = observe(broker.lifecycle, broker.exchange)
        gone.cut()
        other = await Wire.connect(broker, "gone")
        await other.barrier()
        after = observe(broker.lifecycle, broker.exchange)
        assert after.figures.delivered >= before.figures.delivered
        assert after.sessions == 1
