"""Admission of clients, and the begin and end of their sessions.

CONNECT to `Client`: limits, members by certificate, authentication, takeover, resumption. End of a connection: will,
expiry, events. The clock of all of it. Not here: listeners and amqtt's side (`broker.py`), publications
(`exchange.py`) and subscriptions (`subscribing.py`) of connected clients. Source: MQTT 5.0 §3.1.4, §4.1, §4.13.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import MutableMapping, Sequence
from functools import partial
from typing import Any

from amqtt.events import BrokerEvents, MQTTEvents

from gateway.auth import EnhancedAuth, Proven
from gateway.base.peer_clock import stamp
from gateway.broker.exchange import Exchange
from gateway.broker.member_sessions import recognised
from gateway.broker.proving import Proving, no_login, too_many_failures
from gateway.broker.session_shares import HERE, SessionShares, owner_of, proven_name
from gateway.broker.subscribing import Subscribing
from gateway.broker.terms import Terms
from gateway.broker.wills import decided, publish_will
from gateway.clients import INTERNAL, Client, ClientConnection, Deadlines, EntityConnected, EntityGone, Pace
from gateway.mqtt5.bridge_clients import as_told_to_bridge, bridge_name
from gateway.mqtt5.endings import tellings
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import NO_PROPERTIES, Auth, Connect, Properties, Subscribe, Unsubscribe, Version
from gateway.mqtt5.session import Action, Close, Connection, PublishWill, ServerSession, SessionEnded, check_connect
from gateway.mqtt5.types import MqttError, ReasonCode
from gateway.plugins import Action as Right
from gateway.plugins import EdgeSession, PacketView
from gateway.sockets.connection import MqttConnection
from gateway.sockets.door import Door, Failures, origin_of
from gateway.sockets.flushing import CLIENTS_FAULT, Later

PEER_PREFIX = "\0"
"""Prefix of members, a name space of their own: U+0000 cannot occur in a client id that came over the wire."""
HELD_GRACE_S = 1.0
"""Seconds that a client has to be heard again after reading was paused, before its keep-alive counts."""
_FAILED_LOGIN = (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED)


class Lifecycle:
    """Register of all clients, connected or away; the `connection.Core` of every connection.

    `sessions` is amqtt's table (client id -> (session, handler)), kept in step. `servers` counts connections per
    listener. `grace_s` is added to every keep-alive.
    """

    def __init__(
        self, exchange: Exchange, terms: Terms, grace_s: float,
        sessions: MutableMapping[str, Any], servers: MutableMapping[str, Any],
    ) -> None:  # fmt: skip
        self.limits, self.exchange = terms.limits, exchange
        self.subscribing = Subscribing(exchange)
        self.clients: dict[str, Client] = {}
        self.shares = SessionShares()
        self.peers: dict[str, Client] = {}
        self.connections: set[MqttConnection] = set()
        self.reached, self.traffic, self._audit = exchange.reached, exchange.traffic, exchange.audit
        self.door = Door(self.limits, self.reached)
        self.failures = Failures(self.limits, self.reached, exchange.now)
        self._connected = 0
        self._host, self._grace_s = exchange.host, grace_s
        self._sessions, self._servers = sessions, servers
        self.turns = exchange.turns
        self._deadlines = Deadlines(exchange.now, self._due, self.turns)
        self.terms = terms
        self.enhanced_auth = EnhancedAuth(self._host.plugins, self.limits.connect_timeout_s)
        self._host.has_methods = bool(self.enhanced_auth.methods)
        self._proving = Proving(self._host, self.enhanced_auth, self.failures)
        # Response information for MQTT 5 clients that ask; `{client_id}` stands for theirs.
        self.response_information: str | None = None
        exchange.close = self._close
        self.now = exchange.now
        # Called for each read and each publication: directly, without a method in between.
        self.take_packets, self.route_publish, self.waiting_bytes = (
            exchange.take_packets,
            exchange.route_publish,
            exchange.waiting_bytes,
        )
        self.took_alone, self.took_publish = exchange.took_alone, exchange.took_publish
        self.passes_runs, self.pass_run = exchange.passes_runs, exchange.pass_run

    def adopt_terms(self, terms: Terms) -> None:
        """Takes other bounds from now on; sessions get those of their listener."""
        self.terms, self.limits = terms, terms.limits
        self.door.limits = self.failures.limits = terms.limits
        for client in self.clients.values():
            terms.grant(client)
            if client.pace is not None or self.limits.publish_rate:
                client.pace = self._new_pace(client.peer, self.now())
            if client.is_behind and not client.holds:
                self.exchange.holding.lift(client)
        self.rights_changed()

    def rights_changed(self) -> None:
        """Forgets decisions on rights: users or rights may have changed."""
        self._host.forget_verdicts(client.view for client in self.clients.values())
        self.subscribing.review()

    # ------------------------------------------------------------------------------- what connections call

    def admit_connection(self, connection: MqttConnection) -> bool:
        """Counts a new connection; False if there are too many to answer it even with a refusal."""
        self.traffic.sockets += 1
        if not self.door.enter_connection(connection):
            return False
        self.connections.add(connection)
        if (server := self._servers.get(connection.listener)) is not None:
            server.conn_count += 1
        return True

    def owner(self, connection: MqttConnection) -> str:
        """Returns the user of a connection, or its address while it has none."""
        if connection.client is not None:
            return owner_of(connection.client.view)
        peer = connection.peer
        return (origin_of(peer[0]) if peer is not None else None) or HERE

    def take_connection_end(self, connection: MqttConnection, error: Exception | None) -> None:
        """Takes the end of a network connection, whichever side ended it."""
        if connection in self.connections:
            self.connections.discard(connection)
            self.door.leave_connection(connection)
            if (server := self._servers.get(connection.listener)) is not None:
                server.conn_count -= 1
        if connection.client is not None:
            self._gone(connection.client, connection)

    def connecting(self, connection: MqttConnection, connect: Connect) -> Later | None:
        """Authenticates a CONNECT and begins or resumes its session, or refuses it with the right code. Does so at
        once if no plugin has to be asked: a task for each of thousands coming together costs more than the rest.
        """
        try:
            peer = self._admit(connection, connect)
            client_id = connect.client_id or f"veilmq-{secrets.token_hex(10)}"
            if self._host.sees_packets_received:
                self._host.fire(MQTTEvents.PACKET_RECEIVED, packet=PacketView(connect, connect.version))
            view = EdgeSession.from_connect(connect, client_id, connection.peer, connection.tls)
            if connection.is_internal:
                view.is_internal = True
            if peer is not None:  # recognised by its certificate, which is more than a password
                return self._let_in(connection, connect, view, peer, Properties(user=(stamp(time.time()),)))
            if not self.failures.may_try(view.remote_address):
                raise too_many_failures()
            known = None if connect.properties.authentication_method is not None else self._host.lets_in(view)
            if known is None:
                return self._authenticating(connection, connect, view)
            if not known:
                raise no_login(connect)
            return self._let_in(connection, connect, view, None, NO_PROPERTIES)
        except MqttError as error:
            self._not_accepted(connection, connect, error)
            return None

    async def _authenticating(self, connection: MqttConnection, connect: Connect, view: EdgeSession) -> None:
        """Authenticates a client where plugins, or the client itself, have to be asked."""
        try:
            proof = await self._proving.proven(connection, connect, view)
            later = self._let_in(connection, connect, view, None, proof)
            if later is not None:
                await later
        except ConnectionError:
            connection.close()
        except MqttError as error:
            self._not_accepted(connection, connect, error)

    @property
    def is_costly(self) -> bool:
        """True if a publication may cost more than its delivery: it is stored for the overlay, or looked at by
        tracing.
        """
        return self.exchange.overlay is not None or self.exchange.tracing is not None

    def _let_in(
        self, connection: MqttConnection, connect: Connect, view: EdgeSession, peer: str | None, proof: Properties
    ) -> Later | None:
        """Admits an authenticated client; returns the remaining wait, or None."""
        if connection.closed:
            return None
        self._begin_session(connection, connect, view, peer, proof)
        is_undecided = peer is None and view.client_id in self.exchange.undecided
        return decided(self.exchange, view.client_id) if is_undecided else None

    def _not_accepted(self, connection: MqttConnection, connect: Connect, error: MqttError) -> None:
        if error.reason in _FAILED_LOGIN and not connection.is_overlay and connection.peer is not None:
            self.failures.failed(connection.peer[0])
        self._audit.not_accepted(connection, connect, error)
        connection.refuse_connect(error.reason, connect.version, connect.properties.maximum_packet_size)

    def perform(self, client: Client, action: Action) -> Later | None:
        """Performs an action of a session, other than writing and publishing."""
        match action:
            case Subscribe():
                return self.subscribing.subscribe(client, action)
            case Unsubscribe():
                return self.subscribing.unsubscribe(client, action)
            case Close():
                self._close(client, action)
            case PublishWill():
                publish_will(self.exchange, client, action.will)
                if self.exchange.store is not None:
                    self.exchange.store.note_changed(client)
            case SessionEnded(unfinished):
                self.forget_session(client, unfinished)
            case Auth():
                return self.enhanced_auth.authenticate_again(client, action, self._close, self._proven_again)
            case _:
                raise AssertionError(f"unexpected {type(action).__name__}")
        return None

    def _proven_again(self, client: Client, proof: Proven) -> None:
        """Takes a new proof of a connected client's user: its end and its groups."""
        view = client.view
        view.ends_at = None if proof.lasts_s is None else self.now() + proof.lasts_s
        if view.groups != proof.groups:
            view.groups = proof.groups
            self._host.forget_verdicts((view,))
            self.subscribing.rejudge(client)
            if self.exchange.store is not None:
                self.exchange.store.note_changed(client)
        self._deadlines.wake(client, self._deadline_of(client), len(self.clients))

    # ---------------------------------------------------------------------------------------- the beginning

    def _admit(self, connection: MqttConnection, connect: Connect) -> str | None:
        """Returns the name of the member, on an overlay listener. Raises MqttError for a client that may not try
        at all.
        """
        if connect.client_id.startswith(INTERNAL) and not connection.is_internal:
            raise MqttError("client ids of our own parts are taken", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
        if connection.over_limit:
            raise MqttError(f"listener {connection.listener} is full", ReasonCode.QUOTA_EXCEEDED)
        method = connect.properties.authentication_method
        if method is not None and (connection.is_overlay or method not in self.enhanced_auth.methods):
            raise MqttError("asks for extended authentication", ReasonCode.BAD_AUTHENTICATION_METHOD)
        if not connection.is_overlay:
            longest_s = self.terms.offered(connection.is_internal).session_expiry_max_s
            self.reached.check_connect(connect, self.limits, longest_s)
            return None
        assert self.exchange.overlay is not None
        return recognised(connection.tls, connect, self.exchange.overlay)

    def _begin_session(
        self, connection: MqttConnection, connect: Connect, view: EdgeSession, peer: str | None, proof: Properties
    ) -> None:
        """Begins or resumes the session, without any wait: two connections of a client id cannot interleave."""
        now = self.now()
        properties = tellings(connect, view.client_id, proof, self.response_information)
        circles = self.exchange.delivery.circles
        properties = as_told_to_bridge(properties, connect, None if circles is None else circles.name)
        offer = self.terms.offered(connection.is_internal, is_member=peer is not None)
        check_connect(connect, offer, properties)
        key = view.client_id if peer is None else f"{PEER_PREFIX}{peer}"
        client = self.clients.get(key)
        # Starting anew does not fill the bucket.
        pace = (client.pace if client is not None else None) or self._new_pace(peer, now)
        if client is None and peer is None and len(self.clients) >= self.limits.sessions:
            self._make_room_for_session(view, connection)
        if client is not None:
            for action in client.session.due_actions(now) if client.alive and client.connection is None else ():
                self.perform(client, action)  # a will that fell due this moment is not lost
            if peer is None and client.alive and proven_name(client.view) not in (None, proven_name(view)):
                # Otherwise any user could end another user's session, with messages acknowledged for it.
                raise MqttError("the client id belongs to another user", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
            self.dismiss(client, ReasonCode.SESSION_TAKEN_OVER)
            # A client with a name does not inherit the subscriptions of a nameless client.
            is_other = client.view.owner_known and client.view.username != view.username
            if connect.clean_start or not client.alive or is_other:
                self.end_session(client)
                client = None
        client = self._adopt_session(client, key, connect, view, connection)
        client.peer, client.connection, client.goodbye = peer, connection, (False, "connection lost")
        client.pace, client.bridge = pace, bridge_name(connect)
        self.terms.grant(client)
        client.session.permits = partial(self._permits, client.view) if self._host.filters_topics else None
        self._count_in(client, connection)
        answer = client.session.take_connect(connect, offer, now, properties)
        if self.exchange.store is not None:
            self.exchange.store.note_opened(client)
        for data in answer:
            connection.write(data)
        asked, is_ours = connect.properties, peer is not None or client.bridge is not None
        is_plain = not (is_ours or asked.topic_alias_maximum or asked.maximum_packet_size)
        client.plain = int(connect.version == Version.V5) if is_plain else None
        connection.established(client)
        self._deadlines.wake(client, self._deadline_of(client), len(self.clients))
        self.exchange.holding.given(client)
        self._restore_from_plugin(client, now)
        self._announce(client, is_named=bool(connect.client_id))

    def _permits(self, view: EdgeSession, topic: str) -> bool:
        """True if a waiting message may still be sent; a plugin needing time was asked when the message was queued."""
        return view.is_internal or self._host.verdict(view, topic, Right.RECEIVE) is not False

    def end_session(self, client: Client) -> None:
        """Ends a session now, with its will."""
        for action in client.session.end_session() if client.alive else ():
            self.perform(client, action)

    def _make_room_for_session(self, view: EdgeSession, connection: MqttConnection) -> None:
        """Ends a session where `limits.sessions` is reached: one of the owner with most. Raises MqttError if the new
        one is refused.
        """
        self.reached.note_bound("sessions", connection.address)
        gone = self.shares.loses(owner_of(view))
        if gone is None:
            raise MqttError("limits.sessions is reached", ReasonCode.QUOTA_EXCEEDED)
        self.end_session(self.clients[gone])

    def _new_pace(self, peer: str | None, now: float) -> Pace | None:
        limits, is_paced = self.limits, peer is None and self.limits.publish_rate
        return Pace(limits.publish_rate, limits.publish_burst, now) if is_paced else None

    def _count_in(self, client: Client, connection: MqttConnection) -> None:
        self.door.take_accepted(connection)
        traffic = self.traffic
        traffic.connects += 1
        if client.peer is None:
            self._connected += 1
            traffic.clients_maximum = max(traffic.clients_maximum, self._connected)

    def _adopt_session(
        self, client: Client | None, key: str, connect: Connect, view: EdgeSession, connection: MqttConnection
    ) -> Client:
        if client is None:
            limits = self.terms.of_peers if key.startswith(PEER_PREFIX) else self.terms.usual
            client = Client(ServerSession(view.client_id, limits), view)
        else:
            # Plugins may hold on to the session object of a client that comes back, as in amqtt.
            kept = client.view
            kept.adopt_connect(connect, view.client_id, connection.peer, connection.tls)
            kept.attributes.update(view.attributes)
            kept.is_internal = view.is_internal
            kept.username, kept.is_anonymous = view.username, view.is_anonymous
            is_other, kept.groups, kept.lasts_s = kept.groups != view.groups, view.groups, view.lasts_s
            if is_other:
                self._host.forget_verdicts((kept,))
                self.subscribing.rejudge(client)
        lasts_s = client.view.lasts_s
        client.view.ends_at = None if lasts_s is None else self.now() + lasts_s
        client.view.transitions.connect()
        if client.session.begun:
            client.view.parent = 1
        self.shares.back(key)
        self.clients[key] = client
        self._sessions[key] = (client.view, client)
        return client

    def _restore_from_plugin(self, client: Client, now: float) -> None:
        """Delivers messages that amqtt's persistence plugin kept for the client."""
        while client.view.has_retained_messages:
            old = client.view.retained_messages.get_nowait()
            message = Message(old.topic, bytes(old.data), old.qos or 0)
            self.exchange.delivery.give(client, message, message.qos, False, (), now)

    def _announce(self, client: Client, *, is_named: bool) -> None:
        overlay = self.exchange.overlay
        if client.connection is not None:
            self._audit.log_connected(client, client.connection)
        if client.peer is not None:
            assert overlay is not None
            self.peers[client.peer] = client
            overlay.peer_connected(client.peer, client.session)
            return
        self._host.fire(BrokerEvents.CLIENT_CONNECTED, client_id=client.client_id, client_session=client.view)
        host = client.connection.peer if client.connection is not None else None
        origin = origin_of(host[0]) if host is not None else None
        owner = owner_of(client.view)
        keep_alive_s = client.view.keep_alive
        self.exchange.tell_entity_event(
            EntityConnected(client.client_id, keep_alive_s, origin or "local", owner, is_named)
        )

    def create_offline(self, client_id: str) -> Client:
        """Returns a session without a connection, as amqtt's persistence plugin makes them; the existing one, if
        any.
        """
        known = self.clients.get(client_id)
        if known is not None:
            return known
        view = EdgeSession()
        view.client_id, view.clean_session, view.owner_known = client_id, False, False
        return self.enter_offline(view)

    def enter_offline(self, view: EdgeSession) -> Client:
        """Enters a session beginning without a connection."""
        view.transitions.disconnect()
        client = Client(ServerSession(view.client_id, self.terms.usual), view)
        client.session.begun = True
        self.clients[view.client_id] = client
        self._sessions[view.client_id] = (view, client)
        return client

    def attend_to(self, client: Client) -> None:
        """Sets the timer to the session's next deadline, and counts a session whose client is away."""
        if client.connection is None and client.peer is None and client.alive:
            self.shares.away(client)
        self._deadlines.wake(client, self._deadline_of(client), len(self.clients))

    def attend_to_all(self, clients: Sequence[Client]) -> None:
        """Does as `attend_to` for many sessions whose clients are away, and of which nothing is known yet."""
        self.shares.away_all(clients)
        for client in clients:
            self._deadlines.wake(client, self._deadline_of(client), len(self.clients))

    # ---------------------------------------------------------------------------------------------- the end

    def dismiss(self, client: Client, reason: ReasonCode) -> None:
        """Ends the connection of a client, if any, with DISCONNECT where its version has one."""
        if client.connection is not None:
            self._close(client, client.session.close(reason))

    def _close(self, client: Client, action: Close) -> None:
        connection = client.connection
        if connection is None:
            return
        clean = action.reason == ReasonCode.SUCCESS and not action.farewell
        client.goodbye = (clean, action.text or action.reason.name.lower().replace("_", " "))
        if (
            action.farewell or client.session.version != Version.V5
        ):  # the broker's reason, not that of a client's DISCONNECT
            self.reached.note_reason(action.reason, client.client_id)
        connection.close(action.farewell, lingers=action.reason in CLIENTS_FAULT)
        self._gone(client, connection, replaced=action.reason == ReasonCode.SESSION_TAKEN_OVER)

    def _gone(self, client: Client, connection: ClientConnection, replaced: bool = False) -> None:
        """Takes the client's loss of this connection: will, expiry, events. Nothing if it has another already."""
        if client.connection is not connection:
            return
        client.connection = None
        self._audit.disconnected(client, connection, *client.goodbye)
        self.exchange.holding.lift(client)
        now = self.now()
        client.view.transitions.disconnect()
        for action in client.session.disconnected(now):
            self.perform(client, action)
        if self.exchange.store is not None:
            self.exchange.store.note_changed(client)
        self.attend_to(client)
        self._connected -= client.peer is None
        if client.peer is not None:
            return  # the member's session may outlive its connection, and then queues publications
        self._host.fire(BrokerEvents.CLIENT_DISCONNECTED, client_id=client.client_id, client_session=client.view)
        if not replaced:
            self.exchange.tell_entity_event(EntityGone(client.client_id, *client.goodbye, owner_of(client.view)))

    def forget_session(self, client: Client, unfinished: Sequence[Message] = ()) -> None:
        """Removes all state of an ended session, and gives `unfinished` to other members of its groups."""
        self.subscribing.forget_session(client, unfinished)
        if self.exchange.store is not None:
            self.exchange.store.forgotten(client)
        if client.peer is not None and self.peers.get(client.peer) is client:
            del self.peers[client.peer]
            if self.exchange.overlay is not None:
                self.exchange.overlay.peer_disconnected(client.peer)
        key = client.client_id if client.peer is None else f"{PEER_PREFIX}{client.peer}"
        if self.clients.get(key) is client:
            self.shares.back(key)
            del self.clients[key]
            self._sessions.pop(key, None)
            self.traffic.session_ended(client.session.counted)

    def close_all(self) -> None:
        """Closes all connections with a farewell; written bytes leave first. A lingering connection already had its
        farewell.
        """
        for connection in [one for one in self.connections if one.closed]:
            connection.abort()
        for client in list(self.clients.values()):
            self.dismiss(client, ReasonCode.SERVER_SHUTTING_DOWN)
        for connection in list(self.connections):
            connection.close()
        self._deadlines.stop()

    # -------------------------------------------------------------------------------------------- deadlines

    def _deadline_of(self, client: Client) -> float | None:
        at = client.session.next_deadline
        if at is not None and client.session.state is Connection.CONNECTED:
            at += self._grace_s
        ends_at = client.view.ends_at
        if ends_at is not None and client.connection is not None:
            return ends_at if at is None else min(at, ends_at)
        return at

    def _due(self, client: Client, now: float) -> float | None:
        at = self._deadline_of(client)
        if at is None:
            return None
        connection = client.connection
        if connection is not None and client.view.ends_at is not None and client.view.ends_at <= now:
            self._close(client, client.session.close(ReasonCode.MAXIMUM_CONNECT_TIME, "the login is over"))
            return self._deadline_of(client) if client.alive else None
        if connection is not None and (connection.is_held or connection.held_until > now - HELD_GRACE_S):
            return now + HELD_GRACE_S  # the broker did not read: silence proves nothing
        if at <= now:
            for action in client.session.due_actions(now):
                self.perform(client, action)
        self.traffic.expired += not client.alive
        return self._deadline_of(client) if client.alive else None

    def do_due_work(self, now: float) -> None:
        """Does all work that is due at `now`. Called by the timer; tests pass their own time."""
        self._deadlines.attend_due_clients(now, len(self.clients))
