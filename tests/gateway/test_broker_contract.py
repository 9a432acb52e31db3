"""The private names of amqtt 0.12.1 that we override or call: a change there must be seen here first."""

from __future__ import annotations

import inspect
import pickle
from importlib.metadata import version
from typing import Any

import pytest
from amqtt.broker import Broker, BrokerContext, ExternalServer, RetainedApplicationMessage, Server
from amqtt.contexts import BrokerConfig, ListenerConfig
from amqtt.events import BrokerEvents, MQTTEvents
from amqtt.plugins.manager import PluginManager
from amqtt.session import ApplicationMessage, Session

from gateway.broker.edge_broker import EdgeBroker


def test_the_version_is_the_one_that_was_read() -> None:
    assert version("amqtt") == "0.12.1"


#: Overridden methods of `Broker`: name -> parameters, and whether amqtt awaits them.
OVERRIDDEN = {
    "start": (["self"], True),
    "_start_listeners": (["self"], True),
    "shutdown": (["self"], True),
    "_cleanup_session": (["self", "client_id"], True),
    "_session_monitor": (["self"], True),
    "_broadcast_loop": (["self"], True),
    "external_connected": (["self", "reader", "writer", "listener_name"], True),
    "internal_message_broadcast": (["self", "topic", "data", "qos"], True),
    "retain_message": (["self", "source_session", "topic_name", "data", "qos"], True),
    "create_offline_session": (["self", "client_id"], False),
    "add_subscription": (["self", "subscription", "session"], True),
}


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_overridden_methods_have_the_signature_of_amqtt(name: str) -> None:
    parameters, is_coroutine = OVERRIDDEN[name]
    for owner in (Broker, EdgeBroker):
        method = inspect.getattr_static(owner, name)
        assert list(inspect.signature(method).parameters) == parameters
        assert inspect.iscoroutinefunction(method) is is_coroutine


def test_nothing_else_of_amqtt_is_overridden_by_accident() -> None:
    ours = {name for name in vars(EdgeBroker) if not name.startswith("__")}
    assert ours & set(dir(Broker)) == {*OVERRIDDEN, "subscriptions"}


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (Broker.start, ["_start_listeners", "_broadcast_loop", "_session_monitor", "_retained_messages.clear"]),
        (
            Broker.shutdown,
            ["_cleanup_session", "_shutdown_broadcast_loop", "close_instance", "_session_monitor_task.cancel"],
        ),
        (Broker._shutdown_broadcast_loop, ["_broadcast_shutdown_waiter", "_broadcast_task"]),
        (BrokerContext.broadcast_message, ["internal_message_broadcast(topic, data, qos)"]),
        (BrokerContext.retain_message, ["retain_message(None, topic_name, data, qos)"]),
        (BrokerContext.add_subscription, ["create_offline_session(client_id)", "_sessions[client_id] ="]),
        (PluginManager.fire_event, ["_event_plugin_callbacks", "_fired_events", "if wait and tasks"]),
        (PluginManager.map_plugin_topic, ["_topic_plugins", "topic_filtering"]),
        (PluginManager.map_plugin_auth, ["_auth_plugins", "authenticate"]),
    ],
)
def test_amqtt_still_calls_what_we_replace(call: Any, names: list[str]) -> None:
    source = inspect.getsource(call)
    for name in names:
        assert name in source


def test_what_we_construct_and_subclass() -> None:
    assert list(inspect.signature(Server).parameters) == ["listener_name", "server_instance", "max_connections"]
    assert {"instance", "conn_count"} <= set(vars(Server("x", None)))  # type: ignore[arg-type]
    assert ExternalServer().instance is None
    retained = RetainedApplicationMessage(None, "t", b"x", 1)
    assert (retained.topic, retained.data, retained.qos, retained.retain) == ("t", b"x", 1, True)
    assert "publish_packet" in ApplicationMessage.__slots__
    assert set(ListenerConfig.__dataclass_fields__) == {
        *("type", "bind", "max_connections", "ssl", "cafile", "capath", "cadata", "certfile", "keyfile"),
        *("reader", "writer"),
    }
    assert {"timeout_disconnect_delay", "session_expiry_interval", "plugins"} <= set(BrokerConfig.__dataclass_fields__)
    assert Broker._split_bindaddr_port("[::1]:5", 1) == ("[::1]", 5)


def test_the_parts_of_a_session_that_plugins_read_are_all_there() -> None:
    from gateway.plugins.host import EdgeSession

    theirs, ours = Session(), EdgeSession()
    assert all(hasattr(ours, name) for name in vars(theirs))
    ours.transitions.connect()
    assert ours.transitions.is_connected()
    assert ours.last_connect_time is not None


def test_queues_of_a_session_are_made_late_and_work_as_those_of_amqtt() -> None:
    from gateway.plugins.host import EdgeSession

    session = EdgeSession()
    assert not session.has_retained_messages
    assert not vars(session), "what nobody has looked at takes no room"
    session.retained_messages.put_nowait("kept")
    assert session.has_retained_messages
    assert session.retained_messages_count == 1
    again = pickle.loads(pickle.dumps(session))
    assert (again.has_retained_messages, again.retained_messages_count) == (False, 0)
    session.clear_queues()
    assert not session.has_retained_messages


def test_the_events_are_those_that_we_fire() -> None:
    assert {event.name for event in (*BrokerEvents, *MQTTEvents)} == {
        *("PRE_START", "POST_START", "PRE_SHUTDOWN", "POST_SHUTDOWN", "CLIENT_CONNECTED"),
        *("CLIENT_DISCONNECTED", "CLIENT_SUBSCRIBED", "CLIENT_UNSUBSCRIBED", "RETAINED_MESSAGE"),
        *("MESSAGE_RECEIVED", "MESSAGE_BROADCAST", "PACKET_SENT", "PACKET_RECEIVED"),
    }
