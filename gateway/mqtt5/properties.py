"""Properties of MQTT 5 to bytes and back: a table of identifier, field, wire type and carriers.

Does not know packets beyond the name of the carrier. A value out of range is a protocol error, as the specification
says for each property; every other error is a malformed packet. Source: MQTT 5.0 §2.2.2, table 2-4.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

from gateway.mqtt5.packets import NO_PROPERTIES, Properties
from gateway.mqtt5.types import (
    MAXIMUM_REMAINING_LENGTH,
    MAXIMUM_STRING_BYTES,
    MalformedPacket,
    ProtocolViolation,
    TopicAliasInvalid,
    UnsendablePacket,
    check_topic_name,
    decode_utf8,
    decode_varint,
    encode_varint,
)


class Carrier(IntEnum):
    """Carrier of properties: the packet type, or WILL for properties inside a CONNECT payload."""

    WILL = 0
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    DISCONNECT = 14
    AUTH = 15


# ------------------------------------------------------------------------------------------ wire types


def read_binary(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Reads two bytes of length and as many bytes (§1.5.6), all below `end`. Raises MalformedPacket."""
    start = at + 2
    if start > end:
        raise MalformedPacket("packet ends inside a length")
    stop = start + (data[at] << 8 | data[at + 1])
    if stop > end:
        raise MalformedPacket("packet ends inside a string")
    return data[start:stop], stop


def read_string(data: bytes, at: int, end: int) -> tuple[str, int]:
    """Reads an MQTT string (§1.5.4), all below `end`. Raises MalformedPacket."""
    raw, at = read_binary(data, at, end)
    return decode_utf8(raw), at


def _reader(size: int) -> Callable[[bytes, int, int], tuple[int, int]]:
    def read(data: bytes, at: int, end: int) -> tuple[int, int]:
        stop = at + size
        if stop > end:
            raise MalformedPacket("packet ends inside a number")
        return int.from_bytes(data[at:stop], "big"), stop

    return read


def _read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value, at = decode_varint(data, at, end)
    if at < 0:
        raise MalformedPacket("packet ends inside a number")
    return value, at


def write_binary(value: bytes) -> bytes:
    """Encodes two bytes of length and the value. Raises UnsendablePacket above 65,535 bytes."""
    if len(value) > MAXIMUM_STRING_BYTES:
        raise UnsendablePacket("field is longer than 65535 bytes")
    return len(value).to_bytes(2, "big") + value


def write_string(text: str) -> bytes:
    """Encodes an MQTT string. Raises UnsendablePacket for surrogates, U+0000 and more than 65,535 bytes."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise UnsendablePacket("string contains a surrogate") from None
    if b"\0" in raw:
        raise UnsendablePacket("string contains U+0000")
    return write_binary(raw)


class _Wire(NamedTuple):
    read: Callable[[bytes, int, int], tuple[Any, int]]
    write: Callable[[Any], bytes]


_BYTE = _Wire(_reader(1), lambda value: value.to_bytes(1, "big"))
_TWO = _Wire(_reader(2), lambda value: value.to_bytes(2, "big"))
_FOUR = _Wire(_reader(4), lambda value: value.to_bytes(4, "big"))
_VARINT = _Wire(_read_varint, encode_varint)
_STRING = _Wire(read_string, write_string)
_BINARY = _Wire(read_binary, write_binary)


# ------------------------------------------------------------------------------------------- the table


def _flag(value: int) -> None:
    if value > 1:
        raise ProtocolViolation("property is neither 0 nor 1")


def _positive(value: int) -> None:
    if value == 0:
        raise ProtocolViolation("property is 0")


def _alias(value: int) -> None:
    if value == 0:
        raise TopicAliasInvalid("topic alias is 0")


def _topic(value: str) -> None:
    check_topic_name(value)


def _any(value: object) -> None:
    pass


class Property(NamedTuple):
    """Row of table 2-4. `check` raises for values the wire type admits and MQTT does not."""

    identifier: int
    field: str
    wire: _Wire
    carriers: frozenset[Carrier]
    check: Callable[[Any], None] = _any


_C = Carrier
_MESSAGE = frozenset({_C.PUBLISH, _C.WILL})
_AUTHENTICATION = frozenset({_C.CONNECT, _C.CONNACK, _C.AUTH})
_LIMITS = frozenset({_C.CONNECT, _C.CONNACK})
_CONNECT, _CONNACK, _WILL = frozenset({_C.CONNECT}), frozenset({_C.CONNACK}), frozenset({_C.WILL})
_ANSWERS = frozenset(
    {_C.CONNACK, _C.PUBACK, _C.PUBREC, _C.PUBREL, _C.PUBCOMP, _C.SUBACK, _C.UNSUBACK, _C.DISCONNECT, _C.AUTH}
)

TABLE: tuple[Property, ...] = (
    Property(0x01, "payload_format", _BYTE, _MESSAGE, _flag),
    Property(0x02, "message_expiry_s", _FOUR, _MESSAGE),
    Property(0x03, "content_type", _STRING, _MESSAGE),
    Property(0x08, "response_topic", _STRING, _MESSAGE, _topic),
    Property(0x09, "correlation_data", _BINARY, _MESSAGE),
    Property(0x0B, "subscription_ids", _VARINT, frozenset({_C.PUBLISH, _C.SUBSCRIBE}), _positive),
    Property(0x11, "session_expiry_s", _FOUR, frozenset({_C.CONNECT, _C.CONNACK, _C.DISCONNECT})),
    Property(0x12, "assigned_client_id", _STRING, _CONNACK),
    Property(0x13, "server_keep_alive_s", _TWO, _CONNACK),
    Property(0x15, "authentication_method", _STRING, _AUTHENTICATION),
    Property(0x16, "authentication_data", _BINARY, _AUTHENTICATION),
    Property(0x17, "request_problem_information", _BYTE, _CONNECT, _flag),
    Property(0x18, "will_delay_s", _FOUR, _WILL),
    Property(0x19, "request_response_information", _BYTE, _CONNECT, _flag),
    Property(0x1A, "response_information", _STRING, _CONNACK),
    Property(0x1C, "server_reference", _STRING, frozenset({_C.CONNACK, _C.DISCONNECT})),
    Property(0x1F, "reason", _STRING, _ANSWERS),
    Property(0x21, "receive_maximum", _TWO, _LIMITS, _positive),
    Property(0x22, "topic_alias_maximum", _TWO, _LIMITS),
    Property(0x23, "topic_alias", _TWO, frozenset({_C.PUBLISH}), _alias),
    Property(0x24, "maximum_qos", _BYTE, _CONNACK, _flag),
    Property(0x25, "retain_available", _BYTE, _CONNACK, _flag),
    Property(0x26, "user", _STRING, frozenset(Carrier)),
    Property(0x27, "maximum_packet_size", _FOUR, _LIMITS, _positive),
    Property(0x28, "wildcard_subscription_available", _BYTE, _CONNACK, _flag),
    Property(0x29, "subscription_ids_available", _BYTE, _CONNACK, _flag),
    Property(0x2A, "shared_subscription_available", _BYTE, _CONNACK, _flag),
)

# The same table by carrier: identifier -> property for the decoder, fields in order for the encoder.
_BY_IDENTIFIER: dict[Carrier, dict[int, Property]] = {
    carrier: {row.identifier: row for row in TABLE if carrier in row.carriers} for carrier in Carrier
}
_BY_FIELD = {row.field: row for row in TABLE}
_KNOWN = frozenset(row.identifier for row in TABLE)
_USER = 0x26
_SUBSCRIPTION_ID = 0x0B


# ---------------------------------------------------------------------------------------------- decode


def decode_properties(data: bytes, at: int, end: int, carrier: Carrier) -> tuple[Properties, int]:
    """Reads property length and properties at `at`, all below `end`: returns (properties, position after them).

    Raises MalformedPacket (truncated, unknown identifier, bad string), ProtocolViolation (not allowed in this packet,
    twice, out of range), TopicAliasInvalid.
    """
    if at + 1 < end and data[at] > 127 and 0 < data[at + 1] < 128:  # two bytes: most lengths above 127
        length, at = data[at] - 128 + (data[at + 1] << 7), at + 2
    else:
        length, at = _read_varint(data, at, end)
    stop = at + length
    if stop > end:
        raise MalformedPacket("packet ends inside its properties")
    if not length:
        return NO_PROPERTIES, at
    rows = _BY_IDENTIFIER[carrier]
    found: dict[str, Any] = {}
    user: list[tuple[str, str]] = []
    while at < stop:
        identifier = data[at]
        if identifier == _USER:
            name_at, value_at = at + 3, at + 5
            # Bounds first, so that no length beyond the packet is read; `read_string` twice, written in line.
            if value_at <= stop:
                value_at = name_at + (data[at + 1] << 8 | data[at + 2]) + 2
            if value_at <= stop:
                end_at = value_at + (data[value_at - 2] << 8 | data[value_at - 1])
                if end_at <= stop:
                    user.append((decode_utf8(data[name_at : value_at - 2]), decode_utf8(data[value_at:end_at])))
                    at = end_at
                    continue
            raise MalformedPacket("packet ends inside a user property")
        row = rows.get(identifier)
        if row is None:
            raise _not_allowed(identifier, carrier)
        value, at = row.wire.read(data, at + 1, stop)
        row.check(value)
        if row.field not in found:
            found[row.field] = (value,) if identifier == _SUBSCRIPTION_ID else value
        elif identifier == _SUBSCRIPTION_ID and carrier is Carrier.PUBLISH:
            found[row.field] += (value,)
        else:
            raise ProtocolViolation(f"property {row.field} appears twice")
    if user:
        found["user"] = tuple(user)
    # Not through __init__, which checks the names. Absent properties are read from the class.
    properties = object.__new__(Properties)
    object.__setattr__(properties, "__dict__", found)
    return properties, at


def _not_allowed(identifier: int, carrier: Carrier) -> MalformedPacket | ProtocolViolation:
    if identifier in _KNOWN:
        return ProtocolViolation(f"property 0x{identifier:02x} is not allowed in {carrier.name}")
    return MalformedPacket(f"property 0x{identifier:02x} does not exist")


# ---------------------------------------------------------------------------------------------- encode


def encode_properties(properties: Properties, carrier: Carrier) -> bytes:
    """Encodes property length and properties, in the order of the table (user properties last).

    Raises UnsendablePacket where the carrier may not have the property or the value is out of range.
    """
    if properties is NO_PROPERTIES:
        return b"\0"
    body = encode_property_fields(properties, carrier)
    return encode_varint(len(body)) + body


def encode_property_fields(properties: Properties, carrier: Carrier) -> bytes:
    """Encodes properties without the length in front, for callers adding properties of their own. Raises
    UnsendablePacket.
    """
    rows = _BY_IDENTIFIER[carrier]
    parts: list[bytes] = []
    # Instances hold only given fields; `dataclasses.replace` gives every field.
    for field, value in properties.__dict__.items():
        if value is None or value == ():
            continue
        row = _BY_FIELD[field]
        if row.identifier not in rows:
            raise UnsendablePacket(f"property {field} is not allowed in {carrier.name}")
        tag = bytes((row.identifier,))
        if row.identifier == _USER:
            continue
        if row.identifier == _SUBSCRIPTION_ID:
            if len(value) > 1 and carrier is not Carrier.PUBLISH:
                raise UnsendablePacket("more than one subscription identifier")
            parts.extend(tag + _encode_value(row, one) for one in value)
        else:
            parts.append(tag + _encode_value(row, value))
    parts.sort(key=_identifier)
    for name, content in properties.user:
        parts.append(b"\x26" + write_string(name) + write_string(content))
    body = b"".join(parts)
    if len(body) > MAXIMUM_REMAINING_LENGTH:
        raise UnsendablePacket("properties are longer than a packet can be")
    return body


def _identifier(part: bytes) -> int:
    return part[0]


def _encode_value(row: Property, value: Any) -> bytes:
    try:
        row.check(value)
        return row.wire.write(value)
    except UnsendablePacket:
        raise
    except (MalformedPacket, ProtocolViolation, TopicAliasInvalid, OverflowError, TypeError, AttributeError):
        raise UnsendablePacket(f"property {row.field} has no such value") from None
