"""Strict decoder that parses a whole read of bytes into packets at once. Encoding is re-exported from here.

    decoder = Decoder(None, maximum_packet_size=1 << 20, role="server")
    for packet in decoder.feed(read): ...
    if decoder.error is not None: ...    # after the packets that came before the bad one

Does not know sessions: `session` checks if an identifier is in use or a topic alias known. Source: MQTT 5.0 and
3.1.1, chapters 2 and 3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Literal

from gateway.mqtt5 import parsing
from gateway.mqtt5.copies import Copies
from gateway.mqtt5.encoding import (
    EACH_ITS_OWN,
    NAME_CACHE_BYTES,
    NAME_CACHE_ENTRIES,
    PublishTemplate,
    encode,
    encode_publish,
)
from gateway.mqtt5.packets import (
    NO_PROPERTIES,
    Auth,
    Disconnect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Version,
)
from gateway.mqtt5.properties import Carrier, decode_properties, encode_property_fields
from gateway.mqtt5.types import (
    MAXIMUM_REMAINING_LENGTH,
    MalformedPacket,
    MqttError,
    PacketTooLarge,
    ProtocolViolation,
    check_topic_name,
    decode_utf8,
    decode_varint,
)

__all__ = ["LONE_BYTES", "Decoder", "PublishTemplate", "encode", "encode_property_fields", "encode_publish", "pubacks"]

# Topic names that were checked before, by their bytes: a look-up costs a third of decoding and checking
# again, and equal topics become one str object whose hash the router finds already computed. Shared by all
# connections. Bounded in entries and in bytes of one name, so that a client that invents topics can make
# others slower (as slow as without the cache) but cannot fill memory: at most about 20 MiB.
_topics: dict[bytes, str] = {b"": ""}

# Acknowledgements that may be a packet identifier alone, by first byte; alike in all versions and both directions.
_BARE: dict[int, type[PubAck | PubRec | PubRel | PubComp]] = {0x40: PubAck, 0x50: PubRec, 0x62: PubRel, 0x70: PubComp}


def _topic(raw: bytes) -> str:
    """Returns a topic name from its bytes; the caller must refuse an empty name if no alias stands for it."""
    topic = check_topic_name(decode_utf8(raw))
    if len(raw) <= NAME_CACHE_BYTES and not raw.startswith(EACH_ITS_OWN):
        if len(_topics) >= NAME_CACHE_ENTRIES:
            _topics.clear()
            _topics[b""] = ""
        _topics[raw] = topic
    return topic


LONE_BYTES = 2 + 127
"""Bytes of the longest packet whose remaining length takes a byte, as packets with one reading have."""
_QOS_1 = 0x32  # first byte of a PUBLISH of QoS 1 without flags


def pubacks(data: bytes | memoryview) -> Sequence[int]:
    """Returns the packet identifiers of bytes that are whole PUBACKs of success and nothing else; else of none."""
    count, rest = divmod(len(data), 4)
    if rest or data[::4] != b"\x40" * count or data[1::4] != b"\2" * count:
        return ()
    return struct.unpack(f">{2 * count}H", data)[1::2]


class Decoder:
    """Decoder of a connection and a single direction.

    `role` is this side's: a "server" accepts packets of clients, a "client" packets of servers. A server passing
    `version=None` learns the version from CONNECT, which must come first and only once. `maximum_packet_size` counts
    the whole packet, and bounds the bytes held of a packet whose end has not come. `first_packet_size` (no larger)
    bounds CONNECT in the same way, because its sender is not yet known. `copies`: shared by the decoders of a client
    getting the same publications on several connections.

    `feed` never raises and never loses packets: it returns all packets before the first bad one, sets `error`
    (MalformedPacket, ProtocolViolation, PacketTooLarge, UnsupportedVersion, ClientIdentifierNotValid or
    TopicAliasInvalid), and returns nothing from then on.
    """

    __slots__ = (
        "_ahead",
        "_copies",
        "_held",
        "_needed",
        "_parsers",
        "_role",
        "answers_v5",
        "error",
        "first_packet_size",
        "maximum_packet_size",
        "version",
    )

    def __init__(
        self,
        version: Version | None,
        maximum_packet_size: int = MAXIMUM_REMAINING_LENGTH + 5,
        role: Literal["server", "client"] = "server",
        first_packet_size: int = MAXIMUM_REMAINING_LENGTH + 5,
        copies: Copies | None = None,
    ) -> None:
        if version is None and role == "client":
            raise ValueError("a client knows the version that it asked for")
        self.version = version
        self.maximum_packet_size = maximum_packet_size
        self.first_packet_size = min(first_packet_size, maximum_packet_size)
        self.error: MqttError | None = None
        # The first packet was refused, and was a CONNECT of MQTT 5: its sender understands a reason code (§4.13.1).
        self.answers_v5 = False
        self._role = role
        self._copies = copies if version == Version.V5 and role == "client" else None
        self._held: bytearray | bytes = b""  # a packet whose end has not come: at most maximum_packet_size and a read
        self._needed = 0  # bytes that complete it, as far as is known
        self._ahead: parsing.LongFilters | None = None  # filters of that packet
        self._parsers: dict[int, parsing.Parser] = {}
        if version is not None:
            self._learn_version(version)

    def _learn_version(self, version: Version) -> None:
        self.version = version
        if self._role == "server":
            v3 = parsing.FROM_CLIENT_V31 if version == Version.V31 else parsing.FROM_CLIENT_V3
            v5 = parsing.FROM_CLIENT_V5
        else:
            v3, v5 = parsing.FROM_SERVER_V3, parsing.FROM_SERVER_V5
        self._parsers = v5 if version == Version.V5 else v3

    @property
    def is_amid(self) -> bool:
        """True if a packet has begun and not ended, or `error` is set: the next read begins no packet."""
        return bool(self._held) or self.error is not None

    @property
    def held_bytes(self) -> int:
        """The bytes of a packet that has begun and not ended."""
        return len(self._held)

    def feed(self, data: bytes | bytearray | memoryview) -> list[Packet]:
        """Returns the packets that end in `data`, in order. Afterwards look at `error`."""
        packets: list[Packet] = []
        if self.error is not None:
            return packets
        if self._held:
            # Collected until the packet is whole, not parsed again at each read: a large packet in many
            # small reads would otherwise cost quadratic time.
            self._held += data
            if not data:  # an empty message of a WebSocket
                return packets
            if len(self._held) < self._needed:
                self._look_ahead()
                return packets
            read = bytes(self._held)
            self._held = b""
        else:
            read = data if type(data) is bytes else bytes(data)
        try:
            position = self._parse(read, packets)
        except MqttError as error:
            self.error = error
            return packets
        except IndexError:  # the fast path reads lengths without checking bounds first
            self.error = MalformedPacket("packet ends inside a field")
            return packets
        if position < len(read):
            self._held = bytearray(read[position:])
        return packets

    def lone_publish(self, data: bytes) -> tuple[str, bytes, int] | None:
        """Returns (topic, payload, packet identifier) of a read of at most `LONE_BYTES` that is one PUBLISH of QoS 1
        without flags and properties, under a topic name that came before. The caller has asked `is_amid`. None, with
        no effect: `feed` must take the read.
        """
        size = len(data)
        if size < 8 or data[0] != _QOS_1 or data[1] != size - 2 or size > self.maximum_packet_size:
            return None
        if type(data) is not bytes:
            return None
        at = 4 + (data[2] << 8) + data[3]
        topic = _topics.get(data[4:at])
        if not topic or at + 2 > size:
            return None
        packet_id = data[at] << 8 | data[at + 1]
        at += 2
        if self.version is Version.V5:
            if data[at : at + 1] != b"\0":
                return None
            at += 1
        return (topic, data[at:], packet_id) if packet_id else None

    def _look_ahead(self) -> None:
        """Parses the filters that have come of a long SUBSCRIBE or UNSUBSCRIBE."""
        first = self._held[0]
        if first in (parsing.SUBSCRIBE, parsing.UNSUBSCRIBE) and self._role == "server" and self.version is not None:
            if self._ahead is None:
                self._ahead = parsing.LongFilters(first, self.version)
            assert isinstance(self._held, bytearray)
            self._ahead.parse_whole(self._held)

    def _parse(self, data: bytes, packets: list[Packet]) -> int:  # noqa: PLR0915 -- see below
        """Appends every whole packet of `data` to `packets`; returns the position of the first incomplete packet.

        This loop is the hot path of a broker. In CPython a call costs as much as parsing a small PUBLISH. Therefore
        PUBLISH and bare acknowledgements are handled in line, everything is indexed in the read itself (one copy: the
        payload), attributes sit in locals, and bounds are checked once per packet, after reading (`at > stop`):
        reading too far does no harm before the packet is built.
        """
        append = packets.append
        topics = _topics
        maximum = self.maximum_packet_size
        end = len(data)
        position = 0
        if self.version is None:
            position = self._parse_first(data, packets)
            if self.version is None:
                return position
        v5 = self.version == Version.V5
        may_have_subscription_ids = self._role == "client"
        copies = self._copies
        young, old = copies.generations if copies is not None else ({}, {})
        # Publications of a burst have equal heads, as a rule: what is before the identifier of the last one of QoS 1.
        head, headed, size = b"", "", 0
        while position + 2 <= end:
            if head and data.startswith(head, position) and position + size <= end:
                at = position + len(head)
                packet_id = data[at] << 8 | data[at + 1]
                at += 3 if v5 else 2
                if packet_id and not (v5 and data[at - 1]):
                    position += size
                    append(Publish(headed, data[at:position], 1, False, False, packet_id, NO_PROPERTIES))
                    continue
            first = data[position]
            length = data[position + 1]
            start = position + 2
            if length > 127:
                if start < end and 0 < data[start] < 128:  # two bytes, as most that need more than one
                    length += (data[start] << 7) - 128
                    start += 1
                else:
                    length, start = decode_varint(data, position + 1, end)
                    if start < 0:
                        break
            stop = start + length
            if stop - position > maximum:
                raise PacketTooLarge(f"packet of {stop - position} bytes exceeds {maximum}")
            if stop > end:
                self._needed = stop - position
                return position
            if first & 0xF0 == 0x30:
                at = start + 2 + (data[start] << 8) + data[start + 1]
                raw = data[start + 2 : at]
                topic = topics.get(raw)
                if topic is None:
                    if at > stop:
                        raise MalformedPacket("packet ends inside its topic")
                    topic = _topic(raw)
                packet_id = 0
                qos = first >> 1 & 3
                if qos:
                    packet_id = data[at] << 8 | data[at + 1]
                    at += 2
                    if qos == 3 or packet_id == 0:
                        raise MalformedPacket("PUBLISH with QoS 3 or packet identifier 0")
                elif first & 8:
                    raise MalformedPacket("PUBLISH of QoS 0 with DUP")
                retain = first & 1 == 1
                if copies is not None:
                    body = data[at:stop]  # empty if the topic ends too late; an empty body is never kept
                    known = young.get(body) or old.get(body)
                    if known is not None and known[0] == topic:
                        _, payload, properties = known
                        append(Publish(topic, payload, qos, retain, first & 8 == 8, packet_id, properties))
                        position = stop
                        continue
                properties = NO_PROPERTIES
                if v5:
                    if at < stop and data[at] == 0:
                        at += 1
                    else:
                        properties, at = decode_properties(data, at, stop, Carrier.PUBLISH)
                        if properties.subscription_ids and not may_have_subscription_ids:
                            raise ProtocolViolation("subscription identifier from a client")
                if at > stop:
                    raise MalformedPacket("packet ends before its payload")
                if not topic and properties.topic_alias is None:
                    raise ProtocolViolation("topic name is empty and no alias stands for it")
                payload = data[at:stop]
                append(Publish(topic, payload, qos, retain, first & 8 == 8, packet_id, properties))
                if copies is not None:
                    young, old = copies.keep_body(body, (topic, payload, properties))
                elif first == _QOS_1 and properties is NO_PROPERTIES:
                    head, headed, size = data[position : start + 2 + len(raw)], topic, stop - position
            elif length == 2 and first in _BARE and (packet_id := data[start] << 8 | data[start + 1]):
                append(_BARE[first](packet_id))
            else:
                append(self._parse_other(first, data, start, stop))
            position = stop
        self._needed = 2
        if end - position >= 2:
            self._needed = end - position + 1
        return position

    def _parse_first(self, data: bytes, packets: list[Packet]) -> int:
        """Parses a server's first packet and learns the version from it (MQTT-3.1.0-1)."""
        if data and data[0] != 0x10:
            raise ProtocolViolation("first packet is not CONNECT")
        length, start = decode_varint(data, 1, len(data))
        if start < 0 or not data:
            self._needed = len(data) + 1
            return 0
        stop = start + length
        if stop > self.first_packet_size:
            raise PacketTooLarge(f"packet of {stop} bytes exceeds {self.first_packet_size}")
        if stop > len(data):
            self._needed = stop
            return 0
        try:
            connect = parsing.parse_connect(data, start, stop)
        except MqttError:
            self.answers_v5 = parsing.is_connect_v5(data, start, stop)
            raise
        packets.append(connect)
        self._learn_version(connect.version)
        return stop

    def _parse_other(self, first: int, data: bytes, start: int, stop: int) -> Packet:
        parser = self._parsers.get(first)
        if parser is None:
            raise self._unexpected(first)
        assert self.version is not None
        ahead, self._ahead = self._ahead, None
        packet = parser(data, start, stop, self.version) if ahead is None else ahead.packet(data, start, stop)
        # DISCONNECT and AUTH are parsed alike in both directions, but not every code and property may
        # come from this side (§3.14.2.1, §3.14.2.2.2, §3.15.2.1).
        if first >= 0xE0:
            self._check_direction(packet)
        return packet

    def _check_direction(self, packet: Packet) -> None:
        if isinstance(packet, Disconnect):
            codes = parsing.DISCONNECT_FROM_CLIENT if self._role == "server" else parsing.DISCONNECT_FROM_SERVER
            if self._role == "client" and packet.properties.session_expiry_s is not None:
                raise ProtocolViolation("session expiry in a DISCONNECT of the server")
        else:
            assert isinstance(packet, Auth)
            codes = parsing.AUTH_FROM_CLIENT if self._role == "server" else parsing.AUTH_FROM_SERVER
        if packet.code not in codes:
            raise ProtocolViolation(f"code 0x{packet.code:02x} does not come from this side")

    def _unexpected(self, first: int) -> MqttError:
        kind, flags = first >> 4, first & 0x0F
        if kind == 0 or flags != (2 if kind in (6, 8, 10) else 0):
            return MalformedPacket(f"packet type {kind} with flags {flags}")
        return ProtocolViolation(f"packet type {kind} is not allowed here")
