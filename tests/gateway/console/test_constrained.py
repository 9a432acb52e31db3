"""Constrained topics asked of the API: what MQTT refuses a user, in any spelling, the API refuses too."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.auth.security import Security
from gateway.base.config_console import Console
from gateway.client import LocalEnd
from gateway.clients import INTERNAL
from gateway.console.answering import LOOKS_AT_ONCE, Answering
from gateway.console.asking import ApiError, ApiRequest
from gateway.console.shown import LogTail, Shown
from gateway.console.streams import WAITING_MAX
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import PubAck
from tests.gateway.console.running import user
from tests.gateway.harness import Wire, serving
from tests.gateway.traced_site import Site
from tests.waits import until

PRIVATE = "RealTime/alice/PublishSubscribe/Disseminate/private"
COMMANDS = "RealTime/alice/SubscribeOnly/Disseminate/cmd"
SPELLINGS = ("$Constrained", "Constrained", "/Constrained")


def plugins(directory: Path) -> dict[str, Any]:
    path = directory / "security.json"
    Security(users={
        "alice": user("pw", "topic readwrite #", "topic readwrite $Constrained/#"),
        "bob": user("pw", "topic readwrite #", "topic readwrite $Constrained/#"),
        "mallory": user("pw", "topic readwrite #", "topic readwrite +/Constrained/#"),
    }).save(path)  # fmt: skip
    return {"gateway.auth.dynamic.DynamicPlugin": {"file": str(path)}}


async def client(broker: Any, name: str) -> Wire:
    wire = await Wire.connect(broker, name, username=name, password=b"pw")
    assert wire.connack is not None
    assert wire.connack.code == 0
    return wire


async def status(answering: Answering, who: str, name: str, body: Any = None, **query: str) -> int:
    request: Any = None
    try:
        answer = await answering.act(name)(ApiRequest(who, "", "", query, body or {}, request, lambda: True))
    except ApiError as error:
        return error.status
    assert "only alice" not in json.dumps(answer)
    return 200


def test_what_mqtt_refuses_the_api_refuses_in_any_spelling(site: Site, tmp_path: Path) -> None:
    async def check() -> None:
        async with site.serving(plugins=plugins(tmp_path), allow_anonymous=False) as broker:
            answering = Answering(Console(), Shown(broker, dict, "entities", LogTail()), editing=None, followed=None)  # type: ignore[arg-type]
            alice, bob, mallory = [await client(broker, name) for name in ("alice", "bob", "mallory")]
            alice.publish(f"$Constrained/{PRIVATE}", b"only alice may hear this", qos=1, retain=True)
            assert (await alice.expect(PubAck)).code == 0
            assert await alice.subscribe(f"$Constrained/{COMMANDS}", 1) == 1
            for spelling in SPELLINGS:
                for rest in (PRIVATE, f"{PRIVATE}/#", "#", "RealTime/#"):
                    asked = f"{spelling}/{rest}"
                    code = await bob.subscribe(asked, 1)
                    assert await status(answering, "bob", "retained", filter=asked) == (403 if code >= 0x80 else 200)
                    if code >= 0x80:
                        assert await status(answering, "bob", "stream", filter=asked) == 403
                mallory.publish(f"{spelling}/{COMMANDS}", b"over MQTT", qos=1)
                assert (await mallory.expect(PubAck)).code >= 0x80
                body = {"topic": f"{spelling}/{COMMANDS}", "payload": "by the API"}
                assert await status(answering, "mallory", "publish", body) in (400, 403)
            assert await bob.published() == await alice.published() == []
            assert await status(answering, "bob", "retained", filter="#") == 200
            assert await status(answering, "bob", "publish", {"topic": "plain", "payload": "x"}) == 200
            for end in list(answering._streams.clients):
                await end.close()

    asyncio.run(check())


def test_no_user_of_the_console_is_taken_for_a_client(site: Site, tmp_path: Path) -> None:
    """Its view has a client id that no client can have, so that none of what is a client's by its id is its own."""

    async def check() -> None:
        async with site.serving(plugins=plugins(tmp_path), allow_anonymous=False) as broker:
            answering = Answering(Console(), Shown(broker, dict, "entities", LogTail()), editing=None, followed=None)  # type: ignore[arg-type]
            view = answering._view("alice")
            wire = await Wire.connect(broker, view.client_id or "", username="alice", password=b"pw")
            assert wire.connack is not None
            assert wire.connack.code >= 0x80
            for asked in (f"$Constrained/{PRIVATE}", f"$Constrained/{PRIVATE.replace('alice', 'console-alice')}"):
                assert await status(answering, "alice", "retained", filter=asked) == 403

    asyncio.run(check())


@pytest.mark.attack(156)
def test_retained_messages_of_others_hide_none_and_are_looked_through_in_turns(tmp_path: Path) -> None:
    """Attack: a client retains 1,000 messages, and users of the console who may not see them see nothing at all; and a
    user asks for all that is retained, again and again."""

    async def check() -> None:
        path = tmp_path / "security.json"
        Security(users={"bob": user("pw", "topic read seen/#", "topic read #", "topic deny hidden/#")}).save(path)
        config = {"plugins": {"gateway.auth.dynamic.DynamicPlugin": {"file": str(path)}}, "allow_anonymous": False}
        async with serving(config) as broker:
            answering = Answering(Console(), Shown(broker, dict, "entities", LogTail()), editing=None, followed=None)  # type: ignore[arg-type]
            for number in range(1_500):
                broker.exchange.retain(None, Message(f"hidden/{number}", b"x", 1, True))
            broker.exchange.retain(None, Message("seen/1", b"x", 1, True))
            most, here, may_receive = 0, 0, answering._may_receive

            async def counted(who: str, topic: str) -> bool:
                nonlocal most, here
                here += 1
                most = max(most, here)
                return await may_receive(who, topic)

            async def turns() -> None:
                nonlocal here
                while True:
                    await asyncio.sleep(0)
                    here = 0

            answering._may_receive = counted  # type: ignore[method-assign]
            ticking = asyncio.create_task(turns())
            request = ApiRequest("bob", "", "", {"filter": "#"}, {}, None, lambda: True)  # type: ignore[arg-type]
            answers = await asyncio.gather(*(answering.retained(request) for _ in range(3)))
            ticking.cancel()
            assert [[one["topic"] for one in answer["messages"]] for answer in answers] == [["seen/1"]] * 3
            assert 1 < most <= 2 * LOOKS_AT_ONCE

    asyncio.run(check())


@pytest.mark.attack(160)
def test_a_user_who_asks_without_end_for_all_that_is_retained_keeps_no_other_waiting(tmp_path: Path) -> None:
    """Attack: a user asks a hundred times at once, and each question looks through all that is retained."""

    async def check() -> None:
        path = tmp_path / "security.json"
        Security(users={"bob": user("pw", "topic read #"), "ann": user("pw", "topic read #")}).save(path)
        config = {"plugins": {"gateway.auth.dynamic.DynamicPlugin": {"file": str(path)}}, "allow_anonymous": False}
        async with serving(config) as broker:
            answering = Answering(Console(), Shown(broker, dict, "entities", LogTail()), editing=None, followed=None)  # type: ignore[arg-type]
            for number in range(10 * LOOKS_AT_ONCE):
                broker.exchange.retain(None, Message(f"seen/{number}", b"x", 1, True))

            def asks(who: str) -> asyncio.Task[Any]:
                request = ApiRequest(who, "", "", {"filter": "#", "limit": "5000"}, {}, None, lambda: True)  # type: ignore[arg-type]
                return asyncio.create_task(answering.retained(request))

            many = [asks("bob") for _ in range(100)]
            await asyncio.sleep(0)
            assert len((await asks("ann"))["messages"]) > 0
            assert sum(one.done() for one in many) <= 3
            for one in many:
                one.cancel()
            await asyncio.gather(*many, return_exceptions=True)

    asyncio.run(check())


class Browser:
    """The answer of a stream, which a browser reads while `reads` is set."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.messages: list[dict[str, Any]] = []

    async def write(self, data: bytes) -> None:
        await self.reads.wait()
        if data.startswith(b"data: {") and data != b"data: {}\n\n":
            self.messages.append(json.loads(data.removeprefix(b"data: ")))


@pytest.mark.attack(190)
@pytest.mark.parametrize("asked", ["+/level", "+/level?payload>3"])
def test_messages_that_a_user_may_not_receive_take_no_place_in_its_stream_and_tell_nothing(
    asked: str, tmp_path: Path
) -> None:
    """Attack: streams with thresholds, whose counts in `$SYS` tell a hidden value; or a client that sends so much that
    users may not receive, until their streams miss what they may."""

    async def check() -> None:
        path = tmp_path / "security.json"
        bob = user("pw", "topic read seen/#")
        Security(users={"alice": user("pw", "topic readwrite #"), "bob": bob}).save(path)
        config = {"plugins": {"gateway.auth.dynamic.DynamicPlugin": {"file": str(path)}}, "allow_anonymous": False}
        async with serving({**config, "subscriptions": {"predicates": True}}) as broker:
            answering = Answering(Console(), Shown(broker, dict, "entities", LogTail()), editing=None, followed=None)  # type: ignore[arg-type]
            alice, request, nothing = await client(broker, "alice"), Browser(), cast("Any", None)
            one = ApiRequest("bob", "", "", {"filter": asked}, {}, nothing, lambda: True)
            end = LocalEnd(f"{INTERNAL}console/test", broker)
            wanted = await answering._permitted(one)
            told = asyncio.ensure_future(answering._streams._write_messages(one, wanted, end, cast("Any", request)))
            await until(lambda: broker.exchange.delivery.router.filters() == ["+/level"])
            for number in range(2 * WAITING_MAX):
                alice.publish("secret/level", b"%d" % (number % 9))
            alice.publish("seen/level", b"2")
            alice.publish("seen/level", b"7")
            await alice.barrier()
            request.reads.set()
            await until(lambda: [m["payload"] for m in request.messages][-1:] == ["7"])
            expected = ["7"] if "?" in asked else ["2", "7"]
            assert [m["payload"] for m in request.messages] == expected
            assert request.messages[0]["missed"] == 0
            assert broker.exchange.traffic.withheld == broker.exchange.traffic.evaluated == 0
            told.cancel()
            await asyncio.wait([told])
            await end.close()

    asyncio.run(check())


@pytest.mark.attack(190)
def test_retained_messages_are_chosen_by_content_behind_rights(tmp_path: Path) -> None:
    async def check() -> None:
        path = tmp_path / "security.json"
        Security(users={"alice": user("pw", "topic readwrite #"), "bob": user("pw", "topic read seen/#")}).save(path)
        config = {"plugins": {"gateway.auth.dynamic.DynamicPlugin": {"file": str(path)}}, "allow_anonymous": False}
        async with serving({**config, "subscriptions": {"predicates": True}}) as broker:
            answering = Answering(Console(), Shown(broker, dict, "entities", LogTail()), editing=None, followed=None)  # type: ignore[arg-type]
            alice, nothing = await client(broker, "alice"), cast("Any", None)
            for topic, payload in (("seen/a", b"2"), ("seen/b", b"7"), ("secret/a", b"8")):
                alice.publish(topic, payload, retain=True)
            await alice.barrier()
            asked = ApiRequest("bob", "", "", {"filter": "+/+?payload>3"}, {}, nothing, lambda: True)
            found = await answering.retained(asked)
            assert [each["topic"] for each in found["messages"]] == ["seen/b"]

    asyncio.run(check())
