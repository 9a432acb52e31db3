"""Usable data keys of a receiver: k shares fitting their publisher's commitments, never a scope key.

The shares go to the spool unchanged. The secret alone opens nothing: executors add the scope's epoch key, and check
the
publisher's commitment to the whole. A receiver knows only *which* epoch keys executors have (`GrantedKeys`), by their
check values in key headers. Until executors have a key, its publications wait, so that no row is shown that they
cannot
open yet, and a publication sealed under an invented key ends no query. Not here: which key headers and shares are
valid
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
"""Epoch keys that are asked for at a time, as many as a request holds; missing ones are wanted again."""


class Usable(NamedTuple):
    """An opened key: its material for the spool, and the epoch key that executors need beside it, with its check
    value.
    """

    material: SpooledKey
    name: KeyName
    check_value: bytes


class KShares:
    """A receiver's `bridge.reader.Opening`, which needs no epoch key to judge shares."""

    def may_open(self, header: KeyHeader) -> bool:
        return True

    def lacks_epoch_key(self, header: KeyHeader) -> bool:
        return False

    def check_epoch_key(self, header: KeyHeader) -> None:
        """Does nothing: executors check."""

    def open_key(self, header: KeyHeader, level1: Mapping[int, bytes], secret: bytes) -> Usable:
        places = sorted(level1)[: header.hops[0].threshold]
        return Usable(_material(header, {place: level1[place] for place in places}), header.epoch_key, header.kcv)


def material_of(keys: KeyRing[Usable], key_id: bytes) -> SpooledKey | None:
    """Returns a key's material for the spool; with fewer than k shares when there are no more."""
    held = keys.held_key(key_id)
    if held is None:
        return None
    header, usable, shares = held
    if usable is not None:
        return usable.material
    level1 = [(share.label[0].place, share.value) for share in shares if len(share.label) == 1]
    return _material(header, {place: value for place, value in level1 if check_share(header, place, value)})


def restore(keys: KeyRing[Usable], materials: Iterable[SpooledKey]) -> None:
    """Takes over the material of an earlier process, which verified it."""
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
        self.check_values: Mapping[KeyName, bytes] = MappingProxyType({})
        self._wanted: dict[KeyName, None] = {}

    def learn(self, check_values: Mapping[KeyName, bytes]) -> None:
        """Replaces the epoch keys that executors have, each with its check value."""
        self.check_values = dict(check_values)
        self._wanted.clear()

    def lacks(self, name: KeyName) -> bool:
        """Returns True if a key is missing, and wants it then."""
        return name not in self.check_values and self._want(name)

    def contradicts(self, usable: Usable) -> bool:
        """Returns True if the publisher used another epoch key of that name, and wants it again: one of the two is
        wrong.
        """
        return self.check_values[usable.name] != usable.check_value and self._want(usable.name)

    def _want(self, name: KeyName) -> bool:
        if len(self._wanted) < WANTED_MAX:
            self._wanted[name] = None
        return True

    def take_wanted(self) -> list[KeyName]:
        """Returns epoch keys that publications wait for, or contradict, since the last call."""
        names, self._wanted = list(self._wanted), {}
        return names


def materials_to_json(materials: Iterable[SpooledKey]) -> list[list[str]]:
    """Returns materials for the spool's state."""
    return [[_b64(each.header), _b64(each.shares)] for each in materials]


def materials_from_json(entries: Iterable[Sequence[str]]) -> list[SpooledKey]:
    """Returns the materials of a state. Raises ValueError for other entries."""
    return [SpooledKey(base64.b64decode(header), base64.b64decode(shares)) for header, shares in entries]


def _material(header: KeyHeader, level1: Mapping[int, bytes]) -> SpooledKey:
    hop = header.hops[0]
    shares = [Share((Place(hop.region, hop.view, place),), (), value) for place, value in sorted(level1.items())]
    return SpooledKey(header.encode(), encode_shares(shares) if shares else b"")


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
