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
from bridge.publisher.windows import Lanes

BACK_AFTER_S = 240.0
"""Once a link is back, what is older goes sealed anew: who subscribed since takes what is 300 s old for a replay."""


def outdated(entries: Mapping[int, Entry], sealer: Sealer, view: RegionView, lanes: Lanes, now: float) -> list[int]:
    """What some replica lacks and would be sealed otherwise now, or is so old that replicas will refuse it; if a link
    is back since this was asked last, also what is so old that readers who hear of its publisher first will."""
    oldest_s = BACK_AFTER_S if lanes.is_any_back() else RESEAL_AFTER_S
    found: list[int] = []
    for sequence, entry in entries.items():
        old = abs(now - entry.sealed_ms / 1000) > oldest_s and not has_enough(entry, view)
        if entry.wire is None or (sealer.is_current(entry) and not old):
            continue
        if any(peer not in entry.acked for peer, _ in lanes):
            found.append(sequence)
    return found


def unseal(sequences: Iterable[int], entries: Mapping[int, Entry], residents: Residents, lanes: Lanes) -> None:
    """Nobody has these; what is on its way does not count."""
    for sequence in dict.fromkeys(sequences):
        entry = entries[sequence]
        lanes.outdate(sequence)
        entry.wire = entry.name = entry.key = None
        residents.move(entry, Standing.FRESH)
        entry.acked.clear()
