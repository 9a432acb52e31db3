"""Session of a client on the broker: state that outlives connections, without I/O. Time is passed in.

    session = ServerSession("meter-7", SessionLimits())
    out = session.connected(connect, offer, now)              # CONNACK, then the repetitions of a resumed session
    for action in session.received_all(decoder.feed(read), now): ...    # see Action
    data = session.acknowledge(publish)                       # once the message is routed (and durable)
    data = session.deliver(message, qos=1, retain=False, now=now)       # bytes to write now, or None
    actions = session.disconnected(now)                       # the connection is gone, however it ended
    actions = session.tick(now)                               # when `next_deadline` is reached

Listeners, authentication, routing, retained messages and shared subscriptions are the broker's business.
`TRANSITIONS` gives the effect of each packet in each state of the connection. Source: MQTT 5.0 §3.1, §4.1, §4.3-§4.9;
MQTT 3.1.1 in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from gateway.mqtt5.actions import (
    Action,
    Close,
    Granted,
    KeptSession,
    PublishWill,
    ServerOffer,
    SessionEnded,
    SessionFigures,
    SessionLimits,
    SessionSubscription,
)
from gateway.mqtt5.aliases import NO_INBOUND, NO_OUTBOUND, InboundAliases, OutboundAliases
from gateway.mqtt5.delivery import Connection, Queued
from gateway.mqtt5.encoding import encode
from gateway.mqtt5.endings import acceptance, answer_bytes, check_connect, farewell, granted_times, refusal
from gateway.mqtt5.exchange import SessionExchange
from gateway.mqtt5.flows import NONE, InboundFlows
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
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt5.types import (
    MAXIMUM_PACKET_ID,
    MAXIMUM_REMAINING_LENGTH,
    NEVER_EXPIRES_S,
    MqttError,
    PacketTooLarge,
    ProtocolViolation,
    QosNotSupported,
    ReasonCode,
    RetainNotSupported,
)

NO_OFFER = ServerOffer()
"""The offer of a session that has not been connected yet."""


class ServerSession(SessionExchange):
    """Session of a client on the broker; `delivery.Delivery` has `deliver`, `pause`, `resume` and the policy of the
    queue.

    An instance per client id; the broker calls from a thread.
    """

    __slots__ = (
        "_ends_at",
        "_filter_bytes",
        "_keep_alive_s",
        "_last_received",
        "_offer",
        "_will_at",
        "asked",
        "begun",
        "client_id",
        "session_expiry_s",
        "subscriptions",
        "will",
    )

    def __init__(self, client_id: str, limits: SessionLimits | None = None) -> None:
        super().__init__(limits or SessionLimits())
        self.client_id = client_id
        self.asked = NO_PROPERTIES  # properties of CONNECT
        self.will: Will | None = None
        self.session_expiry_s = 0
        self.begun = False  # True if there is state to resume
        self._offer = NO_OFFER
        self._keep_alive_s = 0
        self._last_received = 0.0
        self._will_at: float | None = None
        self._ends_at: float | None = None
        self.subscriptions: dict[str, SessionSubscription] = NONE
        self._filter_bytes = 0  # running sum: adding up thousands of filters at each SUBSCRIBE would cost seconds

    def _unfinished(self) -> tuple[Message, ...]:
        sent = [queued.message for queued, qos in self.outbound.unacknowledged.values() if qos == 1]
        return (*sent, *(queued.message for queued in self.waiting if queued.qos))

    def _clear(self) -> None:
        if self.journal is not None:
            self.journal.cleared()
        self.restore_subscriptions(NONE)
        self.inbound = InboundFlows()
        self._clear_delivery()

    def _reached(self, bound: str) -> None:
        self.limits.reached(bound, self.client_id)

    # Used by a journal only.

    def _take_dropped(self, queued: Queued, reason: ReasonCode) -> None:
        if self.journal is not None:
            self.journal.dropped(queued)

    def _half_finished(self, packet_id: int, queued: Queued) -> None:
        if self.journal is not None:
            self.journal.pubrec_received(packet_id, queued)

    def _finished(self, packet: PubAck | PubRec | PubComp, queued: Queued | None, actions: list[Any]) -> None:
        if self.journal is not None:
            self.journal.finished(packet.packet_id, queued)

    @property
    def kept_state(self) -> KeptSession:
        """The state that must survive a restart beside flows and subscriptions."""
        return KeptSession(self.version, self.session_expiry_s, self.will, self._will_at, self._ends_at)

    def restore_state(
        self, kept: KeptSession, awaiting_pubrel: Mapping[int, str], half_done: Mapping[int, str] = NONE
    ) -> None:
        """Continues a session of an earlier process; `awaiting_pubrel`, `half_done`: see `InboundFlows.restore_flows`.
        If the session was connected when that process ended, call `begin_absence`.
        """
        self.begun, self.version, self.will = True, kept.version, kept.will
        self.session_expiry_s = kept.session_expiry_s
        self._will_at, self._ends_at = kept.will_at, kept.ends_at
        if awaiting_pubrel or half_done:
            self.inbound.restore_flows(awaiting_pubrel, half_done)

    def restore_subscriptions(self, subscriptions: dict[str, SessionSubscription]) -> None:
        """Replaces all subscriptions by the stored ones; the session keeps and changes the dict `subscriptions`."""
        self.subscriptions = subscriptions
        self._filter_bytes = sum(len(topic_filter.encode()) for topic_filter in subscriptions)

    def begin_absence(self, now: float) -> None:
        """Takes the end of the connection: will delay and session expiry run from `now`."""
        if self.session_expiry_s != NEVER_EXPIRES_S:
            self._ends_at = now + self.session_expiry_s
        if self.will is not None:
            self._will_at = now + min(self.will.properties.will_delay_s or 0, self.session_expiry_s)

    def __repr__(self) -> str:
        return f"ServerSession({self.client_id!r}, {self.state.name}, {len(self.waiting)} waiting)"

    # ------------------------------------------------------------------------------- connection begins, ends

    def take_connect(
        self, connect: Connect, offer: ServerOffer, now: float, properties: Properties = NO_PROPERTIES
    ) -> list[bytes]:
        """Takes an authenticated CONNECT: returns CONNACK, then PUBRELs and PUBLISHes a resumed session repeats.

        `properties` are the broker's own in CONNACK (assigned client id, authentication data, ...). A connected
        session must have been `disconnected` first. The broker has called `due_actions`, and with clean start
        `end_session`, so that a due will is not lost. Raises the errors of `check_connect`.
        """
        assert self.state is Connection.OFFLINE, "the former connection of the session has not ended"
        check_connect(connect, offer, properties)
        will, v5 = connect.will, connect.version == Version.V5
        expired = self._ends_at is not None and now >= self._ends_at
        session_present = self.begun and not connect.clean_start and not expired
        if not session_present:
            self._clear()
        self.begun = True
        self.state, self.paused = Connection.CONNECTED, False
        self.asked = asked = (
            connect.properties
        )  # not the whole CONNECT: the password must not stay in memory for the session's life
        self.version, self.will, self._offer = connect.version, will, offer
        self._will_at = self._ends_at = None
        self._last_received = now
        self.session_expiry_s, self._keep_alive_s = granted_times(connect, offer)
        self._maximum_packet_size = asked.maximum_packet_size or MAXIMUM_REMAINING_LENGTH + 5
        self._aliases_in = InboundAliases(offer.topic_alias_maximum) if v5 else NO_INBOUND
        own = min(asked.topic_alias_maximum or 0, self.limits.topic_aliases)
        self._aliases_out = OutboundAliases(own) if own else NO_OUTBOUND
        self.inbound.reconnected(offer.receive_maximum, enforced=v5)
        self.outbound.reconnected(asked.receive_maximum or MAXIMUM_PACKET_ID)
        out = [acceptance(connect, offer, session_present, properties)]
        self._resume(now, out.append)
        return out

    def disconnected(self, now: float) -> list[Action]:
        """Takes the end of the connection: returns PublishWill and SessionEnded as far as they are due at once.

        After a DISCONNECT of the client that discards the will there is none left to publish.
        """
        if self.state is Connection.OFFLINE:
            return []
        self.state, self.paused = Connection.OFFLINE, False
        self.begin_absence(now)
        return self.due_actions(now)

    def end_session(self) -> list[Action]:
        """Ends an offline session now (clean start of a successor, an administrator): its will is due, if any."""
        assert self.state is Connection.OFFLINE, "disconnect the session first"
        actions: list[Action] = []
        if self.will is not None and self.begun:
            actions.append(PublishWill(self.will))
        if self.begun:
            actions.append(SessionEnded(self._unfinished()))
        self.will, self._will_at, self._ends_at, self.begun = None, None, None, False
        self._clear()
        return actions

    @property
    def next_deadline(self) -> float | None:
        """The time of the next `due_actions`: keep-alive while connected, then will delay and session expiry."""
        if self.state is Connection.CONNECTED:
            # One and a half times the keep-alive (MQTT-3.1.2-22).
            return self._last_received + 1.5 * self._keep_alive_s if self._keep_alive_s else None
        due = [at for at in (self._will_at, self._ends_at) if at is not None]
        return min(due) if due else None

    def due_actions(self, now: float) -> list[Action]:
        """Returns the actions due at `now`: Close (keep-alive), PublishWill, SessionEnded."""
        deadline = self.next_deadline
        if deadline is None or now < deadline:
            return []
        if self.state is Connection.CONNECTED:
            return [self.close(ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing heard for 1.5 times the keep-alive")]
        if self._ends_at is not None and now >= self._ends_at:
            return self.end_session()
        assert self.will is not None
        actions: list[Action] = [PublishWill(self.will)]
        self.will = self._will_at = None
        return actions

    def close(self, reason: ReasonCode, text: str = "") -> Close:
        """Ends the connection on the broker's or the session's own wish: nothing more is read or sent."""
        self.state = Connection.CLOSING
        last = farewell(self.version, reason)
        return Close(reason, last if len(last) <= self._maximum_packet_size else b"", text)

    # ------------------------------------------------------------------------------------ packets that came in

    def note_sign_of_life(self, now: float) -> bool:
        """Notes a sign of life that asks for nothing; False if the session is not connected."""
        if self.state is not Connection.CONNECTED:
            return False
        self._last_received = now
        return True

    def take_pubacks(self, packet_ids: Sequence[int], now: float) -> int:
        """Takes leading PUBACKs of success on which nothing waits, and returns how many; `take_packets` must take the
        next one.
        """
        if self.waiting or self.state is not Connection.CONNECTED:
            return 0
        done = self.outbound.take_pubacks(packet_ids)
        self._last_received = now
        self._in_flight_bytes -= sum([queued.size for queued in done])
        if self.journal is not None:
            for packet_id, queued in zip(packet_ids, done, strict=False):
                self.journal.finished(packet_id, queued)
        return len(done)

    def begins_plainly(self, now: float) -> bool:
        """Notes a PUBLISH of QoS 1 that the broker routes and acknowledges before any other packet. False, with no
        effect: `take_packet` must take it.
        """
        inbound = self.inbound
        if self.state is not Connection.CONNECTED or not self._offer.maximum_qos:
            return False
        if inbound.accepting or inbound.awaiting_pubrel:
            return False
        self._last_received = now
        return True

    def take_packet(self, packet: Packet, now: float) -> list[Action]:
        """Takes a single packet of the client; see `take_packets`."""
        return self.take_packets((packet,), now)

    def take_packets(self, packets: Sequence[Packet], now: float) -> list[Action]:
        """Takes the packets of a read, in order, and returns actions to write, route and answer. No action follows a
        Close.
        """
        self._last_received = now
        actions: list[Action] = []
        outbound, has_acknowledged = self.outbound, False
        if len(packets) > 1 and self.state is Connection.CONNECTED and self._offer.maximum_qos:
            count = self.inbound.routed_run(packets)
            actions += packets[:count]  # type: ignore[arg-type]
            packets = packets[count:]
        try:
            for packet in packets:
                if self.state is not Connection.CONNECTED:
                    TRANSITIONS[self.state, type(packet)](self, packet, now, actions)
                    continue
                # The most frequent packets; the general path would do no more, at the cost of more calls.
                if type(packet) is PubAck and (queued := outbound.take_puback(packet.packet_id)) is not None:
                    self._in_flight_bytes -= queued.size
                    self._finished(packet, queued, actions)
                    has_acknowledged = True
                    continue
                if type(packet) is Publish and not packet.retain and packet.properties is NO_PROPERTIES:
                    qos = packet.qos
                    if not qos or (qos <= self._offer.maximum_qos and self.inbound.routed(packet)):
                        actions.append(packet)
                        continue
                if has_acknowledged and self.waiting:  # messages that waited go before the answer to this packet
                    has_acknowledged = False
                    self._pump(now, actions.append)
                _WHILE_CONNECTED[type(packet)](self, packet, now, actions)
        except MqttError as error:
            actions.append(self.close(error.reason, str(error)))
        if has_acknowledged and self.waiting:  # once for the acknowledgements of a read
            self._pump(now, actions.append)
        return actions

    def _on_publish(self, packet: Publish, now: float, actions: list[Action]) -> None:
        if packet.retain and not self._offer.retain_available:
            raise RetainNotSupported("retained message")
        if packet.qos > self._offer.maximum_qos:
            raise QosNotSupported(f"message of QoS {packet.qos}")
        self._take_publish(packet, actions)
        if packet.dup and packet.retain and packet.qos == 1 and self.inbound.is_overtaken(packet.topic):
            packet.retain = False  # live subscribers only: the topic already retains a later message

    def _on_ping(self, packet: PingReq, now: float, actions: list[Action]) -> None:
        actions.append(b"\xd0\0")

    def _on_request(self, packet: Subscribe | Unsubscribe, now: float, actions: list[Action]) -> None:
        # The answer has a code for each filter and nothing that could be left out (MQTT-3.1.2-24).
        filters = packet.subscriptions if isinstance(packet, Subscribe) else packet.filters
        if answer_bytes(len(filters), self.version) > self._maximum_packet_size:
            raise PacketTooLarge(f"the answer to {len(filters)} filters exceeds the client's maximum packet size")
        actions.append(packet)

    def _on_auth(self, packet: Auth, now: float, actions: list[Action]) -> None:
        method = self.asked.authentication_method
        if method is None or packet.properties.authentication_method != method:
            raise ProtocolViolation("AUTH with another authentication method than CONNECT")
        actions.append(packet)

    def _on_disconnect(self, packet: Disconnect, now: float, actions: list[Action]) -> None:
        expiry_s = packet.properties.session_expiry_s
        if expiry_s is not None:
            if expiry_s and not self.asked.session_expiry_s:
                raise ProtocolViolation("session expiry in DISCONNECT after none in CONNECT")
            self.session_expiry_s = min(expiry_s, self._offer.session_expiry_max_s)
        if packet.code == ReasonCode.SUCCESS:
            self.will = None  # MQTT-3.14.4-3; every other code publishes it
        self.state = Connection.CLOSING
        actions.append(Close(ReasonCode(packet.code), text="client disconnected"))

    def _out_of_place(self, packet: Packet, now: float, actions: list[Action]) -> None:
        raise ProtocolViolation(f"{type(packet).__name__} does not come from a client that is connected")

    def _ignored(self, packet: Packet, now: float, actions: list[Action]) -> None:
        pass

    # ------------------------------------------------------------------------------------------ subscriptions

    def enter_granted(self, packet: Subscribe, codes: Iterable[int]) -> Granted:
        """Enters the broker's answers: for each filter the granted QoS, or a reason of failure.

        A filter beyond the session's limits is refused with 0x97 here. A repeated filter replaces the older
        subscription (MQTT-3.8.4-3). Retained messages follow retain handling, never for shared subscriptions.
        """
        identifier = (packet.properties.subscription_ids or (0,))[0]
        answered: list[int] = []
        granted: list[SessionSubscription] = []
        retained: list[SessionSubscription] = []
        for asked, code in zip(packet.subscriptions, codes, strict=True):
            existed = asked.filter in self.subscriptions
            if code < 0x80 and not existed:
                filter_bytes = len(asked.filter.encode())
                if self._is_full(self._filter_bytes + filter_bytes):
                    answered.append(ReasonCode.QUOTA_EXCEEDED)
                    continue
                self._filter_bytes += filter_bytes
            answered.append(code)
            if code >= 0x80:
                continue
            options = asked if asked.qos == code else replace(asked, qos=code)
            subscription = SessionSubscription(options, identifier)
            if self.subscriptions is NONE:
                self.subscriptions = {}
            self.subscriptions[asked.filter] = subscription
            granted.append(subscription)
            if asked.retain_handling == 2 or (asked.retain_handling == 1 and existed):
                continue
            if not asked.filter.startswith("$share/"):
                retained.append(subscription)
        return Granted(tuple(answered), tuple(granted), tuple(retained))

    def suback(self, packet_id: int, codes: Iterable[int]) -> bytes:
        """Returns the SUBACK with the codes of `enter_granted`."""
        return encode(SubAck(packet_id, tuple(codes)), self.version)

    def _is_full(self, held_bytes: int) -> bool:
        """True if another subscription, with which all filters take `held_bytes`, exceeds the limits; counts the bound
        as reached.
        """
        if len(self.subscriptions) >= self.limits.subscriptions:
            self._reached("subscriptions")
            return True
        if held_bytes > self.limits.subscription_bytes:
            self._reached("subscription_bytes")
            return True
        return False

    def remove_subscriptions(self, filters: Iterable[str]) -> list[int]:
        """Removes subscriptions: returns the code of UNSUBACK for each filter."""
        codes: list[int] = []
        for topic_filter in filters:
            gone = self.subscriptions.pop(topic_filter, None)
            if gone is not None:
                self._filter_bytes -= len(topic_filter.encode())
            codes.append(ReasonCode.NO_SUBSCRIPTION_EXISTED if gone is None else ReasonCode.SUCCESS)
        return codes

    def unsuback(self, packet_id: int, codes: Iterable[int]) -> bytes:
        """Returns the UNSUBACK with the codes of `remove_subscriptions`."""
        return encode(UnsubAck(packet_id, tuple(codes)), self.version)


__all__ = [
    "TRANSITIONS",
    "Action",
    "Close",
    "Connection",
    "Granted",
    "KeptSession",
    "PublishWill",
    "ServerOffer",
    "ServerSession",
    "SessionEnded",
    "SessionFigures",
    "SessionLimits",
    "SessionSubscription",
    "check_connect",
    "farewell",
    "refusal",
]

Handler: TypeAlias = Callable[[ServerSession, Any, float, list[Action]], None]

_SESSION = ServerSession
_WHILE_CONNECTED: dict[type, Handler] = {
    Connect: _SESSION._out_of_place,
    ConnAck: _SESSION._out_of_place,
    Publish: _SESSION._on_publish,
    PubAck: _SESSION._on_puback,
    PubRec: _SESSION._on_pubrec,
    PubRel: _SESSION._on_pubrel,
    PubComp: _SESSION._on_pubcomp,
    Subscribe: _SESSION._on_request,
    SubAck: _SESSION._out_of_place,
    Unsubscribe: _SESSION._on_request,
    UnsubAck: _SESSION._out_of_place,
    PingReq: _SESSION._on_ping,
    PingResp: _SESSION._out_of_place,
    Disconnect: _SESSION._on_disconnect,
    Auth: _SESSION._on_auth,
}
TRANSITIONS: dict[tuple[Connection, type], Handler] = {
    **{(state, kind): _SESSION._ignored for state in Connection for kind in _WHILE_CONNECTED},
    **{(Connection.CONNECTED, kind): handler for kind, handler in _WHILE_CONNECTED.items()},
}
