"""Reasons of a replica's refusals, as a PUBACK states them (docs/protocol.md §5.8): a refusal is no acknowledgement.

Not here: the checks (`bridge.wire`), how a PUBACK carries a reason (`gateway.overlay`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from bridge.contract.machine import Adopt, Count, Effect, Refuse


class Reason(StrEnum):
    """The reason of a refusal, for the sender."""

    TIME = "time"
    """The stated time is too far from the replica's."""
    GENERATION = "generation"
    """A later life of the author had begun."""
    VIEW = "view"
    """The epoch, view or certificate is over at the replica, or not in force yet."""
    RIGHT = "right"
    """The author has no right to it at the replica."""
    BUDGET = "budget"
    """The author, or the link, exceeded the budget."""
    SIZE = "size"
    """The wire is longer than allowed."""
    FORM = "form"
    """The wire violates the protocol's form."""


REFUSALS = frozenset({"refused", "link_throttled", "publisher_throttled"})
"""Figures that count refused wires, and wires dropped unread."""
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
    """Returns the refusal of a wire that had these effects: if it was refused or dropped unread.

    Returns none if another version came into force: then some effects belong to wires that waited for it.
    """
    reason: Reason | None = None
    for effect in effects:
        if isinstance(effect, Adopt):
            return []
        if isinstance(effect, Count) and reason is None:
            if effect.name == "refused":
                reason = _BY_LABEL.get(effect.label, Reason.FORM)
            elif effect.name in REFUSALS:
                reason = Reason.BUDGET
    return [] if reason is None else [Refuse(reason)]
