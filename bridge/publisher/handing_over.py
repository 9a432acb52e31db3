"""What becomes of outbox entries when the home region's view changes (A13, A14).

What a replica that left may not have, all get anew: those that stay may hold too few honest shares of it. What none but
those that are away lack is on its way, and newcomers need not have it. Not here: lanes, sealing anew (`publisher`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bridge.document.region_view import RegionView
from bridge.publisher.residents import Residents, Standing
from bridge.publisher.sealing import Entry


def hand_over(
    entries: Iterable[Entry], residents: Residents, before: RegionView, view: RegionView, lanes: Collection[str]
) -> None:
    """Acknowledgements as they count in `view`; `lanes`: replicas of the view before whose link is up."""
    left = [name for name in before.members if name not in view.members]
    newcomers = [name for name in view.members if name not in before.members]
    for entry in entries:
        if entry.key is not None and not entry.acked.issuperset(left):
            residents.move(entry, Standing.FRESH)
            entry.acked.clear()
        elif entry.acked.issuperset(lanes) and has_enough(entry, before):
            for peer in newcomers:
                residents.acknowledged(entry, peer)


def has_enough(entry: Entry, view: RegionView) -> bool:
    """Whether n - f replicas of the view acknowledged it."""
    return len(view.members_among(entry.acked)) >= len(view.members) - view.faults
