"""What the demonstration's clients write down, one JSON object a line: what was sent, confirmed and received.

The table at the end is made of these lines and of the rows in Spark's sink, of nothing that a broker says about
itself. Times are nanoseconds of the machine's monotonic clock, which all its processes share. Nothing is counted
here: `report.py` does that.
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
"""Messages whose id begins so only find out whether the whole way is open; they are in no figure."""

Properties = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """One message of a telemetry client. `confirmed`: its PUBACK came; `plain_ns`: its twin to the ordinary broker."""

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
    """One message as the subscriber got it. `id` is empty where the payload holds none."""

    id: str
    topic: str
    digest: str
    properties: Properties
    at_ns: int


def digest_of(payload: bytes) -> str:
    """SHA-256 of a payload, in hex."""
    return hashlib.sha256(payload).hexdigest()


def id_of(payload: bytes) -> str:
    """The id that the publisher put into the payload; empty if it cannot be read."""
    try:
        return str(json.loads(payload)["id"])
    except (ValueError, KeyError, TypeError):
        return ""


class LineLog:
    """Appends JSON lines; `flush` makes them visible to other processes. Raises OSError."""

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
    """The objects of a log; nothing if there is no such file. A last line that is cut short is left out."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def sent_messages(lines: Iterable[Mapping[str, Any]]) -> dict[str, Sent]:
    """By id: what a telemetry log says was sent, and which of it was confirmed."""
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
    """In order of arrival: what the subscriber got on `path` ("sealed" or "plain")."""
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
