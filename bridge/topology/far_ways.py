"""Ways to replicas of other regions, and the region of a history's reading (docs/protocol-options.md §12.6)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from bridge.document import Overlay, Scope


def keeping(overlay: Overlay, name: str, scope: Scope) -> int:
    """Returns the region in which a member reads the history of a scope: the member's own, or else the nearest with
    all of the history.
    """
    home = overlay.certificate(name).region
    kept = scope.history.regions if scope.history is not None else ()
    ways = [(len(path), region) for region in kept if (path := overlay.path(home, region))]
    return home if not kept or home in kept or not ways else min(ways)[1]


def asked_of(overlay: Overlay, home: int, region: int, up: Collection[str]) -> Sequence[str]:
    """Returns the replicas of a region that a reading asks. Of the reader's own region these are the connected ones,
    `up`; replicas of another are asked through these, and count as connected.
    """
    return sorted(up) if region == home else overlay.replicas(region)


class FarWays:
    """The ways from a home region to the replicas of another one, along the tree in force.

    Ways have numbers: each way one, and of two neighbouring numbers another first replica.
    """

    def __init__(self, overlay: Overlay, home: int, region: int) -> None:
        self._passing = [overlay.views[each].members for each in overlay.path(home, region)[:-1]]
        self.count = prod(map(len, self._passing)) if self._passing else 1
        """The number of ways to one replica; one within the home region."""

    def way(self, asked: str, turn: int) -> tuple[str, ...]:
        """Returns the way of a number to a replica."""
        found: list[str] = []
        first = 0
        for members in self._passing:
            turn, place = divmod(turn, len(members))
            found.append(members[(place + first) % len(members)])
            first = first if len(found) > 1 else place
        return (*found, asked)
