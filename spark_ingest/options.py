"""Options of `spark.readStream.format("veilmq")`: what they mean, and one clear error for each that cannot work.

Options reach the plan, its `explain` and Spark's event log. So they hold paths, names and numbers, never keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from keys.errors import KeysError
from keys.topictokens import check_filter

from .errors import BadOption
from .spool import CONSUMERS, RECEIVER_NAME

N = TypeVar("N", int, float)

GRANTS_NAME = "scope_keys.json"
"""In the identity directory: the scope keys for executors, unless option grants names another file."""
DEFAULT_AVAILABILITY = "+/+/+/availability,+/+/+/+/availability"
"""Topics on which gateways tell who is alive: PREFIX/GATEWAY/ENTITY/availability, prefix of one or two levels."""


class Stream(StrEnum):
    """Which rows a query wants."""

    TELEMETRY = "telemetry"
    AVAILABILITY = "availability"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options; the table of the README says what each one does."""

    spool: Path
    grants: Path
    stream: Stream
    topics: tuple[str, ...]
    availability: tuple[str, ...]
    consumer: str
    receiver: str
    identity: Path | None
    overlay: Path | None
    hosted: Path | None
    rows_per_batch: int
    max_rows: int | None
    partitions: int
    cap_bytes: int
    incomplete_s: float

    asks_availability: bool
    """Whether option availability was given, or its stream is wanted."""

    @property
    def subscribed(self) -> tuple[str, ...]:
        """Clear filters that the receiver asks the replicas for."""
        return tuple(dict.fromkeys(self.topics + (self.availability if self.asks_availability else ())))

    @property
    def receives(self) -> bool:
        """Whether the driver runs a receiver; otherwise another process fills the spool."""
        return self.identity is not None


_NAMES = {
    "path", "spool", "grants", "stream", "topics", "availability", "consumer", "receiver", "identity", "overlay",
    "hosted", "rows_per_batch", "max_rows", "partitions", "cap_bytes", "incomplete_s",
}  # fmt: skip


def parse_options(given: Mapping[str, str]) -> Options:
    """Check what the user wrote. Raises BadOption, one line that names the option and a value that works."""
    told = {name.lower(): value for name, value in given.items()}
    for name in told:
        if name not in _NAMES:
            known = ", ".join(sorted(_NAMES - {"path"}))
            raise BadOption(f"option {name!r} is unknown to veilmq; known are {known}")
    spool = told.get("spool") or told.get("path")
    if not spool:
        raise BadOption('option spool is missing; write .option("spool", DIRECTORY)')
    identity, overlay = told.get("identity"), told.get("overlay")
    if bool(identity) != bool(overlay):
        have, want = ("identity", "overlay") if identity else ("overlay", "identity")
        raise BadOption(f"option {have} needs option {want} too: both to receive, neither to read the spool only")
    stream = _stream(told.get("stream", Stream.TELEMETRY))
    named = told.get("grants") or (str(Path(identity) / GRANTS_NAME) if identity else None)
    if named is None:
        raise BadOption(
            f'option grants is missing; write .option("grants", FILE) with the file that the receiver writes: '
            f"{GRANTS_NAME} in its identity directory, if it was told nothing else"
        )
    grants = Path(named).absolute()
    spool_path = Path(spool).absolute()
    if grants.is_relative_to(spool_path):
        raise BadOption(
            f"grants={grants} lies in the spool: keys beside ciphertext and shares protect nothing; move it"
        )
    return Options(
        spool=spool_path,
        grants=grants,
        stream=stream,
        topics=_filters("topics", told.get("topics", "#")),
        availability=_filters("availability", told.get("availability", DEFAULT_AVAILABILITY)),
        consumer=_name("consumer", told.get("consumer", stream.value)),
        receiver=_name("receiver", told.get("receiver", "main")),
        identity=Path(identity).absolute() if identity else None,
        overlay=Path(overlay).absolute() if overlay else None,
        hosted=Path(told["hosted"]).absolute() if told.get("hosted") else None,
        rows_per_batch=_number(told, "rows_per_batch", int, 10_000, 1, 1_000_000),
        max_rows=_number(told, "max_rows", int, 1, 1, 1 << 40) if "max_rows" in told else None,
        partitions=_number(told, "partitions", int, 2, 1, 1024),
        cap_bytes=_number(told, "cap_bytes", int, 8 << 30, 1 << 20, 1 << 50),
        incomplete_s=_number(told, "incomplete_s", float, 10.0, 0.1, 3600.0),
        asks_availability="availability" in told or stream is Stream.AVAILABILITY,
    )


def _stream(value: str) -> Stream:
    try:
        return Stream(value.lower())
    except ValueError:
        raise BadOption(f"stream={value!r} is none of {', '.join(Stream)}") from None


def _filters(name: str, value: str) -> tuple[str, ...]:
    filters = tuple(part.strip() for part in value.split(",") if part.strip())
    if not filters:
        raise BadOption(f"{name} is empty; give MQTT topic filters, separated by commas")
    for topic_filter in filters:
        try:
            check_filter(topic_filter)
            if topic_filter.startswith("$share/"):
                raise BadOption(
                    f"{name}: {topic_filter!r} is shared, which would scatter shares; name the filter alone"
                )
        except KeysError:
            raise BadOption(f"{name}: {topic_filter!r} is not an MQTT topic filter") from None
    return filters


def _name(option: str, value: str) -> str:
    if not RECEIVER_NAME.fullmatch(value) or value == CONSUMERS:
        raise BadOption(f"{option}={value!r} is not a name; use up to 64 letters, digits, '.', '-' and '_'")
    return value


def _number(told: Mapping[str, str], name: str, kind: Callable[[str], N], default: N, lowest: N, highest: N) -> N:
    text = told.get(name)
    if text is None:
        return default
    try:
        value = kind(text)
    except ValueError:
        raise BadOption(f"{name}={text!r} is not a number") from None
    if not lowest <= value <= highest:
        raise BadOption(f"{name}={text} is out of range; from {lowest} to {highest}")
    return value
