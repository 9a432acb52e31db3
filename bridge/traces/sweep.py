"""The times at which tens of thousands of entities are due: an array of times and a single sweep over it.

An answer postpones the check of its entity, many times a second. A heap has an entry for each of these, most of them
stale when they come up; here a single number is overwritten. A sweep over fifty thousand numbers costs as much as a
few heap entries, and happens once a turn. Entities are named by places: small numbers that are given out, and again
after they were given back. Not here: the work at each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

FIRST_PLACES = 64
NEVER = float("inf")


class Sweep:
    """Times by place, in seconds; `NEVER` for a place wanting nothing."""

    __slots__ = ("_bound", "_due", "_free", "_is_stale", "_np", "_used")

    def __init__(self) -> None:
        import numpy as np  # noqa: PLC0415  only a broker that traces needs it, and it is large

        self._np = np
        self._due: np.ndarray = np.full(FIRST_PLACES, NEVER)
        self._used = 0  # places below this number were given out once
        self._free: list[int] = []
        self._bound = NEVER  # nothing is due before
        self._is_stale = False  # True if the bound may be far below the first time

    def take_place(self) -> int:
        """Gives out a free place."""
        if self._free:
            return self._free.pop()
        if self._used == len(self._due):
            self._due = self._np.concatenate((self._due, self._np.full(self._used, NEVER)))
        self._used += 1
        return self._used - 1

    def give_back(self, place: int) -> None:
        """Takes back a place, which may be given out again."""
        self._is_stale = True
        self._due[place] = NEVER
        self._free.append(place)

    def set_time(self, place: int, at: float) -> None:
        """Sets the time of a place, in place of its former time."""
        self._due[place] = at
        if at < self._bound:  # noqa: PLR1730  a call of min for each of ten thousand a second
            self._bound = at

    @property
    def first_due(self) -> float:
        """The time before which nothing is due; exact after `due_places`."""
        if self._is_stale:
            self._is_stale = False
            self._bound = float(self._due[: self._used].min(initial=NEVER))
        return self._bound

    def due_places(self, now: float, most: int) -> tuple[float, list[int]]:
        """Returns the earliest of the times that are due by `now` (`now` if there is none), and at most `most` due
        places, earliest first.
        """
        due = self._due[: self._used]
        places = self._np.flatnonzero(due <= now)
        self._is_stale = True
        if not len(places):
            return now, []
        order = self._np.argsort(due[places], kind="stable")[:most]
        return float(due[places[order[0]]]), places[order].tolist()
