"""Hashes of receipts: of a record, of a batch, and of a list of such hashes as a tree (docs/protocol-options.md §14.2).

A tree shows by a path that a hash is in a list, and tells nothing of the other hashes (RFC 9162 §2.1). Leaves and
inner nodes begin with different bytes, so no node passes for a leaf. A salt in the hash of each record stops guesses
at the record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from bridge.contract import Numbered
from keys.errors import BadContent
from keys.frames import number

HASH_BYTES = 32
SALT_BYTES = 16
NO_RECORDS = bytes(HASH_BYTES)
"""The hash of the records of a batch without any: a void."""
PLAIN = bytes(HASH_BYTES)
"""The blinding of a batch that is not sealed."""
_RECORD, _NODE, _BATCH = b"\x00", b"\x01", b"\x02"
_sha256 = hashlib.sha256


def sha256(data: bytes) -> bytes:
    """Returns the SHA-256 of some bytes."""
    return _sha256(data).digest()


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """The facts on a record that its hash binds, without its payload: number, time in ms, topic, SHA-256 of the
    payload.
    """

    number: int
    time_ms: int
    topic: str
    payload_hash: bytes

    @classmethod
    def from_record(cls, record: Numbered) -> RecordFacts:
        publication = record.publication
        return cls(record.number, publication.time_ms, publication.topic, sha256(publication.payload))

    def hashed(self, salt: bytes) -> bytes:
        """Returns the hash of the record."""
        counted = self.number.to_bytes(8) + self.time_ms.to_bytes(8)
        return sha256(_RECORD + salt + counted + self.payload_hash + self.topic.encode())


def salt_of(blinding: bytes, record: int) -> bytes:
    """Returns the salt of the record with this number."""
    return sha256(blinding + number(record, 8))[:SALT_BYTES]


def records_root(blinding: bytes, records: Sequence[RecordFacts]) -> bytes:
    """Returns the hash of all records of a batch, in their order."""
    return root([each.hashed(salt_of(blinding, each.number)) for each in records]) if records else NO_RECORDS


def batch_hash(frame_hash: bytes, records: bytes) -> bytes:
    """Returns the hash of a batch. `frame_hash`: SHA-256 of header and signature; `records`: see `records_root`."""
    return sha256(_BATCH + frame_hash + records)


def root(hashes: Sequence[bytes]) -> bytes:
    """Returns the root of the tree over one or more hashes."""
    level = list(hashes)
    while len(level) > 1:
        level = _next(level)
    return level[0]


def path(hashes: Sequence[bytes], at: int) -> tuple[bytes, ...]:
    """Returns the hashes that lead from the hash in place `at` to the root."""
    found, level = [], list(hashes)
    while len(level) > 1:
        if at ^ 1 < len(level):
            found.append(level[at ^ 1])
        level, at = _next(level), at >> 1
    return tuple(found)


def root_along(leaf: bytes, at: int, of: int, way: Sequence[bytes]) -> bytes:
    """Returns the root of the tree over `of` hashes to which a path leads from the hash in place `at`. Raises
    BadContent for a path of another length.
    """
    if not 0 <= at < of:
        raise BadContent(f"place {at} in a list of {of}")
    left = list(reversed(way))
    while of > 1:
        if at ^ 1 < of:
            if not left:
                raise BadContent("a path of hashes is too short")
            beside = left.pop()
            leaf = sha256(_NODE + beside + leaf) if at & 1 else sha256(_NODE + leaf + beside)
        at, of = at >> 1, (of + 1) >> 1
    if left:
        raise BadContent("a path of hashes is too long")
    return leaf


def _next(level: list[bytes]) -> list[bytes]:
    """Returns the hashes of pairs; a last one without partner rises as it is, which makes the trees of RFC 9162."""
    pairs = [_sha256(_NODE + level[i] + level[i + 1]).digest() for i in range(0, len(level) - 1, 2)]
    return pairs + level[-1:] if len(level) & 1 else pairs
