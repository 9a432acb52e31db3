"""The ledger of a consumer: rows that its query passed over for want of keys, and rows to be read again.

    {"held": [STRETCH...], "redrives": [STRETCH...], "noted": offset, "count": n}
    STRETCH: {"begin": offset, "end": offset, "keys": [text...], "number": n}

A stretch is rows between two offsets needing one of some keys. It is held when the micro-batch ending there is
planned; `noted` is the end of the last such plan, so that a micro-batch that Spark repeats holds nothing twice.
`release_held` turns held keys into numbered redrives; a micro-batch reads those with higher numbers than the batch
before, and its offset names the last one. Segments behind the begin of a stretch stay. Not here: the keys
(`opening.held`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_ingest.spool.segments import Offset, Position, as_offset, positions_of


@dataclass(frozen=True, slots=True)
class HeldStretch:
    """Rows in (begin, end] that need one of `keys`. `number`: of a redrive, from 1; 0 for a held stretch."""

    begin: Mapping[str, Position]
    end: Mapping[str, Position]
    keys: tuple[str, ...]
    number: int = 0

    def to_json(self) -> dict[str, Any]:
        begin, end = as_offset(self.begin), as_offset(self.end)
        return {"begin": begin, "end": end, "keys": list(self.keys), "number": self.number}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> HeldStretch:
        begin, end = positions_of(told["begin"]), positions_of(told["end"])
        return cls(begin, end, tuple(map(str, told["keys"])), int(told["number"]))


@dataclass(frozen=True, slots=True)
class HeldLedger:
    """A consumer's ledger. `count`: the number of the latest redrive."""

    held: tuple[HeldStretch, ...] = ()
    redrives: tuple[HeldStretch, ...] = ()
    noted: Mapping[str, Position] | None = None
    count: int = 0

    def note_held(self, begin: Offset, end: Offset, keys: Sequence[str], redriven: int = 0) -> HeldLedger:
        """Returns a ledger in which the micro-batch (begin, end] holds rows needing `keys`. Noting a batch twice
        changes nothing.

        `redriven`: the last number the query has read; numbers go on from there, even in a new ledger.
        """
        after = positions_of(end)
        known = self.noted
        if not keys or (known is not None and all(at <= known.get(name, Position(0, 0)) for name, at in after.items())):
            return self
        stretch = HeldStretch(positions_of(begin), after, tuple(keys))
        return replace(self, held=(*self.held, stretch), noted=after, count=max(self.count, redriven))

    def release_held(self, stretches: Sequence[HeldStretch], keys: Collection[str]) -> HeldLedger:
        """Returns a ledger in which the parts of held stretches needing these keys are redrives."""
        held, redrives, count = [], [*self.redrives], self.count
        for each in self.held:
            ready = tuple(key for key in each.keys if key in keys) if each in stretches else ()
            left = tuple(key for key in each.keys if key not in ready)
            if left:
                held.append(replace(each, keys=left))
            if ready:
                count += 1
                redrives.append(replace(each, keys=ready, number=count))
        return replace(self, held=tuple(held), redrives=tuple(redrives), count=count)

    def without_redrives(self, number: int) -> HeldLedger:
        """Returns a ledger without the redrives up to a number, which are in the sink."""
        return replace(self, redrives=tuple(each for each in self.redrives if each.number > number))

    def between(self, before: int, last: int) -> list[HeldStretch]:
        """Returns redrives with numbers in (before, last]."""
        return [each for each in self.redrives if before < each.number <= last]

    def oldest(self, name: str) -> Position | None:
        """Returns the place of a receiver's first row that is still wanted."""
        begins = [each.begin.get(name, Position(0, 0)) for each in (*self.held, *self.redrives) if name in each.end]
        return min(begins, default=None)

    def to_json(self) -> dict[str, Any]:
        return {
            "held": [each.to_json() for each in self.held],
            "redrives": [each.to_json() for each in self.redrives],
            "noted": None if self.noted is None else as_offset(self.noted),
            "count": self.count,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> HeldLedger:
        """Reads a ledger. Raises the errors of `positions_of`, KeyError, TypeError, ValueError."""
        held, redrives = (tuple(map(HeldStretch.from_json, told[name])) for name in ("held", "redrives"))
        noted = None if told["noted"] is None else positions_of(told["noted"])
        return cls(held, redrives, noted, int(told["count"]))


NOTHING_HELD = HeldLedger()
