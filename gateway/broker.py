"""`EdgeBroker`: amqtt's broker with our data plane.

Kept from `amqtt.broker.Broker`: configuration, states, plugin manager, auth and topic plugins, events,
`BrokerContext`, listeners. Replaced: protocol handling, sessions, routing, delivery. What is overridden of
amqtt's private names is held by `tests/gateway/test_broker_contract.py`. Here: who may connect, and when a
client's session begins and ends; what clients publish and subscribe is in `exchange.py`.

    await run_broker(settings)                      # until SIGTERM or SIGINT

Errors of the operator: `config.ConfigError`, `config.StartError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import websockets
from amqtt.adapters import ReaderAdapter, WriterAdapter
from amqtt.broker import DEFAULT_PORTS, Broker, ExternalServer, Server
from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType
from amqtt.errors import PluginError, PluginLoadError
from amqtt.events import BrokerEvents, MQTTEvents
from websockets.asyncio.server import ServerConnection

from bridge.machine import Publication, UserProperties

from .clients import Client, Deadlines
from .config import ConfigError, Limits, Settings, StartError
from .connection import Flusher, Later, MqttConnection
from .exchange import Exchange
from .hooks import Done, EntityConnected, EntityEvent, EntityGone, EntitySeen, Overlay
from .listeners import open_sockets, serve_adapter, serve_websocket, server_context
from .mqtt5.codec import Decoder
from .mqtt5.message import Message
from .mqtt5.packets import NO_PROPERTIES, Connect, Properties, Subscribe, Subscription, Unsubscribe, Version
from .mqtt5.session import (
    Action,
    Close,
    Connection,
    PublishWill,
    ServerOffer,
    ServerSession,
    SessionEnded,
    SessionLimits,
)
from .mqtt5.types import MqttError, ReasonCode
from .plugin import EdgeSession, PacketView, PluginHost

log = logging.getLogger("veilmq.broker")

__all__ = [
    "ConfigError",
    "EdgeBroker",
    "EntityConnected",
    "EntityEvent",
    "EntityGone",
    "EntitySeen",
    "Overlay",
    "StartError",
    "run_broker",
]

#: How often retained messages that have expired are cleared out; nobody sees them in between.
SWEEP_S = 30.0
#: After we paused reading, a client has so long to be heard again before its keep-alive counts.
HELD_GRACE_S = 1.0
#: Publications that wait for a plugin and have no connection to hold back; more are dropped.
WAITING_PUBLICATIONS = 10_000


class EdgeBroker(Broker):  # type: ignore[misc]
    """One broker. Create and `start` it on a running event loop; `shutdown` ends it.

    `config` is amqtt's `BrokerConfig` or dictionary, or our `Settings`. `overlay_context` is the TLS context
    of listeners with `overlay: true`. `allow_anonymous` lets clients in that give no user name; without it
    and without an authentication plugin nobody gets in. Only plugins that the configuration names are loaded.
    """

    def __init__(
        self,
        config: Settings | BrokerConfig | dict[str, Any] | None = None,
        *,
        overlay: Overlay | None = None,
        overlay_context: ssl.SSLContext | None = None,
        allow_anonymous: bool | None = None,
    ) -> None:
        settings = config if isinstance(config, Settings) else None
        self.limits = settings.limits if settings else Limits()
        self._settings = settings
        self._overlay_context = overlay_context
        super().__init__(_amqtt_config(settings) if settings else config or BrokerConfig(plugins={}))
        if settings is not None:
            # amqtt would fill what equals a default from the listener `default`; ours are complete already.
            self.listeners_config = {name: _amqtt_listener(one) for name, one in settings.listeners.items()}
        if allow_anonymous is None:
            allow_anonymous = settings.allow_anonymous if settings else False
        self._started_at = time.time() - time.monotonic()
        self.host = PluginHost(self.plugins_manager, allow_anonymous=allow_anonymous)
        self.exchange = Exchange(self.host, self.limits, self.now)
        self.exchange.overlay = overlay
        self.exchange.perform = self.perform  # type: ignore[method-assign]
        self.exchange.in_order = self._in_order
        self._retained_messages = self.exchange.retained
        self._clients: dict[str, Client] = {}
        self._peers: dict[str, Client] = {}
        self._connections: set[MqttConnection] = set()
        self._flusher = Flusher(self._loop)
        self._deadlines = Deadlines(self.now, self._due)
        self._sockets: dict[str, list[socket.socket]] = {}
        self._contexts: dict[str, ssl.SSLContext | None] = {}
        expiry_s = settings.session_expiry_s if settings else self.limits.session_expiry_s
        if not settings and self.config.session_expiry_interval is not None:
            expiry_s = min(expiry_s, self.config.session_expiry_interval)
        self._offer = ServerOffer(
            receive_maximum=self.limits.receive_maximum,
            maximum_packet_size=self.limits.packet_bytes,
            topic_alias_maximum=self.limits.topic_aliases,
            session_expiry_max_s=expiry_s,
        )
        self._session_limits = SessionLimits(
            in_flight_messages=self.limits.in_flight,
            queue_messages=self.limits.queue_messages,
            queue_bytes=self.limits.queue_bytes,
            subscriptions=self.limits.subscriptions,
        )
        # What connections call for every packet, without a detour.
        self.received = self.exchange.received
        self.published = self.exchange.published

    def now(self) -> float:
        """Seconds since the UNIX epoch, from a clock that does not jump: no step makes keep-alives run out."""
        return self._started_at + time.monotonic()

    # ------------------------------------------------------------------------------------- start, stop

    async def start(self) -> None:
        """Bind all listeners, then serve. Raises StartError, before any plugin is started."""
        self._prepare_listeners()
        await super().start()

    def _prepare_listeners(self) -> None:
        try:
            for name, listener in self.listeners_config.items():
                ours = self._settings.listeners[name] if self._settings else None
                self._contexts[name] = self._context_of(name, listener)
                if listener.type == ListenerType.EXTERNAL or not listener.bind:
                    continue
                try:
                    host, port = self._split_bindaddr_port(listener.bind, DEFAULT_PORTS[listener.type])
                except ValueError:
                    raise StartError(f"listener {name}: {listener.bind!r} is no HOST:PORT; correct bind") from None
                if ours is not None and ours.overlay and self.exchange.overlay is None:
                    raise StartError(f"listener {name}: is an overlay listener, but no overlay is configured")
                self._sockets[name] = open_sockets(name, host, port)
        except StartError:
            self._close_sockets()
            raise

    def _context_of(self, name: str, listener: ListenerConfig) -> ssl.SSLContext | None:
        ours = self._settings.listeners[name] if self._settings else None
        if ours is not None and ours.overlay and self._overlay_context is not None:
            return self._overlay_context
        if not listener.ssl:
            if ours is not None and ours.overlay:
                raise StartError(f"listener {name}: members connect over mutual TLS only; set ssl: true")
            return None
        return server_context(name, listener, bool(ours and (ours.require_client_certificate or ours.overlay)))

    async def _start_listeners(self) -> None:
        for name, listener in self.listeners_config.items():
            if listener.type == ListenerType.EXTERNAL:
                self._servers[name] = ExternalServer()
                continue
            for place, sock in enumerate(self._sockets.pop(name, [])):
                context = self._contexts[name]
                if listener.type == ListenerType.WS:
                    instance: Any = await websockets.serve(
                        partial(self.ws_connected, listener_name=name),
                        sock=sock,
                        ssl=context,
                        subprotocols=[websockets.Subprotocol("mqtt")],
                        max_size=self.limits.packet_bytes,
                    )
                else:
                    factory = partial(self._protocol, name)
                    instance = await self._loop.create_server(factory, sock=sock, ssl=context)
                # A name that stands for two addresses is two servers of one listener.
                key = name if place == 0 else f"{name} ({place + 1})"
                self._servers[key] = Server(name, instance, listener.max_connections or -1)
                log.info("listener %s: %s:%s", name, *instance.sockets[0].getsockname()[:2])

    def port(self, listener: str = "default") -> int:
        """The TCP port that a listener is bound to."""
        return int(self._servers[listener].instance.sockets[0].getsockname()[1])

    def _close_sockets(self) -> None:
        for sockets in self._sockets.values():
            for sock in sockets:
                sock.close()
        self._sockets.clear()

    async def shutdown(self) -> None:
        """Tell clients, stop listening, end plugins."""
        for server in self._servers.values():
            if server.instance is not None:
                server.instance.close()
        for client in list(self._clients.values()):
            self._dismiss(client, ReasonCode.SERVER_SHUTTING_DOWN)
        self._flusher.flush()
        for connection in list(self._connections):
            connection.close()
        self._deadlines.stop()
        # Servers wait for their connections from Python 3.12 on.
        for _ in range(20):
            if not self._connections:
                break
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()
        await super().shutdown()

    async def _cleanup_session(self, client_id: str) -> None:
        """amqtt's shutdown calls this for every session."""
        client = self._clients.get(client_id)
        if client is not None:
            self._forget(client)

    async def _session_monitor(self) -> None:
        """amqtt starts this task; our sessions have their own deadlines, retained messages are swept here."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.exchange.retained.drop_expired(self.now())

    # ------------------------------------------------------------------------------------- connections

    def _protocol(self, listener: str) -> MqttConnection:
        ours = self._settings.listeners.get(listener) if self._settings else None
        server = self._servers.get(listener)
        most = self.listeners_config[listener].max_connections
        over = server is not None and 0 < most <= server.conn_count
        connection = MqttConnection(self, self._flusher, listener, bool(ours and ours.overlay), over)
        if self.host.sees_packets_sent:
            connection.tap = partial(self._packets_sent, connection)
        return connection

    async def ws_connected(self, websocket: ServerConnection, listener_name: str) -> None:
        await serve_websocket(websocket, self._protocol(listener_name))

    async def external_connected(self, reader: ReaderAdapter, writer: WriterAdapter, listener_name: str) -> None:
        """Serve an established connection of another server until it ends (amqtt's extension point)."""
        await serve_adapter(reader, writer, self._protocol(listener_name), self.limits.packet_bytes)

    def opened(self, connection: MqttConnection) -> bool:
        """Count a new connection; False if there are too many to answer it even with a refusal."""
        if len(self._connections) >= self.limits.connections:
            log.warning("%s: refused, limits.connections is reached", connection.address)
            return False
        self._connections.add(connection)
        if (server := self._servers.get(connection.listener)) is not None:
            server.conn_count += 1
        return True

    def lost(self, connection: MqttConnection, error: Exception | None) -> None:
        """The network connection has ended, whoever ended it."""
        if connection in self._connections:
            self._connections.discard(connection)
            if (server := self._servers.get(connection.listener)) is not None:
                server.conn_count -= 1
        if connection.client is not None:
            self._gone(connection.client, connection)

    async def connecting(self, connection: MqttConnection, connect: Connect) -> None:
        """Authenticate a CONNECT and begin or resume its session, or refuse it with the right code."""
        try:
            peer = self._admit(connection, connect)
            client_id = connect.client_id or f"veilmq-{secrets.token_hex(10)}"
            if self.host.sees_packets_received:
                self.host.fire(MQTTEvents.PACKET_RECEIVED, packet=PacketView(connect, connect.version))
            view = EdgeSession.of(connect, client_id, connection.peer, connection.tls)
            # A member was recognised by its certificate, which is more than a password.
            if peer is None and not await self.host.authenticate(view):
                given = ReasonCode.BAD_USER_NAME_OR_PASSWORD if connect.username else ReasonCode.NOT_AUTHORIZED
                raise MqttError(f"{client_id!r} is not authorised", given)
            if connection.closed:
                return
            self._begin(connection, connect, view, peer)
        except MqttError as error:
            log.info("%s: %s", connection.address, error)
            connection.refuse(error.reason, connect.version)

    def _admit(self, connection: MqttConnection, connect: Connect) -> str | None:
        """The name of the member, on an overlay listener. Raises MqttError for whoever may not try at all."""
        if connection.over_limit:
            raise MqttError(f"listener {connection.listener} is full", ReasonCode.QUOTA_EXCEEDED)
        if connect.properties.authentication_method is not None:
            raise MqttError("asks for extended authentication", ReasonCode.BAD_AUTHENTICATION_METHOD)
        if not connection.is_overlay:
            if len(self._clients) >= self.limits.sessions and connect.client_id not in self._clients:
                raise MqttError("limits.sessions is reached", ReasonCode.QUOTA_EXCEEDED)
            return None
        if connect.version != Version.V5:
            raise MqttError(
                "refused: a hop below MQTT 5 strips user properties; let the member speak MQTT 5",
                ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
            )
        assert self.exchange.overlay is not None
        tls = connection.tls
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        peer = self.exchange.overlay.recognise(certificate, connect.client_id) if certificate else None
        if peer is None:
            raise MqttError(
                f"refused: the certificate of {connect.client_id!r} is none of the overlay's",
                ReasonCode.NOT_AUTHORIZED,
            )
        return peer

    def _begin(self, connection: MqttConnection, connect: Connect, view: EdgeSession, peer: str | None) -> None:
        """From here on nothing is waited for: two connections of one client id cannot interleave."""
        now = self.now()
        # Members have a name space of their own: no local client can take over a member's session.
        key = f"{PEER_PREFIX}{peer}" if peer is not None else view.client_id
        client = self._clients.get(key)
        if client is not None:
            self._dismiss(client, ReasonCode.SESSION_TAKEN_OVER)
            # Whoever authenticates as another user does not inherit the former one's subscriptions.
            if connect.clean_start or not client.alive or client.view.username != view.username:
                for action in client.session.end() if client.alive else ():
                    self.perform(client, action)
                client = None
        client = self._adopt(client, key, connect, view, connection)
        client.peer, client.connection, client.goodbye = peer, connection, (False, "connection lost")
        properties = NO_PROPERTIES if connect.client_id else Properties(assigned_client_id=view.client_id)
        offer = self._offer if peer is None else self._peer_offer
        try:
            out = client.session.connected(connect, offer, now, properties)
        except MqttError:
            client.connection = None
            if not client.session.begun:
                self._forget(client)
            raise
        for data in out:
            connection.write(data)
        connection.established(client)
        self._deadlines.wake(client, self._deadline_of(client), len(self._clients))
        self._restore_from_plugin(client, now)
        self._announce(client, now)

    def _adopt(
        self, client: Client | None, key: str, connect: Connect, view: EdgeSession, connection: MqttConnection
    ) -> Client:
        if client is None:
            client = Client(ServerSession(view.client_id, self._session_limits), view)
        else:
            kept = client.view
            kept.adopt(connect, view.client_id, connection.peer, connection.tls)
            kept.attributes.update(view.attributes)
            kept.is_anonymous = view.is_anonymous
        client.view.transitions.connect()
        client.view.parent = int(client.session.begun)
        self._clients[key] = client
        self._sessions[key] = (client.view, client)
        return client

    @property
    def _peer_offer(self) -> ServerOffer:
        # What a member has not acknowledged stays in our outbox, not in its session.
        return ServerOffer(
            receive_maximum=self.limits.receive_maximum,
            maximum_packet_size=self.limits.packet_bytes,
            topic_alias_maximum=self.limits.topic_aliases,
            session_expiry_max_s=0,
        )

    def _restore_from_plugin(self, client: Client, now: float) -> None:
        """Messages that amqtt's persistence plugin kept for the client."""
        kept = client.view.retained_messages
        while not kept.empty():
            old = kept.get_nowait()
            message = Message(old.topic, bytes(old.data), old.qos or 0)
            data = client.session.deliver(message, message.qos, False, now)
            if data is not None and client.connection is not None:
                client.connection.write(data)

    def _announce(self, client: Client, now: float) -> None:
        overlay = self.exchange.overlay
        if client.peer is not None:
            assert overlay is not None
            self._peers[client.peer] = client
            overlay.peer_connected(client.peer, client.session)
            return
        self.host.fire(BrokerEvents.CLIENT_CONNECTED, client_id=client.client_id, client_session=client.view)
        if overlay is not None:
            overlay.entity_event(EntityConnected(client.client_id, client.view.keep_alive, now))

    # ----------------------------------------------------------------------------------- sessions' lives

    def perform(self, client: Client, action: Action) -> Later | None:
        """What a session wants done, other than writing and publishing."""
        match action:
            case Subscribe():
                return self.exchange.subscribe(client, action)
            case Unsubscribe():
                self.exchange.unsubscribe(client, action)
            case Close():
                self._close(client, action)
            case PublishWill():
                self.exchange.publish_will(client, action.will)
            case SessionEnded():
                self._forget(client)
            case _:
                raise AssertionError(f"unexpected {type(action).__name__}")
        return None

    def _close(self, client: Client, action: Close) -> None:
        connection = client.connection
        if connection is None:
            return
        clean = action.reason == ReasonCode.SUCCESS and not action.farewell
        client.goodbye = (clean, action.text or action.reason.name.lower().replace("_", " "))
        if not clean:
            log.info("%s: %r: %s", connection.address, client.client_id, client.goodbye[1])
        connection.close(action.farewell)
        self._gone(client, connection)

    def _dismiss(self, client: Client, reason: ReasonCode) -> None:
        """End the connection of a client, if it has one, with DISCONNECT where its version has that."""
        if client.connection is not None:
            self._close(client, client.session.close(reason))

    def _gone(self, client: Client, connection: MqttConnection) -> None:
        """The client has lost this connection: will, expiry, events. Nothing if it has another already."""
        if client.connection is not connection:
            return
        client.connection = None
        now = self.now()
        client.view.transitions.disconnect()
        for action in client.session.disconnected(now):
            self.perform(client, action)
        self._deadlines.wake(client, self._deadline_of(client), len(self._clients))
        overlay = self.exchange.overlay
        if client.peer is not None:
            if self._peers.get(client.peer) is client:
                del self._peers[client.peer]
            assert overlay is not None
            overlay.peer_disconnected(client.peer)
            return
        self.host.fire(BrokerEvents.CLIENT_DISCONNECTED, client_id=client.client_id, client_session=client.view)
        if overlay is not None:
            overlay.entity_event(EntityGone(client.client_id, *client.goodbye, now))

    def _forget(self, client: Client) -> None:
        self.exchange.forget(client)
        key = f"{PEER_PREFIX}{client.peer}" if client.peer is not None else client.client_id
        if self._clients.get(key) is client:
            del self._clients[key]
            self._sessions.pop(key, None)

    def _deadline_of(self, client: Client) -> float | None:
        at = client.session.next_deadline
        if at is not None and client.session.state is Connection.CONNECTED:
            at += self.config.timeout_disconnect_delay or 0
        return at

    def _due(self, client: Client, now: float) -> float | None:
        at = self._deadline_of(client)
        if at is None:
            return None
        connection = client.connection
        if connection is not None and (connection.is_held or connection.held_until > now - HELD_GRACE_S):
            return now + HELD_GRACE_S  # we did not read: its silence proves nothing
        if at <= now:
            for action in client.session.tick(now):
                self.perform(client, action)
        return self._deadline_of(client) if client.alive else None

    def tick(self, now: float) -> None:
        """Attend to whatever is due at `now`. The broker's own timer does so; tests bring a time of theirs."""
        self._deadlines.tick(now, len(self._clients))

    # ------------------------------------------------------------------------- what plugins and amqtt call

    async def internal_message_broadcast(self, topic: str, data: bytes, qos: int | None = None) -> None:
        """`BrokerContext.broadcast_message`. Without a QoS each subscriber gets its subscription's."""
        message = Message(topic, bytes(data), 2 if qos is None else qos)
        later = self.exchange.route(message, None)
        if later is not None:
            await later

    async def retain_message(
        self, source_session: Any, topic_name: str | None, data: bytes | bytearray | None, qos: int | None = None
    ) -> None:
        """`BrokerContext.retain_message`; empty data clears the topic."""
        if topic_name is not None:
            self.exchange.retain(source_session, Message(topic_name, bytes(data or b""), qos or 0, True))

    def create_offline_session(self, client_id: str) -> tuple[Any, EdgeSession]:
        """A session without a connection, as amqtt's persistence plugin makes them."""
        view = EdgeSession()
        view.client_id, view.clean_session = client_id, False
        view.transitions.disconnect()
        client = Client(ServerSession(client_id, self._session_limits), view)
        client.session.begun = True
        self._clients[client_id] = client
        return client, view

    async def add_subscription(self, subscription: tuple[str, int], session: Any) -> int:
        """`BrokerContext.add_subscription`: the granted QoS, or 0x80."""
        client = self._clients.get(session.client_id)
        if client is None:
            return 0x80
        topic_filter, qos = subscription
        packet = Subscribe(1, (Subscription(topic_filter, qos),))
        before = client.filters.get(topic_filter)
        later = self.exchange.subscribe(client, packet, quiet=True)
        if later is not None:
            await later
        after = client.filters.get(topic_filter)
        return qos if after is not None and after is not before else 0x80

    @property
    def subscriptions(self) -> dict[str, list[tuple[Any, int]]]:
        """Filter -> (session, QoS), computed for plugins when they ask."""
        found: dict[str, list[tuple[Any, int]]] = {}
        for entry in self.exchange.router.entries():
            found.setdefault(entry.options.filter, []).append((entry.client.view, entry.options.qos))
        return found

    def _packets_sent(self, connection: MqttConnection, data: bytes) -> None:
        """Tell plugins that declare `mqtt_packet_sent` what goes out; read back, since it is bytes by now."""
        client = connection.client
        if client is None:
            return
        version = client.session.version
        for packet in Decoder(version, role="client").feed(data):
            self.host.fire(MQTTEvents.PACKET_SENT, packet=PacketView(packet, version), session=client.view)

    def _in_order(self, later: Later) -> None:
        if self._broadcast_queue.qsize() >= WAITING_PUBLICATIONS:
            log.warning("topic plugins are too slow; a publication is dropped")
            later.close()
            return
        self._broadcast_queue.put_nowait(later)

    async def _broadcast_loop(self) -> None:
        """amqtt starts this task: it runs what waits for plugins and has no connection, in order."""
        stop = self._broadcast_shutdown_waiter
        while not stop.done():
            following = asyncio.ensure_future(self._broadcast_queue.get())
            await asyncio.wait([following, stop], return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                following.cancel()
                return
            try:
                await following.result()
            except Exception:
                log.exception("a publication failed")

    # -------------------------------------------------------------------------------------- overlay

    def deliver_local(self, publication: Publication) -> None:
        """Route a publication of the overlay to local clients and the retained store, never back.

        Raises `bridge.topics.TopicError` for an invalid topic.
        """
        self.exchange.deliver_local(publication)

    def send_to_peer(self, peer: str, topic: str, payload: bytes, properties: UserProperties, on_ack: Done) -> bool:
        """QoS 1 PUBLISH to a connected member; `on_ack(code)` when it acknowledges.

        False, and nothing was sent: it is not connected, its queue is full, or the message is too large for
        it. When the member disconnects, acknowledgements that are still out never come.
        """
        client = self._peers.get(peer)
        if client is None:
            return False
        return self.exchange.send_to_peer(client, topic, payload, Properties(user=properties), on_ack)

    def local_filters(self) -> list[str]:
        """Distinct filters that local clients hold, share prefixes stripped."""
        return self.exchange.router.filters()

    def clients(self) -> Iterator[tuple[str, bool]]:
        """(client id, is it connected) of every local session."""
        for client in self._clients.values():
            if client.peer is None:
                yield client.client_id, client.connection is not None


#: U+0000 cannot occur in a client id that came over the wire.
PEER_PREFIX = "\0"


def _amqtt_listener(listener: Any) -> ListenerConfig:
    values = listener.model_dump(exclude={"overlay", "require_client_certificate"})
    try:
        return ListenerConfig(**{**values, "type": ListenerType(values["type"])})
    except FileNotFoundError as error:
        raise StartError(f"{error}; correct the path") from None


def _amqtt_config(settings: Settings) -> BrokerConfig:
    return BrokerConfig(
        timeout_disconnect_delay=settings.timeout_disconnect_delay,
        session_expiry_interval=settings.session_expiry_interval,
        plugins=dict(settings.plugins),
    )


def make_broker(
    settings: Settings,
    overlay: Overlay | None = None,
    overlay_context: ssl.SSLContext | None = None,
) -> EdgeBroker:
    """An `EdgeBroker` whose plugins are loaded. Raises StartError if one cannot be."""
    try:
        return EdgeBroker(settings, overlay=overlay, overlay_context=overlay_context)
    except (PluginError, PluginLoadError) as error:
        cause = str(error.__cause__ or error).splitlines()[0]
        raise StartError(f"plugins: {error}: {cause}" if cause != str(error) else f"plugins: {error}") from None


async def run_broker(
    settings: Settings,
    overlay: Overlay | None = None,
    *,
    overlay_context: ssl.SSLContext | None = None,
    started: Callable[[EdgeBroker], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or `stop`, then end cleanly. `started` is called once it listens.

    Raises StartError. Run it with `uvloop.run` where uvloop is installed.
    """
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
            loop.add_signal_handler(name, stop.set)
    broker = make_broker(settings, overlay, overlay_context)
    await broker.start()
    try:
        if started is not None:
            started(broker)
        await stop.wait()
    finally:
        await broker.shutdown()


def listener_addresses(broker: EdgeBroker, settings: Settings) -> Mapping[str, str]:
    """Listener -> HOST:PORT as bound, for messages to people."""
    found: dict[str, str] = {}
    for name, listener in settings.listeners.items():
        if listener.type != "external":
            host = listener.bind.rpartition(":")[0] or "*"
            found[name] = f"{host}:{broker.port(name)}"
    return found
