"""Traffic between other members of the overlay and this one, and its acknowledgements.

A member's session is a client's with bounds of its own (`limits.member_queue_*`). Publications of members go to the
overlay, which decides the time of their acknowledgement (`backpressure.py`); publications to members are never waited
for. Subscriptions of members are in `subscribing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from bridge.publisher import WINDOW_MAX
from gateway.clients import Client, OverlayPort, PeerMessage, PeerRefusal, Reached
from gateway.mqtt5.actions import SessionLimits
from gateway.mqtt5.packets import NO_PROPERTIES, Connect, Packet, Properties, PubAck, Publish, Version
from gateway.mqtt5.types import MqttError, ReasonCode
from gateway.sockets.flushing import UNACKNOWLEDGED

CONTROL_WINDOW = 64
"""Part of the window between two members that only control wires may take: they do not wait behind a slow region."""
RECEIVE_MAXIMUM = WINDOW_MAX + CONTROL_WINDOW
"""Receive Maximum towards members: bounds their unacknowledged publications."""
LINK_LIMITS = SessionLimits(
    in_flight_messages=RECEIVE_MAXIMUM,
    reserved_in_flight=CONTROL_WINDOW,
    queue_messages=32_768,
    queue_bytes=32 << 20,
)
"""Limits of messages in flight to a member that this side dialled, and waiting for it."""


def recognised(tls: Any, connect: Connect, overlay: OverlayPort) -> str:
    """Returns the member that connects, by its certificate. Raises MqttError."""
    if connect.version != Version.V5:
        raise MqttError(
            "refused: a hop below MQTT 5 strips user properties; let the member speak MQTT 5",
            ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        )
    certificate = tls.getpeercert(binary_form=True) if tls is not None else None
    peer = overlay.recognise(certificate, connect.client_id) if certificate else None
    if peer is None:
        why = f"refused: the certificate of {connect.client_id!r} is none of the overlay's"
        raise MqttError(why, ReasonCode.NOT_AUTHORIZED)
    return peer


def published(client: Client, publish: Publish, overlay: OverlayPort) -> None:
    """Gives a PUBLISH of a member to the overlay, which may hold its acknowledgement back."""
    assert client.peer is not None
    hold = overlay.peer_published(client.peer, publish)
    if hold is None:
        _acknowledge(client, publish, ReasonCode.SUCCESS)
    elif isinstance(hold, PeerRefusal):
        _acknowledge(client, publish, hold.code, hold.properties)
    elif not hold(partial(_acknowledge, client, publish)) and client.connection is not None:
        client.connection.pause(UNACKNOWLEDGED)


def _acknowledge(client: Client, publish: Publish, code: int, properties: Properties = NO_PROPERTIES) -> None:
    data = client.session.acknowledge(publish, code, properties)
    connection = client.connection
    if connection is not None:
        if data:
            connection.write(data)
        connection.resume(UNACKNOWLEDGED)


def send(client: Client, message: PeerMessage, now: float, reached: Reached) -> bool:
    """Queues a QoS 1 PUBLISH for a member whose session lives. False: its queue is full, or the message is too
    large.
    """
    session, connection = client.session, client.connection
    limits, figures = session.limits, session.figures
    full = len(session.waiting) >= limits.queue_messages
    if full or session.held_bytes + message.held_bytes > limits.queue_bytes:
        reached.note_bound("member_queue_messages" if full else "member_queue_bytes", client.client_id)
        return False
    too_large = figures.dropped_too_large
    data = session.deliver(message, 1, False, now)
    if data is not None and connection is not None:
        connection.write(data)
    return figures.dropped_too_large == too_large


def hear_acks(client: Client, packets: Sequence[Packet]) -> None:
    """Calls `on_ack` of each `PeerMessage` the packets acknowledge."""
    for packet in packets:
        if type(packet) is PubAck:
            entry = client.session.outbound.unacknowledged.get(packet.packet_id)
            if entry is not None and isinstance(entry[0].message, PeerMessage):
                entry[0].message.on_ack(packet.code)
