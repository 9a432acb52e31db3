"""Transitions: the states of a thing, and the table of the next state for each event.

Code asks the table for the next state. The documentation prints and draws that table
(`docs/generate/lifecycles.py`), so that code and documentation always agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Row(NamedTuple, Generic[S, E]):
    """An event, the states in which it may come, the state after it, and what else it does, in words."""

    event: E
    before: Sequence[S]
    after: S
    effects: str


class Transitions(Generic[S, E]):
    """The table of a kind of thing. `first`: the states in which one begins; `ends`: how one ends, in words."""

    def __init__(self, thing: str, first: Iterable[S], rows: Iterable[Row[S, E]], ends: str) -> None:
        self.thing, self.first, self.rows, self.ends = thing, tuple(first), tuple(rows), ends
        self._after = {(row.event, state): row.after for row in self.rows for state in row.before}
        self.after: Callable[[tuple[E, S]], S] = self._after.__getitem__
        """Returns the state after an event in a state. Raises KeyError for an event that cannot come in this state."""

    @property
    def states(self) -> list[S]:
        """All states of the table, in the order of their enumeration."""
        return list(type(self.first[0]))
