"""`veilmq ingest status`: the content of a spool, its writers, and how far behind its readers are.

A look from outside at files and locks: it works while receivers and queries run, and after they died, and disturbs
neither. Amounts are sealed batches, as they are stored. A row of a query is a single publication; the number of
publications in a sealed batch is sealed, too. Not here: the state of a receiver (its log and `--metrics` say more).
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from spark_ingest.errors import SpoolError
from spark_ingest.spool.backfilled import BackfillRecord, is_asked, take_asked
from spark_ingest.spool.consumers import is_held
from spark_ingest.spool.index import SegmentIndex
from spark_ingest.spool.segments import directory_bytes, segment_numbers, segment_path
from spark_ingest.spool.standing import standings
from spark_ingest.spool.trouble import told_trouble
from spark_ingest.spool.view import SpoolView


@dataclass(frozen=True, slots=True)
class BackfillStatus:
    """The progress of a backfill. `since_ms`: UNIX time from which everything was asked for; `scopes`: share of each
    scope's span that is done, from 0 to 1; `refused`: scopes that replicas refuse; `told`: all of it in words.
    """

    since_ms: int
    scopes: Mapping[int, float]
    refused: tuple[int, ...]
    sealed_batches: int
    is_over: bool
    told: str


@dataclass(frozen=True, slots=True)
class PartStatus:
    """A receiver's part of a spool."""

    receiver: str
    running: bool
    segments: int
    sealed_batches: int
    bytes: int
    written: float | None
    """UNIX time of the last change of the newest segment; None without one."""
    trouble: str | None = None
    """The reason for which its receiver does not receive, as the receiver last told it."""
    backfill: BackfillStatus | None = None
    """How far histories were read into the part; None if nobody asked for any."""


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a spool. `behind`: sealed batches a consumer has to read, None where some are gone."""

    spool: str
    receivers: tuple[PartStatus, ...]
    behind: Mapping[str, int | None]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def status_of(root: Path) -> Status:
    """Returns the state of a spool. Raises SpoolError for another directory."""
    if not root.is_dir():
        raise SpoolError(f"{root} is no spool: there is no such directory; name the one that a receiver writes")
    parts = tuple(_part(root, name) for name in SpoolView(root).receivers())
    return Status(str(root), parts, consumers_behind(root))


def consumers_behind(root: Path) -> dict[str, int | None]:
    """Returns the sealed batches between each consumer's position and the end. Raises SpoolError."""
    return {each.name: None if each.behind is None else each.behind.sealed_batches for each in standings(root)}


def _part(root: Path, name: str) -> PartStatus:
    directory = root / name
    numbers = segment_numbers(directory)
    sealed_batches = sum(group.rows for number in numbers for group in SegmentIndex(directory, number).groups())
    written = None
    if numbers:
        with contextlib.suppress(FileNotFoundError):  # trimmed just now
            written = segment_path(directory, numbers[-1]).stat().st_mtime
    return PartStatus(
        name,
        is_held(directory / "LOCK"),
        len(numbers),
        sealed_batches,
        directory_bytes(directory),
        written,
        told_trouble(directory),
        _backfill(directory),
    )


def _backfill(directory: Path) -> BackfillStatus | None:
    record = BackfillRecord.load(directory)
    if is_asked(directory) and (record is None or record.is_over):
        record = BackfillRecord(take_asked(directory) or 0)
    if record is None:
        return None
    scopes = {number: round(each.share, 4) for number, each in sorted(record.scopes.items())}
    refused = tuple(number for number, each in sorted(record.scopes.items()) if each.is_refused)
    return BackfillStatus(record.since_ms, scopes, refused, record.rows, record.is_over, record.told)


def told(status: Status, now: float | None = None) -> str:
    """Returns a line for people for each receiver and consumer."""
    now = time.time() if now is None else now
    lines = []
    for part in status.receivers:
        ago = "nothing written yet" if part.written is None else f"written {max(0.0, now - part.written):,.0f} s ago"
        state = "running" if part.running else "not running"
        size = f"{part.sealed_batches:,} sealed batches in {part.segments} segments, {part.bytes:,} bytes"
        lines.append(f"receiver {part.receiver}: {state}, {size}, {ago}")
        if part.trouble is not None:
            lines.append(f"receiver {part.receiver}: {part.trouble}")
        if (backfill := part.backfill) is not None:
            state = "is over" if backfill.is_over else "goes on" if part.running else "waits for the receiver"
            lines.append(f"receiver {part.receiver}: its backfill {state}: {backfill.told}")
    for name, number in status.behind.items():
        lag = "before what was trimmed" if number is None else f"{number:,} sealed batches behind"
        lines.append(f"consumer {name}: {lag}")
    return "\n".join(lines or [f"{status.spool}: empty"])
