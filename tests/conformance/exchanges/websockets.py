"""MQTT over WebSocket (MQTT 5.0 and 3.1.1, §6), framed by hand (RFC 6455 §5.2)."""

from __future__ import annotations

from tests.conformance.hearing import connack
from tests.conformance.packets import PINGREQ, PINGRESP, Says, Who, Written, connect, publish, suback, subscribe
from tests.conformance.rows import Peer, Row, Steps, row

a = Peer("a")
BINARY, TEXT = 2, 1

#: RFC 6455 §1.3, with its example of a key.
HANDSHAKE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: other, mqtt\r\n\r\n"
)
ACCEPTED = (b"http/1.1 101 ", b"\r\nsec-websocket-protocol: mqtt\r\n")


def framed(*packets: Says, opcode: int = BINARY) -> Written:
    """All packets in one frame of a client, masked with zeros."""

    def write(who: Who) -> bytes:
        data = b"".join(one if isinstance(one, bytes) else one(who) for one in packets)
        assert len(data) < 126
        return bytes([0x80 | opcode, 0x80 | len(data), 0, 0, 0, 0]) + data

    return write


def sliced(size: int, *packets: Says) -> Written:
    """The packets in frames of `size` bytes."""

    def write(who: Who) -> bytes:
        data = b"".join(one if isinstance(one, bytes) else one(who) for one in packets)
        return b"".join(framed(data[at : at + size])(who) for at in range(0, len(data), size))

    return write


def connected() -> Steps:
    yield from a.upgrades(HANDSHAKE, ACCEPTED)
    yield from a.says(framed(connect()))
    yield from a.hears(connack())


ROWS: list[Row] = [
    row(
        "the server selects subprotocol mqtt, and speaks in binary frames",
        "5: 6.0.0-4 6.0.0-1; 3.1.1: 6.0.0-4 6.0.0-1",
        connected(),
        a.says(framed(PINGREQ)),
        a.hears(PINGRESP),
    ),
    row(
        "packets of one frame and frames of one byte are all the same",
        "5: 6.0.0-2; 3.1.1: 6.0.0-2",
        connected(),
        a.says(framed(PINGREQ, PINGREQ, subscribe(1, ("t", 0)))),
        a.hears(PINGRESP, PINGRESP, suback(1, 0)),
        a.says(sliced(1, publish("t", b"sliced"), PINGREQ)),
        a.hears_in_any_order(publish("t", b"sliced"), PINGRESP),
        a.says(sliced(5, publish("t", b"sliced"), PINGREQ)),
        a.hears_in_any_order(publish("t", b"sliced"), PINGRESP),
    ),
    row(
        "a text frame closes the connection",
        "5: 6.0.0-1; 3.1.1: 6.0.0-1",
        connected(),
        a.says(framed(PINGREQ, opcode=TEXT)),
        a.is_closed(),
    ),
    row(
        "a protocol error over WebSocket is told and closes the connection",
        "5: 6.0.0-1 4.13.1-1; 3.1.1: 6.0.0-1 4.8.0-1",
        connected(),
        a.says(framed(b"\0\0")),
        a.is_told(0x81),
    ),
]
