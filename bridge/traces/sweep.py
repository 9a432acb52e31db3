"""When tens of thousands of entities want attention: one array of times and one sweep over it.

An answer puts off what its entity is looked at for, so many times a second. A heap has an entry for each of these, most
of them stale when they come up; here it is one number that is overwritten. A sweep over fifty thousand of them costs
as much as a few heap entries, and is made once a turn. A name is a place: a small number that is given out, and again
when it was given back. Not here: what is done when a time has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

FIRST_PLACES = 64
NEVER = float("inf")


class Sweep:
    """Times by place, in seconds; `NEVER` for a place that wants nothing."""

    __slots__ = ("_bound", "_due", "_free", "_is_stale", "_np", "_used")

    def __init__(self) -> None:
        import numpy as np  # noqa: PLC0415  only a broker that traces needs it, and it is large

        self._np = np
        self._due: np.ndarray = np.full(FIRST_PLACES, NEVER)
        self._used = 0  # places below it were given out once
        self._free: list[int] = []
        self._bound = NEVER  # nothing is due before
        self._is_stale = False  # whether the bound may be far below the first

    def take(self) -> int:
        """A place of one's own."""
        if self._free:
            return self._free.pop()
        if self._used == len(self._due):
            self._due = self._np.concatenate((self._due, self._np.full(self._used, NEVER)))
        self._used += 1
        return self._used - 1

    def give_back(self, place: int) -> None:
        """It wants nothing any more, and may be another's."""
        self._is_stale = True
        self._due[place] = NEVER
        self._free.append(place)

    def put(self, place: int, at: float) -> None:
        """It is due then, and not when it was before."""
        self._due[place] = at
        if at < self._bound:  # noqa: PLR1730  a call of min for each of ten thousand a second
            self._bound = at

    @property
    def first(self) -> float:
        """Nothing is due before; behind `ready` exact."""
        if self._is_stale:
            self._is_stale = False
            self._bound = float(self._due[: self._used].min(initial=NEVER))
        return self._bound

    def ready(self, now: float, most: int) -> tuple[float, list[int]]:
        """When the first of those was due that are due by now, `now` if none is, and their places, the earliest first,
        up to so many."""
        due = self._due[: self._used]
        places = self._np.flatnonzero(due <= now)
        self._is_stale = True
        if not len(places):
            return now, []
        order = self._np.argsort(due[places], kind="stable")[:most]
        return float(due[places[order[0]]]), places[order].tolist()
