"""What a reader says of a wire that it has no room for yet: it is not acknowledged before there is.

MQTT 5 then holds back whoever sends, and a process that is killed gets it again. Not here: how much may be
withheld (`reader.overflow`, `membership.early_wires`).
"""

from __future__ import annotations

from keys.values import value


@value
class Withhold:
    """Do not acknowledge what was received just now before `Take` names this number. The machine has it in hand: it
    needs no second copy, and forgets it if it is brought again on another connection."""

    number: int


@value
class Take:
    """What was withheld under these numbers is dealt with: acknowledge it once the rows that a `Keep` before this one
    brought are on disk."""

    numbers: tuple[int, ...]
