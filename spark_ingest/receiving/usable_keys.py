"""What becomes of a data key at a receiver: k shares that fit what its publisher committed to, never a scope key.

They go to the spool as they are. The secret alone opens nothing: executors add the scope's epoch key, and check the
publisher's commitment to the whole. Of epoch keys a receiver knows only *which* executors have (`GrantedKeys`), by what
key headers say of them: until then what is sealed under one waits, so that no row is shown which they cannot open yet,
and what a publisher sealed under a key of its own invention ends no query. Not here: which key headers and shares hold
(`bridge.reader`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from bridge.reader import KeyRing
from keys.envelope import KeyHeader, KeyName, check_share
from keys.errors import KeysError
from keys.sharetree import Place, Share, decode_shares, encode_shares
from spark_ingest.spool import SpooledKey

WANTED_MAX = 64
"""Epoch keys that are asked for at a time, as many as a request holds; what is still missing is wanted again."""


class Usable(NamedTuple):
    """An opened key: as the spool keeps it, and the epoch key that executors need beside it, with its check value."""

    material: SpooledKey
    name: KeyName
    check_value: bytes


class KShares:
    """A receiver's `bridge.reader.Opening`: it takes no epoch key to know that shares fit."""

    def may_open(self, header: KeyHeader) -> bool:
        return True

    def lacks(self, header: KeyHeader) -> bool:
        return False

    def check(self, header: KeyHeader) -> None:
        """Executors do."""

    def open(self, header: KeyHeader, level1: Mapping[int, bytes], secret: bytes) -> Usable:
        places = sorted(level1)[: header.hops[0].threshold]
        return Usable(_material(header, {place: level1[place] for place in places}), header.epoch_key, header.kcv)


def material_of(keys: KeyRing[Usable], key_id: bytes) -> SpooledKey | None:
    """What the spool keeps about a key; with fewer than k shares when there are no more."""
    held = keys.held(key_id)
    if held is None:
        return None
    header, usable, shares = held
    if usable is not None:
        return usable.material
    level1 = [(share.label[0].place, share.value) for share in shares if len(share.label) == 1]
    return _material(header, {place: value for place, value in level1 if check_share(header, place, value)})


def restore(keys: KeyRing[Usable], materials: Iterable[SpooledKey]) -> None:
    """Take over what an earlier process wrote: it was verified then."""
    for each in materials:
        try:
            header = KeyHeader.decode(each.header)
            shares = decode_shares(each.shares) if each.shares else []
        except KeysError:
            continue  # of another version of the frames: the publisher sends it again
        whole = len(shares) >= header.hops[0].threshold
        keys.resume(header, Usable(each, header.epoch_key, header.kcv) if whole else None, shares)


class GrantedKeys:
    """The epoch keys that executors have, and those that publications wait for or contradict."""

    def __init__(self) -> None:
        self._check_values: Mapping[KeyName, bytes] = MappingProxyType({})
        self._wanted: dict[KeyName, None] = {}

    def learn(self, check_values: Mapping[KeyName, bytes]) -> None:
        """Executors have these, and no others; each with what key headers that were made with it say of it."""
        self._check_values = dict(check_values)
        self._wanted.clear()

    def lacks(self, name: KeyName) -> bool:
        """Whether it is missing; then it is wanted."""
        return name not in self._check_values and self._want(name)

    def contradicts(self, usable: Usable) -> bool:
        """Whether its publisher used another epoch key of that name. Then it is wanted again: one of them is wrong."""
        return self._check_values[usable.name] != usable.check_value and self._want(usable.name)

    def _want(self, name: KeyName) -> bool:
        if len(self._wanted) < WANTED_MAX:
            self._wanted[name] = None
        return True

    def take_wanted(self) -> list[KeyName]:
        """Epoch keys that publications wait for, or contradict, since the last call."""
        names, self._wanted = list(self._wanted), {}
        return names


def materials_to_json(materials: Iterable[SpooledKey]) -> list[list[str]]:
    """For the spool's state."""
    return [[_b64(each.header), _b64(each.shares)] for each in materials]


def materials_from_json(entries: Iterable[Sequence[str]]) -> list[SpooledKey]:
    """The inverse of `materials_to_json`. Raises ValueError for anything else."""
    return [SpooledKey(base64.b64decode(header), base64.b64decode(shares)) for header, shares in entries]


def _material(header: KeyHeader, level1: Mapping[int, bytes]) -> SpooledKey:
    hop = header.hops[0]
    shares = [Share((Place(hop.region, hop.view, place),), (), value) for place, value in sorted(level1.items())]
    return SpooledKey(header.encode(), encode_shares(shares) if shares else b"")


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
