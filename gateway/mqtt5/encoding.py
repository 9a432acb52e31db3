"""Encoder of packets to bytes for MQTT 3.1, 3.1.1 and 5. The other direction is `codec.Decoder`.

Writes the shortest form of every packet, so that equal packets are equal bytes. A packet that cannot be sent raises
UnsendablePacket before a byte exists: the fault is always on this side, never the peer's. Source: MQTT 5.0 and 3.1.1,
chapter 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
)
from gateway.mqtt5.properties import Carrier, encode_properties, encode_property_fields, write_binary, write_string
from gateway.mqtt5.types import (
    MAXIMUM_PACKET_ID,
    MAXIMUM_REMAINING_LENGTH,
    MalformedPacket,
    UnsendablePacket,
    check_topic_filter,
    check_topic_name,
    encode_varint,
)


def encode(packet: Packet, version: Version) -> bytes:
    """Encodes a single packet for a connection of `version`.

    MQTT 5 properties and reason codes are left out silently on 3.x connections, where they do not exist; an UNSUBACK
    loses its codes, DISCONNECT its code. Raises UnsendablePacket for everything else that `version` cannot carry
    (AUTH in 3.1.1, a packet id of 0, a string of 70,000 bytes, ...).
    """
    try:
        return _ENCODERS[type(packet)](packet, version)
    except MalformedPacket as error:
        raise UnsendablePacket(str(error)) from None
    except (OverflowError, TypeError, AttributeError, KeyError, ValueError) as error:
        raise UnsendablePacket(f"cannot encode {type(packet).__name__}: {error}") from None


def _frame(first: int, body: bytes) -> bytes:
    return bytes((first,)) + encode_varint(len(body)) + body


def _packet_id(packet_id: int) -> bytes:
    if not 0 < packet_id <= MAXIMUM_PACKET_ID:
        raise UnsendablePacket(f"packet identifier {packet_id} is not in 1..65535")
    return packet_id.to_bytes(2, "big")


# ----------------------------------------------------------------------------------- PUBLISH, the hot path


def encode_publish(
    topic: bytes | str,
    payload: bytes,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
    properties_bytes: bytes | None = None,
    version: Version = Version.V5,
) -> bytes:
    """Encodes a PUBLISH from its parts. `properties_bytes`: encoded properties *without* their length
    (`encode_property_fields`), ignored below MQTT 5. A topic given as bytes is trusted to be valid.

    Raises UnsendablePacket.
    """
    name = _names.get(topic)
    if name is None:
        name = _name(topic)
    if version == Version.V5:
        fields = properties_bytes or b""
        properties = encode_varint(len(fields)) + fields
        variable = name + _packet_id(packet_id) + properties if qos else name + properties
    else:
        variable = name + _packet_id(packet_id) if qos else name
    return _publish_frame(_BYTES[0x30 | dup << 3 | qos << 1 | retain], variable, payload)


def encode_run(
    topic: str, payloads: Sequence[bytes], qos: Sequence[int], packet_ids: Sequence[int], version: Version
) -> list[bytes]:
    """Returns what `encode_publish` returns for each of these messages of QoS 1 or 2 without flags and properties."""
    name = _names.get(topic) or _name(topic)
    tail = b"\0" if version == Version.V5 else b""
    fixed, join = len(name) + 2 + len(tail), b"".join
    packets, before, head = list[bytes](), (-1, -1), b""
    for payload, own, packet_id in zip(payloads, qos, packet_ids, strict=True):
        if (own, len(payload)) != before:
            before = own, len(payload)
            head = _BYTES[0x30 | own << 1] + encode_varint(fixed + len(payload)) + name
        packets.append(join((head, packet_id.to_bytes(2, "big"), tail, payload)))
    return packets


def encode_retained(topic: str, payload: bytes, properties_bytes: bytes, version: Version) -> bytes:
    """Encodes a retained PUBLISH at QoS 0 for a new subscriber. The topic is trusted to be valid. It is not remembered:
    a hundred thousand of them would displace the names that are published again and again.
    """
    raw = topic.encode()
    variable = len(raw).to_bytes(2, "big") + raw
    if version == Version.V5:
        variable += encode_varint(len(properties_bytes)) + properties_bytes if properties_bytes else b"\0"
    return _publish_frame(b"\x31", variable, payload)


def _publish_frame(first: bytes, variable: bytes, payload: bytes) -> bytes:
    length = len(variable) + len(payload)
    # Nearly all lengths take one or two bytes, and a table costs a fifth of the general function.
    if length < 0x80:
        return first + _BYTES[length] + variable + payload
    if length < 0x4000:
        return first + _BYTES[length & 0x7F | 0x80] + _BYTES[length >> 7] + variable + payload
    return b"".join((first, encode_varint(length), variable, payload))


_BYTES = [bytes((value,)) for value in range(256)]

# Encoded topic names with their length, bounded as the decoder's cache is and for the same reason. Keys are
# str (checked on entry) or bytes (trusted).
NAME_CACHE_ENTRIES = 32_768
NAME_CACHE_BYTES = 256
EACH_ITS_OWN = b"$Constrained/"
"""Prefix of names that are not cached. Each of tens of thousands of traced entities has several such names, and each
name is seldom used: they would displace all other names from the caches.
"""
_names: dict[str | bytes, bytes] = {}


def encode_name(topic: str) -> bytes:
    """Encodes a topic name with its length. Raises UnsendablePacket for a name that is not valid."""
    if "+" in topic or "#" in topic:
        raise UnsendablePacket("topic name contains a wildcard")
    return write_string(topic)


def _name(topic: str | bytes) -> bytes:
    name = write_binary(topic) if isinstance(topic, bytes) else encode_name(topic)
    if len(name) <= NAME_CACHE_BYTES and not name.startswith(EACH_ITS_OWN, 2):
        if len(_names) >= NAME_CACHE_ENTRIES:
            _names.clear()
        _names[topic] = name
    return name


class PublishTemplate:
    """Publication serialised once for all receivers of equal (version, QoS, retain).

    `packet` is the finished QoS 0 packet; for QoS 1 and 2 `with_packet_id` joins head, id and tail, so a fan-out to
    thousands costs a single concatenation each. `size` is the length of the packet on the wire.
    """

    __slots__ = ("_dup_head", "_head", "_tail", "packet", "size")

    def __init__(
        self,
        topic: bytes | str,
        payload: bytes,
        qos: int,
        retain: bool,
        version: Version,
        properties_bytes: bytes | None = None,
    ) -> None:
        packet = encode_publish(topic, payload, qos, retain, False, 1 if qos else 0, properties_bytes, version)
        self.size = len(packet)
        self.packet = packet
        self._head = self._dup_head = self._tail = b""
        if qos:
            at = self.size - _remaining_of(self.size) + len(_names.get(topic) or _name(topic))
            self._head, self._tail = packet[:at], packet[at + 2 :]
            self._dup_head = bytes((packet[0] | 8,)) + packet[1:at]

    def with_packet_id(self, packet_id: int, dup: bool = False) -> bytes:
        """Returns the packet for a receiver; `dup` for redelivery. Only for QoS 1 and 2."""
        return (self._dup_head if dup else self._head) + packet_id.to_bytes(2, "big") + self._tail


def _remaining_of(size: int) -> int:
    """Returns the remaining length of a packet of `size` bytes: `size` without type byte and length bytes."""
    for length_bytes, most in ((1, 0x7F), (2, 0x3FFF), (3, 0x1FFFFF), (4, MAXIMUM_REMAINING_LENGTH)):
        if size - 1 - length_bytes <= most:
            return size - 1 - length_bytes
    raise UnsendablePacket("packet is longer than MQTT allows")


def _publish(packet: Publish, version: Version) -> bytes:
    if packet.qos not in (0, 1, 2):
        raise UnsendablePacket(f"QoS {packet.qos} does not exist")
    if packet.qos == 0 and (packet.dup or packet.packet_id):
        raise UnsendablePacket("QoS 0 has neither DUP nor a packet identifier")
    fields: bytes | None = None
    if version == Version.V5 and packet.properties is not NO_PROPERTIES:
        fields = encode_property_fields(packet.properties, Carrier.PUBLISH)
    if not packet.topic and (version != Version.V5 or packet.properties.topic_alias is None):
        raise UnsendablePacket("topic name is empty and no alias stands for it")
    return encode_publish(
        packet.topic, packet.payload, packet.qos, packet.retain, packet.dup, packet.packet_id, fields, version
    )


# ------------------------------------------------------------------------------------- the other fourteen

_NAMES = {Version.V31: b"\0\6MQIsdp\3", Version.V311: b"\0\4MQTT\4", Version.V5: b"\0\4MQTT\5"}


def _connect(packet: Connect, version: Version) -> bytes:
    if packet.version != version:
        raise UnsendablePacket("CONNECT names another version than the connection")
    will, v5 = packet.will, version == Version.V5
    flags = bool(packet.clean_start) << 1
    payload = write_string(packet.client_id)
    if not v5 and not packet.client_id and (version == Version.V31 or not packet.clean_start):
        raise UnsendablePacket("MQTT 3.x needs a client identifier here")
    if will is not None:
        if will.qos not in (0, 1, 2):
            raise UnsendablePacket(f"QoS {will.qos} does not exist")
        flags |= 0x04 | will.qos << 3 | bool(will.retain) << 5
        if v5 and not packet.is_kin:
            payload += encode_properties(will.properties, Carrier.WILL)
        payload += write_string(check_topic_name(will.topic)) + write_binary(will.payload)
    if packet.username is not None:
        flags |= 0x80
        payload += write_string(packet.username)
    if packet.password is not None:
        if not v5 and packet.username is None:
            raise UnsendablePacket("MQTT 3.x has no password without user name")
        flags |= 0x40
        payload += write_binary(packet.password)
    name = _NAMES[version]
    if packet.is_bridge and not v5:
        name = name[:-1] + bytes((name[-1] | PRIVATE_BIT,))
    elif packet.is_kin and v5:
        name = name[:-1] + bytes((KIN_LEVEL,))
    head = name + bytes((flags,)) + packet.keep_alive_s.to_bytes(2, "big")
    properties = _with_method(packet.properties, Carrier.CONNECT) if v5 else b""
    return _frame(0x10, head + payload + properties if packet.is_kin else head + properties + payload)


def _with_method(properties: Properties, carrier: Carrier) -> bytes:
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise UnsendablePacket("authentication data without an authentication method")
    return encode_properties(properties, carrier)


def _connack(packet: ConnAck, version: Version) -> bytes:
    if packet.code and packet.session_present:
        raise UnsendablePacket("a refused connection has no session")
    if packet.code not in codes_of(Carrier.CONNACK, version):
        raise UnsendablePacket(f"CONNACK has no code {packet.code}")
    body = bytes((packet.session_present, packet.code))
    if version == Version.V5:
        body += encode_properties(packet.properties, Carrier.CONNACK)
    return _frame(0x20, body)


def _acknowledgement(carrier: Carrier, first: int) -> Callable[[Any, Version], bytes]:
    def write(packet: PubAck | PubRec | PubRel | PubComp, version: Version) -> bytes:
        body = _packet_id(packet.packet_id)
        if version == Version.V5:
            body += _code_and_properties(packet.code, packet.properties, carrier)
        return _frame(first, body)

    return write


def _code_and_properties(code: int, properties: Properties, carrier: Carrier) -> bytes:
    """Encodes the tail of PUBACK to PUBCOMP, DISCONNECT and AUTH, which is empty for a success without properties."""
    if code not in codes_of(carrier, Version.V5):
        raise UnsendablePacket(f"{carrier.name} has no code {code}")
    encoded = encode_properties(properties, carrier)
    if encoded != b"\0":
        return bytes((code,)) + encoded
    return bytes((code,)) if code else b""


def _subscribe(packet: Subscribe, version: Version) -> bytes:
    if not packet.subscriptions:
        raise UnsendablePacket("SUBSCRIBE without a topic filter")
    body = _packet_id(packet.packet_id)
    if version == Version.V5:
        body += encode_properties(packet.properties, Carrier.SUBSCRIBE)
    return _frame(0x82, body + b"".join(_subscription(one, version) for one in packet.subscriptions))


def _subscription(one: Subscription, version: Version) -> bytes:
    if one.qos not in (0, 1, 2) or one.retain_handling not in (0, 1, 2):
        raise UnsendablePacket("no such QoS or retain handling")
    options = one.qos
    if version == Version.V5:
        if one.no_local and one.filter.startswith("$share/"):
            raise UnsendablePacket("a shared subscription cannot be no-local")
        options |= one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
    return write_string(check_topic_filter(one.filter)) + bytes((options,))


def _suback(packet: SubAck, version: Version) -> bytes:
    allowed = codes_of(Carrier.SUBACK, version)
    codes = packet.codes
    if version != Version.V5:
        codes = tuple(code if code < 0x80 else 0x80 for code in codes)
    if not codes or not allowed.issuperset(codes):
        raise UnsendablePacket("SUBACK has no such codes")
    body = _packet_id(packet.packet_id)
    if version == Version.V5:
        body += encode_properties(packet.properties, Carrier.SUBACK)
    return _frame(0x90, body + bytes(codes))


def _unsubscribe(packet: Unsubscribe, version: Version) -> bytes:
    if not packet.filters:
        raise UnsendablePacket("UNSUBSCRIBE without a topic filter")
    body = _packet_id(packet.packet_id)
    if version == Version.V5:
        body += encode_properties(packet.properties, Carrier.UNSUBSCRIBE)
    return _frame(0xA2, body + b"".join(write_string(check_topic_filter(one)) for one in packet.filters))


def _unsuback(packet: UnsubAck, version: Version) -> bytes:
    body = _packet_id(packet.packet_id)
    if version == Version.V5:
        if not packet.codes or not codes_of(Carrier.UNSUBACK, version).issuperset(packet.codes):
            raise UnsendablePacket("UNSUBACK has no such codes")
        body += encode_properties(packet.properties, Carrier.UNSUBACK) + bytes(packet.codes)
    return _frame(0xB0, body)


def _pingreq(packet: PingReq, version: Version) -> bytes:
    return b"\xc0\0"


def _pingresp(packet: PingResp, version: Version) -> bytes:
    return b"\xd0\0"


def _disconnect(packet: Disconnect, version: Version) -> bytes:
    if version != Version.V5:
        return b"\xe0\0"
    return _frame(0xE0, _code_and_properties(packet.code, packet.properties, Carrier.DISCONNECT))


def _auth(packet: Auth, version: Version) -> bytes:
    if version != Version.V5:
        raise UnsendablePacket("AUTH exists in MQTT 5 only")
    _with_method(packet.properties, Carrier.AUTH)
    return _frame(0xF0, _code_and_properties(packet.code, packet.properties, Carrier.AUTH))


_ENCODERS: dict[type, Callable[[Any, Version], bytes]] = {
    Connect: _connect,
    ConnAck: _connack,
    Publish: _publish,
    PubAck: _acknowledgement(Carrier.PUBACK, 0x40),
    PubRec: _acknowledgement(Carrier.PUBREC, 0x50),
    PubRel: _acknowledgement(Carrier.PUBREL, 0x62),
    PubComp: _acknowledgement(Carrier.PUBCOMP, 0x70),
    Subscribe: _subscribe,
    SubAck: _suback,
    Unsubscribe: _unsubscribe,
    UnsubAck: _unsuback,
    PingReq: _pingreq,
    PingResp: _pingresp,
    Disconnect: _disconnect,
    Auth: _auth,
}

# ------------------------------------------------------------------------------ codes that a packet may have

_PUBACK_CODES = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_RELEASE_CODES = frozenset({0x00, 0x92})
_V3_CODES = {Carrier.CONNACK: frozenset(range(6)), Carrier.SUBACK: frozenset({0, 1, 2, 0x80})}
_V5_CODES = {
    Carrier.CONNACK: frozenset({0x00, 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F, *range(0x80, 0x8B)}),
    Carrier.PUBACK: _PUBACK_CODES,
    Carrier.PUBREC: _PUBACK_CODES,
    Carrier.PUBREL: _RELEASE_CODES,
    Carrier.PUBCOMP: _RELEASE_CODES,
    Carrier.SUBACK: frozenset({0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}),
    Carrier.UNSUBACK: frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}),
    Carrier.DISCONNECT: frozenset(
        {0x00, 0x04, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, *range(0x80, 0x84), *range(0x90, 0xA3)} - {0x91, 0x92}
    ),
    Carrier.AUTH: frozenset({0x00, 0x18, 0x19}),
}


def codes_of(carrier: Carrier, version: Version) -> frozenset[int]:
    """Returns the reason codes the packet may have in `version` (the tables of chapter 3)."""
    return (_V5_CODES if version == Version.V5 else _V3_CODES)[carrier]
