"""A directory of parquet files for readers that are not Spark: a batch counts when its manifest is there.

    DIRECTORY/rows/WRITER/000000000012-ATTEMPT/day=2026-11-22/part-....parquet
    DIRECTORY/manifests/WRITER/000000000012.json           the files of batch 12
    DIRECTORY/manifests/WRITER/000000000099.all.json       the files of all batches up to 99, after they were merged

Executors write an attempt of a batch into a new directory. Then the driver links a manifest under the batch's name: of
two drivers the file system lets one do so. Driver and executors share the directory, on a file system with hard links
and fsync. Files of different batches may have different columns.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spark_ingest.sinks.sink import DAY_COLUMN, QUERY, BatchName, Sink, check_day

DAY = "day"
"""The column that names a partition."""
MERGE_AFTER = 100
"""Batches between mergings of files."""
_ALL = ".all.json"


class ParquetSink(Sink):
    """A sink of parquet files. `committed_files` has what counts.

    `day`: the column of a time whose day partitions the files, None for none. `files`: most files of a batch and day.
    `merge_after`: after so many batches the files become one a day; 0: never. Merged files stay until the next merging,
    for readers that have begun.
    """

    def __init__(
        self,
        directory: str | Path,
        query: str = QUERY,
        *,
        day: str | None = DAY_COLUMN,
        files: int = 2,
        merge_after: int = MERGE_AFTER,
    ) -> None:
        super().__init__(query)
        self._root = Path(directory)
        self._day, self._files, self._merge_after = day, files, merge_after

    def has(self, name: BatchName) -> bool:
        """Returns True if the batch has a manifest, or was merged."""
        return _manifest(self._root, name).exists() or name.number <= _merged_until(self._root, name.writer)

    def commit(self, rows: Any, name: BatchName) -> None:
        """Writes an attempt and links its manifest; removes the attempt if another driver's manifest is there."""
        check_day(rows.columns, self._day)
        attempt = self._root / "rows" / name.writer / f"{name.number:012}-{os.urandom(8).hex()}"
        writer = _by_day(rows, self._day).coalesce(self._files).write
        (writer if self._day is None else writer.partitionBy(DAY)).parquet(str(attempt))
        found = sorted(attempt.rglob("*.parquet"))
        _sync(found)
        if not self._link(_manifest(self._root, name), found):
            shutil.rmtree(attempt, ignore_errors=True)
            return
        if self._merge_after and name.number % self._merge_after == self._merge_after - 1:
            self._merge(name)

    def _link(self, manifest: Path, files: Sequence[Path]) -> bool:
        """Returns False if the manifest is there already."""
        manifest.parent.mkdir(parents=True, exist_ok=True)
        fresh = manifest.with_name(f".{manifest.name}.{os.urandom(8).hex()}")
        with fresh.open("w") as file:
            json.dump([str(each.relative_to(self._root)) for each in files], file)
            file.flush()
            os.fsync(file.fileno())
        try:
            manifest.hardlink_to(fresh)
        except FileExistsError:
            return False
        finally:
            fresh.unlink()
        _sync([manifest.parent])
        return True

    def _merge(self, name: BatchName) -> None:
        """Merges the files of all batches up to this one, into one a day, and removes what the last merging left."""
        import pyarrow.dataset as ds  # noqa: PLC0415  for who writes

        before = list(_files_of(self._root, name.writer))
        small = [each for each in before if each.stat().st_size < _LARGE_BYTES]
        kept = [each for each in before if each not in small]
        attempt = self._root / "rows" / name.writer / f"{name.number:012}-all-{os.urandom(8).hex()}"
        for number, (day, files) in enumerate(sorted(_days(small).items())):
            part = attempt / day if day else attempt
            part.mkdir(parents=True)
            schema = _together(files)
            made = ds.dataset([str(each) for each in files], schema=schema, format="parquet", partitioning=None)
            ds.write_dataset(
                made, part, format="parquet", basename_template=f"part-{number}-{{i}}.parquet",
                existing_data_behavior="overwrite_or_ignore",
            )  # fmt: skip
        merged = sorted(attempt.rglob("*.parquet"))
        _sync(merged)
        at = _manifest(self._root, name).with_suffix("").with_suffix(_ALL)
        if not self._link(at, [*kept, *merged]):
            shutil.rmtree(attempt, ignore_errors=True)
            return
        self._remove(name, {*kept, *merged, *before})

    def _remove(self, name: BatchName, wanted: set[Path]) -> None:
        """Removes the manifests of merged batches, and rows that neither the merging nor readers want."""
        for each in _manifests(self._root, name.writer):
            last = name.number - each.name.endswith(_ALL)
            if _number(each) <= last:
                each.unlink(missing_ok=True)
        for attempt in (self._root / "rows" / name.writer).iterdir():
            if int(attempt.name[:12]) <= name.number and not any(each.is_relative_to(attempt) for each in wanted):
                shutil.rmtree(attempt, ignore_errors=True)


_LARGE_BYTES = 64 << 20
"""The size from which a file is not merged again."""


def committed_files(directory: str | Path) -> list[str]:
    """Returns the files whose rows count, of all writers; their paths name the day, as `day=2026-11-22`."""
    root = Path(directory)
    with contextlib.suppress(FileNotFoundError):
        writers = sorted(each.name for each in (root / "manifests").iterdir())
        return [str(each) for writer in writers for each in _files_of(root, writer)]
    return []


def _by_day(rows: Any, day: str | None) -> Any:
    """Returns rows with column `day`, of the day in UTC, whatever the session's zone."""
    from pyspark.sql import functions as f  # noqa: PLC0415  Spark takes a second to import

    if day is None:
        return rows
    return rows.withColumn(DAY, f.date_from_unix_date(f.floor(f.unix_micros(day) / 86_400_000_000).cast("int")))


def _manifest(root: Path, name: BatchName) -> Path:
    return root / "manifests" / name.writer / f"{name.number:012}.json"


def _manifests(root: Path, writer: str) -> list[Path]:
    found = (root / "manifests" / writer).glob("*.json")
    return sorted(each for each in found if not each.name.startswith("."))


def _number(manifest: Path) -> int:
    return int(manifest.name[:12])


def _merged_until(root: Path, writer: str) -> int:
    """Returns the last batch that was merged, -1 without one."""
    return max((_number(each) for each in _manifests(root, writer) if each.name.endswith(_ALL)), default=-1)


def _files_of(root: Path, writer: str) -> Iterator[Path]:
    """Yields the files of a writer. A merging that ends meanwhile removes none of these files."""
    for _ in range(_LOOKS):
        manifests = _manifests(root, writer)
        merged = [each for each in manifests if each.name.endswith(_ALL)][-1:]
        until = _number(merged[0]) if merged else -1
        wanted = merged + [each for each in manifests if _number(each) > until and not each.name.endswith(_ALL)]
        try:
            names = [name for each in wanted for name in json.loads(each.read_text())]
        except FileNotFoundError:
            continue  # merged meanwhile
        yield from (root / name for name in names)
        return
    raise TimeoutError(f"{root}: manifests of {writer} change faster than they can be read")


_LOOKS = 10


def _days(files: Sequence[Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for each in files:
        day = each.parent.name if each.parent.name.startswith(f"{DAY}=") else ""
        found.setdefault(day, []).append(each)
    return found


def _together(files: Sequence[Path]) -> Any:
    """Returns the columns of all files, those of the newest last."""
    import pyarrow as pa  # noqa: PLC0415  for who writes
    import pyarrow.parquet as pq  # noqa: PLC0415

    return pa.unify_schemas([pq.read_schema(each).remove_metadata() for each in files])


def _sync(paths: Sequence[Path]) -> None:
    for each in paths:
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
