"""`EdgeBroker`: amqtt's broker with the data plane of VeilMQ.

Kept from `amqtt.broker.Broker`: configuration, states, plugin manager, auth and topic plugins, events,
`BrokerContext`, listeners. Replaced: protocol handling, sessions, routing, delivery.
`tests/gateway/test_broker_contract.py` holds the overridden private names of amqtt. In order of reading:
`connection.py` (bytes), `lifecycle.py` (CONNECT to the end), `exchange.py` (publish), `subscribing.py`, `routing.py`.

Errors of the operator: `config.ConfigError`, `config.StartError`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from ipaddress import ip_network
from typing import Any

from amqtt.adapters import ReaderAdapter, WriterAdapter
from amqtt.broker import DEFAULT_PORTS, Broker, ExternalServer, Server
from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType
from amqtt.events import MQTTEvents

from gateway.auth.claimed_names import claimed_names
from gateway.base import Limits, Listener, Settings, StartError
from gateway.base.config_console import CONSOLE_FILES
from gateway.base.descriptors import SPARE_FILES, open_files, raise_limit
from gateway.base.log_events import LogEvent
from gateway.broker.changed_users import ChangedUsers
from gateway.broker.draining import all_gone, drain
from gateway.broker.exchange import Exchange
from gateway.broker.lifecycle import Lifecycle
from gateway.broker.local_clients import LocalClients
from gateway.broker.observing import observe
from gateway.broker.restoring import restore
from gateway.broker.terms import Terms, internal_listeners
from gateway.clients import (
    OverlayPort,
)
from gateway.data import StoreError, sealing_key
from gateway.history import LocalHistory
from gateway.listening import (
    BACKLOG,
    ProxiedServer,
    WebSocketProtocol,
    accepting,
    amqtt_config,
    amqtt_listener,
    open_sockets,
    open_unix_socket,
    remove_stale_socket,
    serve_adapter,
    server_context,
)
from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Subscribe, Subscription
from gateway.operation import Operation
from gateway.plugins import EdgeSession, PacketView, PluginHost
from gateway.sessions import SessionStore
from gateway.sockets.connection import MqttConnection
from gateway.sockets.flushing import Flusher, Later
from gateway.sockets.proxied_connection import ProxiedConnection

log = logging.getLogger("veilmq.broker")

SWEEP_S = 30.0
"""Seconds between two removals of expired retained messages; no client sees these in between."""
FILES_LOW = 16
"""Below so many free descriptors the log reports it: other users of files have taken those of connections."""
FIRST_S = 10.0
"""Seconds for which clients wait at a start until parts of this process have their sessions."""
WAITING_PUBLICATIONS = 10_000
"""Publications that wait for a plugin and have no connection to hold back; more are dropped."""


class EdgeBroker(Broker):  # type: ignore[misc]
    """Broker of a process. Create and `start` it on a running event loop; `shutdown` ends it.

    `config` is amqtt's `BrokerConfig` or dictionary, or `Settings`. `overlay_context` is the TLS context of listeners
    with `overlay: true`. `allow_anonymous` admits clients without a user name; without it and without an
    authentication plugin no client gets in. Only plugins the configuration names are loaded.
    """

    def __init__(
        self,
        config: Settings | BrokerConfig | dict[str, Any] | None = None,
        *,
        overlay: OverlayPort | None = None,
        overlay_context: ssl.SSLContext | None = None,
        allow_anonymous: bool | None = None,
    ) -> None:
        settings = config if isinstance(config, Settings) else None
        self.limits = settings.limits if settings else Limits()
        self._settings = settings
        self._overlay_context = overlay_context
        super().__init__(amqtt_config(settings) if settings else config or BrokerConfig(plugins={}))
        if settings is not None:
            # amqtt would fill what equals a default from the listener `default`; ours are complete already.
            self.listeners_config = {name: amqtt_listener(one) for name, one in settings.listeners.items()}
        if allow_anonymous is None:
            allow_anonymous = settings.allow_anonymous if settings else False
        self._started_at = time.time() - time.monotonic()
        self.host = PluginHost(self.plugins_manager, allow_anonymous=allow_anonymous)
        self.exchange = Exchange(self.host, self.limits, self.now)
        self.exchange.overlay = overlay
        self.exchange.in_order = self._in_order
        self.exchange.predicates = settings is not None and settings.subscriptions.predicates
        self._retained_messages = self.exchange.retained
        grace_s = self.config.timeout_disconnect_delay or 0
        self.lifecycle = Lifecycle(self.exchange, self._terms(), grace_s, self._sessions, self._servers)
        self.lifecycle.response_information = settings.response_information if settings else None
        ChangedUsers(self.host, self.lifecycle)
        self.local = LocalClients(self.exchange, self.lifecycle)
        self.operation = Operation(
            settings,
            self.exchange.delivery.limits,
            partial(observe, self.lifecycle, self.exchange),
            self.exchange.inject,
            lambda: self.exchange.overlay,
        )
        # Called when everything listens and before the first connection is accepted.
        self.before_serving: Callable[[EdgeBroker], None] | None = None
        self._first: list[Coroutine[Any, Any, None]] = []
        self._flusher = Flusher(self._loop)
        self.exchange.turns.first = self._flusher.flush
        self._files: int | None = None
        self._sockets: dict[str, list[socket.socket]] = {}
        self._contexts: dict[str, ssl.SSLContext | None] = {}

    def _terms(self) -> Terms:
        expiry_s = self.limits.session_expiry_s
        if self.config.session_expiry_interval is not None:
            expiry_s = min(expiry_s, self.config.session_expiry_interval)
        settings = self._settings
        listeners = {**settings.listeners, **internal_listeners(settings)} if settings else {}
        return Terms(self.limits, expiry_s, listeners, self.exchange.reached.note_bound)

    def now(self) -> float:
        """Returns seconds since the UNIX epoch, from a clock that does not jump: no step makes keep-alives run out."""
        return self._started_at + time.monotonic()

    # ------------------------------------------------------------------------------------- start, stop

    async def start(self) -> None:
        """Binds all listeners, restores sessions, then serves. Raises StartError and StoreError."""
        self._prepare_listeners()
        self._size_connections()
        try:
            self.operation.prepare()
            if self._settings is not None and self._settings.data is not None:
                self.local.store = SessionStore.open(self._settings.data)
            elif self._settings is not None and self._settings.history:
                raise StartError("history needs a directory for its files; add data: DIRECTORY, or give --data")
        except (StartError, StoreError):
            self._close_sockets()
            raise
        await super().start()
        for plugin in self.host.plugins:
            for warning in getattr(plugin, "warnings", ()):
                LogEvent.PLUGIN_WARNS.say(log, warning)
        if (claimed := claimed_names(self.host.plugins, self.host.allows_anonymous)) is not None:
            LogEvent.PLUGIN_WARNS.say(log, claimed)
        if self.local.store is not None:
            restore(self.local.store, self.lifecycle, self.exchange)
        if self._settings is not None:
            self._keep_history(self._settings)
        if self.before_serving is not None:
            self.before_serving(self)
        if self._first:
            _, late = await asyncio.wait([asyncio.ensure_future(each) for each in self._first], timeout=FIRST_S)
            for each in late:
                each.cancel()
        self.operation.start()
        for server in self._servers.values():
            if server.instance is not None:
                await server.instance.start_serving()

    def _keep_history(self, settings: Settings) -> None:
        """Begins the history of a broker without overlay, or erases one that the configuration has no more."""
        if settings.overlay is not None or settings.data is None:
            return
        directory = settings.data / "history"
        if settings.history or directory.exists():
            key = partial(sealing_key, settings.data, b"history")
            kept = {one.filter: one.bounds for one in settings.history}
            history = LocalHistory(directory, key, kept, self.now)
            history.start()
            self.exchange.record_in(history)

    def serve_after(self, first: Coroutine[Any, Any, None]) -> None:
        """Lets clients in when `first` has ended, or after FIRST_S. For `before_serving`."""
        self._first.append(first)

    def _size_connections(self) -> None:
        """Limits connections to the number of files for them."""
        self._files = raise_limit()
        wanted, spare = self.limits.connections, SPARE_FILES
        if self._settings is not None and self._settings.console is not None:
            spare += CONSOLE_FILES
        if self._files is None or wanted + spare <= self._files:
            return
        self.lifecycle.door.most = most = max(1, self._files - spare)
        cure = f"LimitNOFILE={wanted + spare} in the service, or ulimit -n, or a smaller limits.connections"
        LogEvent.FEWER_CONNECTIONS.say(log, most=most, files=self._files, cure=cure)

    def _prepare_listeners(self) -> None:
        try:
            for name, listener in self.listeners_config.items():
                self._contexts[name] = self.context_of(name, listener, self._listener(name))
                if listener.type == ListenerType.EXTERNAL or not listener.bind:
                    continue
                ours = self._listener(name)
                if ours is not None and (path := ours.unix_path) is not None:
                    self._sockets[name] = [open_unix_socket(name, path)]
                    continue
                try:
                    host, port = self._split_bindaddr_port(listener.bind, DEFAULT_PORTS[listener.type])
                except ValueError:
                    raise StartError(f"listener {name}: {listener.bind!r} is no HOST:PORT; correct bind") from None
                self._sockets[name] = open_sockets(name, host, port)
        except StartError:
            self._close_sockets()
            raise

    def _listener(self, name: str) -> Listener | None:
        """Returns the listener of VeilMQ's configuration; None if amqtt's was given."""
        return self._settings.listeners.get(name) if self._settings else None

    def _is_overlay(self, listener: str) -> bool:
        ours = self._listener(listener)
        return ours is not None and ours.overlay

    def context_of(self, name: str, listener: ListenerConfig, ours: Listener | None) -> ssl.SSLContext | None:
        """Returns the TLS context for new connections of a listener, or None. Raises StartError."""
        is_overlay = ours is not None and ours.overlay
        if is_overlay and self.exchange.overlay is None:
            raise StartError(f"listener {name}: is an overlay listener, but no overlay is configured")
        if is_overlay and self._overlay_context is not None:
            return self._overlay_context
        if not listener.ssl:
            if is_overlay:
                raise StartError(f"listener {name}: members connect over mutual TLS only; set ssl: true")
            return None
        context = server_context(name, listener, is_overlay or bool(ours and ours.require_client_certificate))
        context.sni_callback = partial(self._present, name)
        return context

    def _present(self, name: str, connection: Any, server_name: str | None, context: ssl.SSLContext) -> None:
        """Begins a handshake with the present certificate, which may not be that of the start."""
        connection.context = self._contexts[name]

    def take_context(self, name: str, context: ssl.SSLContext | None) -> None:
        """Uses `context` from the next handshake on, if the listener has TLS."""
        if context is not None and self._contexts.get(name) is not None:
            self._contexts[name] = context

    def adopt_settings(self, settings: Settings) -> None:
        """Takes bounds, queues and admission of a configuration that was read again; connections stay."""
        self._settings, self.limits = settings, settings.limits
        for name, listener in settings.listeners.items():
            if name in self.listeners_config:
                self.listeners_config[name].max_connections = listener.max_connections
        self.host.adopt_anonymous(settings.allow_anonymous)
        self.exchange.adopt_limits(settings.limits)
        self.lifecycle.adopt_terms(self._terms())
        self.lifecycle.response_information = settings.response_information
        self.operation.limits = settings.limits

    async def _start_listeners(self) -> None:
        for name, listener in self.listeners_config.items():
            if listener.type == ListenerType.EXTERNAL:
                self._servers[name] = ExternalServer()
                continue
            for place, sock in enumerate(self._sockets.pop(name, [])):
                context = self._contexts[name]
                make = self._websocket if listener.type == ListenerType.WS else self._protocol
                factory = partial(make, name)
                ours = self._listener(name)
                if ours is not None and ours.proxy:
                    self._start_proxied(name, place, sock, factory, ours.proxy)
                    continue
                is_unix = sock.family == socket.AF_UNIX
                create: Any = self._loop.create_unix_server if is_unix else self._loop.create_server
                # A handshake that never ends must not hold a socket for longer than a missing CONNECT.
                most_s = self.limits.connect_timeout_s if context else None
                for again, each in enumerate(accepting(sock, self._loop)):
                    instance = await create(
                        factory, sock=each, ssl=context, backlog=BACKLOG, start_serving=False,
                        ssl_handshake_timeout=most_s,
                    )  # fmt: skip
                    # A name that stands for two addresses is two servers of one listener, at least.
                    key = f"{name} ({place + 1}.{again + 1})" if place or again else name
                    self._servers[key] = Server(name, instance, listener.max_connections or -1)
                where = listener.bind if is_unix else ":".join(map(str, sock.getsockname()[:2]))
                LogEvent.LISTENING.say(log, name, where)

    def _start_proxied(
        self, name: str, place: int, sock: socket.socket, factory: Callable[..., asyncio.Protocol], proxy: Sequence[str]
    ) -> None:
        instance: Any = ProxiedServer(
            name, sock, factory, self._contexts[name], [ip_network(one) for one in proxy],
            self.limits.connect_timeout_s, self.limits.half_open,
        )  # fmt: skip
        most = self.listeners_config[name].max_connections or -1
        self._servers[f"{name} ({place + 1})" if place else name] = Server(name, instance, most)
        LogEvent.LISTENING.say(log, name, ":".join(map(str, sock.getsockname()[:2])))

    def port(self, listener: str = "default") -> int:
        """Returns the TCP port of a listener."""
        return int(self._servers[listener].instance.sockets[0].getsockname()[1])

    def _close_sockets(self) -> None:
        for sockets in self._sockets.values():
            for sock in sockets:
                sock.close()
        self._sockets.clear()
        self._remove_unix_sockets()

    async def shutdown(self) -> None:
        """Stops listening, finishes packets already read, tells clients, ends plugins. Clients have `limits.shutdown_s`
        for it.
        """
        for server in self._servers.values():
            if server.instance is not None:
                server.instance.close()
        if self.exchange.tracing is not None:
            self.exchange.tracing.ending()
        await drain(self.lifecycle.connections, self.limits.shutdown_s / 4)
        self.lifecycle.close_all()
        await all_gone(self.lifecycle.connections, self.lifecycle.reached, self.limits.shutdown_s / 2)
        self.local.is_ending = True
        self.exchange.keep_in(None)
        if self.exchange.history is not None:
            self.exchange.history.close()
            self.exchange.record_in(None)
        if self.local.store is not None:
            await self.local.store.close()
        await self.operation.stop()
        self.exchange.overlay = (
            None  # amqtt ends every session now; the overlay must keep the subscriptions of stored sessions
        )
        await super().shutdown()
        self._remove_unix_sockets()

    def _remove_unix_sockets(self) -> None:
        for listener in self._settings.listeners.values() if self._settings else ():
            if listener.unix_path is not None:
                remove_stale_socket(listener.unix_path)

    async def _cleanup_session(self, client_id: str) -> None:
        """Forgets a session: amqtt's shutdown calls this for every session."""
        client = self.lifecycle.clients.get(client_id)
        if client is not None:
            self.lifecycle.forget_session(client)

    async def _session_monitor(self) -> None:
        """Sweeps retained messages. amqtt starts this task; sessions here have their own deadlines."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.exchange.retained.drop_expired(self.now())
            if self._files is not None and open_files() + FILES_LOW > self._files:
                LogEvent.FILES_RUN_OUT.say(log, limit=self._files)

    # ------------------------------------------------------------------------------------- connections

    def _protocol(self, listener: str, client: tuple[str, int] | None = None) -> MqttConnection:
        """Makes a connection. `client`: the other end a proxy named."""
        server = self._servers.get(listener)
        most = self.listeners_config[listener].max_connections
        over = server is not None and 0 < most <= server.conn_count
        of_connection = self.lifecycle, self._flusher, listener, self._is_overlay(listener), over
        connection = MqttConnection(*of_connection) if client is None else ProxiedConnection(client, *of_connection)
        if self.host.sees_packets_sent:
            connection.tap = partial(self._packets_sent, connection)
        return connection

    def internal(self, listener: str) -> MqttConnection:
        """Returns the broker's end of a connection to a part of this process; `listener` begins with
        `terms.INTERNAL`.
        """
        return MqttConnection(self.lifecycle, self._flusher, listener, False, False)

    def _websocket(self, listener: str, client: tuple[str, int] | None = None) -> WebSocketProtocol:
        ours = self._listener(listener)
        return WebSocketProtocol(
            self._protocol(listener, client), self.limits.packet_bytes, ours.origins if ours else ()
        )

    async def external_connected(self, reader: ReaderAdapter, writer: WriterAdapter, listener_name: str) -> None:
        """Serves an established connection of another server until it ends (amqtt's extension point)."""
        await serve_adapter(reader, writer, self._protocol(listener_name), self.limits.packet_bytes)

    def do_due_work(self, now: float) -> None:
        """Does all work that is due at `now`. Called by the broker's own timer; tests pass their own time."""
        self.lifecycle.do_due_work(now)

    # ------------------------------------------------------------------------- what plugins and amqtt call

    async def internal_message_broadcast(self, topic: str, data: bytes, qos: int | None = None) -> None:
        """Broadcasts for `BrokerContext.broadcast_message`. Without a QoS each subscriber gets its subscription's.
        Returns when receivers that are behind have room again, or were given up.
        """
        if self.operation.owns(topic):
            return
        message = Message(topic, bytes(data), 2 if qos is None else qos)
        self.exchange.record_message(message, "", None)
        later = self.exchange.delivery.route(message, None)
        if later is not None:
            await later
        if receivers := self.exchange.holding.burdened():
            await self.exchange.holding.until_all_taken(receivers)

    async def retain_message(
        self,
        source_session: Any,
        topic_name: str | None,
        data: bytes | bytearray | None,
        qos: int | None = None,
    ) -> None:
        """Retains a message for `BrokerContext.retain_message`; empty data clears the topic."""
        if topic_name is not None and not self.operation.owns(topic_name):
            self.exchange.retain(source_session, Message(topic_name, bytes(data or b""), qos or 0, True))

    def create_offline_session(self, client_id: str) -> tuple[Any, EdgeSession]:
        """Makes a session without a connection; amqtt enters the result into its table."""
        client = self.lifecycle.create_offline(client_id)
        return client, client.view

    async def add_subscription(self, subscription: tuple[str, int], session: Any) -> int:
        """Subscribes for `BrokerContext.add_subscription`: returns the granted QoS, or 0x80."""
        client = self.lifecycle.clients.get(session.client_id)
        if client is None:
            return 0x80
        topic_filter, qos = subscription
        packet = Subscribe(1, (Subscription(topic_filter, qos),))
        before = client.filters.get(topic_filter)
        later = self.lifecycle.subscribing.subscribe(client, packet, quiet=True)
        if later is not None:
            await later
        after = client.filters.get(topic_filter)
        return qos if after is not None and after is not before else 0x80

    @property
    def subscriptions(self) -> dict[str, list[tuple[Any, int]]]:
        """The subscriptions by filter as (session, QoS), computed for plugins when they ask."""
        found: dict[str, list[tuple[Any, int]]] = {}
        for entry in self.exchange.delivery.router.entries():
            found.setdefault(entry.options.filter, []).append((entry.client.view, entry.options.qos))
        return found

    def _packets_sent(self, connection: MqttConnection, data: bytes) -> None:
        """Tells plugins that declare `mqtt_packet_sent` the sent packets, decoded again from bytes."""
        client = connection.client
        if client is None:
            return
        version = client.session.version
        for packet in Decoder(version, role="client").feed(data):
            self.host.fire(MQTTEvents.PACKET_SENT, packet=PacketView(packet, version), session=client.view)

    def _in_order(self, later: Later) -> bool:
        if self._broadcast_queue.qsize() < WAITING_PUBLICATIONS:
            self._broadcast_queue.put_nowait(later)
            return True
        LogEvent.TOPIC_PLUGINS_SLOW.say(log)
        later.close()
        return False

    async def _broadcast_loop(self) -> None:
        """Runs, in order, work that waits for plugins and has no connection. amqtt starts this task."""
        stop = self._broadcast_shutdown_waiter
        while not stop.done():
            following = asyncio.ensure_future(self._broadcast_queue.get())
            await asyncio.wait([following, stop], return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                following.cancel()
                return
            try:
                await following.result()
            except Exception:  # noqa: BLE001  the log has its traceback
                LogEvent.PLUGIN_PUBLICATION_FAILED.say(log, exc_info=True)

    def clients(self) -> Iterator[tuple[str, bool]]:
        """Yields (client id, True if connected) of every local session."""
        for client in self.lifecycle.clients.values():
            if client.peer is None:
                yield client.client_id, client.connection is not None
