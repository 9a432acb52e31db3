"""An amqtt.yaml as sites have it loads unchanged, only what it names is loaded, and plugins hear what they declare."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import pytest
from amqtt.broker import BrokerContext
from amqtt.events import BrokerEvents, MQTTEvents
from amqtt.plugins.base import BasePlugin

from gateway.base.config import Settings, load
from gateway.broker.running import make_broker
from gateway.listening.listeners import OURS
from gateway.mqtt5.packets import Unsubscribe
from tests.gateway.harness import Wire, serving

ANONYMOUS = "amqtt.plugins.authentication.AnonymousAuthPlugin"
EVENT_LOGGER = "amqtt.plugins.logging_amqtt.EventLoggerPlugin"
PACKET_LOGGER = "amqtt.plugins.logging_amqtt.PacketLoggerPlugin"
SYS = "amqtt.plugins.sys.broker.BrokerSysPlugin"
TABOO = "amqtt.plugins.topic_checking.TopicTabooPlugin"
ACL = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"

DEFAULT = files("amqtt").joinpath("scripts", "default_broker.yaml").read_text("utf-8")
#: The sections of amqtt before 0.11, with a WebSocket beside TCP.
LEGACY = """
listeners:
  default: {type: tcp, bind: "0.0.0.0:1883"}
  std-ws: {type: ws, bind: "0.0.0.0:8000"}
sys_interval: 2
auth:
  plugins: [auth_anonymous]
  allow-anonymous: true
topic-check:
  enabled: False
"""
#: A `default` that is only a template, hyphens, YAML 1.1's `on`, plugins as a list.
TEMPLATE = """
listeners:
  default: {max-connections: 500, type: tcp}
  tcp-1: {bind: "127.0.0.1:1883"}
  tcp-2: {bind: "127.0.0.1:1884", max-connections: 1000}
  ws-1: {bind: "127.0.0.1:8080", type: ws}
  tls-1: {bind: "127.0.0.1:8885", ssl: on, cafile: ca.pem, certfile: c.pem, keyfile: c.key}
  wss-1: {bind: "127.0.0.1:9003", type: ws, ssl: on, certfile: c.pem, keyfile: c.key}
timeout-disconnect-delay: 2
plugins:
  - amqtt.plugins.authentication.AnonymousAuthPlugin:
      allow_anonymous: true
  - amqtt.plugins.topic_checking.TopicTabooPlugin
  - amqtt.plugins.topic_checking.TopicAccessControlListPlugin:
      acl:
        anonymous: ["calendar/#"]
"""


def read(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "amqtt.yaml"
    path.write_text(text)
    return load(path)


def on_free_ports(settings: Settings) -> Settings:
    """The same without what needs certificates, on ports that nobody has."""
    listeners = {
        name: one.model_copy(update={"bind": "127.0.0.1:0"}) for name, one in settings.listeners.items() if not one.ssl
    }
    return settings.model_copy(update={"listeners": listeners})


@pytest.mark.filterwarnings("ignore:`BrokerSysPlugin`:DeprecationWarning")
@pytest.mark.parametrize(
    ("text", "listeners", "plugins"),
    [
        (DEFAULT, ["default"], [EVENT_LOGGER, PACKET_LOGGER, ANONYMOUS, SYS]),
        (LEGACY, ["default", "std-ws"], [ANONYMOUS]),
        (TEMPLATE, ["tcp-1", "tcp-2", "ws-1", "tls-1", "wss-1"], [ANONYMOUS, TABOO, ACL]),
    ],
    ids=["amqtt's default", "legacy sections", "template and list"],
)
def test_an_amqtt_yaml_loads_and_serves(tmp_path: Path, text: str, listeners: list[str], plugins: list[str]) -> None:
    settings = read(tmp_path, text)
    assert list(settings.listeners) == listeners
    assert list(settings.plugins) == plugins

    async def check() -> None:
        broker = make_broker(on_free_ports(settings))
        loaded = [f"{type(plugin).__module__}.{type(plugin).__name__}" for plugin in broker.plugins_manager._plugins]
        assert loaded == [OURS.get(name, name) for name in plugins]
        await broker.start()
        try:
            wire = await Wire.connect(broker, "c", listener=listeners[0])
            assert wire.connack is not None
            assert wire.connack.code == 0
            assert await wire.subscribe("calendar/1", 1) == 1
            assert (await wire.subscribe("other", 1) >= 0x80) is (ACL in plugins)
            wire.cut()
        finally:
            await broker.shutdown()

    asyncio.run(check())


def test_what_listeners_inherit_from_a_template(tmp_path: Path) -> None:
    listeners = read(tmp_path, TEMPLATE).listeners
    assert {name: one.max_connections for name, one in listeners.items()} == {
        "tcp-1": 500,
        "tcp-2": 1000,
        "ws-1": 500,
        "tls-1": 500,
        "wss-1": 500,
    }
    assert [name for name, one in listeners.items() if one.ssl] == ["tls-1", "wss-1"]
    assert [name for name, one in listeners.items() if one.type == "ws"] == ["ws-1", "wss-1"]
    assert listeners["tls-1"].certfile == tmp_path / "c.pem"


def test_no_plugin_is_loaded_that_the_configuration_does_not_name() -> None:
    """amqtt loads four of its own where nothing is said, one of which lets everybody in."""

    async def check() -> None:
        async with serving({"allow_anonymous": False}) as broker:
            assert broker.plugins_manager._plugins == []
            wire = await Wire.connect(broker, "c")
            assert wire.connack is not None
            assert wire.connack.code >= 0x80

    asyncio.run(check())


def test_amqtts_loggers_log_what_happens_and_no_payload(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def check() -> None:
        async with serving({"plugins": {EVENT_LOGGER: {}, PACKET_LOGGER: {}}}) as broker:
            wire = await Wire.connect(broker, "c-7", username="u", password=b"pass-word")
            await wire.subscribe("t")
            wire.publish("t", b"secret-payload")
            await wire.published()
            await broker.host.catch_up()

    asyncio.run(check())
    text = caplog.text
    assert "c-7" in text
    assert "Publish(topic='t'" in text
    assert "secret-payload" not in text
    assert "pass-word" not in text


class _Heard(BasePlugin[BrokerContext]):  # type: ignore[misc]
    heard: ClassVar[list[tuple[str, str]]] = []

    @dataclass
    class Config:
        pass


def _listener(event: str) -> type[_Heard]:
    """A plugin that declares one event."""

    async def hear(self: Any, **arguments: Any) -> None:
        self.heard.append((type(self).__name__, event))

    return type(f"Hears_{event}", (_Heard,), {f"on_{event}": hear, "__module__": __name__})


EVENTS = [event.value for event in (*BrokerEvents, *MQTTEvents)]
for _event in EVENTS:
    globals()[f"Hears_{_event}"] = _listener(_event)


async def _busy(broker: Any) -> None:
    """Everything that any event tells of."""
    wire = await Wire.connect(broker, "c", properties={"session_expiry_s": 100})
    await wire.subscribe("t", 1)
    wire.publish("t", b"x", 1)
    await wire.published()
    wire.send(Unsubscribe(wire.new_id(), ("t",)))
    wire.publish("r", b"x", retain=True)
    await wire.barrier()
    wire.cut()


@pytest.mark.parametrize("event", EVENTS)
def test_a_plugin_is_called_for_the_event_that_it_declares_and_for_no_other(event: str) -> None:
    _Heard.heard.clear()
    name = f"Hears_{event}"
    fired: list[str] = []

    async def check() -> None:
        async with serving({"plugins": {f"{__name__}.{name}": {}}}) as broker:
            manager = broker.plugins_manager
            assert [name for name, handlers in manager._event_plugin_callbacks.items() if handlers] == [event]
            fire = manager.fire_event

            def watched(fired_event: Any, *arguments: Any, **more: Any) -> Any:
                fired.append(fired_event.value)
                return fire(fired_event, *arguments, **more)

            manager.fire_event = watched
            await _busy(broker)

    asyncio.run(check())
    assert set(_Heard.heard) == {(name, event)}
    # Our data plane does not even start amqtt's machinery for others; amqtt itself does at start and shutdown.
    assert set(fired) - {event} <= {"broker_pre_shutdown", "broker_post_shutdown"}


def test_every_event_reaches_those_who_declare_it_and_only_them() -> None:
    _Heard.heard.clear()

    async def check() -> None:
        async with serving({"plugins": {f"{__name__}.Hears_{event}": {} for event in EVENTS}}) as broker:
            await _busy(broker)

    asyncio.run(check())
    assert set(_Heard.heard) == {(f"Hears_{event}", event) for event in EVENTS}
