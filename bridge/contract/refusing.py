"""Why a replica does not take something, as its PUBACK says (docs/protocol.md §5.8): a refusal is no acknowledgement.

Not here: what is refused (`bridge.wire`), how a PUBACK carries it (`gateway.overlay`)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from bridge.contract.machine import Adopt, Count, Effect, Refuse


class Reason(StrEnum):
    """What is in the way, for the party that sent it."""

    TIME = "time"
    """The time that it states is too far from the replica's."""
    GENERATION = "generation"
    """A later life of its author had begun."""
    VIEW = "view"
    """It is of an epoch, a view or a certificate that is over there, or not in force yet."""
    RIGHT = "right"
    """Its author has no right to it there."""
    BUDGET = "budget"
    """Its author, or the link, brought more than the budget."""
    SIZE = "size"
    """It is longer than what goes there may be."""
    FORM = "form"
    """It is not what the protocol says."""


_BY_LABEL = {
    "NotFresh": Reason.TIME,
    "Superseded": Reason.GENERATION,
    "Expired": Reason.VIEW,
    "UnknownView": Reason.VIEW,
    "WrongEpochKey": Reason.VIEW,
    "NotAuthorised": Reason.RIGHT,
    "stranger": Reason.RIGHT,
    "TooOften": Reason.BUDGET,
}


def refusal(effects: Iterable[Effect]) -> list[Effect]:
    """What to answer to a wire that had these effects: a refusal if it was refused or dropped unread. Where another
    version came into force with it, they are of what waited for that, too."""
    effects = tuple(effects)
    if any(isinstance(effect, Adopt) for effect in effects):
        return []
    for effect in effects:
        if isinstance(effect, Count):
            if effect.name == "refused":
                return [Refuse(_BY_LABEL.get(effect.label, Reason.FORM))]
            if effect.name in ("link_throttled", "publisher_throttled"):
                return [Refuse(Reason.BUDGET)]
    return []
