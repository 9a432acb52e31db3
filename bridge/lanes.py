"""Windows towards the replicas of our region: what each still lacks, what is on its way, which acknowledgement counts.

Each replica has a lane of its own, so that one that is away or slow keeps nothing from the others. Entries go by
sequence, ascending. Not here: what an entry is and when it is sealed (`sealing`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

WINDOW_MAX = 256  # publications in flight to one replica
LEAD_MAX = 1024
"""How many publications more than n − f replicas have the others may be given: with fewer nobody can open them, and
what waits for its key at every subscriber is bounded, too (`collecting.HELD_MAX`, `keyless`)."""


@dataclass(slots=True)
class Lane:
    """One replica's way through the outbox. `outdated`: how many acknowledgements of former sealings are to come."""

    waiting: deque[int]
    in_flight: set[int] = field(default_factory=set)
    outdated: dict[int, int] = field(default_factory=dict)

    @property
    def backlog(self) -> int:
        """What its replica has not acknowledged."""
        return len(self.waiting) + len(self.in_flight)

    def take(self) -> list[int]:
        """What the window has room for; it is in flight from now on."""
        taken = []
        while self.waiting and len(self.in_flight) < WINDOW_MAX:
            sequence = self.waiting.popleft()
            self.in_flight.add(sequence)
            taken.append(sequence)
        return taken


class Lanes:
    """The lanes of all replicas whose link is up."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}

    def __iter__(self) -> Iterator[tuple[str, Lane]]:
        return iter(self._lanes.items())

    def within_lead(self, enough: int, entries: int) -> list[tuple[str, Lane]]:
        """Lanes that have something to send and do not run too far ahead of what `enough` replicas have.

        `entries`: what a replica lacks, at most, whose link is down.
        """
        waiting = [named for named in self._lanes.items() if named[1].waiting]
        if waiting:
            backlogs = sorted(lane.backlog for lane in self._lanes.values())
            behind = backlogs[enough - 1] if enough <= len(backlogs) else entries
            waiting = [named for named in waiting if named[1].backlog + LEAD_MAX >= behind]
        return waiting  # nothing, after most acknowledgements

    def up(self, peer: str, lacking: Iterable[int]) -> None:
        self._lanes[peer] = Lane(deque(lacking))

    def down(self, peer: str) -> None:
        self._lanes.pop(peer, None)

    def append(self, sequence: int) -> None:
        for lane in self._lanes.values():
            lane.waiting.append(sequence)

    def acknowledged(self, peer: str, sequence: int) -> bool:
        """Open the window; False if the peer means a former sealing (links keep order)."""
        lane = self._lanes.get(peer)
        if lane is None:
            return True
        outdated = lane.outdated.pop(sequence, 0)
        if outdated > 1:
            lane.outdated[sequence] = outdated - 1
        if not outdated:
            lane.in_flight.discard(sequence)
        return not outdated

    def outdate(self, sequence: int) -> None:
        """It will be sealed anew: what is on its way does not count."""
        for lane in self._lanes.values():
            if sequence in lane.in_flight:
                lane.in_flight.discard(sequence)
                lane.outdated[sequence] = lane.outdated.get(sequence, 0) + 1

    def requeue(self, sequences: Iterable[int], lacks: Callable[[str, int], bool]) -> None:
        """Put entries back into every lane whose replica lacks them, in order."""
        back = set(sequences)
        for peer, lane in self._lanes.items() if back else ():
            lacking = {sequence for sequence in back - lane.in_flight if lacks(peer, sequence)}
            lane.waiting = deque(sorted(lacking.union(lane.waiting)))

    def keep(self, sequences: Callable[[int], bool]) -> None:
        """Forget what waits and is gone."""
        for lane in self._lanes.values():
            lane.waiting = deque(filter(sequences, lane.waiting))
