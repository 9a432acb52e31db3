"""Early keys: keys split for views that are not in force here yet, kept until then.

Views come into force at each member a little earlier or later. A publisher that is ahead of us seals for a view we do
not know yet; nobody is at fault, and the content goes on meanwhile. A neighbour's wire with such a key waits here,
under its publisher's verified signature, and is looked at again when our views change. Bounded and fair: a publisher
that names views that never come, or a liar sending ever new shares of a key, loses its own entries only. Not here: the
callers (`resplitting`, `opening`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from bridge.contract import CHAR_BYTES, FairBytes
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS, KeyHeader, from_property

AHEAD_MAX = 2048  # (neighbour, key, shares); of the publisher with most of them at one neighbour the oldest goes
AHEAD_BYTES = 32 << 20  # of all: nobody signed the shares and the topic, which may be long

_KEPT = (PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS)


class Ahead:
    """Key headers with shares, as they came: sender, topic and properties."""

    def __init__(self) -> None:
        self._part_bytes = AHEAD_BYTES // AHEAD_MAX
        self._kept: FairBytes[bytes, tuple[str, str, dict[str, str]]] = FairBytes(AHEAD_BYTES, self._part_bytes)

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, sender: str, properties: Mapping[str, str], topic: str) -> None:
        """Keeps a key. `properties` hold a key header whose signature was verified."""
        told = {name: properties[name] for name in _KEPT if name in properties}
        name = hashlib.sha256("\0".join((sender, topic, *told.values())).encode()).digest()
        if self._kept.get(name) is None:
            publisher = KeyHeader.decode(from_property(told[PROPERTY_KEY])).publisher
            size = CHAR_BYTES * (len(topic) + sum(map(len, told.values())))
            self._kept.put(name, publisher + sender.encode(), (sender, topic, told), max(0, size - self._part_bytes))

    def take(self) -> list[tuple[str, str, dict[str, str]]]:
        """Returns all kept keys, in the order of arrival, and forgets them."""
        kept, self._kept = self._kept, FairBytes(AHEAD_BYTES, self._part_bytes)
        return [value for _, value in kept.items()]
