"""What replicas say was left out before a publication, since nobody here wants it (`wire.skips`).

f + 1 of the home region say it together, one of whom is honest: then nobody waits for what was left out, and nobody
asks for it. Of a scope that goes by planes the replica of our plane suffices, on which we depend there anyway; while
that one is away, any replica of the region, since one of them alone serves our plane. What was left out may still come,
late, if it was wanted after all. Not here: what the others wait for (`collector`).
"""

from __future__ import annotations

from typing import TypeAlias

from bridge.contract import FairTable
from bridge.document import Overlay, Scope
from bridge.topology import Planes
from bridge.wire import agreed

SKIPS_MAX = 16_384
"""Publications of which it is known who said what; a flooder forgets its own first."""

SkipName: TypeAlias = tuple[bytes, str, int]
"""Publisher, wire topic, sequence."""


class Skipped:
    """See the module."""

    def __init__(self, overlay: Overlay, name: str) -> None:
        """Of the reader of that name."""
        self._name = name
        self.up: set[str] = set()
        """Replicas with whom we have a link."""
        self._lows: FairTable[SkipName, dict[str, int]] = FairTable(SKIPS_MAX)
        self.adopt(overlay)

    def adopt(self, overlay: Overlay) -> None:
        """Another version of the overlay, or other views of it."""
        self._view, self._planes = overlay.views[overlay.certificate(self._name).region], Planes(overlay)

    def __len__(self) -> int:
        return len(self._lows)

    def heard(self, name: SkipName, peer: str, low: int) -> None:
        """A replica says that all after `low` was left out."""
        lows = self._lows.get(name)
        if lows is None:
            lows = {}
            self._lows.put(name, name[0], lows)
        lows[peer] = min(low, lows.get(peer, low))

    def bridges(self, name: SkipName, highest: int, scope: Scope) -> bool:
        """Returns whether nothing is missing between `highest`, which was delivered, and this publication of the
        scope."""
        lows = self._lows.get(name)
        if lows is None:
            return False
        said = {peer: low for peer, low in lows.items() if peer in self._view.members}
        needed = self._view.threshold
        if self._planes.open(scope):
            host = self._planes.host_replica(scope, self._name)
            if said.get(host, name[2]) <= highest:
                return True
            needed = needed if host in self.up else 1
        low = agreed(said, needed)
        return low is not None and low <= highest

    def done(self, name: SkipName) -> None:
        """It waits no more."""
        self._lows.pop(name)
