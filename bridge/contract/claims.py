"""The unverified claims of a header: its publisher, number and time of sealing.

They serve to drop wires unread. Nothing is believed, remembered or charged by them.
"""

from __future__ import annotations

import binascii
import struct
from functools import lru_cache
from typing import NamedTuple

from keys.message import PREFIX_BYTES, SNAPSHOT

_FIELDS = struct.Struct(">2xBx16s16xQ8xQ8xQI")
"""Flags, publisher, sequence, time, generation and counter inside the prefix."""
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_CHARS = -(-PREFIX_BYTES // 3) * 4
"""Characters of base64 of a header's prefix."""
REMEMBERED = 256
"""Number of claims kept: each header comes over several links, and is looked at more than once on each."""


class Claim(NamedTuple):
    """A claim: party id, number, UNIX time in ms, order, and life.

    `order`: `MessageHeader.order` of a snapshot, otherwise empty. `life`: generation and key under which it was
    sealed.
    """

    publisher: bytes
    sequence: int
    sealed_ms: int
    order: tuple[int, ...] = ()
    life: tuple[int, int] = (0, 0)


NOBODYS = Claim(b"", 0, 0)


def claim_of(told: str) -> Claim:
    """Returns the claim of property `vmq` as it came; `NOBODYS` if it is no header."""
    return _claim_in(told[:_CHARS])


@lru_cache(REMEMBERED)
def _claim_in(start: str) -> Claim:
    head = _prefix(start)
    if not head:
        return NOBODYS
    flags, publisher, sequence, sealed_ms, generation, counter = _FIELDS.unpack_from(head)
    order = (sequence, generation, counter, sealed_ms) if flags & SNAPSHOT else ()
    return Claim(publisher, sequence, sealed_ms, order, (generation, counter))


def tree_of(told: str) -> int:
    """Returns the number modulo 256 of the tree of regions that property `vmq` claims; -1 if it is no header."""
    head = _prefix(told[:_CHARS])
    return head[PREFIX_BYTES - 1] if head else -1


def _prefix(start: str) -> bytes:
    """Decodes the prefix of a header; empty if it is none."""
    try:
        head = binascii.a2b_base64(start.encode("ascii").translate(_TO_STANDARD))
    except (binascii.Error, ValueError):
        return b""
    return head if len(head) >= PREFIX_BYTES else b""
