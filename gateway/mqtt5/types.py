"""Errors, reason codes, strings and small numbers that every MQTT packet is made of.

Knows nothing of packets. The error tree (an error always carries the reason code a peer of MQTT 5 gets):

    MqttError
    ├── MalformedPacket            0x81  bytes that no conforming sender produces
    ├── ProtocolViolation          0x82  well-formed, but not allowed here or now
    ├── UnsupportedVersion         0x84
    ├── ClientIdentifierNotValid   0x85
    ├── ReceiveMaximumExceeded     0x93
    ├── TopicAliasInvalid          0x94
    ├── PacketTooLarge             0x95
    ├── RetainNotSupported         0x9A
    ├── QosNotSupported            0x9B
    ├── Refused                    any   the peer answered with a reason code of failure
    └── UnsendablePacket           0x83  *our* fault: we were asked to encode what MQTT cannot carry

Source: MQTT 5.0 §1.5, §2.4, §4.7, §4.13; MQTT 3.1.1 §3.2.2.3.
"""

# ruff: noqa: N818 -- named after what the peer did, as the specification names it

from __future__ import annotations

from enum import IntEnum

MAXIMUM_REMAINING_LENGTH = 268_435_455
MAXIMUM_PACKET_SIZE_SAID = MAXIMUM_REMAINING_LENGTH
"""The largest Maximum Packet Size that is announced. The largest packet has 5 bytes more (§2.1.4), but paho-mqtt
refuses a CONNACK that says so.
"""
MAXIMUM_STRING_BYTES = 65_535
MAXIMUM_PACKET_ID = 65_535
NEVER_EXPIRES_S = 0xFFFF_FFFF  # session expiry interval that means "does not expire" (§3.1.2.11.2)


class ReasonCode(IntEnum):
    """Every reason code of MQTT 5.0 §2.4. 0x00 is also "normal disconnection" and "granted QoS 0"."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class MqttError(Exception):
    """Root of the tree above. `reason` goes into CONNACK or DISCONNECT; the text is for this side's log."""

    default_reason = ReasonCode.UNSPECIFIED_ERROR

    def __init__(self, text: str, reason: ReasonCode | None = None) -> None:
        super().__init__(text)
        self.reason = self.default_reason if reason is None else reason


class MalformedPacket(MqttError):
    """Bytes that are no packet (0x81)."""

    default_reason = ReasonCode.MALFORMED_PACKET


class ProtocolViolation(MqttError):
    """Packet that may not come now, or not with these contents (0x82)."""

    default_reason = ReasonCode.PROTOCOL_ERROR


class UnsupportedVersion(MqttError):
    """Version of MQTT that is not supported (0x84)."""

    default_reason = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION


class ClientIdentifierNotValid(MqttError):
    """Client id that cannot be used (0x85)."""

    default_reason = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


class ReceiveMaximumExceeded(MqttError):
    """Excess of messages in flight over the agreed number (0x93)."""

    default_reason = ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


class TopicAliasInvalid(MqttError):
    """Alias without a topic, or too large (0x94)."""

    default_reason = ReasonCode.TOPIC_ALIAS_INVALID


class PacketTooLarge(MqttError):
    """Packet above the agreed size (0x95)."""

    default_reason = ReasonCode.PACKET_TOO_LARGE


class RetainNotSupported(MqttError):
    """RETAIN where the server keeps nothing (0x9A)."""

    default_reason = ReasonCode.RETAIN_NOT_SUPPORTED


class QosNotSupported(MqttError):
    """QoS the server does not offer (0x9B)."""

    default_reason = ReasonCode.QOS_NOT_SUPPORTED


class Refused(MqttError):
    """Refusal by the other end, with its reason code."""


class UnsendablePacket(MqttError):
    """Packet that this version of MQTT cannot carry."""

    default_reason = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR


# MQTT 3.1.1 §3.2.2.3. A reason without an entry has no CONNACK in 3.x: the connection is closed silently.
_CONNACK_V3 = {
    ReasonCode.SUCCESS: 0,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 1,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 2,
    ReasonCode.SERVER_UNAVAILABLE: 3,
    ReasonCode.SERVER_BUSY: 3,
    ReasonCode.SERVER_SHUTTING_DOWN: 3,
    ReasonCode.QUOTA_EXCEEDED: 3,
    ReasonCode.CONNECTION_RATE_EXCEEDED: 3,
    ReasonCode.USE_ANOTHER_SERVER: 3,
    ReasonCode.SERVER_MOVED: 3,
    ReasonCode.UNSPECIFIED_ERROR: 3,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: 4,
    ReasonCode.BAD_AUTHENTICATION_METHOD: 4,
    ReasonCode.NOT_AUTHORIZED: 5,
    ReasonCode.BANNED: 5,
}
_REASON_OF_V3 = (
    ReasonCode.SUCCESS,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED,
)


def connack_code_v3(reason: int) -> int | None:
    """Returns the CONNACK return code of MQTT 3.1 and 3.1.1 for a reason; None where 3.x only closes the
    connection.
    """
    return _CONNACK_V3.get(reason)  # type: ignore[call-overload, no-any-return]


def reason_of_connack_v3(code: int) -> ReasonCode:
    """Returns the MQTT 5 reason for a return code 0..5 of a 3.x CONNACK (the decoder refuses other values)."""
    return _REASON_OF_V3[code]


# ---------------------------------------------------------------------------------------------- strings


def decode_utf8(raw: bytes) -> str:
    """Decodes an MQTT string (§1.5.4). Raises MalformedPacket on bad UTF-8, surrogates or U+0000."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("string is not UTF-8") from None
    if "\0" in text:
        raise MalformedPacket("string contains U+0000")
    return text


def check_topic_name(topic: str) -> str:
    """Returns the topic if a PUBLISH may carry it (§4.7.3); raises MalformedPacket if empty, wildcard or too long."""
    if not topic:
        raise MalformedPacket("topic name is empty")
    if "+" in topic or "#" in topic:
        raise MalformedPacket("topic name contains a wildcard")
    _check_length_and_null(topic)
    return topic


def check_topic_filter(topic_filter: str) -> str:
    """Returns the filter if SUBSCRIBE may carry it (§4.7.1, §4.8.2); raises MalformedPacket otherwise.

    `$share/name/filter` is held to the grammar of shared subscriptions in every version: a 3.1.1 client writing it
    means a shared subscription, since no topic below `$share/` is ever published. Text behind a `?` is not read here:
    the broker treats it as an expression or as part of the filter.
    """
    _check_length_and_null(topic_filter)
    rest = topic_filter
    if topic_filter.startswith("$share/"):
        name, _, rest = topic_filter[7:].partition("/")
        if not name or "+" in name or "#" in name:
            raise MalformedPacket("shared subscription has no valid share name")
    if not rest:
        raise MalformedPacket("topic filter is empty")
    rest = rest.partition("?")[0]
    if "#" in rest or "+" in rest:
        levels = rest.split("/")
        if any("#" in level for level in levels[:-1]) or ("#" in levels[-1] and levels[-1] != "#"):
            raise MalformedPacket("# is not alone in the last level of the topic filter")
        if any("+" in level and level != "+" for level in levels):
            raise MalformedPacket("+ is not alone in its level of the topic filter")
    return topic_filter


def _check_length_and_null(text: str) -> None:
    if "\0" in text:
        raise MalformedPacket("string contains U+0000")
    # Four bytes a character at most: the exact length is only computed for strings that could be too long.
    if len(text) * 4 > MAXIMUM_STRING_BYTES and len(text.encode("utf-8", "replace")) > MAXIMUM_STRING_BYTES:
        raise MalformedPacket("string is longer than 65535 bytes")


# ---------------------------------------------------------------------------- variable byte integer


def encode_varint(value: int) -> bytes:
    """Encodes a variable byte integer (§1.5.5), one to four bytes. Raises UnsendablePacket above 268,435,455."""
    if 0 <= value < 0x80:
        return bytes((value,))
    if 0 <= value <= MAXIMUM_REMAINING_LENGTH:
        encoded = bytearray()
        while value > 0x7F:
            encoded.append(value & 0x7F | 0x80)
            value >>= 7
        encoded.append(value)
        return bytes(encoded)
    raise UnsendablePacket(f"{value} does not fit a variable byte integer")


def decode_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns (value, position after it), reading below `end`; position -1 if more bytes are needed.

    Raises MalformedPacket beyond four bytes and where fewer bytes would do. The encoding MUST be the shortest
    (MQTT-1.5.5-1): a packet with several encodings could evade a filter.
    """
    value = shift = 0
    for position in range(at, min(at + 4, end)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise MalformedPacket("variable byte integer is not in its shortest form")
            return value, position + 1
        shift += 7
    if end - at >= 4:
        raise MalformedPacket("variable byte integer is longer than four bytes")
    return 0, -1
