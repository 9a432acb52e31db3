"""Store of publications at a subscriber whose data key is so late that their successors no longer wait for them.

While fewer than n − f replicas of a region on the path are connected, content arrives without its key: all copies of a
publication may be here long before enough shares are. A dropped publication would be lost, since nobody sends it
again. So the publication is kept until its key comes, and delays no other. `streams` holds publications waiting for
their turn, `opening` opens keys.
"""

from __future__ import annotations

from typing import TypeAlias

from bridge.contract import FairBytes
from bridge.reader.streams import Held

KEYLESS_BYTES = 64 << 20  # of publications without a key; a flooder loses its own oldest
KEPT_OVERHEAD_BYTES = 4096  # what header and tables cost beside the content: bounds the number too

Name: TypeAlias = tuple[bytes, str, int]  # publisher, wire topic, sequence


class Keyless:
    """Publications waiting for their data key only, found by name or by key."""

    def __init__(self) -> None:
        self._held: FairBytes[Name, Held] = FairBytes(KEYLESS_BYTES, KEPT_OVERHEAD_BYTES)
        self._by_key: dict[bytes, dict[Name, None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def holds(self, name: Name) -> bool:
        """Returns True if the publication waits here."""
        return self._held.get(name) is not None

    def put(self, held: Held) -> bool:
        """Keeps a publication. Returns False if another one was dropped to make room."""
        header = held.admitted.header
        name = (header.publisher, held.topic, header.sequence)
        before = self._held.pop(name)
        if before is not None:
            self._forget(before)
        self._by_key.setdefault(header.key_id, {})[name] = None
        gone = self._held.put(name, header.publisher, held, held.size)
        for _, other in gone:
            self._forget(other)
        return not gone

    def take(self, key_id: bytes) -> list[Held]:
        """Removes the publications that waited for this key and returns them in order of sequence."""
        found = [self._held.pop(name) for name in self._by_key.pop(key_id, ())]
        return sorted((held for held in found if held is not None), key=lambda held: held.admitted.header.sequence)

    def _forget(self, held: Held) -> None:
        header = held.admitted.header
        names = self._by_key[header.key_id]
        del names[header.publisher, held.topic, header.sequence]
        if not names:
            del self._by_key[header.key_id]
