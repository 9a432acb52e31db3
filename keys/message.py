"""The message header (`vmq`, without its proof) and the content that is sealed (docs/protocol.md §2).

Message header, 68 bytes of prefix and the digests:

    opening(3: version, kind 3, flags: bits 0-1 QoS, bit 2 retain, bit 3 tombstone)  mode(1)
    publisher(16) key_id(16) sequence(8) previous(8) time_ms(8) deadline_ms(8)
    count(1), digests(32 each)

The prefix is authenticated with the sealed content, the digests are not: they are hashes of that very
content.

Inner content: opening (kind 5, flags say which optional fields follow), topic, time_ms(8), optional content
type, response topic, correlation data, payload format(1), then properties: count(2) and pairs, payload
length(4), payload, and zeros up to the asked size if padded.

Not here: signatures (`signedheader`), sealing (`envelope`), any meaning of sequence and previous (`bridge`).
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import field
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from keys import frames
from keys.errors import BadFrame, KeysError, OurFault
from keys.values import value

NO_KEY = bytes(16)
DIGEST_BYTES = 32
BLOCKS_LIMIT = 255  # one digest a block, one block a replica
PROPERTIES_LIMIT = 1024  # stops content that unpacks into endless tuples
PAYLOAD_LIMIT = 268_435_455  # an MQTT packet cannot be longer (MQTT 5.0 §2.1.4)
_PREFIX = struct.Struct(">3sB16s16sQQQQ")
PREFIX_BYTES = _PREFIX.size
FLAGS_AT, PUBLISHER_AT, KEY_ID_AT, SEQUENCE_AT = 2, 4, 20, 36  # inside the prefix
QOS_FLAGS, RETAIN, TOMBSTONE, HEADER_FLAGS = 3, 4, 8, 15
PADDED, INNER_FLAGS = 16, 31


class Mode(IntEnum):
    """How content travels (docs/protocol.md §4): to all, by one replica, in coded blocks, or signed, not sealed."""

    COPIES = 1
    ONE = 2
    BLOCKS = 3
    PLAIN = 4
    AUTO = 5
    """Of a scope only: copies or blocks, as the publisher finds right for each publication."""


@value
class MessageHeader:
    """What the publisher signs about one publication.

    `publisher`, `key_id`: 16 bytes, key_id zeros for `Mode.PLAIN` and only there. `sequence`: rises over
    all of the publisher's publications and is never used twice. `previous`: its preceding QoS >= 1
    publication on this topic, 0 for none. `time_ms`, `deadline_ms`: UNIX time, deadline 0 for none.
    `digests`: SHA-256 of the sealed content, one for each block in `Mode.BLOCKS`, exactly one otherwise.
    `encode` raises `OurFault`, `decode` `BadFrame`.
    """

    publisher: bytes
    key_id: bytes
    sequence: int
    previous: int
    time_ms: int
    deadline_ms: int
    qos: int
    retain: bool
    tombstone: bool
    mode: Mode
    digests: tuple[bytes, ...]

    def prefix(self) -> bytes:
        """The 68 bytes up to the digests; they are associated data of the sealed content."""
        flags = self.qos | RETAIN * self.retain | TOMBSTONE * self.tombstone
        if not 0 <= self.qos <= 2 or len(self.publisher) != 16 or len(self.key_id) != 16:
            raise OurFault("a message header has QoS 0 to 2 and ids of 16 bytes")
        opening = frames.opening(frames.Kind.MESSAGE_HEADER, flags)
        try:
            return _PREFIX.pack(
                opening,
                self.mode,
                self.publisher,
                self.key_id,
                self.sequence,
                self.previous,
                self.time_ms,
                self.deadline_ms,
            )
        except struct.error:
            raise OurFault("sequences and times are unsigned 64-bit integers") from None

    def encode(self) -> bytes:
        """The frame."""
        self._check(OurFault)
        return b"".join((self.prefix(), bytes([len(self.digests)]), *self.digests))

    @classmethod
    def decode(cls, data: bytes) -> MessageHeader:
        """Read a frame. Raises `BadFrame`."""
        reader = frames.Reader(data)
        header = cls.read(reader)
        reader.end()
        return header

    @classmethod
    def read(cls, reader: frames.Reader) -> MessageHeader:
        """Read a header at the front of a longer frame. Raises `BadFrame`."""
        flags = reader.opening(frames.Kind.MESSAGE_HEADER, HEADER_FLAGS)
        fields = _PREFIX.unpack(bytes(3) + reader.take(PREFIX_BYTES - 3))
        _, mode, publisher, key_id, sequence, previous, time_ms, deadline_ms = fields
        if flags & 3 == 3 or mode not in _MODES:
            raise BadFrame(f"a message header of QoS {flags & 3} and mode {mode}")
        header = cls(
            publisher=publisher,
            key_id=key_id,
            sequence=sequence,
            previous=previous,
            time_ms=time_ms,
            deadline_ms=deadline_ms,
            qos=flags & 3,
            retain=bool(flags & RETAIN),
            tombstone=bool(flags & TOMBSTONE),
            mode=_MODES[mode],
            digests=tuple(reader.take(DIGEST_BYTES) for _ in range(reader.number(1))),
        )
        header._check(BadFrame)
        return header

    def _check(self, error: type[KeysError]) -> None:
        if self.mode is Mode.AUTO:
            raise error("a message header states how its content travels; auto is a scope's")
        blocks = self.mode is Mode.BLOCKS
        if not 1 <= len(self.digests) <= (BLOCKS_LIMIT if blocks else 1):
            raise error(f"{len(self.digests)} digests in mode {self.mode.name}")
        if any(len(digest) != DIGEST_BYTES for digest in self.digests):
            raise error(f"digests are of {DIGEST_BYTES} bytes")
        if (self.key_id == NO_KEY) is not (self.mode is Mode.PLAIN):
            raise error("a key id in plain mode, or none in a sealed one")


_MODES = {int(mode): mode for mode in Mode if mode is not Mode.AUTO}
ONE_DIGEST = {int(mode): mode for mode in (Mode.COPIES, Mode.ONE, Mode.PLAIN)}
"""Modes in which a header has exactly one digest."""


def content_digest(content: bytes) -> bytes:
    """SHA-256 of sealed content, of one block, or of plain content, as message headers carry it."""
    return hashlib.sha256(content).digest()


class SealedProperty(NamedTuple):
    """What of a message is sealed beside topic, time, payload and user properties.

    `name`: of a field of `Inner`, the same in MQTT's properties and in a publication. `kind`: `str` and `bytes` stand
    behind their length in 2 bytes, `int` is one byte. The flags say that it is there: in the frame of `Inner`, and in
    the extras of a record.
    """

    name: str
    kind: type[str] | type[bytes] | type[int]
    inner_flag: int
    record_flag: int


SEALED = (
    SealedProperty("content_type", str, 1, 2),
    SealedProperty("response_topic", str, 2, 4),
    SealedProperty("correlation_data", bytes, 4, 8),
    SealedProperty("payload_format", int, 8, 16),
)
SEALED_PROPERTIES = tuple(each.name for each in SEALED)
"""Whoever turns a message of one kind into one of another goes by this list."""
Sealed: TypeAlias = str | bytes | int | None


@value
class Inner:
    """An application message as it is sealed: `topic` is the clear one, `time_ms` the original UNIX time.

    `properties`: application user properties with order and repeats. `payload_format`: 0, 1 or None.
    """

    topic: str
    time_ms: int
    payload: bytes = field(repr=False)
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = field(default=None, repr=False)
    payload_format: int | None = None
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def encode(self, pad_to: int | None = None) -> bytes:
        """The frame; with `pad_to`, filled with zeros up to the next multiple of that many bytes.

        Raises `OurFault` for fields that do not fit.
        """
        self._check(OurFault)
        flags = PADDED if pad_to is not None else 0
        parts = [frames.text(self.topic), frames.number(self.time_ms, 8)]
        for name, kind, flag, _ in SEALED:
            value = getattr(self, name)
            if value is not None:
                flags |= flag
                parts.append(
                    frames.text(value)
                    if kind is str
                    else frames.sized(value)
                    if kind is bytes
                    else frames.number(value, 1)
                )
        parts.append(frames.number(len(self.properties), 2))
        for name, value in self.properties:
            parts += [frames.text(name), frames.text(value)]
        parts += [frames.number(len(self.payload), 4), self.payload]
        data = frames.opening(frames.Kind.INNER, flags) + b"".join(parts)
        if pad_to is None:
            return data
        if pad_to < 1:
            raise OurFault("content is padded to a multiple of at least one byte")
        return data + bytes(-len(data) % pad_to)

    @classmethod
    def decode(cls, data: bytes) -> Inner:
        """Read a frame. Raises `BadFrame`, also for padding that is not zeros."""
        reader = frames.Reader(data)
        flags = reader.opening(frames.Kind.INNER, INNER_FLAGS)
        topic, time_ms = reader.text(), reader.number(8)
        sealed: dict[str, Any] = {
            name: reader.text() if kind is str else reader.sized() if kind is bytes else reader.number(1)
            for name, kind, flag, _ in SEALED
            if flags & flag
        }
        count = reader.number(2)
        if count > PROPERTIES_LIMIT:
            raise BadFrame(f"{count} user properties")
        properties = tuple((reader.text(), reader.text()) for _ in range(count))
        payload = reader.take(reader.number(4))
        if flags & PADDED and reader.rest().strip(b"\0"):
            raise BadFrame("padding is not zeros")
        reader.end()
        inner = cls(topic, time_ms, payload, properties=properties, **sealed)
        inner._check(BadFrame)
        return inner

    def _check(self, error: type[KeysError]) -> None:
        if not self.topic:
            raise error("content without a topic")
        if self.payload_format not in (None, 0, 1):
            raise error(f"payload format {self.payload_format}; 0 and 1 are defined (MQTT 5.0 §3.3.2.3.2)")
        if len(self.properties) > PROPERTIES_LIMIT or len(self.payload) > PAYLOAD_LIMIT:
            raise error("more user properties or payload than one publication can have")
