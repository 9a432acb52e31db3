"""Who may connect, and when a client's session begins and ends.

CONNECT to `Client`: limits, members by certificate, authentication, takeover, resumption. End of a connection:
will, expiry, events. The clock of all of it. Not here: listeners and amqtt's side (`broker.py`), what connected
clients publish (`exchange.py`) and subscribe (`subscribing.py`).
Source: MQTT 5.0 §3.1.4, §4.1, §4.13.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import MutableMapping, Sequence
from typing import Any

from amqtt.events import BrokerEvents, MQTTEvents

from .clients import Client, Deadlines
from .config import Limits
from .connection import Later, MqttConnection
from .exchange import Exchange
from .hooks import EntityConnected, EntityGone
from .mqtt5.message import Message
from .mqtt5.packets import NO_PROPERTIES, Connect, Packet, Properties, Publish, Subscribe, Unsubscribe, Version
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
from .plugin import EdgeSession, PacketView
from .subscribing import Subscribing

log = logging.getLogger("veilmq.broker")

#: Members have a name space of their own: U+0000 cannot occur in a client id that came over the wire.
PEER_PREFIX = "\0"
#: After we paused reading, a client has so long to be heard again before its keep-alive counts.
HELD_GRACE_S = 1.0


class Lifecycle:
    """All clients, connected or away; the `connection.Core` of every connection.

    `sessions` is amqtt's table (client id -> (session, handler)), kept in step. `servers` counts connections
    per listener. `grace_s` is added to every keep-alive.
    """

    def __init__(
        self,
        exchange: Exchange,
        limits: Limits,
        session_expiry_s: int,
        grace_s: float,
        sessions: MutableMapping[str, Any],
        servers: MutableMapping[str, Any],
    ) -> None:
        self.limits, self.exchange = limits, exchange
        self.subscribing = Subscribing(exchange)
        self.clients: dict[str, Client] = {}
        self.peers: dict[str, Client] = {}
        self.connections: set[MqttConnection] = set()
        self._host, self._grace_s = exchange.host, grace_s
        self._sessions, self._servers = sessions, servers
        self._none_left = asyncio.Event()
        self._deadlines = Deadlines(exchange.now, self._due)
        self._offer = _offer(limits, session_expiry_s)
        self._peer_limits = SessionLimits(
            in_flight_messages=limits.in_flight,
            queue_messages=limits.member_queue_messages,
            queue_bytes=limits.member_queue_bytes,
            subscriptions=limits.subscriptions,
        )
        self._session_limits = SessionLimits(
            in_flight_messages=limits.in_flight,
            queue_messages=limits.queue_messages,
            queue_bytes=limits.queue_bytes,
            subscriptions=limits.subscriptions,
        )
        exchange.close = self._close
        self.now = exchange.now

    # ------------------------------------------------------------------------------- what connections call

    def received(self, client: Client, packets: Sequence[Packet], now: float) -> list[Action]:
        return self.exchange.received(client, packets, now)

    def published(self, client: Client, publish: Publish) -> Later | None:
        return self.exchange.published(client, publish)

    def opened(self, connection: MqttConnection) -> bool:
        """Count a new connection; False if there are too many to answer it even with a refusal."""
        if len(self.connections) >= self.limits.connections:
            log.warning("%s: refused, limits.connections is reached", connection.address)
            return False
        self.connections.add(connection)
        self._none_left.clear()
        if (server := self._servers.get(connection.listener)) is not None:
            server.conn_count += 1
        return True

    def lost(self, connection: MqttConnection, error: Exception | None) -> None:
        """The network connection has ended, whoever ended it."""
        if connection in self.connections:
            self.connections.discard(connection)
            if (server := self._servers.get(connection.listener)) is not None:
                server.conn_count -= 1
        if connection.client is not None:
            self._gone(connection.client, connection)
        if not self.connections:
            self._none_left.set()

    async def connecting(self, connection: MqttConnection, connect: Connect) -> None:
        """Authenticate a CONNECT and begin or resume its session, or refuse it with the right code."""
        try:
            peer = self._admit(connection, connect)
            client_id = connect.client_id or f"veilmq-{secrets.token_hex(10)}"
            if self._host.sees_packets_received:
                self._host.fire(MQTTEvents.PACKET_RECEIVED, packet=PacketView(connect, connect.version))
            view = EdgeSession.of(connect, client_id, connection.peer, connection.tls)
            # A member was recognised by its certificate, which is more than a password.
            if peer is None and not await self._host.authenticate(view):
                code = ReasonCode.BAD_USER_NAME_OR_PASSWORD if connect.username else ReasonCode.NOT_AUTHORIZED
                raise MqttError(f"{client_id!r} is not authorised", code)
            if not connection.closed:
                self._begin(connection, connect, view, peer)
        except MqttError as error:
            log.info("%s: %s", connection.address, error)
            connection.refuse(error.reason, connect.version)

    def perform(self, client: Client, action: Action) -> Later | None:
        """What a session wants done, other than writing and publishing."""
        match action:
            case Subscribe():
                return self.subscribing.subscribe(client, action)
            case Unsubscribe():
                self.subscribing.unsubscribe(client, action)
            case Close():
                self._close(client, action)
            case PublishWill():
                self.exchange.publish_will(client, action.will)
            case SessionEnded():
                self.forget(client)
            case _:
                raise AssertionError(f"unexpected {type(action).__name__}")
        return None

    # ---------------------------------------------------------------------------------------- the beginning

    def _admit(self, connection: MqttConnection, connect: Connect) -> str | None:
        """The name of the member, on an overlay listener. Raises MqttError for whoever may not try at all."""
        if connection.over_limit:
            raise MqttError(f"listener {connection.listener} is full", ReasonCode.QUOTA_EXCEEDED)
        if connect.properties.authentication_method is not None:
            raise MqttError("asks for extended authentication", ReasonCode.BAD_AUTHENTICATION_METHOD)
        if not connection.is_overlay:
            if len(self.clients) >= self.limits.sessions and connect.client_id not in self.clients:
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
        key = view.client_id if peer is None else f"{PEER_PREFIX}{peer}"
        client = self.clients.get(key)
        if client is not None:
            self.dismiss(client, ReasonCode.SESSION_TAKEN_OVER)
            for action in client.session.tick(now) if client.alive else ():
                self.perform(client, action)  # a will that fell due this moment is not lost
            # Whoever authenticates as another user does not inherit the former one's subscriptions.
            if connect.clean_start or not client.alive or client.view.username != view.username:
                for action in client.session.end() if client.alive else ():
                    self.perform(client, action)
                client = None
        client = self._adopt(client, key, connect, view, connection)
        client.peer, client.connection, client.goodbye = peer, connection, (False, "connection lost")
        properties = NO_PROPERTIES if connect.client_id else Properties(assigned_client_id=view.client_id)
        for data in client.session.connected(connect, self._offer, now, properties):
            connection.write(data)
        asked = connect.properties
        is_plain = peer is None and not asked.topic_alias_maximum and not asked.maximum_packet_size
        client.plain = int(connect.version == Version.V5) if is_plain else None
        connection.established(client)
        self._deadlines.wake(client, self._deadline_of(client), len(self.clients))
        self._restore_from_plugin(client, now)
        self._announce(client)

    def _adopt(
        self, client: Client | None, key: str, connect: Connect, view: EdgeSession, connection: MqttConnection
    ) -> Client:
        if client is None:
            limits = self._peer_limits if key.startswith(PEER_PREFIX) else self._session_limits
            client = Client(ServerSession(view.client_id, limits), view)
        else:
            # Plugins may hold on to the session object of a client that comes back, as in amqtt.
            kept = client.view
            kept.adopt(connect, view.client_id, connection.peer, connection.tls)
            kept.attributes.update(view.attributes)
            kept.is_anonymous = view.is_anonymous
        client.view.transitions.connect()
        client.view.parent = int(client.session.begun)
        self.clients[key] = client
        self._sessions[key] = (client.view, client)
        return client

    def _restore_from_plugin(self, client: Client, now: float) -> None:
        """Messages that amqtt's persistence plugin kept for the client."""
        kept = client.view.retained_messages
        while not kept.empty():
            old = kept.get_nowait()
            message = Message(old.topic, bytes(old.data), old.qos or 0)
            self.exchange.give(client, message, message.qos, False, (), now)

    def _announce(self, client: Client) -> None:
        overlay = self.exchange.overlay
        if client.peer is not None:
            assert overlay is not None
            self.peers[client.peer] = client
            overlay.peer_connected(client.peer, client.session)
            return
        self._host.fire(BrokerEvents.CLIENT_CONNECTED, client_id=client.client_id, client_session=client.view)
        if overlay is not None:
            overlay.entity_event(EntityConnected(client.client_id, client.view.keep_alive, time.time()))

    def create_offline(self, client_id: str) -> Client:
        """A session without a connection, as amqtt's persistence plugin makes them."""
        view = EdgeSession()
        view.client_id, view.clean_session = client_id, False
        view.transitions.disconnect()
        client = Client(ServerSession(client_id, self._session_limits), view)
        client.session.begun = True
        self.clients[client_id] = client
        return client

    # ---------------------------------------------------------------------------------------------- the end

    def dismiss(self, client: Client, reason: ReasonCode) -> None:
        """End the connection of a client, if it has one, with DISCONNECT where its version has that."""
        if client.connection is not None:
            self._close(client, client.session.close(reason))

    def _close(self, client: Client, action: Close) -> None:
        connection = client.connection
        if connection is None:
            return
        clean = action.reason == ReasonCode.SUCCESS and not action.farewell
        client.goodbye = (clean, action.text or action.reason.name.lower().replace("_", " "))
        if not clean:
            log.info("%s: %r: %s", connection.address, client.client_id, client.goodbye[1])
        connection.close(action.farewell)
        self._gone(client, connection, replaced=action.reason == ReasonCode.SESSION_TAKEN_OVER)

    def _gone(self, client: Client, connection: MqttConnection, replaced: bool = False) -> None:
        """The client has lost this connection: will, expiry, events. Nothing if it has another already."""
        if client.connection is not connection:
            return
        client.connection = None
        now = self.now()
        client.view.transitions.disconnect()
        for action in client.session.disconnected(now):
            self.perform(client, action)
        self._deadlines.wake(client, self._deadline_of(client), len(self.clients))
        overlay = self.exchange.overlay
        if client.peer is not None:
            return  # the member's session may outlive its connection, and then queues what it misses
        self._host.fire(BrokerEvents.CLIENT_DISCONNECTED, client_id=client.client_id, client_session=client.view)
        if overlay is not None and not replaced:
            overlay.entity_event(EntityGone(client.client_id, *client.goodbye, time.time()))

    def forget(self, client: Client) -> None:
        """The session has ended: everything about it goes."""
        self.subscribing.forget(client)
        if client.peer is not None and self.peers.get(client.peer) is client:
            del self.peers[client.peer]
            if self.exchange.overlay is not None:
                self.exchange.overlay.peer_disconnected(client.peer)
        key = client.client_id if client.peer is None else f"{PEER_PREFIX}{client.peer}"
        if self.clients.get(key) is client:
            del self.clients[key]
            self._sessions.pop(key, None)

    def close_all(self) -> None:
        """Say goodbye to everybody; what has been written leaves first."""
        for client in list(self.clients.values()):
            self.dismiss(client, ReasonCode.SERVER_SHUTTING_DOWN)
        for connection in list(self.connections):
            connection.close()
        self._deadlines.stop()

    async def all_gone(self, timeout_s: float) -> None:
        """Wait until no connection is left; cut off those that are after `timeout_s`."""
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._none_left.wait(), timeout_s)
        for connection in list(self.connections):
            connection.abort()

    # -------------------------------------------------------------------------------------------- deadlines

    def _deadline_of(self, client: Client) -> float | None:
        at = client.session.next_deadline
        if at is not None and client.session.state is Connection.CONNECTED:
            at += self._grace_s
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
        """Attend to whatever is due at `now`. The timer does so; tests bring a time of theirs."""
        self._deadlines.tick(now, len(self.clients))


def _offer(limits: Limits, session_expiry_s: int) -> ServerOffer:
    return ServerOffer(
        receive_maximum=limits.receive_maximum,
        maximum_packet_size=limits.packet_bytes,
        topic_alias_maximum=limits.topic_aliases,
        session_expiry_max_s=session_expiry_s,
    )
