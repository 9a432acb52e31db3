"""What is sealed and is to be sealed anew: which entries those are, and that they are unsealed until then.

Not here: what a scope seals under from now on (`sealing`), snapshots of what is retained (`own_retained`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bridge.document import RegionView
from bridge.publisher.handing_over import has_enough, newest_of
from bridge.publisher.refusals import RESEAL_AFTER_S
from bridge.publisher.residents import Residents, Standing
from bridge.publisher.sealing import Entry, Sealer
from bridge.publisher.windows import Lanes

BACK_AFTER_S = 240.0
"""Once a link is back, what is older goes sealed anew: who subscribed since takes what is 300 s old for a replay."""


def outdated(
    entries: Mapping[int, Entry], sealer: Sealer, view: RegionView, lanes: Lanes, now: float
) -> tuple[list[int], list[int]]:
    """What some replica lacks and would be sealed otherwise now, or is so old that replicas will refuse it; if a link
    is back since this was asked last, also what is so old that readers who hear of its publisher first will.

    Second what is done with though one may lack it, of what n - f replicas have: its epoch and the grace of that are
    over, or it is not among the newest. A replica that was away for longer than the grace was one of the f.
    """
    oldest_s = BACK_AFTER_S if lanes.is_any_back() else RESEAL_AFTER_S
    again, stragglers, over = list[int](), list[int](), list[int]()
    for sequence, entry in entries.items():
        if entry.wire is None or all(peer in entry.acked for peer, _ in lanes):
            continue
        current, enough = sealer.is_current(entry), has_enough(entry, view)
        if not enough:
            if not current or abs(now - entry.sealed_ms / 1000) > oldest_s:
                again.append(sequence)
        elif not (current or sealer.is_current_but_for_its_epoch(entry)):
            stragglers.append(sequence)
        elif not current and entry.name is not None and not sealer.may_still_seal(entry.name.epoch, now):
            over.append(sequence)
    newest, older = newest_of(stragglers)
    return sorted([*again, *newest]), [*over, *older]


def unseal(sequences: Iterable[int], entries: Mapping[int, Entry], residents: Residents, lanes: Lanes) -> None:
    """Nobody has these; what is on its way does not count."""
    for sequence in dict.fromkeys(sequences):
        entry = entries[sequence]
        lanes.outdate(sequence)
        entry.wire = entry.name = entry.key = None
        residents.move(entry, Standing.FRESH)
        entry.acked.clear()
