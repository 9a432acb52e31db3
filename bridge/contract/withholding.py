"""Withheld acknowledgements: a reader acknowledges a wire only once it has room for it.

MQTT 5 then holds the sender back, and a killed process gets the wire again. Not here: the number of withheld wires
(`reader.overflow`, `membership.early_wires`).
"""

from __future__ import annotations

from keys.values import value


@value
class Withhold:
    """Do not acknowledge the wire just received before `Take` names this number.

    The machine holds it: it needs no second copy, and forgets it if another connection brings it again.
    """

    number: int


@value
class Take:
    """Acknowledge the wires withheld under these numbers, once the rows of a `Keep` before this effect are on disk."""

    numbers: tuple[int, ...]
