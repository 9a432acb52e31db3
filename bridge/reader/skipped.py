"""What replicas say was left out before a publication, since nobody here wants it (`wire.skips`).

f + 1 of the home region say it together, one of whom is honest: then nobody waits for what was left out, and nobody
asks for it. Of a scope that goes by planes the replica of our plane suffices, on which we depend there anyway. While
that one is away, or has not brought the publication within `SILENT_S`, any replica of the region suffices, since one of
them alone serves our plane. What was left out may still come, late, if it was wanted after all. Not here: what the
others wait for (`collector`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from bridge.contract import FairTable
from bridge.document import Overlay, Scope
from bridge.topology import Planes
from bridge.wire import Admitted, agreed, read_skip

SKIPS_MAX = 16_384
"""Publications of which it is known who said what; a flooder forgets its own first."""

SILENT_S = 0.5
"""For so long the replica of our plane may be behind the one that serves our plane in its place."""

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

    def word(self, admitted: Admitted, peer: str, properties: Mapping[str, str]) -> int | None:
        """Returns from which number on a replica says that all was left out before a publication that it brings; None:
        it says nothing. The replica of our plane that says nothing says that nothing was left out. Raises BadFrame."""
        low, scope = read_skip(properties, admitted.header), admitted.scope
        if low is None and scope.shown and self._planes.open(scope):
            return admitted.header.previous if peer == self._planes.host_replica(scope, self._name) else None
        return low

    def wakes(self, name: SkipName, scope: Scope, arrived: float, now: float) -> float | None:
        """Returns when a publication that waits for a gap is to be looked at again, since somebody else than the
        replica of our plane says that it is none; None: then as any other."""
        lows, at = self._lows.get(name), arrived + SILENT_S
        if not lows or now >= at or not self._planes.open(scope):
            return None
        return None if self._planes.host_replica(scope, self._name) in lows else at

    def heard(self, name: SkipName, peer: str, low: int) -> None:
        """A replica says that all after `low` was left out."""
        lows = self._lows.get(name)
        if lows is None:
            lows = {}
            self._lows.put(name, name[0], lows)
        lows[peer] = min(low, lows.get(peer, low))

    def bridges(self, name: SkipName, highest: int, scope: Scope, waited_s: float = 0.0) -> bool:
        """Returns whether nothing is missing between `highest`, which was delivered, and this publication of the
        scope, which has waited for `waited_s`."""
        lows = self._lows.get(name)
        if lows is None:
            return False
        said = {peer: low for peer, low in lows.items() if peer in self._view.members}
        needed = self._view.threshold
        if self._planes.open(scope):
            host = self._planes.host_replica(scope, self._name)
            if said.get(host, name[2]) <= highest:
                return True
            is_silent = host not in said and waited_s >= SILENT_S
            needed = 1 if is_silent or host not in self.up else needed
        low = agreed(said, needed)
        return low is not None and low <= highest

    def done(self, name: SkipName) -> None:
        """It waits no more."""
        self._lows.pop(name)
