"""A form of a publication: a sealing of it, the pieces that came, and its row for the spool.

A publisher may seal a publication anew under its old sequence, so there may be several forms; `collector` decides
which
of them becomes a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeAlias

from bridge.wire import Admitted
from keys.envelope import MessageHeader
from spark_ingest.spool import SpooledKey, SpoolRecord

UNVOUCHED = "epoch"
"""The begin of the reason; such a row has no content, so that it is as small as a row can be."""

Ack: TypeAlias = Any
"""An object that acknowledges a piece: handed back by the collector, which does not look into it."""


def call_each(acks: Iterable[Callable[[], None]]) -> None:
    """Calls each acknowledgement, for callers that hand in functions."""
    for ack in acks:
        ack()


class State(Enum):
    """The state of a sealing at the receiver."""

    WAITING = auto()  # for content, key or shares
    READY = auto()  # whole, or given up; not on disk
    WRITING = auto()  # in a group that is being written
    LATE = auto()  # spooled as incomplete, may still become whole
    DONE = auto()  # on disk, or refused


WHOLE = (State.READY, State.WRITING)


@dataclass(slots=True, eq=False)
class Form:
    """A form of a publication: one sealing of it, the pieces of that sealing that came, and its row for the spool."""

    told: tuple[str, str]
    admitted: Admitted
    header: MessageHeader
    topic: str
    arrived: float
    publication: tuple[bytes, int]
    state: State = State.WAITING
    content: bytes | None = field(default=None, repr=False)
    material: SpooledKey | None = field(default=None, repr=False)
    reason: str | None = None
    old: bool = False
    stale: bool = False
    waits_since: float = 0.0
    unvouched_at: str | None = None  # the replica that brought it first, while it waits for others to do so
    acks: list[Ack] = field(default_factory=list, repr=False)


@dataclass(frozen=True, slots=True)
class Group:
    """Rows to be written and synced together."""

    records: tuple[SpoolRecord, ...]
    keys: dict[bytes, SpooledKey]
    entries: tuple[Form, ...] = field(repr=False)


def record_of(entry: Form) -> SpoolRecord:
    """Returns the form as a row of the spool."""
    header = entry.header
    reason = entry.reason
    return SpoolRecord(
        header.publisher,
        header.sequence,
        header.key_id,
        entry.topic,
        entry.admitted.frame,
        None if reason is not None and reason.startswith(UNVOUCHED) else entry.content,
        header.qos,
        header.retain,
        header.time_ms * 1000,
        int(entry.arrived * 1_000_000),
        reason,
        entry.admitted.rights.to_text(),
    )
