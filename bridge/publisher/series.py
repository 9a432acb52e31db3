"""What a member retains in one scope, and sealing all of it anew: snapshots, then a floor.

A new epoch, view, tree or token key, or replicas that keep too much for too few live values, begin a *series*: every
retained record of ours is sealed again, alone, with its own number and time. When all replicas acknowledged the whole
series, a *floor* says that nothing below its number is retained but what it lists; tombstones go with it. Until then
former sealings stay where they are, so that an interrupted series takes nothing away; it is begun anew. After a floor
our numbers begin a new block. Not here: sealing and sending, the file that the list is kept in."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.publisher.numbers import Numbers
from keys.batchheader import FLOOR_ENTRIES_MAX, RetainedId
from keys.records import Records


@dataclass(frozen=True, slots=True)
class Value:
    """Our latest retained record of a topic: `records` holds it alone, without its number."""

    id: bytes
    number: int
    tombstone: bool
    records: Records = field(repr=False)


@dataclass(eq=False, slots=True)
class Snapshot:
    """A value that is sealed anew, as the only record of the batch `first`."""

    first: int
    value: Value
    acked: set[str] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class FloorMark:
    """Nothing below `floor` is retained but these."""

    first: int
    floor: int
    listed: tuple[RetainedId, ...]
    acked: set[str] = field(default_factory=set)


class Series:
    """Of one scope. `open_`: a series was begun before the restart and not closed."""

    def __init__(self, scope: int, open_: bool = False) -> None:
        self._scope = scope
        self.is_open = open_
        self._values: dict[bytes, Value] = {}
        self._running: dict[int, Snapshot] = {}
        self._floor = 0
        self._mark: FloorMark | None = None

    def __len__(self) -> int:
        return len(self._values)

    @property
    def values(self) -> tuple[Value, ...]:
        """In order of numbers: what a gateway stores."""
        return tuple(sorted(self._values.values(), key=lambda value: value.number))

    def published(self, value: Value) -> bool:
        """A retained record was committed, or read from disk. False: a later one is known."""
        known = self._values.get(value.id)
        if known is not None and known.number >= value.number:
            return False
        self._values[value.id] = value
        return True

    def dropped(self, id_: bytes, number: int) -> None:
        """The record was never sent, or it expired, or somebody else's is newer: it is not sealed anew."""
        if id_ in self._values and self._values[id_].number == number:
            del self._values[id_]

    def begin(self, numbers: Numbers, now_ms: int) -> list[Snapshot]:
        """Seal these, under a key of their own, and send them to all. Whatever ran before ends."""
        self.is_open, self._mark = True, None
        self._running.clear()
        numbers.new_block(self._scope)
        live = [value for value in self.values if not value.tombstone]
        firsts = [
            number
            for first, count in numbers.draw(self._scope, len(live) + 1, now_ms)
            for number in range(first, first + count)
        ]
        self._floor = firsts[0]
        numbers.new_block(self._scope)
        for first, value in zip(firsts[1:], live, strict=True):
            self._running[first] = Snapshot(first, value)
        return list(self._running.values())

    def acknowledged(self, snapshot: Snapshot) -> bool:
        """All have it, or it is given up. True: the series is through, and a floor may follow."""
        self._running.pop(snapshot.first, None)
        return self.is_through

    @property
    def is_through(self) -> bool:
        return self.is_open and not self._running and self._mark is None

    def close(self, numbers: Numbers, now_ms: int) -> FloorMark | None:
        """The floor, to be signed and sent to all; None if there is too much to list, which then stays as it is."""
        listed = sorted(
            RetainedId(value.id, value.number, False)
            for value in self._values.values()
            if not value.tombstone and value.number < self._floor
        )
        if len(listed) > FLOOR_ENTRIES_MAX:
            self.is_open = False
            return None
        ((first, _),) = numbers.draw(self._scope, 1, now_ms)
        numbers.new_block(self._scope)
        self._mark = FloorMark(first, self._floor, tuple(listed))
        return self._mark

    def closed(self) -> None:
        """All have the floor: the series is over, and tombstones below it."""
        self.is_open, self._mark = False, None
        for value in [v for v in self._values.values() if v.tombstone and v.number < self._floor]:
            del self._values[value.id]
