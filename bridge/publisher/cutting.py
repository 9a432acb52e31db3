"""One scope's chain at its publisher: rows of records in, cuts out, which become batches.

A row is what one commit put into the scope. A *cut* is a run of consecutive numbers out of rows: at most `records` of
them and `bytes`, over no multiple of 4,096. What waits leaves at once if the last cut left `linger_ms` ago or was
acknowledged by n - f, or if it fills a cut; else when one of that happens. Cuts are no identity: after a restart, or
when keys, views or the tree changed, what is not acknowledged is cut anew (`recut`), and an acknowledgement counts for
its own cut only. A record that is dropped before anything after it was sealed is passed over by the chain; one of a
cut that was sealed becomes a void. Not here: keys and sealing, the disk, who gets what when (`publishing`)."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from keys.batchheader import BLOCK_NUMBERS
from keys.records import DROPPED, Records, join

_FIRST = attrgetter("first")


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a scope's batches hold at most, and how long a record may wait for others."""

    records: int = 256
    bytes: int = 65_536
    linger_ms: int = 5


@dataclass(slots=True)
class OutboxRow:
    """Records of one commit, numbered from `first` on. `previous`, `previous_ms`: the last QoS >= 1 record of the scope
    before them, its number and time; 0 for none."""

    first: int
    records: Records = field(repr=False)
    previous: int = 0
    previous_ms: int = 0
    left: int = 0
    """Records that somebody still lacks."""
    is_dropped: bool = False
    """Nobody gets its records any more; that they are void, everybody does."""

    def __post_init__(self) -> None:
        self.left = len(self.records)

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1

    def before(self, at: int) -> tuple[int, int]:
        """The last reliable record before place `at`: its number and time."""
        last = self.records.last_reliable(at)
        return (self.first + last, self.records.times[last]) if last >= 0 else (self.previous, self.previous_ms)


@dataclass(eq=False, slots=True)
class Cut:
    """A run of records that is sealed at once, and who acknowledged that sealing."""

    first: int
    count: int
    previous: int
    previous_ms: int
    parts: tuple[tuple[OutboxRow, int, int], ...] = field(repr=False)
    acked: set[str] = field(default_factory=set)
    is_settled: bool = False
    """n - f acknowledged it: only stragglers lack it."""
    is_void: bool = False
    """Its records are given up."""

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    def records(self) -> Records:
        """Its content."""
        return join([(row.records, start, end) for row, start, end in self.parts])


class ScopeChain:
    """See the module."""

    def __init__(self, limits: BatchLimits) -> None:
        self.limits = limits
        self.rows: dict[int, OutboxRow] = {}
        """By first number: what somebody still lacks."""
        self._waiting: list[
            tuple[int, OutboxRow, int, int]
        ] = []  # runs that are not cut: first number, row, from, up to
        self._cuts: dict[int, Cut] = {}  # by id: sealed, and lacked by somebody
        self._tail = (0, 0)  # the last reliable record
        self._passed_over: dict[int, tuple[int, int]] = {}  # dropped unsealed, reliable -> the one before it
        self._left_at = float("-inf")
        self._last_cut: Cut | None = None
        self._sealed_up_to = 0  # above it nothing was ever sealed

    # ---------------------------------------------------------------------------------------------- rows

    @property
    def tail(self) -> tuple[int, int]:
        """Number and time of the last reliable record: what the next row names as its predecessor."""
        return self._tail

    def restored(self, tail: tuple[int, int], last: int) -> None:
        """After a restart: the last reliable record, though nobody may lack it any more, and the last number that may
        have been sealed before."""
        self._tail = max(self._tail, tail)
        self._sealed_up_to = max(self._sealed_up_to, last)

    def append(self, row: OutboxRow) -> None:
        """A row whose numbers exceed those of all before it, or one that lay on disk."""
        self.rows[row.first] = row
        insort(self._waiting, (row.first, row, 0, len(row.records)), key=lambda run: run[0])
        last = row.records.last_reliable(len(row.records))
        if last >= 0:
            self._tail = max(self._tail, (row.first + last, row.records.times[last]))

    @property
    def waits(self) -> bool:
        """Whether something is not cut yet."""
        return bool(self._waiting)

    # ---------------------------------------------------------------------------------------------- cuts

    def due(self, now: float) -> float | None:
        """When the next cut may leave; None if nothing waits."""
        if not self._waiting:
            return None
        if self._last_cut is None or self._last_cut.is_settled or self._fills():
            return now
        return self._left_at + self.limits.linger_ms / 1000

    def _fills(self) -> bool:
        """Whether what waits fills a cut, or more than one."""
        records = size = 0
        at = None
        for first, row, start, end in self._waiting:
            if at is not None and first != at:
                return True
            records += end - start
            size += row.records.size(start, end)
            at = first + end - start
            if records >= self.limits.records or size >= self.limits.bytes or at % BLOCK_NUMBERS == 0:
                return True
        return False

    def take(self, now: float) -> Cut | None:
        """The next cut, in order of numbers; it leaves now. None if nothing waits."""
        if not self._waiting:
            return None
        parts: list[tuple[OutboxRow, int, int]] = []
        first, count, size = self._waiting[0][0], 0, 0
        border, is_void = (first // BLOCK_NUMBERS + 1) * BLOCK_NUMBERS, self._waiting[0][1].is_dropped
        used = 0
        for number, row, start, end in self._waiting:
            if number != first + count or row.is_dropped is not is_void:
                break
            fits = min(end, start + self.limits.records - count, start + border - number)
            fits = self._within_bytes(row.records, start, fits, self.limits.bytes - size, bool(parts))
            if fits > start:
                parts.append((row, start, fits))
                count += fits - start
                size += row.records.size(start, fits)
            if fits < end:
                self._waiting[used] = (number + fits - start, row, fits, end)
                break
            used += 1
        del self._waiting[:used]
        previous, previous_ms = self._chain(*parts[0][0].before(parts[0][1]))
        cut = Cut(first, count, previous, previous_ms, tuple(parts), is_void=is_void)
        self._cuts[id(cut)] = self._last_cut = cut
        self._left_at = now
        self._sealed_up_to = max(self._sealed_up_to, cut.last)
        return cut

    @staticmethod
    def _within_bytes(records: Records, start: int, end: int, room: int, has_some: bool) -> int:
        """Up to where records fit the room; at least one if the cut has none yet."""
        if records.size(start, end) <= room:
            return end
        low, high = start + (not has_some), end
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if records.size(start, middle) <= room else (low, middle - 1)
        return low

    def _chain(self, number: int, time_ms: int) -> tuple[int, int]:
        """The predecessor, or what comes before it if it was dropped unsealed."""
        while number in self._passed_over:
            number, time_ms = self._passed_over[number]
        return number, time_ms

    # ----------------------------------------------------------------------------------- acknowledgements

    def settled(self, cut: Cut) -> None:
        """n - f replicas acknowledged this very sealing."""
        cut.is_settled = True

    def done(self, cut: Cut) -> list[OutboxRow]:
        """Nobody lacks the cut, or it is too late for stragglers: the rows of which nothing is left."""
        if self._cuts.pop(id(cut), None) is None:
            return []
        cut.is_settled = True
        over = []
        for row, start, end in cut.parts:
            row.left -= end - start
            if not row.left and self.rows.pop(row.first, None) is not None:
                over.append(row)
        return over

    def recut(self) -> list[Cut]:
        """What too few have is cut anew, under another key: the cuts that this ends. What n - f acknowledged stays as
        it was sealed."""
        gone = [cut for cut in self._cuts.values() if not (cut.is_settled or cut.is_void)]
        for cut in gone:
            self._back(cut)
        return gone

    def recut_all(self) -> list[Cut]:
        """The same, and for what n - f acknowledged as well: replicas of another view have none of it."""
        gone = [cut for cut in self._cuts.values() if not cut.is_void]
        for cut in gone:
            self._back(cut)
        return gone

    def _back(self, cut: Cut) -> None:
        del self._cuts[id(cut)]
        number = cut.first
        for row, start, end in cut.parts:
            insort(self._waiting, (number, row, start, end), key=lambda run: run[0])
            number += end - start
        if cut is self._last_cut:
            self._last_cut = None

    # ------------------------------------------------------------------------------------------ dropping

    def drop(self, row: OutboxRow) -> None:
        """A row is not sent any more: what n - f do not have of it. The chain passes over what no later record was
        sealed after; the rest is still lacked, and leaves in cuts that are voids. After a restart, append it
        dropped."""
        row.is_dropped = True
        for cut in [cut for cut in self._cuts.values() if not cut.is_settled and any(p[0] is row for p in cut.parts)]:
            self._back(cut)
        for run in [run for run in self._waiting if run[1] is row and run[0] > self._sealed_up_to]:
            _, _, start, end = run
            self._waiting.remove(run)
            last = row.records.last_reliable(end)
            if last >= start:
                self._passed_over[row.first + last] = self._chain(*row.before(start))
            row.left -= end - start
        if not row.left:
            self.rows.pop(row.first, None)
        self._forget_passed_over()

    def _forget_passed_over(self) -> None:
        """Nothing that waits, or will, names a predecessor by it."""
        if len(self._passed_over) > BLOCK_NUMBERS:
            first = self._waiting[0][0] if self._waiting else self._tail[0]
            self._passed_over = {n: way for n, way in self._passed_over.items() if n >= first or n == self._tail[0]}

    def cuts(self) -> Iterator[Cut]:
        """Sealed, and lacked by somebody, in the order of sealing."""
        return iter(self._cuts.values())

    def row_at(self, number: int) -> OutboxRow | None:
        """The row with this number."""
        firsts = sorted(self.rows)
        at = bisect_right(firsts, number) - 1
        row = self.rows[firsts[at]] if at >= 0 else None
        return row if row is not None and number <= row.last else None


def is_dropped(records: Records, at: int) -> bool:
    """Whether a record only counts."""
    return bool(records.flags[at] & DROPPED)
