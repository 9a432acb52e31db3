"""The retained values of one replica, which reads none of them: by scope, retained id and member the latest batch.

The latest is that with the greatest (record's number, generation, key counter), so no former value comes back. Until a
*floor* says that a whole series arrived, former sealings of the same record stay beside the newest, since the newest
may not be whole anywhere yet. A floor says below which number nothing of its member is retained but what it lists. One
batch may be kept for several ids and is counted once. Bounded by bytes, fair by member.
Not here: who gets what is kept, and under which key it can be opened.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from keys.batchheader import FLOOR, BatchHeader, RetainedId

T = TypeVar("T")

RETAINED_BYTES_MAX = 256 << 20
RETAINED_MEMBER_BYTES_MAX = 64 << 20
OVERHEAD_BYTES = 512
SEALINGS_MAX = 4  # of one record, while no floor came; the oldest goes

Owner = tuple[int, bytes]
"""A scope and a member."""


@dataclass(slots=True)
class _Batch(Generic[T]):
    header: BatchHeader
    item: T
    size: int
    uses: int = 0


@dataclass(slots=True)
class _Kept(Generic[T]):
    """Sealings of one record, ascending; the last counts."""

    number: int
    tombstone: bool
    batches: list[_Batch[T]]


@dataclass(slots=True)
class _Values(Generic[T]):
    """Of one member in one scope."""

    by_id: OrderedDict[bytes, _Kept[T]] = field(default_factory=OrderedDict)
    floor: tuple[int, int, int] = (0, 0, 0)
    """Generation and counter of the series, and the number."""
    listed: dict[bytes, int] = field(default_factory=dict)
    mark: tuple[BatchHeader, T] | None = None
    """The floor's own header, for newcomers."""


class RetainedBatches(Generic[T]):
    """See the module. `T` is whatever is sent on, as it came."""

    def __init__(self, total: int = RETAINED_BYTES_MAX, of_member: int = RETAINED_MEMBER_BYTES_MAX) -> None:
        self._total, self._of_member = total, of_member
        self._values: dict[Owner, _Values[T]] = {}
        self._bytes: dict[bytes, int] = {}

    def keep(self, header: BatchHeader, item: T, size: int) -> int:
        """A verified batch that is whole, or a floor. Returns how many values went for want of room."""
        if header.flags & FLOOR:
            self._floor(header, item)
            return 0
        if not header.retained or header.is_void:
            return 0
        values = self._values.setdefault((header.scope, header.member), _Values())
        batch = _Batch(header, item, size + OVERHEAD_BYTES)
        for entry in header.retained:
            self._keep_one(values, entry, batch)
        if batch.uses:
            self._bytes[header.member] = self._bytes.get(header.member, 0) + batch.size
        return self._shrink(header.member)

    def _keep_one(self, values: _Values[T], entry: RetainedId, batch: _Batch[T]) -> None:
        if entry.number < values.floor[2] and values.listed.get(entry.id) != entry.number:
            return
        known = values.by_id.get(entry.id)
        if known is not None and known.number > entry.number:
            return
        if known is not None and known.number == entry.number:
            if known.batches[-1].header.order >= batch.header.order:
                return
            known.batches.append(batch)
            batch.uses += 1
            if len(known.batches) > SEALINGS_MAX:
                self._release(known.batches.pop(0))
        else:
            for former in known.batches if known is not None else ():
                self._release(former)
            batch.uses += 1
            values.by_id[entry.id] = _Kept(entry.number, entry.tombstone, [batch])
        values.by_id.move_to_end(entry.id)

    def _floor(self, header: BatchHeader, item: T) -> None:
        values = self._values.setdefault((header.scope, header.member), _Values())
        floor = (header.generation, header.counter, header.previous)
        if floor <= values.floor:
            return
        values.mark = header, item
        values.floor, values.listed = floor, {entry.id: entry.number for entry in header.retained}
        for key in list(values.by_id):
            kept = values.by_id[key]
            if kept.number >= header.previous or values.listed.get(key) == kept.number:
                for former in kept.batches[:-1]:
                    self._release(former)
                del kept.batches[:-1]
            else:
                self._drop(values, key)

    def _drop(self, values: _Values[T], key: bytes) -> None:
        for batch in values.by_id.pop(key).batches:
            self._release(batch)

    def _release(self, batch: _Batch[T]) -> None:
        batch.uses -= 1
        if not batch.uses:
            self._bytes[batch.header.member] -= batch.size

    def _shrink(self, member: bytes) -> int:
        gone = 0
        while self._bytes.get(member, 0) > self._of_member:
            gone += self._drop_oldest(member)
        while sum(self._bytes.values()) > self._total:
            gone += self._drop_oldest(max(self._bytes, key=self._bytes.__getitem__))
        return gone

    def _drop_oldest(self, member: bytes) -> int:
        owned = [values for (_, owner), values in self._values.items() if owner == member and values.by_id]
        values = max(owned, key=lambda each: len(each.by_id))
        self._drop(values, next(iter(values.by_id)))
        return 1

    def of_scope(self, scope: int) -> Iterator[tuple[BatchHeader, T]]:
        """What a newcomer gets of a scope: floors, which say what of the rest counts, and each batch once."""
        sent: set[int] = set()
        for (of, _), values in self._values.items():
            if of == scope and values.mark is not None:
                yield values.mark
            for kept in values.by_id.values() if of == scope else ():
                for batch in kept.batches:
                    if id(batch) not in sent:
                        sent.add(id(batch))
                        yield batch.header, batch.item

    def drop(self, over: Callable[[BatchHeader], bool]) -> int:
        """Erase what is kept of batches that are over: of a dead epoch or a member that is gone. Returns how many."""
        gone = 0
        for values in self._values.values():
            for key in list(values.by_id):
                kept = values.by_id[key]
                ended = [batch for batch in kept.batches if over(batch.header)]
                for batch in ended:
                    self._release(batch)
                    kept.batches.remove(batch)
                if not kept.batches:
                    del values.by_id[key]
                    gone += 1
        return gone

    def names(self, member: bytes, key_id: bytes) -> bool:
        """Whether something that is kept is sealed under this key."""
        return any(
            batch.header.key_id == key_id
            for (_, owner), values in self._values.items() if owner == member
            for kept in values.by_id.values() for batch in kept.batches
        )  # fmt: skip

    def __len__(self) -> int:
        return sum(len(values.by_id) for values in self._values.values())

    @property
    def held_bytes(self) -> int:
        return sum(self._bytes.values())
