"""The header of a batch (`vmq`): what its member signs, once, about up to 1,024 records.

    opening(3: version 2, kind 33, flags: 1 reliable, 2 snapshot, 4 floor, 8 void, 16 plain, 32 attributes)
    member(16) certificate(8) scope(4) generation(8) key counter(4) key id(16) first(8) records(2) previous(8)
    previous time(8) sealing time(8) deadline(8) tree(1) mode(1) content length(4)                     110 bytes
    retained: count(2) and each id(16) record's number(8) tombstone(1), ascending by id, distinct
    attribute digest(32) if flagged                                            up to here it is associated data
    digests of the pieces: count(1) and each(32)
    signature(64) over all before it, domain "veilmq/2 batch"

Integers are big-endian, times in milliseconds since 1970. Records have the numbers `first` to `first` + `records` - 1,
which never cross a multiple of 4,096. The nonce is 4 zero bytes and `first`; so under one key every `first` is new. A
*void* has neither content nor pieces: it says that its numbers hold nothing (any more). A *floor* has none either, and
says in `previous` below which number nothing of its member is retained but what it lists. A *snapshot* holds one
record that was sent before. Not here: keys (`keyheader`), content (`records`), the right to send (`bridge`)."""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from keys.errors import BadContent, BadFrame, BadSignature, OurFault
from keys.identity import Identity, verify
from keys.message import BLOCKS_LIMIT, DIGEST_BYTES, NO_KEY, Mode
from keys.records import RECORDS_MAX

VERSION = 2
KIND = 33
RELIABLE, SNAPSHOT, FLOOR, VOID, PLAIN, ATTRIBUTES = 1, 2, 4, 8, 16, 32
NO_CONTENT = FLOOR | VOID
DOMAIN = "veilmq/2 batch"
BLOCK_NUMBERS = 4096
NUMBER_LIMIT = 1 << 63
NONCE_BYTES = 12
ID_BYTES = 16
CERTIFICATE_BYTES = 8
SIGNATURE_BYTES = 64
FLOOR_ENTRIES_MAX = 1024
"""Of what a floor lists, as of what a batch retains: a header fits a user property."""
_FIXED = struct.Struct(">BBB16s8sIQI16sQHQQQQBBI")
FIXED_BYTES = _FIXED.size
_RETAINED = struct.Struct(">16sQB")
_MODES = frozenset((Mode.COPIES, Mode.ONE, Mode.BLOCKS, Mode.PLAIN))


class RetainedId(NamedTuple):
    """The last retained record of one topic in a batch: the topic as its scope's token key hides it, its number,
    whether it clears the topic."""

    id: bytes
    number: int
    tombstone: bool = False


class Order(NamedTuple):
    """Which of two sealings by one member is the later one."""

    generation: int
    counter: int


class BatchHeader(NamedTuple):
    """What is signed of one batch; see the module for its fields. `decode` raises `BadFrame`, `encode` `OurFault`."""

    flags: int
    member: bytes
    certificate: bytes
    scope: int
    generation: int
    counter: int
    key_id: bytes
    first: int
    records: int
    previous: int
    previous_ms: int
    sealed_ms: int
    deadline_ms: int
    tree: int
    mode: int
    content_bytes: int
    retained: tuple[RetainedId, ...] = ()
    attributes: bytes = b""
    digests: tuple[bytes, ...] = ()

    @property
    def last(self) -> int:
        return self.first + self.records - 1

    @property
    def order(self) -> Order:
        return Order(self.generation, self.counter)

    @property
    def is_void(self) -> bool:
        return bool(self.flags & VOID)

    @property
    def is_plain(self) -> bool:
        return bool(self.flags & PLAIN)

    @property
    def in_chain(self) -> bool:
        """Whether it says what comes next, and not what was."""
        return not self.flags & (SNAPSHOT | FLOOR)

    def associated(self) -> bytes:
        """What the content is sealed with: all but digests of the sealed content."""
        fault = self._fault()
        if fault:
            raise OurFault(fault)
        try:
            return _associated(self)
        except struct.error:
            raise OurFault("a field of a batch header does not fit") from None

    def sign(self, identity: Identity, associated: bytes | None = None) -> bytes:
        """The signed frame. `associated`: what `associated` gave for the same header, whatever its digests."""
        if (fault := self._fault() or _digest_fault(self)) is not None:
            raise OurFault(fault)
        body = b"".join((associated or self.associated(), bytes((len(self.digests),)), *self.digests))
        return body + identity.sign(DOMAIN, body)

    @classmethod
    def decode(cls, data: bytes) -> BatchHeader:
        """Read a frame; nothing is verified yet. Raises `BadFrame`."""
        if len(data) < FIXED_BYTES + 2:
            raise BadFrame(f"a batch header of {len(data)} bytes")
        version, kind, *fields = _FIXED.unpack_from(data)
        if (version, kind) != (VERSION, KIND):
            raise BadFrame(f"version {version}, kind {kind} where a batch header was expected")
        count, at = int.from_bytes(data[FIXED_BYTES : FIXED_BYTES + 2]), FIXED_BYTES + 2
        end = at + count * _RETAINED.size
        if count > FLOOR_ENTRIES_MAX or end > len(data):
            raise BadFrame(f"{count} retained topics in a header of {len(data)} bytes")
        retained: tuple[RetainedId, ...] = ()
        if count:
            if data[at + _RETAINED.size - 1 : end : _RETAINED.size].translate(None, b"\0\1"):
                raise BadFrame("a retained topic is cleared or not")
            retained = tuple([RetainedId(i, n, bool(t)) for i, n, t in _RETAINED.iter_unpack(data[at:end])])
        at, attributes = end, b""
        if fields[0] & ATTRIBUTES:
            at, attributes = at + DIGEST_BYTES, data[at : at + DIGEST_BYTES]
        pieces = data[at] if at < len(data) else 0
        at += 1
        if len(data) != at + pieces * DIGEST_BYTES + SIGNATURE_BYTES:
            raise BadFrame(f"a batch header of {pieces} pieces in {len(data)} bytes")
        digests = tuple([data[at + i * DIGEST_BYTES : at + (i + 1) * DIGEST_BYTES] for i in range(pieces)])
        header = cls._make((*fields, retained, attributes, digests))
        if (fault := header._fault() or _digest_fault(header)) is not None:
            raise BadFrame(fault)
        return header

    def _fault(self) -> str | None:
        flags = self.flags
        if flags & ~63 or (flags & SNAPSHOT and flags & (FLOOR | VOID)) or flags & NO_CONTENT == NO_CONTENT:
            return f"flags {flags:#04x} of a batch"
        if (len(self.member), len(self.certificate), len(self.key_id)) != (ID_BYTES, CERTIFICATE_BYTES, ID_BYTES):
            return "an id of a batch header has the wrong size"
        if not 1 <= self.records <= RECORDS_MAX or not 1 <= self.first <= NUMBER_LIMIT - self.records:
            return f"{self.records} records from number {self.first}"
        if self.first // BLOCK_NUMBERS != self.last // BLOCK_NUMBERS:
            return f"a batch over a multiple of {BLOCK_NUMBERS}"
        if self.previous >= self.first or (not self.previous and self.previous_ms):
            return f"number {self.first} follows {self.previous}"
        if not self.in_chain and (self.records != 1 or (flags & SNAPSHOT and self.previous)):
            return "a snapshot or floor is one, in no chain"
        if self.key_id == NO_KEY:
            return "a batch names the key header that it belongs to"
        if self.mode not in _MODES or (self.mode == Mode.PLAIN) is not bool(flags & PLAIN):
            return f"mode {self.mode} of a batch"
        if bool(flags & NO_CONTENT) is not (self.content_bytes == 0):
            return "a batch without content, or a void with some"
        if bool(flags & ATTRIBUTES) is not (len(self.attributes) == DIGEST_BYTES):
            return "attributes of a batch without their digest"
        return _retained_fault(self)


def _retained_fault(header: BatchHeader) -> str | None:
    retained = header.retained
    if not retained:
        return None
    ids = [entry.id for entry in retained]
    if any(one >= two for one, two in pairwise(ids)) or len(ids[-1]) != ID_BYTES:
        return "retained topics are not ascending and distinct"
    numbers = [entry.number for entry in retained]
    if header.flags & FLOOR:
        fits = len(ids) <= FLOOR_ENTRIES_MAX and max(numbers) < header.previous
    elif header.flags & SNAPSHOT:
        fits = len(ids) == 1 and 1 <= numbers[0] <= header.first
    else:
        fits = len(ids) <= header.records and header.first <= min(numbers) and max(numbers) <= header.last
    return None if fits else "retained topics that no record of the batch has"


def _digest_fault(header: BatchHeader) -> str | None:
    if header.flags & NO_CONTENT:
        return "a void has no pieces" if header.digests else None
    if not 1 <= len(header.digests) <= (BLOCKS_LIMIT if header.mode == Mode.BLOCKS else 1):
        return f"{len(header.digests)} pieces in mode {header.mode}"
    return None if {*map(len, header.digests)} == {DIGEST_BYTES} else f"digests are of {DIGEST_BYTES} bytes"


def _associated(header: BatchHeader) -> bytes:
    fixed = _FIXED.pack(VERSION, KIND, *header[:16])
    retained = [_RETAINED.pack(*entry) for entry in header.retained]
    return b"".join((fixed, len(retained).to_bytes(2), *retained, header.attributes))


def associated_of(data: bytes, header: BatchHeader) -> bytes:
    """The associated data in a frame that `decode` read as this header."""
    return data[: -(SIGNATURE_BYTES + 1 + DIGEST_BYTES * len(header.digests))]


def check_signature(data: bytes, public_key: bytes) -> None:
    """Raise `BadSignature` unless the owner of `public_key` signed this frame."""
    if len(data) <= SIGNATURE_BYTES:
        raise BadSignature("a batch header without a signature")
    verify(public_key, DOMAIN, data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:])


def nonce(first: int) -> bytes:
    """Of the batch that begins with this number, under its key."""
    return first.to_bytes(NONCE_BYTES)


def certificate_id(party_id: bytes) -> bytes:
    """How a header names the certificate that signs, by the id of its key."""
    return party_id[:CERTIFICATE_BYTES]


def retained_id(token_key: bytes | None, topic: str) -> bytes:
    """The id of a clear topic in its scope: HMAC-SHA256 under the scope's token key, 16 bytes; under 32 zero bytes
    where names are public."""
    return hmac.digest(token_key or bytes(32), topic.encode(), "sha256")[:ID_BYTES]


class NonceGuard:
    """Under one key every `first` exceeds all numbers that were sealed: none serves twice."""

    __slots__ = ("_after", "_left")

    def __init__(self, records: int) -> None:
        """`records`: how many the key may serve."""
        self._after, self._left = 0, records

    @property
    def left(self) -> int:
        return self._left

    def fits(self, first: int, count: int) -> bool:
        """Whether the key may serve these numbers still."""
        return first > self._after and count <= self._left

    def use(self, first: int, count: int) -> None:
        """Raises `OurFault` for numbers that need another key."""
        if not self.fits(first, count):
            raise OurFault(f"number {first} needs another data key: a nonce is never used twice")
        self._after, self._left = first + count - 1, self._left - count


def latest_per_topic(entries: Sequence[RetainedId]) -> tuple[RetainedId, ...]:
    """What a header lists of retained records given in order: the last of each topic, ascending by id."""
    return tuple(sorted({entry.id: entry for entry in entries}.values()))


def check_length(header: BatchHeader, sealed: bytes) -> None:
    """Raise `BadContent` unless the sealed content is as long as its header says."""
    if len(sealed) != header.content_bytes:
        raise BadContent(f"{len(sealed)} bytes where the header says {header.content_bytes}")
