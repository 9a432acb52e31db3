"""Plugins of amqtt work unchanged: authentication, topic filtering, events, BrokerContext."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from amqtt.broker import BrokerContext
from amqtt.contexts import Action
from amqtt.plugins.base import BaseAuthPlugin, BasePlugin, BaseTopicPlugin
from argon2 import PasswordHasher

from bridge.contract import Publication
from gateway.mqtt5.packets import PubAck, Publish, SubAck, Version, Will
from gateway.mqtt5.types import ReasonCode
from gateway.plugins import EdgeSession, PluginHost
from tests.gateway.harness import Wire, serving
from tests.waits import until

HERE = __name__


ACL = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"


TABOO = "amqtt.plugins.topic_checking.TopicTabooPlugin"


FILE_AUTH = "amqtt.plugins.authentication.FileAuthPlugin"


SYS = "amqtt.plugins.sys.broker.BrokerSysPlugin"


class NameIsPassword(BaseAuthPlugin):
    async def authenticate(self, *, session: Any) -> bool | None:
        await asyncio.sleep(0)
        if session.username == "broken":
            raise RuntimeError("database is down")
        session.attributes["seen"] = True
        return None if session.username is None else bool(session.username == session.password)


class Slow(BaseTopicPlugin):
    """Suspends, remembers what it was asked, and forbids what its table says now."""

    asked: ClassVar[list[tuple[str, str, str]]] = []
    forbidden: ClassVar[set[tuple[str, str]]] = set()

    async def topic_filtering(
        self, *, session: Any = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        await asyncio.sleep(0.001)
        assert topic is not None
        assert action is not None
        self.asked.append((session.client_id, topic, action.value))
        return (action.value, topic) not in self.forbidden


class Recorder(BasePlugin[BrokerContext]):
    events: ClassVar[list[Any]] = []
    context_: ClassVar[list[BrokerContext]] = []

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self.context_.append(context)

    async def on_broker_client_connected(self, client_id: str, client_session: Any) -> None:
        self.events.append(("connected", client_id, client_session.transitions.state))

    async def on_broker_client_disconnected(self, client_id: str, client_session: Any) -> None:
        self.events.append(("disconnected", client_id, client_session.transitions.state))

    async def on_broker_client_subscribed(self, client_id: str, topic: str, qos: int) -> None:
        self.events.append(("subscribed", client_id, topic, qos))

    async def on_broker_client_unsubscribed(self, client_id: str, topic: str) -> None:
        self.events.append(("unsubscribed", client_id, topic))

    async def on_broker_message_received(self, *, client_id: str, message: Any) -> None:
        assert message.publish_packet.retain_flag == message.retain
        self.events.append(("received", client_id, message.topic, bytes(message.data)))

    async def on_broker_message_broadcast(self, *, client_id: str, message: Any) -> None:
        self.events.append(("broadcast", client_id, message.topic))

    async def on_broker_retained_message(self, *, client_id: str | None, retained_message: Any) -> None:
        self.events.append(("retained", client_id, retained_message.topic, bytes(retained_message.data)))

    @dataclass
    class Config:
        spare: dict[str, str] = field(default_factory=dict)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    for record in (Slow.asked, Slow.forbidden, Recorder.events, Recorder.context_):
        record.clear()


def code(wire: Wire) -> int:
    assert wire.connack is not None
    return wire.connack.code


def test_authentication_plugins_decide() -> None:
    async def check() -> None:
        config = {"plugins": {f"{HERE}.NameIsPassword": {}}, "allow_anonymous": False}
        async with serving(config) as broker:
            good = await Wire.connect(broker, "a", username="u", password=b"u")
            assert code(good) == 0
            bad = await Wire.connect(broker, "b", username="u", password=b"x")
            assert code(bad) == ReasonCode.BAD_USER_NAME_OR_PASSWORD
            assert code(await Wire.connect(broker, "c")) == ReasonCode.NOT_AUTHORIZED
            down = await Wire.connect(broker, "d", username="broken", password=b"")
            assert code(down) == ReasonCode.BAD_USER_NAME_OR_PASSWORD
            assert broker.sessions["a"][0].attributes == {"seen": True}
        config["allow_anonymous"] = True
        async with serving(config) as broker:
            assert code(await Wire.connect(broker, "c")) == 0
            assert code(await Wire.connect(broker, "b", username="u", password=b"x")) != 0

    asyncio.run(check())


def asked_at_once(anonymous: bool, *, user: str | None, plugins: bool = False, methods: bool = False) -> object:
    """What is known of a login before anybody is asked, and whether it is one without a name."""
    manager: Any = SimpleNamespace(
        _plugins=(), _topic_plugins=[], _event_plugin_callbacks={}, _auth_plugins=[object()] if plugins else []
    )
    host, session = PluginHost(manager, allow_anonymous=anonymous), EdgeSession()
    host.has_methods, session.username = methods, user
    return host.lets_in(session), session.is_anonymous


def test_plugins_are_asked_only_where_they_have_a_say() -> None:
    assert asked_at_once(True, user=None) == (True, True)
    assert asked_at_once(True, user=None, plugins=True) == (True, True), "nobody claims anything"
    assert asked_at_once(True, user="ann") == (True, True), "nobody can say who that is"
    assert asked_at_once(True, user="ann", methods=True) == (False, False), "it could be proven, and is only claimed"
    assert asked_at_once(False, user=None) == (False, False)
    assert asked_at_once(False, user="ann") == (False, False)
    for user in (None, "ann"):
        assert asked_at_once(False, user=user, plugins=True, methods=True) == (None, False)
    assert asked_at_once(True, user="ann", plugins=True) == (None, False)


def test_our_own_parts_are_let_in_whatever_plugins_there_are() -> None:
    manager: Any = SimpleNamespace(_plugins=(), _topic_plugins=[], _event_plugin_callbacks={}, _auth_plugins=[object()])
    session = EdgeSession()
    session.is_internal = True
    assert PluginHost(manager).lets_in(session) is True


def test_a_refused_client_does_not_disturb_the_session_that_it_claims() -> None:
    async def check() -> None:
        config = {"plugins": {f"{HERE}.NameIsPassword": {}}, "allow_anonymous": False}
        async with serving(config) as broker:
            owner = await Wire.connect(broker, "c", username="u", password=b"u")
            await owner.subscribe("t")
            await Wire.connect(broker, "c", username="u", password=b"guess")
            owner.publish("t")
            assert await owner.published() == [("t", b"x")]

    asyncio.run(check())


@pytest.mark.attack(142)
@pytest.mark.parametrize(("version", "refused"), [(Version.V5, 0x85), (Version.V311, 2)])
def test_another_user_neither_inherits_nor_ends_a_session_by_its_client_id(version: Version, refused: int) -> None:
    """Attack: whoever can log in ended another's session, with what was acknowledged for it."""

    async def check() -> None:
        config = {"plugins": {f"{HERE}.NameIsPassword": {}}, "allow_anonymous": False}
        async with serving(config) as broker:
            lasting = {"clean_start": False} if version is Version.V311 else {"properties": {"session_expiry_s": 100}}

            async def come(user: str, **fields: Any) -> Wire:
                return await Wire.connect(broker, "c", version, username=user, password=user.encode(), **fields)

            owner = await come("u", **lasting)
            await owner.subscribe("secret", 1)
            assert code(await come("v", **lasting)) == refused, "not while it is connected"
            await owner.barrier()
            owner.cut()
            await until(lambda: not dict(broker.clients())["c"])
            broker.local.deliver_local(Publication("secret", b"acknowledged", 1))
            for clean in (True, False):
                assert code(await come("v", clean_start=clean)) == refused
            owner = await come("u", **{**lasting, "clean_start": False})
            assert await owner.published() == [("secret", b"acknowledged")]
            owner.cut()
            await until(lambda: not dict(broker.clients())["c"])
            broker.lifecycle.end_session(broker.lifecycle.clients["c"])
            assert code(await come("v", clean_start=True)) == 0, "the id is free once the session has ended"

    asyncio.run(check())


def test_the_password_file_plugin_of_amqtt(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    path.write_text(f"u:{hasher.hash('secret')}\n")

    async def check() -> None:
        config = {"plugins": {FILE_AUTH: {"password_file": str(path)}}, "allow_anonymous": False}
        async with serving(config) as broker:
            assert code(await Wire.connect(broker, "a", username="u", password=b"secret")) == 0
            wrong = await Wire.connect(broker, "b", username="u", password=b"\xff\xfe")
            assert code(wrong) == ReasonCode.BAD_USER_NAME_OR_PASSWORD

    asyncio.run(check())


def test_the_acl_plugin_of_amqtt_filters_publish_and_subscribe() -> None:
    async def check() -> None:
        rules = {"publish_acl": {"anonymous": ["ok/#"]}, "acl": {"anonymous": ["ok/#"]}}
        async with serving({"plugins": {ACL: rules}}) as broker:
            wire = await Wire.connect(broker)
            assert await wire.subscribe("ok/+", 1) == 1
            assert await wire.subscribe("no/+", 1) == ReasonCode.NOT_AUTHORIZED
            assert await wire.subscribe("$share/g/no/+", 1) == ReasonCode.NOT_AUTHORIZED
            wire.publish("no/1", qos=1)
            assert (await wire.expect(PubAck)).code == ReasonCode.NOT_AUTHORIZED
            wire.publish("ok/1")
            assert await wire.published() == [("ok/1", b"x")]
            old = await Wire.connect(broker, "old", Version.V311)
            assert await old.subscribe("no/+", 1) == 0x80
            assert await old.published() == []
            old.publish("no/1", qos=1)
            await old.expect(PubAck)

    asyncio.run(check())


def test_the_verdict_of_a_foreign_plugin_is_asked_every_time_and_keeps_the_order() -> None:
    async def check() -> None:
        async with serving({"plugins": {f"{HERE}.Slow": {}}}) as broker:
            sub, pub = await Wire.connect(broker, "sub"), await Wire.connect(broker, "pub")
            assert await sub.subscribe("t/+", 1) == 1
            for number in range(20):
                pub.publish(f"t/{number % 2}", b"%d" % number, number % 2)
            await pub.barrier()
            assert [int(payload) for _, payload in await sub.published()] == list(range(20))
            assert Slow.asked.count(("pub", "t/0", "publish")) == 10
            assert Slow.asked.count(("sub", "t/0", "receive")) == 10
            Slow.forbidden.update({("receive", "t/0"), ("publish", "t/1"), ("subscribe", "no")})
            pub.publish("t/0")
            pub.publish("t/1", qos=1)
            assert (await pub.expect(PubAck)).code == ReasonCode.NOT_AUTHORIZED
            assert await sub.published() == []
            assert await sub.subscribe("no") == ReasonCode.NOT_AUTHORIZED

    asyncio.run(check())


def test_what_was_sent_just_before_the_end_is_published_though_a_plugin_is_slow() -> None:
    async def check() -> None:
        async with serving({"plugins": {f"{HERE}.Slow": {}}}) as broker:
            sub = await Wire.connect(broker, "sub")
            await sub.subscribe("t")
            pub = await Wire.connect(broker, "pub", will=Will("t", b"will"))
            for number in range(3):
                pub.publish("t", b"%d" % number)
            await pub.writer.drain()
            pub.writer.close()
            got = [(await sub.expect(Publish)).payload for _ in range(4)]
            assert got == [b"0", b"1", b"2", b"will"]

    asyncio.run(check())


def test_a_will_and_retained_messages_are_filtered_too() -> None:
    async def check() -> None:
        async with serving({"plugins": {f"{HERE}.Slow": {}}}) as broker:
            Slow.forbidden.update({("publish", "will"), ("receive", "kept/secret")})
            wire = await Wire.connect(broker, "w", will=Will("will", b"forbidden"))
            sub = await Wire.connect(broker, "sub")
            await sub.subscribe("will")
            wire.publish("kept/secret", retain=True)
            wire.publish("kept/open", retain=True)
            await wire.barrier()
            wire.cut()
            await until(lambda: ("w", "will", "publish") in Slow.asked)
            await sub.subscribe("kept/+")
            assert await sub.published() == [("kept/open", b"x")]

    asyncio.run(check())


def test_the_verdict_of_amqtts_own_plugin_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    from amqtt.plugins.topic_checking import TopicTabooPlugin

    asked: list[tuple[Any, Any]] = []
    original = TopicTabooPlugin.topic_filtering

    async def counting(self: Any, **arguments: Any) -> Any:
        asked.append((arguments["topic"], arguments["action"]))
        return await original(self, **arguments)

    monkeypatch.setattr(TopicTabooPlugin, "topic_filtering", counting)

    async def check() -> None:
        async with serving({"plugins": {TABOO: {}}}) as broker:
            wire = await Wire.connect(broker, "c")
            await wire.subscribe("#")
            for _ in range(5):
                wire.publish("t")
                wire.publish("prohibited")
            assert await wire.published() == [("t", b"x")] * 5
            assert sorted(asked) == [
                ("#", Action.SUBSCRIBE),
                ("prohibited", Action.PUBLISH),
                ("t", Action.PUBLISH),
                ("t", Action.RECEIVE),
            ]
            # A new CONNECT may bring another user: everything is asked anew.
            again = await Wire.connect(broker, "c", username="admin", password=b"")
            again.publish("prohibited", qos=1)
            assert (await again.expect(PubAck)).code == 0

    asyncio.run(check())


def test_events_reach_the_plugins_that_declare_them() -> None:
    async def check() -> None:
        async with serving({"plugins": {f"{HERE}.Recorder": {}}}) as broker:
            wire = await Wire.connect(broker, "c")
            await wire.subscribe("t", 1)
            wire.publish("t", b"1", retain=True)
            await wire.published()
            wire.publish("t", b"", retain=True)
            wire.publish("$SYS/forged", b"!")
            await wire.barrier()
            wire.cut()
            await until(lambda: Recorder.events[-1][0] == "disconnected")
        assert Recorder.events == [
            ("connected", "c", "connected"),
            ("subscribed", "c", "t", 1),
            ("received", "c", "t", b"1"),
            ("broadcast", "c", "t"),
            ("retained", None, "t", b"1"),
            ("received", "c", "t", b""),
            ("broadcast", "c", "t"),
            ("retained", None, "t", b""),
            ("received", "c", "$SYS/forged", b"!"),
            ("disconnected", "c", "disconnected"),
        ]

    asyncio.run(check())


def test_events_that_nobody_declares_start_no_task() -> None:
    async def check() -> None:
        async with serving() as broker:
            wire = await Wire.connect(broker, "c")
            await wire.subscribe("t")
            before = len(asyncio.all_tasks())
            for _ in range(100):
                wire.publish("t")
            assert len(await wire.published()) == 100
            assert len(asyncio.all_tasks()) == before
            assert broker.plugins_manager._fired_events == []

    asyncio.run(check())


def test_broker_context_broadcasts_retains_and_subscribes() -> None:
    async def check() -> None:
        async with serving({"plugins": {f"{HERE}.Recorder": {}}}) as broker:
            (context,) = Recorder.context_
            wire = await Wire.connect(broker, "c")
            await wire.subscribe("b/#", 1)
            await wire.subscribe("$share/g/s", 0)
            await context.broadcast_message("b/x", b"1")
            first = await wire.expect(Publish)
            assert (first.payload, first.qos) == (b"1", 1)
            wire.send(PubAck(first.packet_id))
            await context.broadcast_message("b/x", b"2", 0)
            assert (await wire.expect(Publish)).qos == 0
            await context.retain_message("b/kept", b"3")
            assert context.retained_messages["b/kept"].data == b"3"
            fresh = await Wire.connect(broker, "d")
            await fresh.subscribe("b/+")
            assert await fresh.published() == [("b/kept", b"3")]
            assert {session.client_id for session in context.sessions} == {"c", "d"}
            assert context.get_session("c") is not None
            assert {
                name: [(s.client_id, qos) for s, qos in value] for name, value in context.subscriptions.items()
            } == {"b/#": [("c", 1)], "b/+": [("d", 0)], "$share/g/s": [("c", 0)]}

    asyncio.run(check())


def test_a_plugin_can_restore_sessions_and_retained_messages() -> None:
    from amqtt.broker import RetainedApplicationMessage

    async def check() -> None:
        async with serving({"plugins": {f"{HERE}.Recorder": {}}}) as broker:
            (context,) = Recorder.context_
            await context.add_subscription("back", None, None)
            await context.add_subscription("back", "t/+", 1)
            session = context.get_session("back")
            assert session is not None
            kept = RetainedApplicationMessage(None, "t/1", b"while down", 1)
            await session.retained_messages.put(kept)
            context.retained_messages["r"] = RetainedApplicationMessage(None, "r", b"retained", 1)
            pub = await Wire.connect(broker, "pub")
            pub.publish("t/2", b"while away", 1)
            await pub.barrier()
            assert ("retained", "back", "t/2", b"while away") in Recorder.events
            back = await Wire.connect(broker, "back", Version.V311, clean_start=False)
            assert back.connack is not None
            assert back.connack.session_present
            assert sorted(await back.published()) == [("t/1", b"while down"), ("t/2", b"while away")]
            await back.subscribe("+")
            assert await back.published() == [("r", b"retained")]

    asyncio.run(check())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_sys_plugin_of_amqtt_counts_packets_and_publishes() -> None:
    async def check() -> None:
        async with serving({"plugins": {SYS: {"sys_interval": 3_600}}}) as broker:
            wire = await Wire.connect(broker, "c")
            await wire.subscribe("$SYS/#")
            assert [topic for topic, _ in await wire.published()] == ["$SYS/broker/version"]
            wire.publish("t", b"x" * 100)
            await wire.barrier()
            plugin: Any = broker.plugins_manager.get_plugin("BrokerSysPlugin")
            plugin.broadcast_dollar_sys_topics()
            plugin._sys_handle.cancel()
            await asyncio.sleep(0)
            figures = dict(await wire.published())
            assert figures["$SYS/broker/messages/publish/received"] == b"1"
            assert int(figures["$SYS/broker/load/bytes/received"]) > 100
            assert figures["$SYS/broker/clients/connected"] == b"1"
            assert int(figures["$SYS/broker/messages/sent"]) >= 3
            assert figures["$SYS/broker/messages/subscriptions/count"] == b"1"

    asyncio.run(check())


def test_subscribe_codes_stay_in_order_when_plugins_are_asked() -> None:
    from gateway.mqtt5.packets import Subscribe, Subscription

    async def check() -> None:
        Slow.forbidden.add(("subscribe", "b"))
        async with serving({"plugins": {f"{HERE}.Slow": {}}}) as broker:
            wire = await Wire.connect(broker)
            filters = ("a", "b", "c")
            wire.send(Subscribe(1, tuple(Subscription(name, 1) for name in filters)))
            assert (await wire.expect(SubAck)).codes == (1, ReasonCode.NOT_AUTHORIZED, 1)

    asyncio.run(check())
