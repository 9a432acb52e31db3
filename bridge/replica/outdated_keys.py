"""Data keys a bump outdated, from replicas before us: they count once enough replicas bring them.

Wires taken by a publisher's own region before the bump may lie in queues for as long as regions are apart. A replica
of another region cannot tell the time of taking. A honest replica before us took the key in time, and so did an honest
replica before that, back to the publisher's region, where the publisher itself is refused after a grace. So f + 1
replicas of the region before have to bring the very same key header; until then their wires wait here. Bounded and
fair: the publisher with the most bytes at one neighbour loses its oldest. Publications go on meanwhile. Not here: the
caller (`resplitting`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from bridge.contract import CHAR_BYTES, FairBytes
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS, KeyHeader

OUTDATED_BYTES = 8 << 20  # of all: nobody signed the shares
OUTDATED_OVERHEAD_BYTES = 4096  # of a key header and the table: bounds the number too

_KEPT = (PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS)


class OutdatedKeys:
    """Outdated key headers with shares, as they came, and their senders."""

    def __init__(self) -> None:
        self._kept: FairBytes[bytes, tuple[bytes, str, dict[str, str]]] = FairBytes(
            OUTDATED_BYTES, OUTDATED_OVERHEAD_BYTES
        )
        self._of: dict[bytes, dict[bytes, str]] = {}  # by key header: its kept wires and their senders

    def __len__(self) -> int:
        return len(self._kept)

    def keep_wire(self, header: KeyHeader, sender: str, properties: Mapping[str, str]) -> int:
        """Keeps a verified key header and a sender's shares. Returns the number of senders that brought it by now."""
        told = {name: properties[name] for name in _KEPT if name in properties}
        name = hashlib.sha256("\0".join((sender, *told.values())).encode()).digest()
        size = CHAR_BYTES * (len(told.get(PROPERTY_SHARES, "")) + len(told.get(PROPERTY_WRAPS, "")))
        self._of.setdefault(header.digest, {})[name] = sender
        owner = header.publisher + sender.encode()
        for gone, (digest, _, _) in self._kept.put(name, owner, (header.digest, sender, told), size):
            self._of[digest].pop(gone)
            if not self._of[digest]:
                del self._of[digest]
        return len(set(self._of.get(header.digest, {}).values()))

    def take_wires(self, header: KeyHeader) -> list[tuple[str, dict[str, str]]]:
        """Returns all kept wires of a key, in the order of arrival, and forgets them."""
        taken = [self._kept.pop(name) for name in self._of.pop(header.digest, {})]
        return [(sender, told) for found in taken if found is not None for _, sender, told in (found,)]
