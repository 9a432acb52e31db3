"""Strict parsers from bodies of MQTT packets to packet objects: the slow path behind `codec.Decoder`.

Each function gets the whole read and the bounds of a body, so that only strings and payloads are copied.
`codec.Decoder.feed` handles PUBLISH and plain acknowledgements in its own loop. Source: MQTT 5.0 and 3.1.1, chapter 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from gateway.mqtt5.encoding import codes_of
from gateway.mqtt5.packets import (
    KIN_LEVEL,
    NO_PROPERTIES,
    PRIVATE_BIT,
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
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt5.properties import Carrier, decode_properties, read_binary, read_string
from gateway.mqtt5.types import (
    ClientIdentifierNotValid,
    MalformedPacket,
    MqttError,
    ProtocolViolation,
    ReasonCode,
    UnsupportedVersion,
    check_topic_filter,
    check_topic_name,
    decode_varint,
)

FILTERS_MAX = 16_384
"""Topic filters of one SUBSCRIBE or UNSUBSCRIBE, more than a client may hold by default. Stops packets of 200,000
filters, whose parsing keeps all other clients waiting.
"""
SUBSCRIBE, UNSUBSCRIBE = 0x82, 0xA2
"""First bytes of packets with filters."""
HEAD_BYTES = 4_096
"""Bytes in which identifier and properties of a packet have to end whose filters are parsed while they come."""
Parser: TypeAlias = Callable[[bytes, int, int, Version], Packet]
_Begun: TypeAlias = tuple[int, Properties, list[Any]]


def _packet_id(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 2 > end:
        raise MalformedPacket("packet ends inside its identifier")
    packet_id = data[at] << 8 | data[at + 1]
    if packet_id == 0:
        raise MalformedPacket("packet identifier is 0")
    return packet_id, at + 2


def _properties(data: bytes, at: int, end: int, carrier: Carrier, version: Version) -> tuple[Properties, int]:
    return decode_properties(data, at, end, carrier) if version == Version.V5 else (NO_PROPERTIES, at)


def _at_end(at: int, end: int) -> None:
    if at != end:
        raise MalformedPacket("bytes after the end of the packet")


# ------------------------------------------------------------------------------------------ CONNECT, CONNACK


_HEADS_OF_5 = b"\0\4MQTT\5", b"\0\4MQTT" + bytes((KIN_LEVEL,))


def is_connect_v5(data: bytes, at: int, end: int) -> bool:
    """True if a CONNECT states MQTT 5, whatever follows: then a CONNACK can name the error."""
    return data[at : min(at + 7, end)] in _HEADS_OF_5


def parse_connect(data: bytes, at: int, end: int) -> Connect:
    """Parses a CONNECT of any version. Raises UnsupportedVersion, ClientIdentifierNotValid, MalformedPacket,
    ProtocolViolation.
    """
    name, at = read_binary(data, at, end)
    if name not in (b"MQTT", b"MQIsdp"):
        raise UnsupportedVersion("protocol name is neither MQTT nor MQIsdp")
    if at + 4 > end:
        raise MalformedPacket("CONNECT ends inside its header")
    level, flags, keep_alive_s = data[at], data[at + 1], data[at + 2] << 8 | data[at + 3]
    is_bridge = level in (Version.V31 | PRIVATE_BIT, Version.V311 | PRIVATE_BIT)
    is_kin = level == KIN_LEVEL and name == b"MQTT"
    if is_bridge:
        level ^= PRIVATE_BIT
    elif is_kin:
        level = Version.V5
    if level not in ((3,) if name == b"MQIsdp" else (4, 5)):
        raise UnsupportedVersion(f"protocol level {level} is not spoken here")
    version = Version(level)
    _check_connect_flags(flags, version)
    layout = Version.V311 if is_kin else version
    properties, at = _properties(data, at + 4, end, Carrier.CONNECT, layout)
    client_id, at = read_string(data, at, end)
    will: Will | None = None
    if flags & 0x04:
        will, at = _will(data, at, end, flags, layout)
    username: str | None = None
    password: bytes | None = None
    if flags & 0x80:
        username, at = read_string(data, at, end)
    if flags & 0x40:
        password, at = read_binary(data, at, end)
    if is_kin:
        properties, at = _properties(data, at, end, Carrier.CONNECT, version)
    _check_method(properties)
    _at_end(at, end)
    clean = flags & 0x02 != 0
    if not client_id and (version == Version.V31 or (version == Version.V311 and not clean)):
        raise ClientIdentifierNotValid("client identifier is empty")
    return Connect(client_id, version, clean, keep_alive_s, username, password, will, properties, is_bridge, is_kin)


def _check_connect_flags(flags: int, version: Version) -> None:
    if flags & 0x01:
        raise MalformedPacket("reserved flag of CONNECT is set")
    if flags & 0x04:
        if flags & 0x18 == 0x18:
            raise MalformedPacket("will has QoS 3")
    elif flags & 0x38:
        raise MalformedPacket("will QoS or will retain without a will")
    if flags & 0xC0 == 0x40 and version != Version.V5:
        raise MalformedPacket("password without user name")


def _check_method(properties: Properties) -> None:
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolViolation("authentication data without an authentication method")


def _will(data: bytes, at: int, end: int, flags: int, version: Version) -> tuple[Will, int]:
    properties, at = _properties(data, at, end, Carrier.WILL, version)
    topic, at = read_string(data, at, end)
    payload, at = read_binary(data, at, end)
    return Will(check_topic_name(topic), payload, flags >> 3 & 3, flags & 0x20 != 0, properties), at


def _connack(data: bytes, at: int, end: int, version: Version) -> ConnAck:
    if at + 2 > end:
        raise MalformedPacket("CONNACK ends inside its header")
    flags, code = data[at], data[at + 1]
    if flags & 0xFE:
        raise MalformedPacket("reserved flags of CONNACK are set")
    _check_code(code, Carrier.CONNACK, version)
    if flags and code:
        raise ProtocolViolation("CONNACK refuses and reports a session")
    properties, at = _properties(data, at + 2, end, Carrier.CONNACK, version)
    _at_end(at, end)
    return ConnAck(flags == 1, code, properties)


# ---------------------------------------------------------------------------------------- acknowledgements


def _check_code(code: int, carrier: Carrier, version: Version) -> None:
    if code not in codes_of(carrier, version):
        raise MalformedPacket(f"{carrier.name} has no code 0x{code:02x}")


def _code_and_properties(
    data: bytes, at: int, end: int, carrier: Carrier, besides: int | None = None
) -> tuple[int, Properties]:
    """Parses an optional reason code, then optional properties (§3.4.2.1: absent means success and none)."""
    if at == end:
        return 0, NO_PROPERTIES
    code = data[at]
    if code != besides:
        _check_code(code, carrier, Version.V5)
    at += 1
    if at == end:
        return code, NO_PROPERTIES
    properties, at = decode_properties(data, at, end, carrier)
    _at_end(at, end)
    return code, properties


def _acknowledgement(
    cls: type[PubAck | PubRec | PubRel | PubComp], carrier: Carrier, besides: int | None = None
) -> Parser:
    """Returns a parser of acknowledgements. `besides`: a code that MQTT forbids here and that is accepted all the
    same.
    """

    def parse(data: bytes, at: int, end: int, version: Version) -> Packet:
        packet_id, at = _packet_id(data, at, end)
        if version != Version.V5:
            _at_end(at, end)
            return cls(packet_id)
        return cls(packet_id, *_code_and_properties(data, at, end, carrier, besides))

    return parse


# --------------------------------------------------------------------------------------------- subscriptions


def _subscribe(data: bytes, at: int, end: int, version: Version) -> Subscribe:
    packet_id, at = _packet_id(data, at, end)
    properties, at = _properties(data, at, end, Carrier.SUBSCRIBE, version)
    return _subscribed(data, at, end, version, (packet_id, properties, []))


def _subscribed(data: bytes, at: int, end: int, version: Version, begun: _Begun) -> Subscribe:
    """Parses what is left of a SUBSCRIBE."""
    packet_id, properties, subscriptions = begun
    while at < end:
        subscription, at = _one_subscription(data, at, end, version)
        subscriptions.append(subscription)
        if len(subscriptions) > FILTERS_MAX:
            raise MqttError(f"SUBSCRIBE with more than {FILTERS_MAX} topic filters", ReasonCode.QUOTA_EXCEEDED)
    if not subscriptions:
        raise ProtocolViolation("SUBSCRIBE without a topic filter")
    return Subscribe(packet_id, tuple(subscriptions), properties)


def _one_subscription(data: bytes | bytearray, at: int, end: int, version: Version) -> tuple[Subscription, int]:
    topic_filter, at = read_string(data, at, end)  # type: ignore[arg-type]
    if at == end:
        raise MalformedPacket("topic filter without options")
    return _subscription(check_topic_filter(topic_filter), data[at], version), at + 1


def _subscription(topic_filter: str, options: int, version: Version) -> Subscription:
    if options & 3 == 3:
        raise MalformedPacket("subscription with QoS 3")
    if version != Version.V5:
        if options & 0xFC:
            raise MalformedPacket("reserved bits of a subscription are set")
        return Subscription(topic_filter, options)
    if options & 0xC0:
        raise MalformedPacket("reserved bits of a subscription are set")
    if options & 0x30 == 0x30:
        raise ProtocolViolation("retain handling is 3")
    if options & 0x04 and topic_filter.startswith("$share/"):
        raise ProtocolViolation("shared subscription is no-local")
    return Subscription(topic_filter, options & 3, options & 4 != 0, options & 8 != 0, options >> 4)


def _suback(data: bytes, at: int, end: int, version: Version) -> SubAck:
    packet_id, at = _packet_id(data, at, end)
    properties, at = _properties(data, at, end, Carrier.SUBACK, version)
    return SubAck(packet_id, _codes(data[at:end], Carrier.SUBACK, version), properties)


def _codes(raw: bytes, carrier: Carrier, version: Version) -> tuple[int, ...]:
    if not raw:
        raise MalformedPacket(f"{carrier.name} without a code")
    for code in raw:
        _check_code(code, carrier, version)
    return tuple(raw)


def _unsubscribe(data: bytes, at: int, end: int, version: Version) -> Unsubscribe:
    packet_id, at = _packet_id(data, at, end)
    properties, at = _properties(data, at, end, Carrier.UNSUBSCRIBE, version)
    return _unsubscribed(data, at, end, (packet_id, properties, []))


def _unsubscribed(data: bytes, at: int, end: int, begun: _Begun) -> Unsubscribe:
    """Parses what is left of an UNSUBSCRIBE."""
    packet_id, properties, filters = begun
    while at < end:
        topic_filter, at = read_string(data, at, end)
        filters.append(check_topic_filter(topic_filter))
        if len(filters) > FILTERS_MAX:
            raise MqttError(f"UNSUBSCRIBE with more than {FILTERS_MAX} topic filters", ReasonCode.QUOTA_EXCEEDED)
    if not filters:
        raise ProtocolViolation("UNSUBSCRIBE without a topic filter")
    return Unsubscribe(packet_id, tuple(filters), properties)


class LongFilters:
    """Filters of a long SUBSCRIBE or UNSUBSCRIBE, parsed while its bytes come: thousands of them at once would keep
    all other clients waiting. An error is left to `packet`, as if nothing had been parsed before.
    """

    def __init__(self, first: int, version: Version) -> None:
        self._first, self._version = first, version
        self._begun: _Begun | None = None
        self._at = 0

    def parse_whole(self, data: bytearray) -> None:
        """Parses the filters that are whole by now, of a packet that begins with `data`."""
        is_subscribe, version, end = self._first == SUBSCRIBE, self._version, len(data)
        try:
            if self._begun is None:
                head = bytes(data[:HEAD_BYTES])
                _, at = decode_varint(head, 1, len(head))
                packet_id, at = _packet_id(head, at, len(head))
                carrier = Carrier.SUBSCRIBE if is_subscribe else Carrier.UNSUBSCRIBE
                properties, self._at = _properties(head, at, len(head), carrier, version)
                self._begun = packet_id, properties, []
            at, found = self._at, self._begun[2]
            while at + 2 <= end and len(found) <= FILTERS_MAX:
                stop = at + 2 + (data[at] << 8 | data[at + 1]) + is_subscribe
                if stop > end:
                    break
                if is_subscribe:
                    subscription, at = _one_subscription(data, at, stop, version)
                    found.append(subscription)
                else:
                    topic_filter, at = read_string(data, at, stop)  # type: ignore[arg-type]
                    found.append(check_topic_filter(topic_filter))
                self._at = at
        except MqttError:
            return

    def packet(self, data: bytes, start: int, end: int) -> Packet:
        """Parses the rest of the packet, whose body is all of `data` from `start` to `end`."""
        if self._begun is None:
            return FROM_CLIENT_V5[self._first](data, start, end, self._version)
        if self._first == SUBSCRIBE:
            return _subscribed(data, self._at, end, self._version, self._begun)
        return _unsubscribed(data, self._at, end, self._begun)


def _unsuback(data: bytes, at: int, end: int, version: Version) -> UnsubAck:
    packet_id, at = _packet_id(data, at, end)
    if version != Version.V5:
        _at_end(at, end)
        return UnsubAck(packet_id)
    properties, at = decode_properties(data, at, end, Carrier.UNSUBACK)
    return UnsubAck(packet_id, _codes(data[at:end], Carrier.UNSUBACK, version), properties)


# ------------------------------------------------------------------------------------- the rest, and the table


def _pingreq(data: bytes, at: int, end: int, version: Version) -> PingReq:
    _at_end(at, end)
    return PingReq()


def _pingresp(data: bytes, at: int, end: int, version: Version) -> PingResp:
    _at_end(at, end)
    return PingResp()


def _disconnect(data: bytes, at: int, end: int, version: Version) -> Disconnect:
    if version != Version.V5:
        _at_end(at, end)
        return Disconnect()
    return Disconnect(*_code_and_properties(data, at, end, Carrier.DISCONNECT))


def _auth(data: bytes, at: int, end: int, version: Version) -> Auth:
    code, properties = _code_and_properties(data, at, end, Carrier.AUTH)
    _check_method(properties)
    return Auth(code, properties)


# First byte (type and the flags that the type prescribes, §2.1.3) -> parser, for each direction. A first
# byte that is not here is refused: PUBLISH has its own path, CONNECT is only ever the first packet.
_BOTH: dict[int, Parser] = {
    0x40: _acknowledgement(PubAck, Carrier.PUBACK),
    0x50: _acknowledgement(PubRec, Carrier.PUBREC),
    0x62: _acknowledgement(PubRel, Carrier.PUBREL),
    0x70: _acknowledgement(PubComp, Carrier.PUBCOMP),
}
FROM_CLIENT_V3: dict[int, Parser] = {
    **_BOTH, 0x82: _subscribe, 0xA2: _unsubscribe, 0xC0: _pingreq, 0xE0: _disconnect
}  # fmt: skip
# A client of MQTT 3.1 sets DUP in repeated packets (§2.1.2 and §4.2 there); later versions reserve the flag.
FROM_CLIENT_V31: dict[int, Parser] = {
    **FROM_CLIENT_V3, **{first | 0x08: one for first, one in FROM_CLIENT_V3.items() if first in (0x62, 0x82, 0xA2)}
}  # fmt: skip
FROM_SERVER_V3: dict[int, Parser] = {**_BOTH, 0x20: _connack, 0x90: _suback, 0xB0: _unsuback, 0xD0: _pingresp}
FROM_CLIENT_V5: dict[int, Parser] = {**FROM_CLIENT_V3, 0xF0: _auth}
# Mosquitto answers a message above its `message_size_limit` with a code that PUBACK and PUBREC lack (§3.4.2.1).
# If a client disconnected for this, its session would send the message again after each reconnect, for ever.
FROM_SERVER_V5: dict[int, Parser] = {
    **FROM_SERVER_V3,
    0x40: _acknowledgement(PubAck, Carrier.PUBACK, ReasonCode.PACKET_TOO_LARGE),
    0x50: _acknowledgement(PubRec, Carrier.PUBREC, ReasonCode.PACKET_TOO_LARGE),
    0xE0: _disconnect,
    0xF0: _auth,
}

# Codes of DISCONNECT and AUTH by sender (§3.14.2.1, §3.15.2.1): the packets are the same, their meaning is not.
_DISCONNECT_FROM_BOTH = frozenset({0x00, 0x80, 0x81, 0x82, 0x83, 0x90, *range(0x93, 0x9A)})
DISCONNECT_FROM_CLIENT = _DISCONNECT_FROM_BOTH | {0x04}
DISCONNECT_FROM_SERVER = codes_of(Carrier.DISCONNECT, Version.V5) - {0x04}
AUTH_FROM_CLIENT = frozenset({0x18, 0x19})
AUTH_FROM_SERVER = frozenset({0x00, 0x18})
