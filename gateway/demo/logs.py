"""Logs of the demonstration's clients, a single JSON object a line: messages sent, confirmed and received.

The final table is made of these lines and of the rows in Spark's sink, and of no statement of a broker about itself.
Times are nanoseconds of the machine's monotonic clock, which all its processes share. Nothing is counted here:
`report.py` counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

PROBE = "probe-"
"""The prefix of ids of messages that only test the whole path; they count in no figure."""

Properties = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of a telemetry client.

    `confirmed`: its PUBACK came. `plain_ns`: sending time of its twin to the plain broker.
    """

    id: str
    topic: str
    digest: str
    payload: str
    properties: Properties
    sent_ns: int
    plain_ns: int
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message as the subscriber got it. `id` is empty if the payload has none."""

    id: str
    topic: str
    digest: str
    properties: Properties
    at_ns: int


def digest_of(payload: bytes) -> str:
    """Returns the SHA-256 of a payload, in hex."""
    return hashlib.sha256(payload).hexdigest()


def id_of(payload: bytes) -> str:
    """Returns the id the publisher put into the payload; empty if it cannot be read."""
    try:
        return str(json.loads(payload)["id"])
    except (ValueError, KeyError, TypeError):
        return ""


class LineLog:
    """A log to which JSON lines are appended; `flush` makes them visible to other processes. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, **fields: Any) -> None:
        self._file.write(json.dumps(fields, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def __enter__(self) -> LineLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the objects of a log; none if the file does not exist. A truncated last line is left out."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def sent_messages(lines: Iterable[Mapping[str, Any]]) -> dict[str, Sent]:
    """Returns the sent messages of a telemetry log by id, each with its confirmation."""
    entries = list(lines)
    confirmed = {str(entry["confirmed"]) for entry in entries if "confirmed" in entry}
    return {
        str(entry["id"]): Sent(
            id=str(entry["id"]),
            topic=str(entry["topic"]),
            digest=str(entry["digest"]),
            payload=str(entry["payload"]),
            properties=_pairs(entry["properties"]),
            sent_ns=int(entry["sent_ns"]),
            plain_ns=int(entry["plain_ns"]),
            confirmed=str(entry["id"]) in confirmed,
        )
        for entry in entries
        if "id" in entry
    }


def seen_messages(lines: Iterable[Mapping[str, Any]], path: str) -> list[SeenMessage]:
    """Returns the messages the subscriber got on `path` ("sealed" or "plain"), in order of arrival."""
    return [
        SeenMessage(
            id=str(entry["id"]),
            topic=str(entry["topic"]),
            digest=str(entry["digest"]),
            properties=_pairs(entry["properties"]),
            at_ns=int(entry["at_ns"]),
        )
        for entry in lines
        if entry["path"] == path
    ]


def _pairs(value: Iterable[Iterable[str]]) -> Properties:
    return tuple((str(name), str(text)) for name, text in value)
