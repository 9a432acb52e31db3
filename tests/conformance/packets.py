"""Packets of MQTT 3.1.1 and 5 as bytes, written from the specification and not with our codec.

A fault in `gateway.mqtt5` must not hide by being on both sides of an exchange, so nothing of it is imported
here. Every builder returns a `Written`: a function of the peer that says or hears it, which knows the version
(3, 4 or 5) and what the named packet identifiers stand for. Nothing is checked: wrong packets are wanted too.
Source: MQTT 5.0 and 3.1.1, chapters 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

# Property identifiers (MQTT 5.0 §2.2.2.2).
PAYLOAD_FORMAT, MESSAGE_EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION = 0x01, 0x02, 0x03, 0x08, 0x09
SUBSCRIPTION_ID, SESSION_EXPIRY, ASSIGNED_CLIENT_ID, SERVER_KEEP_ALIVE = 0x0B, 0x11, 0x12, 0x13
METHOD, AUTH_DATA, PROBLEM_INFORMATION, WILL_DELAY, RESPONSE_REQUEST = 0x15, 0x16, 0x17, 0x18, 0x19
RESPONSE_INFORMATION, REASON, RECEIVE_MAXIMUM, ALIAS_MAXIMUM, ALIAS = 0x1A, 0x1F, 0x21, 0x22, 0x23
MAXIMUM_QOS, RETAIN_AVAILABLE, USER, MAXIMUM_PACKET_SIZE = 0x24, 0x25, 0x26, 0x27
WILDCARD_AVAILABLE, IDENTIFIERS_AVAILABLE, SHARED_AVAILABLE = 0x28, 0x29, 0x2A

#: Bytes of the numbers among them; the others are strings, binary data, or the variable SUBSCRIPTION_ID.
SIZES = {
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
}


@dataclass
class Who:
    """One end of a connection while an exchange runs: protocol level, and named packet identifiers."""

    name: str
    version: int
    ids: dict[str, int] = field(default_factory=dict)
    assigned: str = ""  # the client identifier that the server assigned


Written: TypeAlias = Callable[[Who], bytes]
Says: TypeAlias = bytes | Written
PacketId: TypeAlias = int | str
#: (identifier, value) of each property; the value of USER is a pair of strings.
Given: TypeAlias = tuple[tuple[int, Any], ...]


#: As a client identifier: the one that the server has assigned to the peer.
ASSIGNED = "(assigned)"


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return len(raw).to_bytes(2, "big") + raw


def number(packet_id: PacketId, who: Who) -> bytes:
    value = who.ids[packet_id] if isinstance(packet_id, str) else packet_id
    return value.to_bytes(2, "big")


def frame(first: int, body: bytes) -> bytes:
    return bytes([first]) + varint(len(body)) + body


def one_property(identifier: int, value: Any) -> bytes:
    tag = bytes([identifier])
    if identifier == SUBSCRIPTION_ID:
        return tag + varint(value)
    if identifier == USER:
        return tag + string(value[0]) + string(value[1])
    if identifier in SIZES:
        return tag + int(value).to_bytes(SIZES[identifier], "big")
    return tag + string(value)


def property_block(given: Given) -> bytes:
    body = b"".join(one_property(*one) for one in given)
    return varint(len(body)) + body


def only_v5(given: Given, who: Who) -> bytes:
    return property_block(given) if who.version == 5 else b""


@dataclass(frozen=True)
class Will:
    topic: str | bytes
    payload: bytes = b"gone"
    qos: int = 0
    retain: int = 0
    given: Given = ()


def connect(
    client_id: str | bytes | None = None,
    *,
    clean: int = 1,
    keep_alive_s: int = 0,
    will: Will | None = None,
    username: str | bytes | None = None,
    password: bytes | None = None,
    given: Given = (),
    flags: int | None = None,
    protocol: bytes | None = None,
    level: int | None = None,
    payload: bytes | None = None,
) -> Written:
    """CONNECT; the client identifier is the peer's name unless given. `flags`, `protocol`, `level` and
    `payload` put something else in the place of what follows from the rest."""

    def write(who: Who) -> bytes:
        bits = clean << 1
        body = string(who.name if client_id is None else who.assigned if client_id == ASSIGNED else client_id)
        if will is not None:
            bits |= 4 | will.qos << 3 | will.retain << 5
            body += only_v5(will.given, who) + string(will.topic) + string(will.payload)
        if username is not None:
            bits |= 0x80
            body += string(username)
        if password is not None:
            bits |= 0x40
            body += string(password)
        name = protocol or (b"MQIsdp" if who.version == 3 else b"MQTT")
        head = string(name) + bytes([who.version if level is None else level, bits if flags is None else flags])
        head += keep_alive_s.to_bytes(2, "big") + only_v5(given, who)
        return frame(0x10, head + (body if payload is None else payload))

    return write


def publish(
    topic: str | bytes,
    payload: bytes = b"x",
    qos: int = 0,
    packet_id: PacketId = 0,
    *,
    retain: int = 0,
    dup: int = 0,
    given: Given = (),
) -> Written:
    """PUBLISH; the packet identifier is written above QoS 0."""

    def write(who: Who) -> bytes:
        body = string(topic) + (number(packet_id, who) if qos else b"") + only_v5(given, who) + payload
        return frame(0x30 | dup << 3 | qos << 1 | retain, body)

    return write


def _acknowledgement(first: int) -> Callable[..., Written]:
    def make(packet_id: PacketId, code: int = 0, given: Given = ()) -> Written:
        def write(who: Who) -> bytes:
            body = number(packet_id, who)
            if who.version == 5 and (code or given):
                body += bytes([code]) + (property_block(given) if given else b"")
            return frame(first, body)

        return write

    return make


puback = _acknowledgement(0x40)
pubrec = _acknowledgement(0x50)
pubrel = _acknowledgement(0x62)
pubcomp = _acknowledgement(0x70)

# Subscription options (MQTT 5.0 §3.8.3.1), added to the QoS.
NO_LOCAL, AS_PUBLISHED, RETAIN_IF_NEW, RETAIN_NEVER = 4, 8, 0x10, 0x20


def subscribe(packet_id: PacketId, *filters: tuple[str | bytes, int], given: Given = (), first: int = 0x82) -> Written:
    """SUBSCRIBE to (filter, QoS and options) each."""

    def write(who: Who) -> bytes:
        body = number(packet_id, who) + only_v5(given, who)
        return frame(first, body + b"".join(string(name) + bytes([options]) for name, options in filters))

    return write


def unsubscribe(packet_id: PacketId, *filters: str | bytes, given: Given = (), first: int = 0xA2) -> Written:
    def write(who: Who) -> bytes:
        return frame(first, number(packet_id, who) + only_v5(given, who) + b"".join(map(string, filters)))

    return write


def suback(packet_id: PacketId, *codes: int) -> Written:
    """SUBACK without properties; 3.1.1 has one code for every failure."""

    def write(who: Who) -> bytes:
        given = codes if who.version == 5 else [min(code, 0x80) for code in codes]
        return frame(0x90, number(packet_id, who) + only_v5((), who) + bytes(given))

    return write


def unsuback(packet_id: PacketId, *codes: int) -> Written:
    """UNSUBACK without properties; 3.1.1 has no codes."""

    def write(who: Who) -> bytes:
        return frame(0xB0, number(packet_id, who) + (b"\0" + bytes(codes) if who.version == 5 else b""))

    return write


PINGREQ, PINGRESP = b"\xc0\0", b"\xd0\0"


def disconnect(code: int = 0, given: Given = ()) -> Written:
    def write(who: Who) -> bytes:
        if who.version != 5 or not (code or given):
            return b"\xe0\0"
        return frame(0xE0, bytes([code]) + (property_block(given) if given else b""))

    return write


def auth(code: int, given: Given = ()) -> Written:
    return lambda who: frame(0xF0, bytes([code]) + property_block(given))


def with_first(first: int, packet: Written) -> Written:
    """The packet with another first byte: other flags, or another type."""
    return lambda who: bytes([first]) + packet(who)[1:]


def followed_by(packet: Written, more: bytes) -> Written:
    """The packet with more bytes in its body, the remaining length made to fit."""

    def write(who: Who) -> bytes:
        raw = packet(who)
        at = 1
        while raw[at] & 0x80:
            at += 1
        return frame(raw[0], raw[at + 1 :] + more)

    return write


def cut_short(packet: Written, by: int) -> Written:
    """The packet without its last bytes, the remaining length made to fit."""

    def write(who: Who) -> bytes:
        raw = packet(who)
        at = 1
        while raw[at] & 0x80:
            at += 1
        return frame(raw[0], raw[at + 1 : -by])

    return write
