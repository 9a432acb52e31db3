"""What is sealed and is to be sealed anew: which entries those are, and that they are unsealed until then.

Not here: what a scope seals under from now on (`sealing`), snapshots of what is retained (`own_retained`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bridge.document import RegionView
from bridge.publisher.handing_over import has_enough
from bridge.publisher.refusals import RESEAL_AFTER_S
from bridge.publisher.residents import Residents, Standing
from bridge.publisher.sealing import Entry, Sealer
from bridge.publisher.windows import WINDOW_MAX, Lanes

BACK_AFTER_S = 240.0
"""Once a link is back, what is older goes sealed anew: who subscribed since takes what is 300 s old for a replay."""
STRAGGLERS_MAX = WINDOW_MAX
"""Of what n - f replicas have, so much is sealed anew for those that lack it once its key has ended. All replicas get
it before what is new, and those take a new sealing of what is older for a repetition (`budgets.RESEALED_MAX`). Without
a bound one replica that comes back, or acknowledges nothing, would stop all publications at the end of each epoch."""


def outdated(
    entries: Mapping[int, Entry], sealer: Sealer, view: RegionView, lanes: Lanes, now: float
) -> tuple[list[int], list[int]]:
    """What some replica lacks and would be sealed otherwise now, or is so old that replicas will refuse it; if a link
    is back since this was asked last, also what is so old that readers who hear of its publisher first will.

    Second, of what n - f replicas have, what is not worth that: all but the newest.
    """
    oldest_s = BACK_AFTER_S if lanes.is_any_back() else RESEAL_AFTER_S
    found: list[int] = []
    stragglers: list[int] = []
    for sequence, entry in entries.items():
        if entry.wire is None or all(peer in entry.acked for peer, _ in lanes):
            continue
        enough = has_enough(entry, view)
        if not sealer.is_current(entry):
            (stragglers if enough else found).append(sequence)
        elif not enough and abs(now - entry.sealed_ms / 1000) > oldest_s:
            found.append(sequence)
    stragglers.sort()
    return sorted([*found, *stragglers[-STRAGGLERS_MAX:]]), stragglers[:-STRAGGLERS_MAX]


def unseal(sequences: Iterable[int], entries: Mapping[int, Entry], residents: Residents, lanes: Lanes) -> None:
    """Nobody has these; what is on its way does not count."""
    for sequence in dict.fromkeys(sequences):
        entry = entries[sequence]
        lanes.outdate(sequence)
        entry.wire = entry.name = entry.key = None
        residents.move(entry, Standing.FRESH)
        entry.acked.clear()
