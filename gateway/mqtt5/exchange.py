"""Behaviour common to both ends of a session: acknowledgements in both directions, and repetition on a reconnect.

`Delivery` sends; this module adds receiving and acknowledging. `session.ServerSession` and
`client_session.ClientSession` add the parts of a server and of a client. Source: MQTT 5.0 §4.3, §4.4, §4.6.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from gateway.mqtt5.actions import SessionLimits
from gateway.mqtt5.aliases import NO_INBOUND
from gateway.mqtt5.delivery import Connection, Delivery, Queued
from gateway.mqtt5.encoding import encode
from gateway.mqtt5.flows import Answer, HeardFlow, InboundFlows
from gateway.mqtt5.packets import NO_PROPERTIES, Properties, PubAck, PubComp, Publish, PubRec, PubRel, Version
from gateway.mqtt5.types import ReasonCode


class SessionExchange(Delivery):
    """Flows of both directions. Lists named `actions` belong to the caller; bytes in them are to be written."""

    __slots__ = ("_aliases_in", "inbound")

    def __init__(self, limits: SessionLimits) -> None:
        super().__init__(limits)
        self.inbound = InboundFlows()
        self._aliases_in = NO_INBOUND

    # ---------------------------------------------------------------------------------------------- inbound

    def _take_publish(self, publish: Publish, actions: list[Any]) -> None:
        """Resolves the alias of a PUBLISH and gives it to the application unless it is a repetition."""
        alias = publish.properties.topic_alias
        if alias is not None:
            publish.topic = self._aliases_in.resolve(publish.topic, alias)
        if publish.qos:
            answer = self.inbound.take_publish(publish)
            if answer is Answer.SEND_PUBREC:
                actions.append(b"\x50\2" + publish.packet_id.to_bytes(2, "big"))
            if answer is not Answer.ROUTE:
                return
        actions.append(publish)

    def acknowledge(
        self, publish: Publish, code: int = ReasonCode.SUCCESS, properties: Properties = NO_PROPERTIES
    ) -> bytes:
        """Returns PUBACK or PUBREC for a message that `take_packets` returned, to be written if not empty.

        Called with the same object, in the order in which messages came (MQTT-4.6.0-2, 4.6.0-3), once the message is
        processed and as durable as promised. `code` >= 0x80 refuses the message, which 3.x peers cannot be told.
        Returns empty bytes for QoS 0, and if the connection of the message has ended.
        """
        if not publish.qos:
            return b""
        v5 = self.version == Version.V5
        due = self.inbound.settle_routed(publish, v5 and code >= 0x80)
        if not due or self.state is not Connection.CONNECTED:
            return b""
        if not code or not v5:
            return (b"\x40\2" if publish.qos == 1 else b"\x50\2") + publish.packet_id.to_bytes(2, "big")
        kind = PubAck if publish.qos == 1 else PubRec
        return encode(kind(publish.packet_id, code, properties), self.version)

    def acknowledge_all(self, publishes: Sequence[Publish]) -> bytes:
        """Returns the bytes of `acknowledge` for all these messages, with success."""
        if self.state is not Connection.CONNECTED:
            return b"".join(map(self.acknowledge, publishes))
        due = self.inbound.accepted_plainly(publishes)
        said, packed = bytearray(b"\x40\2\0\0" * len(due)), struct.pack(f">{len(due)}H", *due)
        said[2::4], said[3::4] = packed[::2], packed[1::2]
        if len(due) < len(publishes):
            said += b"".join(map(self.acknowledge, publishes))  # adds nothing for messages already acknowledged
        return bytes(said)

    def _on_pubrel(self, packet: PubRel, now: float, actions: list[Any]) -> None:
        known = self.inbound.take_pubrel(packet.packet_id) is Answer.SEND_PUBCOMP
        if known and self.journal is not None:
            self.journal.pubrel_received(packet.packet_id)
        code = ReasonCode.SUCCESS if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        actions.append(encode(PubComp(packet.packet_id, code), self.version))

    # --------------------------------------------------------------------------------------------- outbound

    def _resume(self, now: float, send: Callable[[bytes], None]) -> None:
        """Repeats on a new connection: PUBRELs, then PUBLISHes with DUP, then waiting messages (§4.4)."""
        for packet_id in self.outbound.released:
            send(b"\x62\2" + packet_id.to_bytes(2, "big"))
            self.figures.repeated += 1
        self._pump(now, send)

    def _on_puback(self, packet: PubAck, now: float, actions: list[Any]) -> None:
        queued = self.outbound.take_puback(packet.packet_id)
        if queued is None:
            self._take_acknowledgement(packet, HeardFlow.PUBACK, now, actions)
            return
        self._in_flight_bytes -= queued.size
        self._finished(packet, queued, actions)
        if self.waiting:
            self._pump(now, actions.append)

    def _on_pubrec(self, packet: PubRec, now: float, actions: list[Any]) -> None:
        self._take_acknowledgement(
            packet, HeardFlow.PUBREC if packet.code < 0x80 else HeardFlow.PUBREC_REFUSED, now, actions
        )

    def _on_pubcomp(self, packet: PubComp, now: float, actions: list[Any]) -> None:
        self._take_acknowledgement(packet, HeardFlow.PUBCOMP, now, actions)

    def _take_acknowledgement(
        self, packet: PubAck | PubRec | PubComp, what: HeardFlow, now: float, actions: list[Any]
    ) -> None:
        packet_id = packet.packet_id
        answer, queued = self.outbound.take_acknowledgement(packet_id, what)
        if queued is not None:
            self._in_flight_bytes -= queued.size
        if answer is Answer.DONE:
            self._finished(packet, queued, actions)
            if self.has_work:
                self._pump(now, actions.append)
        elif answer is Answer.SEND_PUBREL:
            if queued is not None:
                self._half_finished(packet_id, queued)
            actions.append(b"\x62\2" + packet_id.to_bytes(2, "big"))
        elif answer is Answer.SEND_PUBREL_UNKNOWN:
            actions.append(encode(PubRel(packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND), self.version))

    def _half_finished(self, packet_id: int, queued: Queued) -> None:
        """Takes a message whose PUBREC came: the message itself is no longer needed."""

    def _finished(self, packet: PubAck | PubRec | PubComp, queued: Queued | None, actions: list[Any]) -> None:
        """Takes the end of a flow; `queued` is None after PUBCOMP, when the message was already forgotten."""
