"""Application message on its way to many receivers, serialised once for all that need equal bytes.

Does not know its receivers: `session.ServerSession.deliver` adds the differing parts (identifier, alias, expiry).
"""

from __future__ import annotations

from math import ceil

from gateway.mqtt5.encoding import PublishTemplate, encode_publish
from gateway.mqtt5.packets import LASTING, NO_PROPERTIES, Properties, Publish, Version, Will
from gateway.mqtt5.properties import Carrier, encode_property_fields

_FIXED_BYTES = 64  # rough cost of a queued message beyond topic, payload and properties


class Message:
    """Publication as the broker holds it: retained, queued and in flight share a single object.

    `properties` holds only the properties going to every receiver (payload format, content type, response topic,
    correlation data, user properties). The expiry became the instant `expires_at` (seconds since the UNIX epoch, None:
    never). Topic alias and subscription identifiers belong to a connection and are not here. `publisher` is the client
    id of the sender, for no-local; empty if there is none.
    """

    __slots__ = (
        "_packets",
        "_properties_bytes",
        "_sent_forms",
        "expires_at",
        "payload",
        "place",
        "properties",
        "publisher",
        "qos",
        "retain",
        "stored",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
        expires_at: float | None = None,
        publisher: str = "",
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.expires_at = expires_at
        self.publisher = publisher
        # Set by a store of the broker.
        self.stored: object = None
        # The number of messages that a store of retained messages kept before this one, since the start.
        self.place = -1
        self._properties_bytes: bytes | None = None
        self._packets: dict[int, bytes | PublishTemplate] = _NO_PACKETS
        self._sent_forms = 0  # bit n: a packet of template key n was encoded once, without a template

    @classmethod
    def from_publish(cls, publish: Publish, now: float, publisher: str = "") -> Message:
        """Returns the message of a PUBLISH whose alias is resolved (MQTT 5.0 §3.3.2.3)."""
        properties = publish.properties
        if properties is NO_PROPERTIES:
            return cls(publish.topic, publish.payload, publish.qos, publish.retain, publisher=publisher)
        return cls(
            publish.topic,
            publish.payload,
            publish.qos,
            publish.retain,
            _lasting(properties),
            None if properties.message_expiry_s is None else now + properties.message_expiry_s,
            publisher,
        )

    @classmethod
    def of_will(cls, will: Will, now: float, publisher: str = "") -> Message:
        expiry_s = will.properties.message_expiry_s
        expires_at = None if expiry_s is None else now + expiry_s
        lasting = _lasting(will.properties)
        return cls(will.topic, will.payload, will.qos, will.retain, lasting, expires_at, publisher)

    def with_properties(self, properties: Properties) -> Message:
        """Returns a copy with other properties, for a receiver of its own."""
        return Message(self.topic, self.payload, self.qos, self.retain, properties, self.expires_at, self.publisher)

    def __repr__(self) -> str:  # no payloads in logs
        return f"Message({self.topic!r}, {len(self.payload)} bytes, qos={self.qos}, retain={self.retain})"

    @property
    def held_bytes(self) -> int:
        """The cost in bytes of the message while it is queued: the measure of queue limits."""
        size = len(self.payload) + len(self.topic) + _FIXED_BYTES
        return size if self.properties is NO_PROPERTIES else size + len(self.properties_bytes)

    @property
    def properties_bytes(self) -> bytes:
        """The encoded `properties`, without length."""
        encoded = self._properties_bytes
        if encoded is None:
            encoded = self._properties_bytes = (
                b"" if self.properties is NO_PROPERTIES else encode_property_fields(self.properties, Carrier.PUBLISH)
            )
        return encoded

    def has_encoded(self, properties_bytes: bytes) -> None:
        """Takes the encoded `properties`, where the caller has encoded equal ones before."""
        self._properties_bytes = properties_bytes

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at < now

    def remaining_s(self, now: float) -> int | None:
        """Returns the message expiry interval to send: the received interval less the time spent here
        (MQTT-3.3.2-6).
        """
        if self.expires_at is None:
            return None
        return max(0, ceil(self.expires_at - now))

    def packet(self, v5: bool, retain: bool) -> bytes:
        """Returns the finished QoS 0 PUBLISH for receivers without alias, identifiers or expiry."""
        key = v5 << 1 | retain
        packet = self._packets.get(key)
        if packet is None:
            packet = encode_publish(
                self.topic,
                self.payload,
                retain=retain,
                properties_bytes=self.properties_bytes if v5 else None,
                version=Version.V5 if v5 else Version.V311,
            )
            self._keep_form(key, packet)
        assert type(packet) is bytes
        return packet

    def _keep_form(self, key: int, form: bytes | PublishTemplate) -> None:
        if self._packets is _NO_PACKETS:
            self._packets = {}
        self._packets[key] = form

    def numbered(self, v5: bool, qos: int, retain: bool, packet_id: int, dup: bool = False) -> bytes:
        """Returns the QoS 1 or 2 PUBLISH for a receiver without alias, identifiers or expiry.

        The first packet of each form is encoded directly: most messages have a single receiver, and a template would
        cost more than it saves. From the second packet on a template is used.
        """
        key = qos << 2 | v5 << 1 | retain
        template = self._packets.get(key)
        if template is None and not self._sent_forms >> key & 1:
            self._sent_forms |= 1 << key
            version = Version.V5 if v5 else Version.V311
            return encode_publish(self.topic, self.payload, qos, retain, dup, packet_id, self.properties_bytes, version)
        if template is None:
            template = self.template(v5, qos, retain)
        assert type(template) is PublishTemplate
        return template.with_packet_id(packet_id, dup)

    def whole(self) -> bytes:
        """Returns the MQTT 5 PUBLISH as received, to be stored; the packet identifier, if any, is 1."""
        qos, retain = self.qos, self.retain
        if not qos:
            return self.packet(True, retain)
        template = self._packets.get(qos << 2 | 2 | retain)
        if template is not None:
            assert type(template) is PublishTemplate
            return template.packet
        return encode_publish(self.topic, self.payload, qos, retain, False, 1, self.properties_bytes)

    def template(self, v5: bool, qos: int, retain: bool) -> PublishTemplate:
        """Returns the QoS 1 or 2 PUBLISH lacking only its packet identifier."""
        key = qos << 2 | v5 << 1 | retain
        template = self._packets.get(key)
        if template is None:
            version = Version.V5 if v5 else Version.V311
            template = PublishTemplate(self.topic, self.payload, qos, retain, version, self.properties_bytes)
            self._keep_form(key, template)
        assert type(template) is PublishTemplate
        return template


_NO_PACKETS: dict[int, bytes | PublishTemplate] = {}
"""The packets of each message that was not sent yet: a dictionary of their own takes 64 bytes of each retained one."""

_LASTING = frozenset(LASTING)


def _lasting(properties: Properties) -> Properties:
    """Returns the properties a server forwards unaltered. Copies nothing if there are no others, as is usual."""
    if vars(properties).keys() <= _LASTING:
        return properties
    return Properties(**{name: getattr(properties, name) for name in LASTING})
