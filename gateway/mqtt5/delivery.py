"""Outbound half of a client's session on the broker: bounded queue, flows in flight, aliases, size limit.

Takes messages with the QoS and retain flag to send them with, returns bytes. `session.ServerSession` is this class
with the inbound half, which handles the client's packets. Source: MQTT 5.0 §3.3.2.3, §4.1, §4.3, §4.4, §4.6, §4.9.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from gateway.mqtt5.actions import SessionFigures, SessionLimits
from gateway.mqtt5.aliases import NO_OUTBOUND
from gateway.mqtt5.encoding import encode_publish, encode_retained, encode_run
from gateway.mqtt5.flows import OutboundFlows
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Version
from gateway.mqtt5.types import MAXIMUM_REMAINING_LENGTH, ReasonCode, encode_varint


class Connection(IntEnum):
    """State of a connection.

    OPENING: a client has sent CONNECT and waits for CONNACK; a server's session begins with CONNACK. CLOSING: a Close
    was returned, `disconnected` not yet called; further packets of the peer are ignored.
    """

    OFFLINE = 0
    CONNECTED = 1
    CLOSING = 2
    OPENING = 3


@dataclass(slots=True)
class Queued:
    """Message for this client: waiting, or in flight with a packet identifier."""

    message: Message
    qos: int
    retain: bool
    size: int  # bytes of `queue_bytes` that it takes
    subscription_ids: tuple[int, ...] = ()
    token: object = None  # the client's or the journal's key of this message


class Journal(Protocol):
    """Receiver of each change a restart of the broker must not undo; the client is answered afterwards."""

    def queued(self, queued: Queued, packet_id: int) -> None:
        """Takes a message that waits (0) or has just got a packet identifier; may be called first for the one, then the
        other.
        """
        ...

    def dropped(self, queued: Queued) -> None:
        """Takes a message that will not be delivered. Also called for messages that were never `queued`."""
        ...

    def pubrec_received(self, packet_id: int, queued: Queued) -> None:
        """Takes a PUBREC: the message is no longer needed, its identifier is, and PUBREL follows."""
        ...

    def finished(self, packet_id: int, queued: Queued | None) -> None:
        """Takes a PUBACK (`queued`) or a PUBCOMP (None)."""
        ...

    def pubrel_received(self, packet_id: int) -> None:
        """Takes a PUBREL for a received message; PUBCOMP follows."""
        ...

    def cleared(self) -> None:
        """Forgets the session's state, before the session does."""
        ...


class Delivery:
    """Queue and flows of messages for a client.

    QoS 0 is dropped while the client is offline or slow (`paused`). QoS 1 and 2 wait in a queue bounded in messages
    and bytes. A full queue drops its oldest waiting message, never one in flight, since in telemetry the newest value
    is worth most; with `limits.drops_newest`, the newest. Every dropped message is counted in `figures`.
    """

    __slots__ = (
        "_aliases_out",
        "_figures",
        "_in_flight_bytes",
        "_maximum_packet_size",
        "_waiting_bytes",
        "is_stretched",
        "journal",
        "limits",
        "outbound",
        "paused",
        "permits",
        "state",
        "version",
        "waiting",
    )

    def __init__(self, limits: SessionLimits) -> None:
        self.limits = limits
        self._figures: SessionFigures | None = None
        self.state = Connection.OFFLINE
        self.version = Version.V5
        self.paused = False
        self.is_stretched = False  # a queue that may be longer now, by `limits.stretch_*`
        self._maximum_packet_size = MAXIMUM_REMAINING_LENGTH + 5
        self._aliases_out = NO_OUTBOUND
        self.journal: Journal | None = None
        # True if a waiting message of this topic may still be sent; None: every queued message may.
        self.permits: Callable[[str], bool] | None = None
        self._clear_delivery()

    @property
    def figures(self) -> SessionFigures:
        """The counters of this session. Made at the first use: most idle clients never have any."""
        if self._figures is None:
            self._figures = SessionFigures()
        return self._figures

    @property
    def counted(self) -> SessionFigures | None:
        """The counters of this session for a reader that must not create them; None: nothing was counted yet."""
        return self._figures

    def _clear_delivery(self) -> None:
        self.outbound: OutboundFlows[Queued] = OutboundFlows(
            self.limits.in_flight_messages, self.limits.reserved_in_flight
        )
        self.waiting: (
            deque[Queued] | tuple[()]
        ) = ()  # () for most clients, which never have a waiting message: saves 0.6 kB
        self._waiting_bytes = self._in_flight_bytes = 0

    def deliver(
        self,
        message: Message,
        qos: int,
        retain: bool,
        now: float,
        subscription_ids: tuple[int, ...] = (),
        token: object = None,
    ) -> bytes | None:
        """Sends or queues a single message: returns bytes to write now, or None (queued or dropped, see `figures`).

        `qos` is the smaller of the message's and the subscription's. `retain` is the flag to send: set for retained
        messages on a new subscription, and for others only with retain-as-published.
        """
        connected = self.state is Connection.CONNECTED and not self.paused
        if not qos:
            if not connected:
                self.figures.dropped_qos0 += 1
                return None
            if message.expires_at is None and not subscription_ids and not self._aliases_out.maximum:
                data = message.packet(self.version == Version.V5, retain)
                if len(data) <= self._maximum_packet_size:
                    figures = self.figures
                    figures.delivered += 1
                    figures.delivered_bytes += len(message.payload)
                    return data
        queued = Queued(message, qos, retain, message.held_bytes, subscription_ids, token)
        if message.expires_at is not None and message.expired(now):
            self.figures.dropped_expired += 1
            self._take_dropped(queued, ReasonCode.UNSPECIFIED_ERROR)
            return None
        if not qos:
            return self._count_sent(queued, self._packet(queued, 0, False, now))
        most_bytes = self._most()[1] if self.is_stretched else self.limits.queue_bytes
        if connected and not self.waiting and self._in_flight_bytes + queued.size <= most_bytes:
            packet_id = self.outbound.begin_flow(queued, qos)
            if packet_id:
                return self._send_first(queued, packet_id, now)
            self._reached("in_flight")
        self._enqueue(queued)
        return None

    def recall(self, message: Message) -> bytes | None:
        """Sends a retained message at QoS 0 to a new subscription on the hot path of `deliver`: without expiry,
        identifiers or aliases. Returns None, with no effect, if `deliver` must be called. The packet is not kept with
        the message: most retained messages are read seldom.
        """
        if self.paused or self.state is not Connection.CONNECTED:
            return None
        if message.expires_at is not None or self._aliases_out.maximum:
            return None
        data = encode_retained(message.topic, message.payload, message.properties_bytes, self.version)
        if len(data) > self._maximum_packet_size:
            return None
        figures = self._figures or self.figures
        figures.delivered += 1
        figures.delivered_bytes += len(message.payload)
        return data

    def send_at_once(self, message: Message, qos: int) -> bytes | None:
        """Sends a message on the hot path of `deliver`: QoS 1 or 2, without expiry, retain flag, identifiers, aliases
        or a maximum packet size, while less than half of `queue_bytes` is held. Returns None, with no effect, if
        `deliver` must be called.
        """
        if self.waiting or self.paused or self.state is not Connection.CONNECTED:
            return None
        size = message.held_bytes
        if 2 * (self._in_flight_bytes + size) >= self.limits.queue_bytes:
            return None
        queued = Queued(message, qos, False, size)
        packet_id = self.outbound.begin_flow(queued, qos)
        if not packet_id:
            return None
        return self._depart(queued, packet_id)

    def send_run(self, run: Sequence[Message], qos: int) -> list[bytes]:
        """Sends leading messages as `send_at_once` does, each at the lower of its own QoS and `qos`; returns their
        packets. They have one topic and no properties. Takes fewer calls than `send_at_once` for each.
        """
        if self.waiting or self.paused or self.state is not Connection.CONNECTED:
            return []
        room, topic = self.limits.queue_bytes / 2 - self._in_flight_bytes, run[0].topic
        fixed_bytes = run[0].held_bytes - len(run[0].payload)
        flows: list[tuple[Queued, int]] = []
        for message in run:
            own, size = message.qos if message.qos < qos else qos, fixed_bytes + len(message.payload)
            room -= size
            if room <= 0:
                break
            flows.append((Queued(message, own, False, size), own))
        packet_ids = self.outbound.begin_flows(flows)
        del flows[len(packet_ids) :]
        if self.journal is not None:
            for (queued, _), packet_id in zip(flows, packet_ids, strict=True):
                self.journal.queued(queued, packet_id)
        payloads = [queued.message.payload for queued, _ in flows]
        if payloads:
            self._in_flight_bytes += sum([queued.size for queued, _ in flows])
            self.figures.delivered += len(payloads)
            self.figures.delivered_bytes += sum(map(len, payloads))
        return encode_run(topic, payloads, [own for _, own in flows], packet_ids, self.version)

    def queue_at_once(self, message: Message, qos: int) -> bool:
        """Queues a message on the hot path of `deliver`, under the conditions of `send_at_once` but one: other
        messages wait already. Returns False, with no effect, if `deliver` must be called.
        """
        waiting, limits = self.waiting, self.limits
        if not waiting or self.state is not Connection.CONNECTED or 2 * len(waiting) + 4 >= limits.queue_messages:
            return False
        size = message.held_bytes
        if 2 * (self._waiting_bytes + self._in_flight_bytes + size) >= limits.queue_bytes:
            return False
        queued = Queued(message, qos, False, size)
        waiting.append(queued)
        self._waiting_bytes += size
        if self.journal is not None:
            self.journal.queued(queued, 0)
        return True

    def _depart(self, queued: Queued, packet_id: int) -> bytes:
        """Returns the PUBLISH of a plain message with a new packet identifier."""
        message = queued.message
        self._in_flight_bytes += queued.size
        if self.journal is not None:
            self.journal.queued(queued, packet_id)
        figures = self._figures or self.figures
        figures.delivered += 1
        figures.delivered_bytes += len(message.payload)
        return message.numbered(self.version == Version.V5, queued.qos, queued.retain, packet_id)

    def restore_outbound(
        self, waiting: Iterable[Queued], in_flight: Mapping[int, Queued], released: Iterable[int]
    ) -> None:
        """Takes the messages of a journal into a new session: in flight by packet identifier, all in order."""
        for queued in waiting:
            self._queue(queued)
        for queued in in_flight.values():
            self._in_flight_bytes += queued.size
        self.outbound.restore_flows({packet_id: (one, one.qos) for packet_id, one in in_flight.items()}, released)

    def _queue(self, queued: Queued, in_front: bool = False) -> None:
        if isinstance(self.waiting, tuple):
            self.waiting = deque()
        if in_front:
            self.waiting.appendleft(queued)
        else:
            self.waiting.append(queued)
        self._waiting_bytes += queued.size

    def withdraw(self, queued: Queued) -> bool:
        """Undoes `deliver` for a message that still waits; returns False if the message is in flight or gone."""
        place = next((place for place, one in enumerate(self.waiting) if one is queued), None)
        if place is None or not self.waiting:
            return False
        del self.waiting[place]
        self._waiting_bytes -= queued.size
        return True

    def take_back(self, packet_id: int) -> None:
        """Undoes `deliver` for a message in flight whose bytes have not left."""
        self._in_flight_bytes -= self.outbound.unacknowledged[packet_id][0].size
        self.outbound.undo_start(packet_id)

    def _take_dropped(self, queued: Queued, reason: ReasonCode) -> None:
        """Takes a message that was dropped and counted. A broker tells no publisher."""

    def _reached(self, bound: str) -> None:
        """Takes a bound of `limits` that was reached, by its name in the configuration. A client tells no one."""

    @property
    def held_bytes(self) -> int:
        """The bytes of messages waiting and in flight, bounded by `queue_bytes`."""
        return self._waiting_bytes + self._in_flight_bytes

    @property
    def has_work(self) -> bool:
        """True if messages wait for quota, for the client or for the connection."""
        return bool(self.waiting or self.outbound.repeat)

    def pause(self) -> None:
        """Marks the connection's write buffer as full: QoS 0 is dropped, QoS 1 and 2 wait, until `resume`."""
        self.paused = True

    def resume(self, now: float) -> list[bytes]:
        """Marks the write buffer as drained and returns the bytes that may go now."""
        self.paused = False
        out: list[bytes] = []
        self._pump(now, out.append)
        return out

    def _most(self) -> tuple[int, int]:
        """Returns how many messages may wait, and how many bytes may wait or be in flight."""
        limits = self.limits
        if not self.is_stretched:
            return limits.queue_messages, limits.queue_bytes
        return limits.queue_messages + limits.stretch_messages, limits.queue_bytes + limits.stretch_bytes

    def fits(self, message: Message) -> bool:
        """True if another message may wait without dropping another."""
        most, most_bytes = self._most()
        return len(self.waiting) < most and self.held_bytes + message.held_bytes <= most_bytes

    def _enqueue(self, queued: Queued) -> None:
        most, most_bytes = self._most()
        if self._in_flight_bytes + queued.size > most_bytes or not most:
            self.figures.dropped_queue_full += 1  # dropping others would not make room
            self._reached("queue_bytes")
            self._take_dropped(queued, ReasonCode.QUOTA_EXCEEDED)
            return
        while self.waiting and (len(self.waiting) >= most or self.held_bytes + queued.size > most_bytes):
            self._reached("queue_bytes" if len(self.waiting) < most else "queue_messages")
            self.figures.dropped_queue_full += 1
            if self.limits.drops_newest:
                self._take_dropped(queued, ReasonCode.QUOTA_EXCEEDED)
                return
            oldest = self.waiting.popleft()
            self._waiting_bytes -= oldest.size
            self._take_dropped(oldest, ReasonCode.QUOTA_EXCEEDED)
        self._queue(queued)
        if self.journal is not None:
            self.journal.queued(queued, 0)

    def _pump(self, now: float, send: Callable[[bytes], None]) -> None:
        """Repeats, then sends waiting messages, in order, as far as the send quota goes."""
        if self.paused or self.state is not Connection.CONNECTED:
            return
        while (again := self.outbound.next_repeat()) is not None:
            packet_id, queued, _ = again
            # A QoS 2 flow is always finished: otherwise its identifier could be taken for the former message's.
            is_withdrawn = queued.qos == 1 and not self._permitted(queued)
            data = None if is_withdrawn else self._packet(queued, packet_id, True, now)
            if data is None:
                self.outbound.undo_start(packet_id)
                self._in_flight_bytes -= queued.size
                continue
            self.figures.repeated += 1
            send(data)
        waiting, outbound = self.waiting, self.outbound
        # Usual clients: messages need nothing but a packet identifier, and all of them may be sent.
        is_usual = self.permits is None and not self._aliases_out.maximum
        is_usual = is_usual and self._maximum_packet_size >= MAXIMUM_REMAINING_LENGTH + 5
        while waiting:
            queued = waiting[0]
            if is_usual and queued.message.expires_at is None and not queued.subscription_ids:
                packet_id = outbound.begin_flow(queued, queued.qos)
                if not packet_id:
                    return
                waiting.popleft()
                self._waiting_bytes -= queued.size
                send(self._depart(queued, packet_id))
                continue
            if not outbound.may_start:
                return
            waiting.popleft()
            self._waiting_bytes -= queued.size
            if queued.message.expired(now):
                self.figures.dropped_expired += 1
                self.figures.expired_waiting_bytes += queued.size
                self._take_dropped(queued, ReasonCode.UNSPECIFIED_ERROR)
            elif self._permitted(queued) and (data := self._start_flow(queued, now)) is not None:
                send(data)

    def _permitted(self, queued: Queued) -> bool:
        """True if the client may still receive the message; counts a message that it may not."""
        if self.permits is None or self.permits(queued.message.topic):
            return True
        self.figures.dropped_without_right += 1
        self._take_dropped(queued, ReasonCode.NOT_AUTHORIZED)
        return False

    def _start_flow(self, queued: Queued, now: float) -> bytes | None:
        return self._send_first(queued, self.outbound.start(queued, queued.qos), now)

    def _send_first(self, queued: Queued, packet_id: int, now: float) -> bytes | None:
        data = self._packet(queued, packet_id, False, now)
        if data is None:
            self.outbound.undo_start(packet_id)
        else:
            self._in_flight_bytes += queued.size
            if self.journal is not None:
                self.journal.queued(queued, packet_id)
        return self._count_sent(queued, data)

    def _count_sent(self, queued: Queued, data: bytes | None) -> bytes | None:
        if data is not None:
            figures = self._figures or self.figures
            figures.delivered += 1
            figures.delivered_bytes += len(queued.message.payload)
        return data

    def _packet(self, queued: Queued, packet_id: int, dup: bool, now: float) -> bytes | None:
        """Returns the PUBLISH for this client and connection; None (counted) if it exceeds the client's maximum packet
        size.
        """
        message, v5 = queued.message, self.version == Version.V5
        alias, new_alias = 0, False
        personal = b""
        if v5:
            if message.expires_at is not None:
                remaining_s = message.remaining_s(now)
                assert remaining_s is not None
                personal += b"\x02" + remaining_s.to_bytes(4, "big")
            for identifier in queued.subscription_ids:
                personal += b"\x0b" + encode_varint(identifier)
            if self._aliases_out.maximum:
                alias, new_alias = self._aliases_out.look_up(message.topic)
                if alias:
                    personal += b"\x23" + alias.to_bytes(2, "big")
        if queued.qos and not personal:
            data = message.numbered(v5, queued.qos, queued.retain, packet_id, dup)
        elif not personal:
            data = message.packet(v5, queued.retain)
        else:
            topic = b"" if alias and not new_alias else message.topic
            properties = personal + message.properties_bytes
            data = encode_publish(
                topic, message.payload, queued.qos, queued.retain, dup, packet_id, properties, self.version
            )
        if len(data) > self._maximum_packet_size:
            self.figures.dropped_too_large += 1
            self._take_dropped(queued, ReasonCode.PACKET_TOO_LARGE)
            return None
        if new_alias:
            self._aliases_out.define(message.topic, alias)
        return data
