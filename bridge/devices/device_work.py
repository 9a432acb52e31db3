"""Work on many devices that a single event begins: a few devices a turn, so that no packet waits for all devices.

Each origin, an address, has a pace of its own, and the works of an origin take turns. A work that is begun again while
under way starts over after its end. The names of a work are the names at the beginning; the caller skips names that
are gone. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Data = TypeVar("Data")


@dataclass(slots=True)
class _Work(Generic[Data]):
    names: Iterator[str]
    data: Data
    again: Callable[[], Iterable[str]] | None = None


class WorkInTurns(Generic[Data]):
    """All works of a gateway. `per_s`: names of an origin's works that are due in a second."""

    def __init__(self, per_s: float) -> None:
        self._pause_s = 1.0 / per_s
        self._heap: list[tuple[float, bytes]] = []  # one entry for each origin with work
        self._works: dict[bytes, dict[Hashable, _Work[Data]]] = {}

    def begin_work(
        self, origin: bytes, key: Hashable, names: Callable[[], Iterable[str]], data: Data, now: float
    ) -> None:
        """Begins a work, or has one of this key begin again with new `data`. `names()`: of the devices it is about."""
        works = self._works.get(origin)
        if works is None:
            works = self._works[origin] = {}
            heapq.heappush(self._heap, (now + self._pause_s, origin))
        work = works.get(key)
        if work is None:
            works[key] = _Work(iter(list(names())), data)
        else:
            work.data, work.again = data, names

    def is_under_way(self, origin: bytes, key: Hashable) -> bool:
        return key in self._works.get(origin, ())

    @property
    def next_deadline(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def due_names(self, now: float, most: int) -> Iterator[tuple[str, Data]]:
        """Gives up to `most` names whose turn has come, with the data of their work."""
        while most and self._heap and self._heap[0][0] <= now:
            at, origin = heapq.heappop(self._heap)
            works = self._works[origin]
            key = next(iter(works))
            work = works.pop(key)
            name = next(work.names, None)
            if name is None and work.again is not None:
                work.names, work.again = iter(list(work.again())), None
                name = next(work.names, None)
            if name is not None:
                works[key] = work  # behind the origin's other works
                at += self._pause_s
            if works:
                heapq.heappush(self._heap, (at, origin))
            else:
                del self._works[origin]
            if name is not None:
                most -= 1
                yield name, work.data
