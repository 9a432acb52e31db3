"""Histories for the parts of a receiver: who is to read them, and how far all of them are together.

One request is for the receiver: of a first start, of `veilmq ingest backfill`, or what former parts did not end. The
parts that write now read for it, each what it writes. Not here: files of one part (`spool.backfilled`), reading
(`receiving.backfill`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spark_ingest.errors import SpoolBusy
from spark_ingest.receiver.family import kin
from spark_ingest.spool.backfilled import BackfillRecord, answered, ask, combined, forget, is_asked, take_asked
from spark_ingest.spool.consumers import is_held
from spark_ingest.spool.segments import segment_numbers


def alone(spool: Path, name: str) -> None:
    """Raises SpoolBusy if workers of the receiver write now."""
    if busy := [part for part in kin(spool, name) if is_held(spool / part / "LOCK")]:
        raise SpoolBusy(f"another process writes as receiver {name}, with workers ({busy[0]}); one of them suffices")


def hand_on(spool: Path, name: str, parts: Sequence[str], reaches_back_ms: int | None = None) -> None:
    """Asks the parts that write now for what is wanted still, and lets former parts forget the request.

    `reaches_back_ms`: the time that a first start asks for, where no part has anything. Raises SpoolDamaged, OSError.
    """
    family = list(dict.fromkeys([name, *kin(spool, name), *parts]))
    former = [spool / part for part in family if part not in parts]
    wanted = []
    if reaches_back_ms is not None and not any(segment_numbers(spool / part) for part in family):
        wanted.append(reaches_back_ms)
    for directory in former:
        if (since_ms := take_asked(directory)) is not None:
            wanted.append(since_ms)
        record = BackfillRecord.load(directory)
        if record is not None and not record.is_over:
            wanted.append(record.since_ms)
    if wanted:
        for part in parts:
            ask(spool / part, min(wanted))
    for directory in former:  # only now, so that a crash between the two asks twice
        answered(directory)
        forget(directory)


def read_back(spool: Path, name: str) -> BackfillRecord | None:
    """Returns how far all parts of a receiver are; None if nothing was asked for. Raises SpoolDamaged, OSError."""
    records = []
    for directory in (spool / part for part in (name, *kin(spool, name))):
        record = BackfillRecord.load(directory)
        if is_asked(directory):
            records.append(BackfillRecord(0))
        elif record is not None:
            records.append(record)
    return combined(records)
