"""Selection of sealed entries that must be sealed anew, and their unsealing.

`sealing` gives the keys and views of a scope, `own_retained` the snapshots of retained publications.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bridge.document import RegionView
from bridge.publisher.handing_over import AWAY_S, forget_acknowledgements, has_enough, newest_of, sealed_ago_s
from bridge.publisher.refusals import RESEAL_AFTER_S
from bridge.publisher.residents import Residents
from bridge.publisher.sealing import Entry, Sealer
from bridge.publisher.windows import Lanes

BACK_AFTER_S = 240.0
"""Age in seconds from which an entry is sealed anew once a link is back: a new subscriber takes 300 s old ones for
replays.
"""


def outdated(
    entries: Mapping[int, Entry], sealer: Sealer, view: RegionView, lanes: Lanes, now: float
) -> tuple[list[int], list[int]]:
    """Returns entries that a replica lacks and that would be sealed otherwise now, or are so old that replicas will
    refuse them.

    If a link came back since the last call, entries count, too, that are too old for readers that hear of the
    publisher
    first. An entry that n - f replicas have stays while the grace of its epoch lasts, if nothing else has changed. Of
    the
    other entries the newest are among the first; second come those that are done with, though one replica may lack
    them.
    """
    oldest_s = BACK_AFTER_S if lanes.is_any_back() else RESEAL_AFTER_S
    calendar = sealer.calendar
    again, stragglers, over = list[int](), list[Entry](), list[int]()
    for sequence, entry in entries.items():
        if entry.wire is None or all(peer in entry.acked for peer, _ in lanes):
            continue
        current, age_s = sealer.is_current(entry), sealed_ago_s(entry, now)
        if not has_enough(entry, view):
            if not current or age_s > oldest_s:
                again.append(sequence)
        elif not current:
            epoch = _former_epoch(entry, sealer)
            if epoch is None or not calendar.may_seal(epoch, now):  # else replicas still take it as it is
                # An epoch that is to come, by a clock that was set back, is not over.
                is_over = epoch is not None and now >= calendar.end_s(epoch) + calendar.grace_s
                if is_over and age_s > max(AWAY_S, calendar.grace_s):
                    over.append(sequence)
                else:
                    stragglers.append(entry)
    newest, older = newest_of(stragglers, view.members, now)
    return sorted([*again, *newest]), [*over, *older]


def is_on_its_way(entry: Entry, sealer: Sealer, view: RegionView, now: float) -> bool:
    """Returns True if n - f replicas have the entry, another may still get it, and all accept it although its epoch is
    over.
    """
    epoch, calendar = _former_epoch(entry, sealer), sealer.calendar
    if sealer.is_current(entry) or epoch is None or not calendar.may_seal(epoch, now) or not has_enough(entry, view):
        return False
    return is_lacked(entry, view, max(AWAY_S, calendar.grace_s), now)


def is_lacked(entry: Entry, view: RegionView, most_s: float, now: float) -> bool:
    """Returns True if a replica lacks an entry sealed at most `most_s` ago. After that time the replica may be a
    liar.
    """
    return not entry.acked.issuperset(view.members) and sealed_ago_s(entry, now) <= most_s


def _former_epoch(entry: Entry, sealer: Sealer) -> int | None:
    """Returns the epoch in which the entry is sealed, if its present sealing would differ in the epoch alone."""
    if entry.name is None or not sealer.is_current_but_for_its_epoch(entry):
        return None
    return entry.name.epoch


def unseal(sequences: Iterable[int], entries: Mapping[int, Entry], residents: Residents, lanes: Lanes) -> None:
    """Unseals entries: nobody has them, and copies on their way do not count."""
    for sequence in dict.fromkeys(sequences):
        entry = entries[sequence]
        lanes.outdate(sequence)
        entry.wire = entry.name = entry.key = None
        forget_acknowledgements(entry, residents)
