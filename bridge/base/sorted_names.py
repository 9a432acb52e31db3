"""Names in order, so that names with a common beginning are found without a search of all others."""

from __future__ import annotations

from bisect import bisect_left, insort

_LAST = "\U0010ffff"


class SortedNames:
    """A sorted list of different names. Adding and removing move others in memory, which takes microseconds for a
    hundred thousand.
    """

    def __init__(self) -> None:
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, place: int) -> str:
        return self._names[place]

    def add(self, name: str) -> None:
        """Adds a name that is not there yet."""
        insort(self._names, name)

    def discard(self, name: str) -> None:
        place = bisect_left(self._names, name)
        if place < len(self._names) and self._names[place] == name:
            del self._names[place]

    def beginning(self, prefix: str) -> tuple[int, int]:
        """Returns the places, the last excluded, of names beginning with `prefix`."""
        first = bisect_left(self._names, prefix)
        return first, bisect_left(self._names, prefix + _LAST, lo=first)
