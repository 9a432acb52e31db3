"""An administrator follows what local clients publish: the way and its end, and nothing of it while nobody follows."""

from __future__ import annotations

from typing import Any

from gateway.base.followed import FollowedMessages, Following, Wish
from gateway.broker import EdgeBroker
from gateway.mqtt5.packets import PubAck
from tests.gateway.harness import Wire, on_loop, serving


def followed_at(broker: EdgeBroker, wish: Wish) -> tuple[FollowedMessages, Following]:
    followed = FollowedMessages("edge", lambda is_on: broker.exchange.follow_publications(followed if is_on else None))
    return followed, followed.begin_following(wish)


def steps(following: Following) -> list[dict[str, Any]]:
    found = []
    while (step := following.take_step()) is not None:
        found.append(step.to_dict("edge"))
    return found


def told(step: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(step.get(name) for name in names)


@on_loop
async def test_a_message_from_its_client_to_those_that_get_it_and_those_that_are_away() -> None:
    async with serving() as broker:
        pump = await Wire.connect(broker, "pump")
        desk = await Wire.connect(broker, "desk")
        await desk.subscribe("plant/#", 1)
        followed, following = followed_at(broker, Wish.read(topic="plant/#"))
        pump.publish("plant/a", b"secret-payload", 1)
        await pump.expect(PubAck)
        await desk.barrier()
        pump.publish("office/a", b"x", 1)
        await pump.expect(PubAck)
        found = steps(following)
        assert [told(step, "step", "client", "publisher", "qos") for step in found] == [
            ("received", "pump", None, 1), ("sent", "desk", "pump", 1), ("acknowledged", "pump", None, None),
        ]  # fmt: skip
        assert found[0]["bytes"] == 14
        assert "secret" not in str(found)
        followed.end_following(following)
        assert broker.exchange.delivery.followed is None
        assert broker.host.is_absent, "the short ways are open again"


@on_loop
async def test_a_refusal_is_shown_with_its_code_and_nobody_is_said() -> None:
    async with serving() as broker:
        pump = await Wire.connect(broker, "pump")
        _, following = followed_at(broker, Wish.read(client="pump"))
        pump.publish("$SYS/mine", b"x", 1)
        await pump.expect(PubAck)
        assert [told(step, "step", "code", "reason") for step in steps(following)] == [
            ("received", None, None), ("refused", "0x87", "not_authorized"),
        ]  # fmt: skip
        pump.publish("alone", b"x", 1)
        await pump.expect(PubAck)
        assert [told(step, "step", "reason") for step in steps(following)] == [
            ("received", None), ("nobody", "no local subscription"), ("acknowledged", None),
        ]  # fmt: skip


@on_loop
async def test_a_retained_message_for_a_new_subscription_is_followed_too() -> None:
    async with serving() as broker:
        pump = await Wire.connect(broker, "pump")
        pump.publish("plant/a", b"kept", 1, retain=True)
        await pump.expect(PubAck)
        _, following = followed_at(broker, Wish.read(topic="plant/#"))
        desk = await Wire.connect(broker, "desk")
        await desk.subscribe("plant/#", 0)
        assert await desk.published() == [("plant/a", b"kept")]
        assert [told(step, "step", "client", "publisher", "qos") for step in steps(following)] == [
            ("sent", "desk", "pump", 0)
        ]
