"""The client's side of a session: QoS 1 and 2 both ways, reconnects, keep-alive. No I/O, time is passed in.

    session = ClientSession(connect)
    data = session.open(now)                                  # CONNECT, for each new connection
    for action in session.received_all(decoder.feed(read), now): ...    # see ClientAction
    data = session.publish(publish, token, now)               # bytes to write now, or None: it waits
    data = session.acknowledge(publish)                       # once a received message is processed
    actions = session.disconnected(now)
    actions = session.tick(now)                               # when `next_deadline` is reached

Reconnecting, DNS, TLS and subscribing anew after a lost session belong to the caller.
Source: MQTT 5.0 §3.1, §4.1, §4.3, §4.4, §4.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from gateway.mqtt5.actions import Close, SessionLimits
from gateway.mqtt5.aliases import InboundAliases, OutboundAliases
from gateway.mqtt5.delivery import Connection, Queued
from gateway.mqtt5.encoding import encode
from gateway.mqtt5.exchange import SessionExchange
from gateway.mqtt5.flows import MAXIMUM_REQUESTS, InboundFlows
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import (
    NO_PROPERTIES,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
)
from gateway.mqtt5.parsing import DISCONNECT_FROM_CLIENT
from gateway.mqtt5.types import (
    MAXIMUM_PACKET_ID,
    MAXIMUM_REMAINING_LENGTH,
    MqttError,
    PacketTooLarge,
    ProtocolViolation,
    QosNotSupported,
    ReasonCode,
    Refused,
    RetainNotSupported,
    check_topic_name,
    reason_of_connack_v3,
)


@dataclass(frozen=True, slots=True)
class Connected:
    """CONNACK of success. Without `connack.session_present` the server knows none of the client's subscriptions.

    `doubtful`: even with `session_present` the server may know none. An earlier CONNECT went unanswered, and that
    CONNECT may have begun the session.
    """

    connack: ConnAck
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Completed:
    """End of the flow of `publish(..., token)`. `code` >= 0x80: the server refused the message, or it was dropped
    here.
    """

    token: object
    code: int
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Answered:
    """SUBACK or UNSUBACK to `subscribe(..., token)`. On 3.1.1 an UNSUBACK has no codes."""

    token: object
    packet: SubAck | UnsubAck


@dataclass(frozen=True, slots=True)
class Unanswered:
    """End of the connection before SUBACK or UNSUBACK: ask again."""

    token: object


# bytes: write them. Publish: a message for the application, then `acknowledge` (free at QoS 0).
# Close: write the farewell, close, call `disconnected`; `reason` says who is at fault.
ClientAction: TypeAlias = bytes | Publish | Connected | Completed | Answered | Unanswered | Auth | Close


@dataclass(frozen=True, slots=True)
class _Request:
    packet: Subscribe | Unsubscribe
    token: object


class ClientSession(SessionExchange):
    """Client's side of a session (see the module). Keeps its `Connect`, with the password, for reconnects.

    Unlike a broker a client loses nothing in silence: a full queue refuses `publish`. After a reconnect without the
    session unacknowledged messages are sent as new (at least once). A QoS 2 message whose PUBREC had not come may then
    arrive twice, which MQTT cannot prevent; a message whose PUBREC had come is complete. In MQTT 5 `clean_start` is
    asked on the first connection only; later connections resume the session. `adopt`: accept a session an earlier
    process left at the server (MQTT-3.2.2-4 asks to close): its subscriptions and queue are wanted. Only safe if that
    process did not publish at QoS 2.
    """

    CONNACK_TIMEOUT_S = 20.0
    PING_TIMEOUT_S = 10.0

    def __init__(self, connect: Connect, limits: SessionLimits | None = None, adopt: bool = False) -> None:
        super().__init__(limits or SessionLimits())
        self.connect = connect
        self.version = connect.version
        self.client_id = connect.client_id
        self.adopt = adopt
        self._begun = False  # True once a CONNACK came
        self._asked = False  # a session was asked for: one may exist whose CONNACK was lost
        self._resumable = adopt
        self._unanswered = False  # a connection has ended without CONNACK since the last CONNACK
        self._maximum_qos = 2
        self._retain_available = True
        self._keep_alive_s = connect.keep_alive_s
        self._last_sent = self._last_received = 0.0
        self._ping_sent_at: float | None = None
        self._half_finished_tokens: dict[int, object] = {}  # by packet id, as `outbound.released`
        self._losses: list[Completed] = []
        self._requests: dict[int, _Request] = {}
        self.outbound.requests = self._requests  # their identifiers are not free for messages

    def __repr__(self) -> str:
        return f"ClientSession({self.client_id!r}, {self.state.name}, {len(self.waiting)} waiting)"

    # ------------------------------------------------------------------------------- connection begins, ends

    def open(self, now: float) -> bytes:
        """Returns the CONNECT of a new connection; state of the old connection is given up at CONNACK, if at all."""
        assert self.state is Connection.OFFLINE, "the former connection of the session has not ended"
        self.state, self.paused = Connection.OPENING, False
        self._last_sent = self._last_received = now
        self._ping_sent_at = None
        clean_start = self._clean_start
        self._resumable = self._begun or self._asked or self.adopt
        self._asked = self._asked or not clean_start
        return encode(replace(self.connect, client_id=self.client_id, clean_start=clean_start), self.version)

    @property
    def _clean_start(self) -> bool:
        # In 3.x the flag also says that the session ends with the connection, so it cannot change.
        return self.connect.clean_start and not (self._begun and self.version == Version.V5)

    def disconnected(self, now: float) -> list[ClientAction]:
        """Takes the end of the connection: returns Unanswered for every SUBSCRIBE and UNSUBSCRIBE in progress."""
        self._unanswered = self._unanswered or self.state is Connection.OPENING
        self.state, self.paused = Connection.OFFLINE, False
        actions: list[ClientAction] = [Unanswered(one.token) for one in self._requests.values()]
        self._requests.clear()
        return actions

    def disconnect(self, reason: ReasonCode = ReasonCode.SUCCESS, properties: Properties = NO_PROPERTIES) -> bytes:
        """Returns the DISCONNECT after which the caller closes the connection."""
        self.state = Connection.CLOSING
        return encode(Disconnect(reason, properties), self.version)

    @property
    def next_deadline(self) -> float | None:
        """The time of the next `due_actions`: CONNACK is late, a PINGREQ is due, or its answer is late."""
        if self.state is Connection.OPENING:
            return self._last_sent + self.CONNACK_TIMEOUT_S
        if self.state is not Connection.CONNECTED:
            return None
        if self._ping_sent_at is not None:
            # The peer's death is noticed as soon as the peer would notice this side's (§3.1.2.10).
            return self._ping_sent_at + min(self.PING_TIMEOUT_S, self._keep_alive_s / 2 or self.PING_TIMEOUT_S)
        if not self._keep_alive_s:
            return None
        # Also when only receiving stopped: a client that sends QoS 0 all day would never find out.
        return min(self._last_sent, self._last_received) + self._keep_alive_s

    def due_actions(self, now: float) -> list[ClientAction]:
        deadline = self.next_deadline
        if deadline is None or now < deadline:
            return []
        if self.state is Connection.OPENING or self._ping_sent_at is not None:
            return [self._close(ReasonCode.KEEP_ALIVE_TIMEOUT, "the server does not answer")]
        self._ping_sent_at = self._last_sent = now
        return [encode(PingReq(), self.version)]

    def _close(self, reason: ReasonCode, text: str) -> Close:
        opening = self.state is Connection.OPENING
        self.state = Connection.CLOSING
        if self.version != Version.V5 or opening or reason not in _CLOSING_REASONS:
            return Close(reason, b"", text)
        return Close(reason, encode(Disconnect(reason), self.version), text)

    # ---------------------------------------------------------------------------------------------- requests

    def publish(self, publish: Publish, token: object, now: float, urgent: bool = False) -> bytes | None:
        """Sends or queues a message: returns bytes to write now, or None while it waits. Ends in Completed(token).

        QoS 0 has no Completed and does not wait. Raises Refused (0x88 QoS 0 without connection, 0x97 queue full),
        PacketTooLarge, QosNotSupported, RetainNotSupported, MalformedPacket (topic). The packet's own `dup`,
        `packet_id` and topic alias are ignored: the session sets all three. `urgent`: overtakes waiting messages, as
        far as the reserved part of the window goes.
        """
        check_topic_name(publish.topic)
        if self.state is Connection.CONNECTED:
            if publish.qos > self._maximum_qos:
                raise QosNotSupported(f"the server takes QoS {self._maximum_qos} at most")
            if publish.retain and not self._retain_available:
                raise RetainNotSupported("the server does not retain messages")
        if not publish.qos and (self.state is not Connection.CONNECTED or self.paused):
            raise Refused("no connection for a message of QoS 0", ReasonCode.SERVER_UNAVAILABLE)
        message = Message.from_publish(publish, now)
        if urgent and self.state is Connection.CONNECTED and not self.paused and self.outbound.may_start_urgent:
            data = self._start_flow(Queued(message, publish.qos, publish.retain, message.held_bytes, (), token), now)
        else:
            data = self.deliver(message, publish.qos, publish.retain, now, (), token)
        if self._losses:
            loss = self._losses.pop()
            if loss.code == ReasonCode.PACKET_TOO_LARGE:
                raise PacketTooLarge("the message exceeds the server's maximum packet size")
            raise Refused("the message has expired", ReasonCode.UNSPECIFIED_ERROR)
        if data is not None:
            self._last_sent = now
        return data

    def subscribe(
        self,
        subscriptions: tuple[Subscription, ...],
        token: object,
        now: float,
        properties: Properties = NO_PROPERTIES,
    ) -> bytes:
        """Returns a SUBSCRIBE, which ends in Answered(token) or Unanswered(token). Raises Refused,
        UnsendablePacket.
        """
        packet_id = self._request_id()
        return self._request(Subscribe(packet_id, subscriptions, properties), token, now)

    def unsubscribe(
        self, filters: tuple[str, ...], token: object, now: float, properties: Properties = NO_PROPERTIES
    ) -> bytes:
        """Returns an UNSUBSCRIBE, which ends in Answered(token) or Unanswered(token). Raises Refused,
        UnsendablePacket.
        """
        packet_id = self._request_id()
        return self._request(Unsubscribe(packet_id, filters, properties), token, now)

    def _request_id(self) -> int:
        if self.state is not Connection.CONNECTED:
            raise Refused("no connection", ReasonCode.SERVER_UNAVAILABLE)
        if len(self._requests) >= MAXIMUM_REQUESTS:
            raise Refused("too many requests without an answer", ReasonCode.QUOTA_EXCEEDED)
        return self.outbound.free_id()

    def _request(self, packet: Subscribe | Unsubscribe, token: object, now: float) -> bytes:
        data = encode(packet, self.version)
        self._requests[packet.packet_id] = _Request(packet, token)
        self._last_sent = now
        return data

    # ------------------------------------------------------------------------------------ packets that came in

    def take_packets(self, packets: Iterable[Packet], now: float) -> list[ClientAction]:
        """Takes the packets of a read, in order, and returns their actions. No action follows a Close."""
        self._last_received = now
        self._ping_sent_at = None  # any packet shows that the server is there
        actions: list[ClientAction] = []
        try:
            for packet in packets:
                if (
                    type(packet) is Publish
                    and packet.qos == 1
                    and self.state is Connection.CONNECTED
                    and packet.properties.topic_alias is None
                    and self.inbound.routed(packet)
                ):
                    actions.append(packet)  # as the table would; most packets of a reader are of this kind
                    continue
                CLIENT_TRANSITIONS[self.state, type(packet)](self, packet, now, actions)
        except MqttError as error:
            actions.append(self._close(error.reason, str(error)))
        if self._losses:
            actions.extend(self._losses)
            self._losses.clear()
        for action in actions:
            if type(action) is bytes:
                self._last_sent = now
        return actions

    def _on_connack(self, packet: ConnAck, now: float, actions: list[ClientAction]) -> None:
        if packet.code:
            v5 = self.version == Version.V5
            reason = ReasonCode(packet.code) if v5 else reason_of_connack_v3(packet.code)
            raise Refused(packet.properties.reason or f"the server refuses: {reason.name}", reason)
        if packet.session_present:
            if self._clean_start or not self._resumable:
                raise ProtocolViolation("the server resumes a session that we do not have")
        else:
            self._start_anew(actions)
        self._begun, self.state = True, Connection.CONNECTED
        self._adopt_offer(packet.properties)
        actions.append(Connected(packet, packet.session_present and self._unanswered))
        self._unanswered = False
        self._resume(now, actions.append)

    def _adopt_offer(self, offer: Properties) -> None:
        """Takes the server's limits for this connection (§3.2.2.3)."""
        own = self.connect.properties
        v5 = self.version == Version.V5
        self.client_id = offer.assigned_client_id or self.client_id
        self._maximum_packet_size = offer.maximum_packet_size or MAXIMUM_REMAINING_LENGTH + 5
        self._maximum_qos = 2 if offer.maximum_qos is None else offer.maximum_qos
        self._retain_available = offer.retain_available != 0
        self._keep_alive_s = self.connect.keep_alive_s
        if offer.server_keep_alive_s is not None:
            self._keep_alive_s = offer.server_keep_alive_s
        self._aliases_in = InboundAliases(own.topic_alias_maximum or 0)
        self._aliases_out = OutboundAliases(min(offer.topic_alias_maximum or 0, self.limits.topic_aliases))
        self.inbound.reconnected(own.receive_maximum or MAXIMUM_PACKET_ID, enforced=v5)
        self.outbound.reconnected(offer.receive_maximum or MAXIMUM_PACKET_ID)
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        """Refuses messages that were queued while offline and exceed the QoS or retain support of this server."""
        if self._maximum_qos == 2 and self._retain_available:
            return
        for queued in list(self.waiting):
            code = None
            if queued.qos > self._maximum_qos:
                code = ReasonCode.QOS_NOT_SUPPORTED
            elif queued.retain and not self._retain_available:
                code = ReasonCode.RETAIN_NOT_SUPPORTED
            if code is not None and self.withdraw(queued):
                self._take_dropped(queued, code)

    def _start_anew(self, actions: list[ClientAction]) -> None:
        """Queues unacknowledged messages again, in front, since the server has no session; see the class for QoS 2."""
        self.inbound = InboundFlows()
        actions.extend(Completed(token, ReasonCode.SUCCESS) for token in self._half_finished_tokens.values())
        self._half_finished_tokens.clear()
        for queued, _ in reversed(self.outbound.unacknowledged.values()):
            self._queue(queued, in_front=True)
            self._in_flight_bytes -= queued.size
        self.outbound.unacknowledged.clear()
        self.outbound.released.clear()

    def _on_publish(self, packet: Publish, now: float, actions: list[ClientAction]) -> None:
        self._take_publish(packet, actions)

    def _half_finished(self, packet_id: int, queued: Queued) -> None:
        self._half_finished_tokens[packet_id] = queued.token

    def _finished(self, packet: PubAck | PubRec | PubComp, queued: Queued | None, actions: list[Any]) -> None:
        if queued is not None:
            actions.append(Completed(queued.token, packet.code, packet.properties))
        else:
            # Success with any code of the PUBCOMP: with its PUBREC the server had taken the message.
            token = self._half_finished_tokens.pop(packet.packet_id, None)
            actions.append(Completed(token, ReasonCode.SUCCESS, packet.properties))

    def _take_dropped(self, queued: Queued, reason: ReasonCode) -> None:
        self._losses.append(Completed(queued.token, reason))

    def _enqueue(self, queued: Queued) -> None:
        """Queues a message. Unlike a broker's queue, refuses a message that does not fit: raises Refused."""
        limits = self.limits
        if len(self.waiting) >= limits.queue_messages or self.held_bytes + queued.size > limits.queue_bytes:
            self.figures.dropped_queue_full += 1
            raise Refused("too many messages wait to be sent", ReasonCode.QUOTA_EXCEEDED)
        self._queue(queued)

    def _on_answer(self, packet: SubAck | UnsubAck, now: float, actions: list[ClientAction]) -> None:
        request = self._requests.pop(packet.packet_id, None)
        if request is None:
            raise ProtocolViolation(f"{type(packet).__name__} for packet identifier {packet.packet_id}")
        asked: int | None = None
        if isinstance(request.packet, Subscribe) and isinstance(packet, SubAck):
            asked = len(request.packet.subscriptions)
        elif isinstance(request.packet, Unsubscribe) and isinstance(packet, UnsubAck):
            asked = len(request.packet.filters) if self.version == Version.V5 else 0
        if asked != len(packet.codes):
            raise ProtocolViolation(f"{type(packet).__name__} does not fit the request")
        actions.append(Answered(request.token, packet))

    def _on_pong(self, packet: PingResp, now: float, actions: list[ClientAction]) -> None:
        pass  # `take_packets` has noted the time of the packet

    def _on_disconnect(self, packet: Disconnect, now: float, actions: list[ClientAction]) -> None:
        self.state = Connection.CLOSING
        actions.append(Close(ReasonCode(packet.code), b"", packet.properties.reason or "server disconnects"))

    def _on_auth(self, packet: Auth, now: float, actions: list[ClientAction]) -> None:
        if self.connect.properties.authentication_method is None:
            raise ProtocolViolation("AUTH without an authentication method in CONNECT")
        actions.append(packet)

    def _out_of_place(self, packet: Packet, now: float, actions: list[ClientAction]) -> None:
        raise ProtocolViolation(f"{type(packet).__name__} is not allowed from a server now")

    def _ignored(self, packet: Packet, now: float, actions: list[ClientAction]) -> None:
        pass


# Codes with which a client may disconnect (§3.14.2.1) if the server is at fault.
_CLOSING_REASONS = DISCONNECT_FROM_CLIENT - {ReasonCode.SUCCESS, ReasonCode.DISCONNECT_WITH_WILL}

Handler: TypeAlias = Callable[[ClientSession, Any, float, list[ClientAction]], None]

_SESSION = ClientSession
_WHILE_CONNECTED: dict[type, Handler] = {
    Connect: _SESSION._out_of_place,
    ConnAck: _SESSION._out_of_place,
    Publish: _SESSION._on_publish,
    PubAck: _SESSION._on_puback,
    PubRec: _SESSION._on_pubrec,
    PubRel: _SESSION._on_pubrel,
    PubComp: _SESSION._on_pubcomp,
    Subscribe: _SESSION._out_of_place,
    SubAck: _SESSION._on_answer,
    Unsubscribe: _SESSION._out_of_place,
    UnsubAck: _SESSION._on_answer,
    PingReq: _SESSION._out_of_place,
    PingResp: _SESSION._on_pong,
    Disconnect: _SESSION._on_disconnect,
    Auth: _SESSION._on_auth,
}
CLIENT_TRANSITIONS: dict[tuple[Connection, type], Handler] = {
    **{(state, kind): _SESSION._ignored for state in Connection for kind in _WHILE_CONNECTED},
    **{(Connection.OPENING, kind): _SESSION._out_of_place for kind in _WHILE_CONNECTED},
    (Connection.OPENING, ConnAck): _SESSION._on_connack,
    (Connection.OPENING, Auth): _SESSION._on_auth,
    **{(Connection.CONNECTED, kind): handler for kind, handler in _WHILE_CONNECTED.items()},
}
