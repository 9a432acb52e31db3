"""The synced content of a spool for its readers: places, amounts, ranges of groups, tasks.

Numbers of segments rise by one and offsets end where a group ends; anything else is a gap or another spool,
and is reported. With `lossy` it is counted (`lost`) and reading goes on behind it, as readers of Kafka have it with
`failOnDataLoss=false`. Works while receivers in this or other processes write, seal and trim. Writes nothing.

The list of a receiver's segments, for frequent readers: listing a directory costs time for each name.
"""

from __future__ import annotations

import bisect
import contextlib
import heapq
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from spark_ingest.errors import SpoolDamaged, SpoolError, SpoolGap
from spark_ingest.spool.index import SegmentGroup, SegmentIndex, Times
from spark_ingest.spool.segments import (
    CONSUMERS,
    RECEIVER_NAME,
    WAY_OUT,
    ByteRange,
    Offset,
    Position,
    Size,
    SizeSums,
    as_offset,
    open_segment,
    placed_groups,
    positions_of,
    segment_numbers,
    segment_path,
)

SETTLED_NS = 50_000_000
"""Clocks of file systems tick a hundred times a second at least, unless they tell whole seconds."""


class SegmentList:
    """The numbers of the segments in a single directory, oldest first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers: Sequence[int] = ()
        self._changed_ns: int | None = None

    def numbers(self, now_ns: int | None = None) -> Sequence[int]:
        """Returns the present numbers, not to be changed. `now_ns`: the wall clock's time, since the UNIX epoch."""
        try:
            changed_ns = self._directory.stat().st_mtime_ns
        except FileNotFoundError:
            return ()
        newest = self._numbers[-1] if self._numbers else 0
        if changed_ns != self._changed_ns or segment_path(self._directory, newest + 1).exists():
            now_ns = time.time_ns() if now_ns is None else now_ns
            self._numbers = segment_numbers(self._directory)
            self._changed_ns = changed_ns if changed_ns < now_ns - SETTLED_NS else None
        return self._numbers


_log = logging.getLogger(__name__)


class SpoolView:
    """The synced content of a spool directory, for a reading process. Keeps indexes, no file descriptors."""

    def __init__(self, root: Path, *, lossy: bool = False) -> None:
        self._root = root
        self._lossy = lossy
        self._lists: dict[str, SegmentList] = {}
        self._indexes: dict[tuple[str, int], SegmentIndex] = {}
        self._sums: dict[str, SizeSums] = {}
        self.lost: Counter[str] = Counter()
        """Gaps and damaged segments that reading went on behind, by receiver."""

    def receivers(self) -> list[str]:
        try:
            names = [path.name for path in self._root.iterdir() if path.is_dir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in names if name != CONSUMERS and RECEIVER_NAME.fullmatch(name))

    def segments(self, name: str) -> Sequence[int]:
        """Returns the numbers of a receiver's segments, oldest first; not to be changed."""
        if name not in self._lists:
            self._lists[name] = SegmentList(self._root / name)
        return self._lists[name].numbers()

    def earliest(self) -> Offset:
        """Returns the oldest position of every receiver that has a segment."""
        found = {name: self.segments(name) for name in self.receivers()}
        return as_offset({name: Position(numbers[0], 0) for name, numbers in found.items() if numbers})

    def latest(self) -> Offset:
        """Returns the end of the synced rows, for every receiver that has a segment. Raises SpoolDamaged."""
        found = {}
        for name in self.receivers():
            numbers = self.segments(name)
            for number in reversed(numbers):
                groups = self._groups(name, number, number != numbers[-1])
                found[name] = Position(number, groups[-1].end if groups else 0)
                if groups:
                    break
        return as_offset(found)

    def since(self, us: int) -> Offset:
        """Returns the offset before which all rows were received before `us` (UNIX time in microseconds)."""
        return self._at_time(lambda times: times.last_us >= us, first=True)

    def until(self, us: int) -> Offset:
        """Returns the offset behind no row was received before `us`."""
        return self._at_time(lambda times: times.first_us < us, first=False)

    def _at_time(self, fits: Callable[[Times], bool], *, first: bool) -> Offset:
        """Returns the offset before the first group that fits, or behind the last. Sealed segments tell their times
        themselves.
        """
        found = {}
        for name, at in positions_of(self.latest() if first else self.earliest()).items():
            numbers = self.segments(name)
            place = at
            for number in numbers if first else reversed(numbers):
                groups = self._groups(name, number, number != numbers[-1])
                times = self._index(name, number).times
                if not groups or (times is not None and not fits(times)):
                    continue
                segment = open_segment(str(segment_path(self._root / name, number)))
                ends = [(0, Times())]
                ends += [(end, Times().with_batch(each)) for each, end in segment.batches(0, groups[-1].end)]
                fitting = [each for each in range(1, len(ends)) if fits(ends[each][1])]
                if fitting:
                    place = Position(number, ends[fitting[0] - 1 if first else fitting[-1]][0])
                    break
            found[name] = place
        return as_offset(found)

    def age_s(self, at: Offset, now: float) -> dict[str, float]:
        """Returns, by receiver, the time since the reception of the first row behind `at`; 0 without such a row."""
        ages = {}
        positions = positions_of(at)
        for name in self.receivers():
            ages[name] = 0.0
            for number, begin, group in self._groups_after(name, positions.get(name)):
                segment = open_segment(str(segment_path(self._root / name, number)))
                for batch, _ in segment.batches(begin, group.end):
                    ages[name] = max(0.0, now - Times().with_batch(batch).first_us / 1e6)
                break
        return ages

    def newest_us(self, at: Offset) -> int:
        """Returns the time of reception of the newest row in the groups that end at `at`, in microseconds; 0 without.

        Groups that were trimmed are left out.
        """
        newest = 0
        for name, place in positions_of(at).items():
            groups = self._groups(name, place.segment, False) if place.segment in self.segments(name) else ()
            number = _number_after(groups, place.byte)
            if number:
                begin = groups[number - 2].end if number > 1 else 0
                segment = open_segment(str(segment_path(self._root / name, place.segment)))
                for batch, _ in segment.batches(begin, groups[number - 1].end):
                    newest = max(newest, Times().with_batch(batch).last_us)
        return newest

    def part(self, name: str) -> str:
        """Returns the part of a spool in a receiver's directory: another text in every spool; empty for an old one."""
        for number in self.segments(name):
            try:
                return open_segment(str(segment_path(self._root / name, number))).part
            except SpoolError:
                continue  # told by whoever reads it
        return ""

    def advance(
        self,
        start: Offset,
        max_rows: int | None = None,
        target: Mapping[str, Position] | None = None,
        *,
        max_bytes: int | None = None,
    ) -> Offset:
        """Returns the furthest offset from `start` with about `max_rows` rows and `max_bytes` bytes.

        With a limit, groups of several receivers are taken in the order of their times of reception, so that a
        watermark passes no rows of a slower receiver. A group is taken at least: a limit below a group's size may not
        stop a query. `target`: positions that are never passed. Returns `start` if nothing is new. Raises SpoolGap if
        rows behind `start` were trimmed.
        """
        positions = positions_of(start)
        names = self.receivers()
        is_limited = max_rows is not None or max_bytes is not None
        streams = []
        for name in names:
            limit = None if target is None else target.get(name, Position(0, 0))
            self._forget_read(name, positions.get(name))
            groups = self._groups_after(name, positions.get(name), limit)
            streams.append(self._timed(name, groups, looks=is_limited and len(names) > 1))
        rows = size = 0
        for _, name, number, begin, group in heapq.merge(*streams):
            if rows and max_rows is not None and rows + group.rows > max_rows:
                break
            if size and max_bytes is not None and size + group.end - begin > max_bytes:
                break
            rows += group.rows
            size += group.end - begin
            positions[name] = Position(number, group.end)
        return as_offset(positions)

    def _timed(
        self, name: str, groups: Iterable[tuple[int, int, SegmentGroup]], *, looks: bool
    ) -> Iterator[tuple[int, str, int, int, SegmentGroup]]:
        """Yields groups behind the time of reception of their first row; 0 unless the method `looks` at rows.

        A damaged group has the time of the group before: readers tell the damage.
        """
        first_us = 0
        for number, begin, group in groups:
            if looks:
                with contextlib.suppress(SpoolError):
                    segment = open_segment(str(segment_path(self._root / name, number)))
                    batch, _ = next(segment.batches(begin, group.end))
                    first_us = Times().with_batch(batch).first_us
            yield first_us, name, number, begin, group

    def ranges(self, start: Offset, end: Offset, parts: int) -> list[ByteRange]:
        """Returns the groups in (start, end] as about `parts` ranges of similar size, none across segments."""
        before = positions_of(start)
        after = positions_of(end)
        wanted: list[tuple[str, int, SegmentGroup]] = []
        for name, last in sorted(after.items()):
            groups = [
                (str(segment_path(self._root / name, number)), begin, group)
                for number, begin, group in self._groups_after(name, before.get(name), last)
            ]
            ends = not last.byte or (bool(groups) and Position(*_where(groups[-1])) == last)
            if last != before.get(name) and not ends:
                where = f"{self._root / name} ends before segment {last.segment} byte {last.byte}"
                self._gap(name, f"{where}, where the checkpoint points")
            wanted += groups
        size = sum(group.end - begin for _, begin, group in wanted)
        return _join(wanted, max(RANGE_BYTES_MIN, -(-size // max(1, parts))))

    def look_for_damage(self, extents: Iterable[ByteRange]) -> None:
        """Counts in `lost` the groups that readers of these ranges will leave out. Looks at every group once."""
        for extent in extents:
            told: list[SpoolError] = []
            for _ in salvaged_groups(extent, told.append):
                pass
            self.lost[Path(extent.path).parent.name] += len(told)

    def rows_between(self, start: Offset, end: Offset) -> int:
        """Returns the number of rows in (start, end]."""
        return sum(size.sealed_batches for size in self.sizes_between(start, end).values())

    def sizes_between(self, start: Offset, end: Offset) -> dict[str, Size]:
        """Returns the sizes of (start, end], by receiver."""
        before = positions_of(start)
        sizes = {}
        for name, last in positions_of(end).items():
            sizes[name] = self._size(name, before.get(name), last)
        return sizes

    def _size(self, name: str, at: Position | None, last: Position) -> Size:
        """Returns rows and bytes between two positions of a receiver. Sealed segments between them are summed once."""
        stretch = next(self._stretches(name, at, last), None)
        if stretch is None:
            return Size(0, 0)
        number, index, first, end = stretch
        sizes = [index.size_between(first, end)]
        until = min(last.segment, self.segments(name)[-1])
        if number < until:
            sizes.append(self._whole(name, number + 1, until))
            stretches = self._stretches(name, Position(until, 0), last)
            sizes += [index.size_between(first, end) for _, index, first, end in stretches]
        return Size(sum(size.sealed_batches for size in sizes), sum(size.bytes for size in sizes))

    def _whole(self, name: str, begin: int, end: int) -> Size:
        """Returns the size of the sealed segments numbered `begin` to `end` (exclusive)."""
        sums = self._sums.get(name)
        if sums is None or begin < sums.first:
            sums = self._sums[name] = SizeSums(begin)
        numbers = self.segments(name)
        while sums.next_number < end:
            number = sums.next_number
            there = numbers[min(bisect.bisect_left(numbers, number), len(numbers) - 1)] == number
            groups = self._groups(name, number, True) if there else ()
            sums.add_size(self._index(name, number).size_between(0, len(groups)))
        return sums.between(begin, end)

    def _groups_after(
        self, name: str, at: Position | None, last: Position | None = None
    ) -> Iterator[tuple[int, int, SegmentGroup]]:
        """Yields (segment, first byte, group) in order, after `at`, up to and with `last`. Raises SpoolGap."""
        for number, index, first, end in self._stretches(name, at, last):
            groups = index.groups()
            begin = groups[first - 1].end if first else 0
            for group in islice(groups, first, end):
                yield number, begin, group
                begin = group.end

    def _stretches(
        self, name: str, at: Position | None, last: Position | None
    ) -> Iterator[tuple[int, SegmentIndex, int, int]]:
        """Yields (segment, its index, first group, end of groups) after `at`, up to and with `last`.

        A segment costs as much as a group. Raises SpoolGap, SpoolDamaged.
        """
        # The directory is listed first: an index is final once a later segment is in the list.
        numbers = self._numbers(name, at, last)
        if at is None or (self._lossy and numbers and at.segment > numbers[-1]):  # lossy: a spool that began anew
            at = Position(numbers[0] if numbers else 0, 0)
        for number in numbers[bisect.bisect_left(numbers, at.segment) :]:
            if last is not None and number > last.segment:
                return
            groups = self._groups(name, number, number != numbers[-1])
            first = _number_after(groups, at.byte) if number == at.segment else 0
            if number == at.segment and at.byte and (not first or groups[first - 1].end != at.byte):
                where = f"{self._root / name}: no group of segment {number} ends at byte {at.byte}"
                self._gap(name, f"{where}, where the checkpoint points: it is of another spool, or rows are gone")
            end = _number_after(groups, last.byte) if last is not None and number == last.segment else len(groups)
            yield number, self._index(name, number), first, end

    def _forget_read(self, name: str, at: Position | None) -> None:
        """Drops the indexes of segments that were read."""
        for key in [key for key in self._indexes if key[0] == name and at is not None and key[1] < at.segment]:
            del self._indexes[key]

    def _numbers(self, name: str, at: Position | None, last: Position | None) -> Sequence[int]:
        """Returns the wanted segments of a receiver. Raises SpoolGap if one is missing."""
        directory = self._root / name
        for _ in range(2):  # a list that is made while others trim may have holes
            numbers = self.segments(name)
            begin = at.segment if at is not None and at.segment else next(iter(numbers), 1)
            newest = numbers[-1] if numbers else 0
            end = newest if last is None else min(last.segment, newest)
            wanted = range(begin, max(begin, end) + 1) if numbers or (at is not None and at.segment) else range(0)
            there = bisect.bisect_left(numbers, wanted.stop) - bisect.bisect_left(numbers, wanted.start)
            if there == len(wanted):
                break
        else:
            missing = min(set(wanted) - set(numbers))
            self._gap(name, f"{directory} has no segment {missing}, which the checkpoint needs")
        return numbers

    def _gap(self, name: str, told: str) -> None:
        """Raises SpoolGap or, with `lossy`, counts the gap."""
        if not self._lossy:
            raise SpoolGap(f"{told}; {WAY_OUT}")
        self.lost[name] += 1
        _log.warning("veilmq: %s; reading on, as failOnDataLoss=false says", told)

    def _groups(self, name: str, number: int, final: bool) -> Sequence[SegmentGroup]:
        """Returns the synced groups of a segment. Raises SpoolDamaged, SpoolGap."""
        index = self._index(name, number)
        try:
            return index.groups(final)
        except SpoolDamaged as error:
            if not self._lossy:
                raise
            self.lost[name] += 1
            _log.warning("veilmq: %s", error)
            index.salvage()
            return index.groups(final)

    def _index(self, name: str, number: int) -> SegmentIndex:
        index = self._indexes.get((name, number))
        if index is None:
            index = self._indexes[name, number] = SegmentIndex(self._root / name, number)
        return index


def _number_after(groups: Sequence[SegmentGroup], byte: int) -> int:
    """Returns the number of groups ending at `byte` or before."""
    return bisect.bisect_right(groups, byte, key=lambda group: group.end)


def _leave_out(error: SpoolError) -> None:
    _log.warning("veilmq: rows are left out, as failOnDataLoss=false says: %s", error)


def salvaged_groups(extent: ByteRange, told: Callable[[SpoolError], object] = _leave_out) -> Iterator[tuple[Any, int]]:
    """Yields the groups of a range without the damaged ones, as `placed_groups` does; each damage is `told`."""
    at = extent.start
    while at < extent.end:
        there = extent.end
        try:
            segment = open_segment(extent.path)
            there = min(there, segment.buffer.size)  # of one that was cut short, what is before the cut
            for batch, at in segment.batches(at, there):  # noqa: B020  where it ends is where the next begins
                yield batch, at
            if at < extent.end:
                raise SpoolDamaged(f"{extent.path} has {there} bytes, but {extent.end} were synced; {WAY_OUT}")
        except SpoolError as error:
            told(error)
            at = next((end for end in _ends(Path(extent.path)) if at < end <= there), extent.end)


def _ends(path: Path) -> list[int]:
    """Returns the ends of a segment's groups, if they are known."""
    with contextlib.suppress(SpoolError):
        return [group.end for group in SegmentIndex(path.parent, int(path.stem)).groups()]
    return []


def groups_of(extents: Sequence[ByteRange], fails_on_loss: bool) -> Iterator[Any]:
    """Yields the record batches of some ranges. Raises SpoolGap and SpoolDamaged if `fails_on_loss`, else skips
    damage.
    """
    for extent in extents:
        for batch, _ in placed_groups(extent) if fails_on_loss else salvaged_groups(extent):
            yield batch


RANGE_BYTES_MIN = 1 << 20
"""Below this size, some thousand rows, a task costs more than reading its rows."""
TASK_BYTES = 64 << 20
"""A task that is much larger only loses more when it fails, and leaves other cores idle."""


def _where(entry: tuple[str, int, SegmentGroup]) -> tuple[int, int]:
    return int(Path(entry[0]).stem), entry[2].end


def _join(entries: Sequence[tuple[str, int, SegmentGroup]], range_bytes: int) -> list[ByteRange]:
    """Joins neighbouring groups of a segment until a range holds about `range_bytes`."""
    ranges: list[ByteRange] = []
    for path, begin, group in entries:
        last = ranges[-1] if ranges else None
        fits = last is not None and (last.end - last.start) + (group.end - begin) / 2 <= range_bytes
        if last and fits and last.path == path and last.end == begin:
            ranges[-1] = ByteRange(path, last.start, group.end, last.rows + group.rows)
        else:
            ranges.append(ByteRange(path, begin, group.end, group.rows))
    return ranges


def in_tasks(ranges: Sequence[ByteRange], parts: int) -> list[tuple[ByteRange, ...]]:
    """Joins neighbouring ranges to about `parts` tasks of similar size; to more tasks where these would be large.

    A range ends with its segment. A task need not: its start costs as much as many rows.
    """
    size = sum(each.end - each.start for each in ranges)
    task_bytes = min(TASK_BYTES, max(RANGE_BYTES_MIN, -(-size // max(1, parts))))
    tasks: list[list[ByteRange]] = []
    held = 0
    for each in ranges:
        size = each.end - each.start
        if tasks and held + size / 2 <= task_bytes:
            tasks[-1].append(each)
            held += size
        else:
            tasks.append([each])
            held = size
    return [tuple(task) for task in tasks]
