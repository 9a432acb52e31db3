"""What one replica forwarded, so that it forwards nothing twice: runs of numbers by member and data key.

A batch is a *repetition* if its header is, byte for byte, one that was forwarded; its signature needs no second look.
A header that differs and whose numbers overlap under the same key is an *overlap*: its member signed two contents for
one nonce, and pays for it. A batch that was not forwarded under its key is new, however old the key is. What a key
forwarded is remembered for `keep_s` after its last batch, since older batches are refused by their sealing time; of
keys that were silent for `OPEN_S` the runs are left, and a repetition is verified again. Voids are counted apart from
contents.
Not here: signatures, budgets, ages (`arriving`).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Container
from dataclasses import dataclass, field
from enum import Enum

from bridge.base import Intervals
from keys.batchheader import BatchHeader

OPEN_S = 120.0
KEYS_MAX = 65_536  # of one member: eighteen new keys a second for an hour; the oldest goes


class Found(Enum):
    """What a replica knows of the numbers of a batch that came."""

    NEW = "new"
    REPEATED = "repeated"
    """Byte for byte what was verified and forwarded."""
    COVERED = "covered"
    """Its numbers were forwarded under this key, and what header they had is forgotten, or was another."""


@dataclass(slots=True)
class _Key:
    """What went under one key. `headers`: digests of signed headers, by first number and whether void."""

    last_s: float
    contents: Intervals = field(default_factory=Intervals)
    voids: Intervals = field(default_factory=Intervals)
    headers: dict[tuple[int, bool], bytes] | None = field(default_factory=dict)


class Forwarded:
    """See the module. `keep_s`: how old a batch can be that is still taken."""

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._members: dict[bytes, OrderedDict[bytes, _Key]] = {}  # by silence, the longest first

    def find(self, header: BatchHeader, frame: bytes) -> Found:
        """What is known of a batch whose signed header is `frame`; it need not be verified for that."""
        key = self._key(header)
        if key is None:
            return Found.NEW
        void = header.is_void
        if key.headers is not None:
            known = key.headers.get((header.first, void))
            if known is not None and known == digest(frame):
                return Found.REPEATED
        runs = key.voids if void else key.contents
        return Found.COVERED if runs.within(header.first, header.last) else Found.NEW

    def is_overlap(self, header: BatchHeader) -> bool:
        """Whether a verified header that is `COVERED` contradicts what we remember: the key is open, so that each of
        its headers is."""
        key = self._key(header)
        return key is not None and key.headers is not None

    def _key(self, header: BatchHeader) -> _Key | None:
        keys = self._members.get(header.member)
        return None if keys is None else keys.get(header.key_id)

    def add(self, header: BatchHeader, frame: bytes, now: float) -> None:
        """A verified batch is forwarded."""
        keys = self._members.setdefault(header.member, OrderedDict())
        key = keys.get(header.key_id)
        if key is None:
            key = keys[header.key_id] = _Key(now)
            if len(keys) > KEYS_MAX:
                keys.popitem(last=False)
        key.last_s = max(key.last_s, now)
        keys.move_to_end(header.key_id)
        (key.voids if header.is_void else key.contents).add(header.first, header.last)
        if key.headers is not None:
            key.headers[header.first, header.is_void] = digest(frame)
        self._age(header.member, keys, now)

    def _age(self, member: bytes, keys: OrderedDict[bytes, _Key], now: float) -> None:
        """The longest silent keys lose their headers, then go. Each call looks at two of them at most."""
        for key_id in list(keys)[:1]:
            if now - keys[key_id].last_s > self._keep_s:
                del keys[key_id]
        for key in keys.values():
            if key.headers is not None:
                if now - key.last_s > OPEN_S:
                    key.headers = None
                break
            if now - key.last_s <= OPEN_S:
                break

    def keep(self, members: Container[bytes]) -> None:
        """Forget whoever is no member any more."""
        for member in [member for member in self._members if member not in members]:
            del self._members[member]

    def __len__(self) -> int:
        """Keys that are remembered."""
        return sum(map(len, self._members.values()))


def digest(frame: bytes) -> bytes:
    """Of a signed header, signature and all."""
    return hashlib.sha256(frame).digest()
