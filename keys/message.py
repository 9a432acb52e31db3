"""The message header (`vmq`, without its proof) (docs/protocol.md §2).

Message header, 81 bytes of prefix and the digests:

    opening(3: version, kind 3, flags: bits 0-1 QoS, bit 2 retain, bit 3 tombstone, bit 4 attributes,
    bit 5 snapshot)  mode(1)
    publisher(16) key_id(16) sequence(8) previous(8) time_ms(8) deadline_ms(8) generation(8) counter(4) tree(1)
    count(1), digests(32 each), digest of the list of attributes(32) if flagged

The prefix is authenticated with the sealed content, the digests are not: they are hashes of that very
content.

Not here: the sealed content (`records`), signatures (`signedheader`), sealing (`envelope`), any meaning of sequence
and
previous (`bridge`).
"""

from __future__ import annotations

import hashlib
import struct
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from keys import frames
from keys.errors import BadFrame, KeysError, OurFault
from keys.values import value

NO_KEY = bytes(16)
DIGEST_BYTES = 32
BLOCKS_LIMIT = 255  # one digest a block, one block a replica
PROPERTIES_LIMIT = 1024  # stops content that unpacks into endless tuples
PAYLOAD_LIMIT = 268_435_455  # an MQTT packet cannot be longer (MQTT 5.0 §2.1.4)
_PREFIX = struct.Struct(">3sB16s16sQQQQQIB")
PREFIX_BYTES = _PREFIX.size
FLAGS_AT, PUBLISHER_AT, KEY_ID_AT, SEQUENCE_AT = 2, 4, 20, 36  # inside the prefix
QOS_FLAGS, RETAIN, TOMBSTONE, HEADER_FLAGS = 3, 4, 8, 15
ATTRIBUTES, SNAPSHOT = 16, 32


class Mode(IntEnum):
    """The way content travels (docs/protocol.md §4): to all, by one replica, in coded blocks, or signed, not
    sealed.
    """

    COPIES = 1
    ONE = 2
    BLOCKS = 3
    PLAIN = 4
    AUTO = 5
    """A scope's mode only: the publisher chooses copies or blocks for each publication."""


@value
class MessageHeader:
    """The statement that a publisher signs about a publication.

    `publisher`, `key_id`: 16 bytes, key_id zeros for `Mode.PLAIN` and only there. `sequence`: rises over
    all of the publisher's publications and is never used twice. `previous`: its preceding QoS >= 1
    publication in this scope, 0 for none. `time_ms`, `deadline_ms`: UNIX time, deadline 0 for none.
    `digests`: SHA-256 of the sealed content, one for each block in `Mode.BLOCKS`, exactly one otherwise.
    `attributes`:
    SHA-256 of the list of attributes shown of the content; empty: none is shown. `generation`, `counter`: the
    publisher's
    life in which the publication was sealed, and the number of its key in that life, 0 for none. `snapshot`: a
    retained
    value, sealed once more under its original number; it follows no other publication. `tree`: the number, modulo
    256, of
    the tree of regions along which the publication travels.
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
    attributes: bytes = b""
    generation: int = 0
    counter: int = 0
    snapshot: bool = False
    tree: int = 0

    @property
    def order(self) -> tuple[int, int, int, int]:
        """A sort key: of two sealings of a number, or on a retained topic, the newer one has the greater key.

        The time alone does not decide: a clock may be set back between two lives.
        """
        return self.sequence, self.generation, self.counter, self.time_ms

    def prefix(self) -> bytes:
        """Returns the 81 bytes up to the digests; they are associated data of the sealed content."""
        flags = self.qos | RETAIN * self.retain | TOMBSTONE * self.tombstone | ATTRIBUTES * bool(self.attributes)
        flags |= SNAPSHOT * self.snapshot
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
                self.generation,
                self.counter,
                self.tree,
            )
        except struct.error:
            raise OurFault(
                "sequences, times and generations are unsigned 64-bit integers, counters of 32, trees of 8"
            ) from None

    def encode(self) -> bytes:
        """Returns the frame."""
        self._check(OurFault)
        return b"".join((self.prefix(), bytes([len(self.digests)]), *self.digests, self.attributes))

    @classmethod
    def decode(cls, data: bytes) -> MessageHeader:
        """Reads a frame. Raises `BadFrame`."""
        reader = frames.Reader(data)
        header = cls.read(reader)
        reader.expect_end()
        return header

    @classmethod
    def read(cls, reader: frames.Reader) -> MessageHeader:
        """Reads a header at the front of a longer frame. Raises `BadFrame`."""
        flags = reader.opening(frames.Kind.MESSAGE_HEADER, HEADER_FLAGS | ATTRIBUTES | SNAPSHOT)
        fields = _PREFIX.unpack(bytes(3) + reader.take_bytes(PREFIX_BYTES - 3))
        _, mode, publisher, key_id, sequence, previous, time_ms, deadline_ms, generation, counter, tree = fields
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
            digests=tuple(reader.take_bytes(DIGEST_BYTES) for _ in range(reader.number(1))),
            attributes=reader.take_bytes(DIGEST_BYTES) if flags & ATTRIBUTES else b"",
            generation=generation,
            counter=counter,
            snapshot=bool(flags & SNAPSHOT),
            tree=tree,
        )
        header._check(BadFrame)
        return header

    def _check(self, error: type[KeysError]) -> None:
        if self.mode is Mode.AUTO:
            raise error("a message header states how its content travels; auto is a scope's")
        if self.snapshot and (self.previous or not self.retain):
            raise error("a snapshot is of what is retained, and follows nothing")
        blocks = self.mode is Mode.BLOCKS
        if not 1 <= len(self.digests) <= (BLOCKS_LIMIT if blocks else 1):
            raise error(f"{len(self.digests)} digests in mode {self.mode.name}")
        lengths = {len(digest) for digest in self.digests}
        if self.attributes:
            lengths.add(len(self.attributes))
        if lengths != {DIGEST_BYTES}:
            raise error(f"digests are of {DIGEST_BYTES} bytes")
        if (self.key_id == NO_KEY) is not (self.mode is Mode.PLAIN):
            raise error("a key id in plain mode, or none in a sealed one")


_MODES = {int(mode): mode for mode in Mode if mode is not Mode.AUTO}
ONE_DIGEST = {int(mode): mode for mode in (Mode.COPIES, Mode.ONE, Mode.PLAIN)}
"""Modes in which a header has exactly one digest."""


def content_digest(content: bytes) -> bytes:
    """Returns SHA-256 of sealed content, of a block, or of plain content, as message headers carry it."""
    return hashlib.sha256(content).digest()


class SealedProperty(NamedTuple):
    """An MQTT property that is sealed beside topic, time, payload and user properties.

    `name`: its name in MQTT's properties and in a publication. `kind`: `str` and `bytes` stand behind their length in
    2 bytes, `int` is a byte. `flag`: the bit of a record's extras (`keys.records`) saying if it is present.
    """

    name: str
    kind: type[str] | type[bytes] | type[int]
    flag: int


SEALED = (
    SealedProperty("content_type", str, 2),
    SealedProperty("response_topic", str, 4),
    SealedProperty("correlation_data", bytes, 8),
    SealedProperty("payload_format", int, 16),
)
SEALED_PROPERTIES = tuple(each.name for each in SEALED)
"""Names of the sealed properties, for code that turns a message of one kind into one of another."""
Sealed: TypeAlias = str | bytes | int | None
