"""Statements of replicas that publications before another one were left out because nobody here wants them
(`wire.skips`).

If f + 1 replicas of the home region agree, one of them is honest: then the reader neither waits for the gap nor
requests it. In a scope that is split into planes, the replica of the reader's plane suffices, since the reader depends
on that replica anyway. While that replica is away, or has not brought the publication within `SILENT_S`, any replica
of the region suffices, since one of them alone serves the plane. A left out publication that is wanted after all may
still come, late. `collector` handles all other waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from bridge.contract import FairTable
from bridge.document import Overlay, Scope
from bridge.topology import Planes
from bridge.wire import Admitted, agreed, read_skip

SKIPS_MAX = 16_384
"""Publications whose statements are remembered; a flooder's own are forgotten first."""

SILENT_S = 0.5
"""Seconds by which the replica of the reader's plane may be behind the replica that stands in for it."""

SkipName: TypeAlias = tuple[bytes, str, int]
"""Publisher, wire topic, sequence."""


class Skipped:
    """Statements about gaps, by publication, at one reader."""

    def __init__(self, overlay: Overlay, name: str) -> None:
        """Takes the name of the reader."""
        self._name = name
        self.up: set[str] = set()
        """Replicas with a link to this reader."""
        self._lows: FairTable[SkipName, dict[str, int]] = FairTable(SKIPS_MAX)
        self.adopt(overlay)

    def adopt(self, overlay: Overlay) -> None:
        """Adopts another version of the overlay, or other views."""
        self._view, self._planes = overlay.views[overlay.certificate(self._name).region], Planes(overlay)

    def __len__(self) -> int:
        return len(self._lows)

    def word(self, admitted: Admitted, peer: str, properties: Mapping[str, str]) -> int | None:
        """Returns the number after which, as a replica says, all was left out before the publication that it brings;
        None if the replica says nothing. Silence of the replica of the reader's plane means that nothing was left out.
        Raises BadFrame.
        """
        low, scope = read_skip(properties, admitted.header), admitted.scope
        if low is None and scope.shown and self._planes.open(scope):
            return admitted.header.previous if peer == self._planes.host_replica(scope, self._name) else None
        return low

    def wakes(self, name: SkipName, scope: Scope, arrived: float, now: float) -> float | None:
        """Returns the time at which to check a waiting publication again, if only replicas other than that of the
        reader's plane say that nothing is missing before it; None for the ordinary time.
        """
        lows, at = self._lows.get(name), arrived + SILENT_S
        if not lows or now >= at or not self._planes.open(scope):
            return None
        return None if self._planes.host_replica(scope, self._name) in lows else at

    def heard(self, name: SkipName, peer: str, low: int) -> None:
        """Notes a replica's statement that everything after `low` was left out."""
        lows = self._lows.get(name)
        if lows is None:
            lows = {}
            self._lows.put(name, name[0], lows)
        lows[peer] = min(low, lows.get(peer, low))

    def bridges(self, name: SkipName, highest: int, scope: Scope, waited_s: float = 0.0) -> bool:
        """Returns True if nothing is missing between the delivered number `highest` and this publication of the scope,
        which has waited for `waited_s`.
        """
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
        """Forgets a publication waiting no more."""
        self._lows.pop(name)
