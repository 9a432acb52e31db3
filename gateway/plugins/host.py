"""Host of amqtt's plugins beside our data plane: calls to plugins, and their view of packets and sessions.

A plugin of amqtt works unchanged: `authenticate`, `topic_filtering`, `on_*` events, `BrokerContext`. An event no
loaded plugin declares costs a single dict look-up. Verdicts of topic plugins are remembered only for plugins that ship
with amqtt *and* decide from session, topic, action and configuration alone; every other plugin is asked every time. A
topic plugin answering None denies, as in amqtt 0.12.1 (its manual says otherwise; the code fails closed, and so do
we). This module routes nothing and knows no sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from amqtt.contexts import Action
from amqtt.events import BrokerEvents, Events, MQTTEvents
from amqtt.mqtt.packet import MQTTFixedHeader
from amqtt.mqtt.publish import PublishPacket
from amqtt.plugins.authentication import AnonymousAuthPlugin
from amqtt.plugins.manager import PluginManager
from amqtt.session import IncomingApplicationMessage, Session

from gateway.base import RECEIPTS_ROOT
from gateway.base.log_events import LogEvent
from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Connect, Packet, Publish, Version
from gateway.mqtt5.types import MqttError, ReasonCode

log = logging.getLogger("veilmq.broker")

__all__ = ["Action", "BusyError", "EdgeSession", "PacketView", "PluginHost", "application_message"]

_STEADY_PLUGINS = frozenset({"amqtt.plugins.topic_checking", "amqtt.contrib.shadows.plugin", "gateway.auth.acl_file"})
"""Modules whose topic plugins decide from their arguments and configuration alone. Other plugins of amqtt ask a
database
or a web service, where a right may be taken away at any time.
"""
VERDICTS_PER_SESSION = 1_024
"""Stops clients that invent topic names from filling memory with remembered verdicts (per session)."""
PENDING_EVENTS = 1_024
"""Started and unfinished event handlers above which the sender's connection waits."""


class BusyError(Exception):
    """An error of an authentication plugin that cannot answer now; the client may retry."""


def _of_receipts(topic: str) -> tuple[str, Action]:
    """Returns the right that stands for a right to receipts: who may publish on a topic may hear who received it."""
    return topic[len(RECEIPTS_ROOT) :], Action.PUBLISH


class _Phase:
    """The part of amqtt's `transitions.Machine` that plugins read, without a machine per session."""

    __slots__ = ("_session",)

    def __init__(self, session: EdgeSession) -> None:
        self._session = session

    @property
    def state(self) -> str:
        return self._session.phase

    def connect(self) -> None:
        self._session.phase = "connected"
        self._session._on_enter_connected()

    def disconnect(self) -> None:
        self._session.phase = "disconnected"
        self._session._on_enter_disconnected()

    def is_connected(self) -> bool:
        return self.state == "connected"


class _Late:
    """An attribute of amqtt's session made on first access, since most sessions never use it."""

    def __init__(self, make: Callable[[], Any], flag: str = "") -> None:
        """Takes the factory; the attribute named by `flag` becomes True on the first access.

        Looking into `vars` instead of the flag would cost a dict.
        """
        self._make, self._flag = make, flag

    def __set_name__(self, owner: type[EdgeSession], name: str) -> None:
        self._name = name

    def __get__(self, session: EdgeSession, owner: type[EdgeSession]) -> Any:
        value = self._make()
        setattr(session, self._name, value)  # shadows this descriptor from now on
        if self._flag:
            setattr(session, self._flag, True)
        return value


class EdgeSession(Session):  # type: ignore[misc]
    """The plugins' view of a client. Protocol state lives in `mqtt5.session.ServerSession`.

    `inflight_out`, `inflight_in` and `retained_messages` are amqtt's: the first two stay empty; in the third amqtt's
    persistence plugin leaves messages for a client that is away.
    """

    retained_messages = _Late(asyncio.Queue, "has_queue")
    delivered_message_queue = _Late(asyncio.Queue)
    inflight_out = _Late(OrderedDict)
    inflight_in = _Late(OrderedDict)
    attributes = _Late(dict)

    is_internal = False
    """True for a part of this process, such as a bridge: the operator, not a plugin, grants its rights."""
    from_console = False
    """True for a login at the console: no client on MQTT waits for the verification of its password."""
    groups: tuple[str, ...] | None = None
    """Groups that an identity provider says; None: the user's groups are those that are configured here."""
    lasts_s: float | None = None
    """Seconds for which the login counted when it was proven; None: it has no end."""
    ends_at: float | None = None
    """The instant of the broker's clock at which the login ends."""
    owner_known = True
    """False in a session restored by amqtt's persistence plugin, which does not store the user name."""
    phase = "new"
    has_queue = False
    verdicts: Mapping[tuple[str, Action], bool] = MappingProxyType({})

    def __init__(self) -> None:
        """Sets nothing: amqtt's forty attributes take 2 kB, and most keep their default, which is the class's here."""

    @property
    def transitions(self) -> _Phase:
        """The part of amqtt's state machine that plugins read."""
        return _Phase(self)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in (*_DEFAULTS, "inflight_out", "inflight_in", "attributes")}
        return {**state, "phase": self.phase}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def forget_verdicts(self) -> None:
        """Drops remembered verdicts, because the rules or the user may have changed."""
        if self.verdicts:
            self.verdicts = EdgeSession.verdicts

    def remember(self, topic: str, action: Action, verdict: bool) -> None:
        """Stores a verdict; at VERDICTS_PER_SESSION verdicts all earlier ones are dropped."""
        verdicts = self.verdicts
        if not isinstance(verdicts, dict) or len(verdicts) >= VERDICTS_PER_SESSION:
            verdicts = self.verdicts = {}
        verdicts[topic, action] = verdict

    @classmethod
    def from_connect(cls, connect: Connect, client_id: str, peer: tuple[str, int] | None, tls: Any) -> EdgeSession:
        session = cls()
        session.adopt_connect(connect, client_id, peer, tls)
        return session

    def adopt_connect(self, connect: Connect, client_id: str, peer: tuple[str, int] | None, tls: Any) -> None:
        """Takes over the fields of a CONNECT; remembered verdicts end, since the user may differ."""
        will, password = connect.will, connect.password
        said: dict[str, Any] = {
            "owner_known": True,
            "client_id": client_id,
            "clean_session": connect.clean_start,
            "keep_alive": connect.keep_alive_s,
            "username": connect.username,
            # amqtt's plugins take text; bytes that are not UTF-8 become text that every plugin can handle.
            "password": None if password is None else password.decode("utf-8", "backslashreplace"),
            "will_flag": will is not None,
            "will_topic": will.topic if will else None,
            "will_message": will.payload if will else None,
            "will_qos": will.qos if will else None,
            "will_retain": will.retain if will else None,
            "remote_address": peer[0] if peer else None,
            "remote_port": peer[1] if peer else None,
            "ssl_object": tls,
            "is_anonymous": False,
        }
        for name, value in said.items():
            if getattr(self, name) != value:  # most keep their default and need no memory
                setattr(self, name, value)
        self.forget_verdicts()

    @property
    def has_retained_messages(self) -> bool:
        """True if a plugin has left messages in `retained_messages`; reading this property does not make the queue."""
        return self.has_queue and not self.retained_messages.empty()

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


_DEFAULTS = {name: value for name, value in vars(Session()).items() if value is None or type(value) in (bool, int, str)}
"""Attributes of amqtt's session with their initial values."""
for _name, _value in _DEFAULTS.items():
    setattr(EdgeSession, _name, _value)


class PacketView:
    """The plugins' view of a packet (`on_mqtt_packet_*` of amqtt): type, length, text."""

    __slots__ = ("_packet", "_version", "fixed_header", "payload", "protocol_ts", "variable_header")

    def __init__(self, packet: Packet, version: Version) -> None:
        self._packet, self._version = packet, version
        self.fixed_header = MQTTFixedHeader(_TYPES[type(packet).__name__])
        self.variable_header = self.payload = self.protocol_ts = None

    @property
    def bytes_length(self) -> int:
        return len(self.to_bytes())

    def to_bytes(self) -> bytes:
        return encode(self._packet, self._version)

    def __repr__(self) -> str:
        packet = self._packet
        if isinstance(packet, Publish):  # payloads do not belong into logs
            return f"Publish(topic={packet.topic!r}, qos={packet.qos}, bytes={len(packet.payload)})"
        return f"{type(packet).__name__}()" if isinstance(packet, Connect) else repr(packet)


_PACKET_NAMES = (
    *("Connect", "ConnAck", "Publish", "PubAck", "PubRec", "PubRel", "PubComp", "Subscribe", "SubAck"),
    *("Unsubscribe", "UnsubAck", "PingReq", "PingResp", "Disconnect", "Auth"),
)
_TYPES = {name: number for number, name in enumerate(_PACKET_NAMES, start=1)}
"""Packet types by name (MQTT 5.0 §2.1.2)."""


def application_message(publish: Publish) -> IncomingApplicationMessage:
    """Converts a publication to the form that amqtt's `on_broker_message_*` plugins get."""
    packet_id = publish.packet_id or None
    message = IncomingApplicationMessage(packet_id, publish.topic, publish.qos, publish.payload, publish.retain)
    message.publish_packet = PublishPacket.build(
        publish.topic, publish.payload, packet_id, publish.dup, publish.qos, publish.retain
    )
    return message


class PluginHost:
    """The front of amqtt's plugin manager, which it calls only if a plugin would answer."""

    def __init__(self, manager: PluginManager[Any], *, allow_anonymous: bool = False) -> None:
        self._manager = manager
        # The plugins that the configuration names, and no others.
        self.plugins: tuple[Any, ...] = tuple(manager._plugins)
        # User names are proven by enhanced authentication (`enhanced_auth.py`).
        self.has_methods = False
        self._allow_anonymous = allow_anonymous
        self._steady = all(type(plugin).__module__ in _STEADY_PLUGINS for plugin in manager._topic_plugins)
        deciding = [getattr(plugin, "decides", None) for plugin in manager._topic_plugins]
        # If every topic plugin decides synchronously, no client waits for verdicts (`auth/acl_file.py`).
        self._deciding = tuple(filter(None, deciding)) if all(deciding) else ()
        self.is_prompt = bool(self._deciding)
        self.rights_version = 0
        """A number that rises with every possible change of rights."""
        covering = [getattr(plugin, "covers", None) for plugin in manager._topic_plugins]
        self._covering = tuple(filter(None, covering)) if all(covering) else None
        # Without topic plugins everything is permitted.
        self.filters_topics = bool(manager._topic_plugins)
        declared = manager._event_plugin_callbacks
        self.sees_packets_received = MQTTEvents.PACKET_RECEIVED in declared
        self.sees_packets_sent = MQTTEvents.PACKET_SENT in declared
        self.sees_messages = BrokerEvents.MESSAGE_RECEIVED in declared or BrokerEvents.MESSAGE_BROADCAST in declared
        self._followers: list[Callable[[frozenset[str]], None]] = []
        self._changes: dict[int, set[str]] = {}  # per login under way: users whose standing changed meanwhile
        self._marking = [plugin for plugin in self.plugins if hasattr(plugin, "mark")]
        for plugin in self._marking:
            plugin.when_changed = self._users_changed
        # Plugins that judge their kind of login alone (`auth/oidc.py`).
        self._judging = [plugin for plugin in self.plugins if hasattr(plugin, "takes_login")]
        for plugin in self._judging:
            plugin.is_given = self.has_password
        self._watching: frozenset[str] = frozenset()
        # No plugin decides on publications or sees them, and no administrator follows them.
        self.is_absent = not (self.filters_topics or self.sees_messages)

    def watched(self, by: str, is_watched: bool) -> None:
        """Takes publications the long way while somebody watches them, as if a plugin saw them."""
        self._watching = self._watching | {by} if is_watched else self._watching - {by}
        self.is_absent = not (self.filters_topics or self.sees_messages or self._watching)

    # ----------------------------------------------------------------------------------------------- users

    def standing(self, user: str) -> str | None:
        """Returns a mark of a user from the plugins knowing users; a changed password changes the mark.

        None: no plugin has this user any more. Empty if no plugin has marks.
        """
        marks = [plugin.mark(user) for plugin in self._marking]
        known = [mark for mark in marks if mark is not None]
        return "-".join(known) if known or not marks else None

    def has_password(self, user: str) -> bool:
        """Returns True if a plugin knows the user by a password: nobody else may have that name."""
        return any(plugin.mark(user) is not None for plugin in self._marking)

    def _judge_of(self, session: EdgeSession) -> Any:
        """Returns the plugin that judges this login alone; None if all plugins do."""
        if session.password is None or session.is_internal:
            return None
        return next((plugin for plugin in self._judging if plugin.takes_login(session)), None)

    async def _login_answers(self, session: EdgeSession) -> Mapping[Any, bool | None]:
        """Returns the answers of the plugins that judge this login."""
        judge = self._judge_of(session)
        if judge is not None:
            return {judge: await judge.authenticate(session=session)}
        return dict(await self._manager.map_plugin_auth(session=session))

    def follow_users(self, follower: Callable[[frozenset[str]], None]) -> None:
        """Calls `follower` after each change of users or rights, with the users whose standing changed."""
        self._followers.append(follower)

    def _users_changed(self, users: frozenset[str]) -> None:
        for changed in self._changes.values():
            changed.update(users)
        for follower in self._followers:
            follower(users)

    @contextlib.contextmanager
    def users_changed_meanwhile(self) -> Iterator[set[str]]:
        """Yields a set filling with users whose standing changes, so that logins under way do not count."""
        changed: set[str] = set()
        self._changes[id(changed)] = changed
        try:
            yield changed
        finally:
            del self._changes[id(changed)]

    async def proves(self, session: EdgeSession) -> bool:
        """Returns True if a plugin that knows users confirms name and password, and no plugin denies them.

        Raises BusyError if a plugin cannot answer now.
        """
        with self.users_changed_meanwhile() as changed:
            return await self._proves(session) and session.username not in changed

    async def _proves(self, session: EdgeSession) -> bool:
        try:
            answers = await self._login_answers(session) if self._manager._auth_plugins else {}
        except BusyError:
            raise
        except Exception:  # noqa: BLE001  the log has its traceback
            LogEvent.AUTH_PLUGIN_FAILED.say(log, session.username, exc_info=True)
            return False
        given = [a for p, a in answers.items() if a is not None and not isinstance(p, AnonymousAuthPlugin)]
        return bool(given) and all(given)

    def covers(self, session: EdgeSession, topic_filter: str) -> bool:
        """Returns True if the client may receive all topics a filter matches.

        A plugin that cannot answer without a message counts as no: serving a shared group twice is better than never.
        """
        if session.is_internal or not self.filters_topics:
            return True
        return self._covering is not None and all(one(session, topic_filter) for one in self._covering)

    def forget_verdicts(self, sessions: Iterable[EdgeSession]) -> None:
        """Drops the remembered verdicts of these sessions after a change of rights."""
        self.rights_version += 1
        for session in sessions:
            session.forget_verdicts()

    @property
    def allows_anonymous(self) -> bool:
        """True if clients without a login are admitted."""
        return self._allow_anonymous

    def adopt_anonymous(self, allow_anonymous: bool) -> None:
        self._allow_anonymous = allow_anonymous

    def lets_in(self, session: EdgeSession) -> bool | None:
        """Returns the verdict on a login if no plugin has to be asked, else None (`authenticate`)."""
        if session.is_internal:
            return True
        if self._judging and self._judge_of(session) is not None:
            return None
        if self._allow_anonymous and session.username is None:
            session.is_anonymous = True
            return True
        if self._manager._auth_plugins:
            return None
        if self.has_methods and session.username is not None:
            return False  # a name that enhanced authentication could prove is only claimed
        session.is_anonymous = self._allow_anonymous
        return self._allow_anonymous

    async def authenticate(self, session: EdgeSession) -> bool:
        """Returns the verdict on a login by amqtt's rule: at least one plugin answers, and none says no.

        Without plugins, or for a client without a user name, `allow_anonymous` decides. A plugin raising refuses.
        Raises MqttError (0x89) if a plugin is too busy.
        """
        known = self.lets_in(session)
        if known is not None:
            return known
        is_claim = self.has_methods and session.username is not None
        try:
            answers = await self._login_answers(session)
        except BusyError as error:
            raise MqttError(str(error), ReasonCode.SERVER_BUSY) from None
        except Exception:  # noqa: BLE001  the log has its traceback
            LogEvent.AUTH_PLUGIN_FAILED.say(log, session.client_id, exc_info=True)
            return False
        given = {plugin: answer for plugin, answer in answers.items() if answer is not None}
        # amqtt's anonymous plugin says yes to any name, which is no proof where a name can be proven.
        if is_claim and all(isinstance(plugin, AnonymousAuthPlugin) for plugin in given):
            return False
        return bool(given) and all(given.values())

    def verdict(self, session: EdgeSession, topic: str, action: Action) -> bool | None:
        """Returns the verdict of the topic plugins if it is remembered or immediate; None if they must be asked."""
        if session.is_internal or not self.filters_topics:
            return True
        if topic.startswith(RECEIPTS_ROOT):
            topic, action = _of_receipts(topic)
        known = session.verdicts.get((topic, action))
        if known is None and self._deciding:
            known = all(one(session, topic, action) for one in self._deciding)
            session.remember(topic, action, known)
        return known

    async def ask_topic_plugins(self, session: EdgeSession, topic: str, action: Action) -> bool:
        """Asks every topic plugin. A plugin raising denies."""
        if topic.startswith(RECEIPTS_ROOT):
            topic, action = _of_receipts(topic)
        try:
            answers = await self._manager.map_plugin_topic(session=session, topic=topic, action=action)
        except Exception:  # noqa: BLE001  the log has its traceback
            LogEvent.TOPIC_PLUGIN_FAILED.say(log, action, session.client_id, topic, exc_info=True)
            return False
        verdict = all(answers.values())
        if self._steady:
            session.remember(topic, action, verdict)
        return verdict

    def declares(self, event: Events) -> bool:
        return event in self._manager._event_plugin_callbacks

    def fire(self, event: Events, **arguments: Any) -> None:
        """Starts the handlers of an event in order, without waiting for them (see `is_behind`)."""
        if event not in self._manager._event_plugin_callbacks:
            return
        firing: Coroutine[Any, Any, None] = self._manager.fire_event(event, **arguments)
        try:
            firing.send(None)  # without `wait` it only creates tasks, and finishes at once
        except StopIteration:
            return
        firing.close()
        raise RuntimeError("amqtt's fire_event suspends although it was not asked to wait")

    @property
    def is_behind(self) -> bool:
        """True if more than PENDING_EVENTS handlers are pending: the sender of events should wait for `catch_up`."""
        return len(self._manager._fired_events) > PENDING_EVENTS

    async def catch_up(self) -> None:
        await self._manager.wait_fired_events()
