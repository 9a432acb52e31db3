"""What goes to members of the overlay that connected to us, and what they acknowledge.

A member's session is a client's with bounds of its own (`limits.member_queue_*`). What members publish and subscribe to
goes to the overlay (`exchange.py`, `subscribing.py`); who is a member is decided in `lifecycle.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from .bounds import Reached
from .clients import Client, PeerMessage
from .mqtt5.packets import Packet, PubAck


def send(client: Client, message: PeerMessage, now: float, reached: Reached) -> bool:
    """Queue a QoS 1 PUBLISH for a member whose session lives. False: its queue is full, or it is too large."""
    session, connection = client.session, client.connection
    limits, figures = session.limits, session.figures
    full = len(session.waiting) >= limits.queue_messages
    if full or session.held_bytes + message.held_bytes > limits.queue_bytes:
        reached.note("member_queue_messages" if full else "member_queue_bytes", client.client_id)
        return False
    too_large = figures.dropped_too_large
    data = session.deliver(message, 1, False, now)
    if data is not None and connection is not None:
        connection.write(data)
    return figures.dropped_too_large == too_large


def hear_acks(client: Client, packets: Sequence[Packet]) -> None:
    """Tell whoever waits for the acknowledgement of a `PeerMessage`."""
    for packet in packets:
        if type(packet) is PubAck:
            entry = client.session.outbound.unacknowledged.get(packet.packet_id)
            if entry is not None and isinstance(entry[0].message, PeerMessage):
                entry[0].message.on_ack(packet.code)
