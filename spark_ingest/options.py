"""Options of `spark.readStream.format("veilmq")`: their meaning, and a clear error for each unusable value.

Options reach the plan, its `explain` and Spark's event log. So they hold paths, names and numbers, never keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from keys.errors import KeysError
from keys.topictokens import check_filter
from spark_ingest.errors import BadOption, SpoolError
from spark_ingest.spool import (
    CONSUMERS,
    RECEIVER_NAME,
    Position,
    Shard,
    parse_shard,
    positions_of,
)

N = TypeVar("N", int, float)

GRANTS_NAME = "scope_keys.json"
"""In the identity directory: the scope keys for executors, unless option grants names another file."""
RETAIN_S_MAX = 366 * 86_400.0
DEFAULT_AVAILABILITY = "+/+/+/availability,+/+/+/+/availability,+/+/+/trace,+/+/+/+/trace"
"""Where gateways tell who is alive: PREFIX/GATEWAY/ENTITY/availability and the like, prefix of one or two levels."""


SPARKS_OWN = frozenset({"provider", "owner", "location", "comment", "external", "is_managed_location"})
"""What Spark tells a source beside the options of `CREATE TABLE`; each of those comes as `option.NAME` again."""


class MissingKey(StrEnum):
    """The fate of a row whose key is not in the file of scope keys."""

    FAIL = "fail"
    WAIT = "wait"
    QUARANTINE = "quarantine"


class IngestStream(StrEnum):
    """The kinds of rows a query may read."""

    TELEMETRY = "telemetry"
    AVAILABILITY = "availability"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options; the table of docs/reference/spark.md says what each one does."""

    spool: Path
    grants: Path
    more_grants: tuple[Path, ...]
    """Of the other receivers of the spool: reading several parts takes the keys of each."""
    grants_identity: Path | None
    extents: str | None
    """HOST:PORT, or URL of a storage, where executors get segments and the file of scope keys; None: on a file system
    that they share."""
    stream: IngestStream
    topics: tuple[str, ...]
    availability: tuple[str, ...]
    shard: Shard | None
    shard_before: tuple[tuple[int, Shard | None], ...]
    """UNIX times in ms and what the receiver took of publications sealed until then, None for nothing; oldest first."""
    consumer: str
    """The name of the query's place in the spool; of a query without a name, the first part of it (`place_of`)."""
    is_named: bool
    """True if option `consumer` names the place."""
    from_latest: bool
    starting: tuple[tuple[str, Position], ...] | None
    """Where each receiver's rows begin, as options say; None: at one of the ends, or at `since_us`."""
    ending: tuple[tuple[str, Position], ...] | None
    since_us: int | None
    """Rows that were received from then on, and before `until_us`, UNIX time in microseconds; None: no bound."""
    until_us: int | None
    reaches_back_ms: int | None
    """UNIX time from which a receiver reads histories of replicas at its first start; None: nothing was said."""
    min_rows: int | None
    """Rows that a micro-batch waits for, at most `max_delay_s`."""
    max_delay_s: float
    columns: tuple[str, ...]
    """Of a row, in this order; empty: those of the stream."""
    retain_s: float
    receiver: str
    identity: Path | None
    overlay: Path | None
    hosted: Path | None
    rows_per_batch: int
    max_rows: int | None
    max_bytes: int | None
    partitions: int
    cap_bytes: int
    incomplete_s: float
    schemas: Path | None
    """The receiver's file of schemas, which it keeps in the spool."""
    packs: bool
    """Whether the receiver packs what it has finished."""
    fails_on_loss: bool
    on_missing_key: MissingKey
    otlp: str | None
    """Address of the collector of OpenTelemetry that gets a span for each row with a trace context; None: no spans."""
    key_patience_s: float
    """How long a task waits for a key, with `MissingKey.WAIT`."""
    trouble_s: float
    """How long the driver's receiver may be in trouble before the query fails."""

    asks_availability: bool
    """Whether option availability was given, or its stream is wanted."""

    @property
    def subscribed(self) -> tuple[str, ...]:
        """Clear filters the receiver asks the replicas for."""
        return tuple(dict.fromkeys(self.topics + (self.availability if self.asks_availability else ())))

    @property
    def parts(self) -> str | None:
        """The present and former parts of this query: `1/2@1763769600000,1/3`, None for all.

        A text that continues another one at `@` is of a query after a change of shards.
        """
        if self.shard is None and not self.shard_before:
            return None
        eras = [*((before, f"@{until_ms}") for until_ms, before in self.shard_before), (self.shard, "")]
        return ",".join(f"{shard or NOTHING}{until}" for shard, until in eras)

    @property
    def redrives(self) -> bool:
        """True if rows that lack their key may come later, by `veilmq ingest redrive`."""
        return self.on_missing_key is MissingKey.QUARANTINE

    @property
    def places(self) -> bool:
        """True if the driver puts rows for executors into a storage."""
        return self.extents is not None and "://" in self.extents

    @property
    def receives(self) -> bool:
        """True if the driver runs a receiver; otherwise another process fills the spool."""
        return self.identity is not None


ALIASES = {"path": "spool", "topics": "topic", "max_rows": "max_rows_per_batch"}
"""Other names of an option; given under both, the values must be equal. `path` is what `load(...)` is given."""
NAMES = frozenset({
    "spool", "grants", "extents", "stream", "topic", "availability", "shard", "shard_before",
    "grants_identity", "consumer", "receiver", "identity", "pack", "schemas",
    "overlay", "hosted", "rows_per_batch", "max_rows_per_batch", "max_bytes_per_batch", "partitions", "cap_bytes",
    "incomplete_s", "retain_s", "startingoffsets", "startingtimestamp", "endingoffsets", "endingtimestamp",
    "minrowspertrigger", "maxtriggerdelay", "columns", "failondataloss", "onmissingkey", "key_patience_s",
    "otlp", "trouble_s",
})  # fmt: skip
"""In lower case: Spark does not tell upper from lower case in names of options."""
STREAMING_ONLY = ("max_rows_per_batch", "max_bytes_per_batch", "retain_s", "minrowspertrigger", "maxtriggerdelay")
"""Of micro-batches and what follows them: a batch read would ignore them."""
BATCH_ONLY = ("endingoffsets", "endingtimestamp")
"""A stream has no end."""
STARTS = ("earliest", "latest")
SHARD_CHANGES_MAX = 64
NOTHING = "none"
"""In shard: the receiver leaves; in shard_before: it is new."""
FSSPEC = "fsspec+"
"""Before the URL of a storage that fsspec speaks and pyarrow does not."""
_STORAGE = re.compile(rf"(?:s3|gs|abfss?|hdfs|file|{re.escape(FSSPEC)}[a-z][a-z0-9+.-]*)://.+")
_ADDRESS = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_SPELLED = {
    "startingtimestamp": "startingTimestamp",
    "endingoffsets": "endingOffsets",
    "endingtimestamp": "endingTimestamp",
    "minrowspertrigger": "minRowsPerTrigger",
    "maxtriggerdelay": "maxTriggerDelay",
    "startingoffsets": "startingOffsets",
    "failondataloss": "failOnDataLoss",
    "onmissingkey": "onMissingKey",
}


def parse_options(given: Mapping[str, str], *, batch: bool | None = False) -> Options:
    """Checks the user's options. Raises BadOption, a line naming the option and a good value.

    `batch`: for `spark.read`, which has no micro-batches and no consumer; None: not yet known.
    """
    told = _canonical(given)
    for name in STREAMING_ONLY if batch else BATCH_ONLY:
        if name in told and batch is not None:
            here, there = ("readStream", "read") if batch else ("read", "readStream")
            raise BadOption(f"option {_SPELLED.get(name, name)} is for {here} only; remove it from {there}")
    for one, other in (("startingoffsets", "startingtimestamp"), ("endingoffsets", "endingtimestamp")):
        if one in told and other in told:
            raise BadOption(f"options {_SPELLED[one]} and {_SPELLED[other]} both say where; give one of them")
    spool = _spool(told, bool(batch))
    identity, overlay = told.get("identity"), told.get("overlay")
    if bool(identity) != bool(overlay):
        have, want = ("identity", "overlay") if identity else ("overlay", "identity")
        raise BadOption(f"option {have} needs option {want} too: both to receive, neither to read the spool only")
    stream = _stream(told.get("stream", IngestStream.TELEMETRY))
    shard, before = _shard(told), _shard_before(told)
    grants, (extents, grants_identity) = _grants(told, spool), _extents(told)
    of_shard = f"-{shard.number}of{shard.count}" if shard else ""
    first = next((each for _, each in before if each), shard)  # a query keeps its name when shards change
    of_first = f"-{first.number}of{first.count}" if first else ""
    return Options(
        spool=spool,
        grants=grants[0],
        more_grants=grants[1:],
        grants_identity=grants_identity,
        extents=extents,
        stream=stream,
        topics=_filters("topic", told.get("topic", "#")),
        availability=_filters("availability", told.get("availability", DEFAULT_AVAILABILITY)),
        shard=shard,
        shard_before=before,
        consumer=_name("consumer", told.get("consumer", stream.value + of_first)),
        is_named="consumer" in told,
        from_latest=told.get("startingoffsets", "").lower() == "latest",
        starting=_place("startingOffsets", told.get("startingoffsets"), ("earliest",) if batch else STARTS),
        ending=_place("endingOffsets", told.get("endingoffsets"), ("latest",)),
        since_us=_moment("startingTimestamp", told.get("startingtimestamp")),
        reaches_back_ms=_reaches_back(told),
        until_us=_moment("endingTimestamp", told.get("endingtimestamp")),
        min_rows=_limit(told, "minrowspertrigger", 1 << 40),
        max_delay_s=_number(told, "maxtriggerdelay", float, 900.0, 0.0, 86_400.0),
        columns=tuple(part.strip() for part in told.get("columns", "").split(",") if part.strip()),
        retain_s=_number(told, "retain_s", float, 0.0, 0.0, RETAIN_S_MAX),
        receiver=_name("receiver", told.get("receiver", "main" + of_shard)),
        identity=_path(told, "identity"),
        overlay=_path(told, "overlay"),
        hosted=_path(told, "hosted"),
        rows_per_batch=_number(told, "rows_per_batch", int, 10_000, 1, 1_000_000),
        max_rows=_limit(told, "max_rows_per_batch", 1 << 40),
        max_bytes=_limit(told, "max_bytes_per_batch", 1 << 50),
        partitions=_number(told, "partitions", int, 2, 1, 1024),
        cap_bytes=_number(told, "cap_bytes", int, 8 << 30, 1 << 20, 1 << 50),
        incomplete_s=_number(told, "incomplete_s", float, 10.0, 0.1, 3600.0),
        schemas=_schemas(told),
        packs=_packs(told),
        fails_on_loss=_choice("failOnDataLoss", told.get("failondataloss", "true"), ("true", "false")) == "true",
        on_missing_key=MissingKey(_choice("onMissingKey", told.get("onmissingkey", "fail"), tuple(MissingKey))),
        otlp=_collector(told.get("otlp")),
        key_patience_s=_number(told, "key_patience_s", float, 60.0, 0.1, 86_400.0),
        trouble_s=_number(told, "trouble_s", float, 60.0, 1.0, 86_400.0),
        asks_availability="availability" in told or stream is IngestStream.AVAILABILITY,
    )


def _reaches_back(told: Mapping[str, str]) -> int | None:
    """Returns where histories are read from at a first start, as options say expressly."""
    if told.get("startingoffsets", "").lower() == "earliest":
        return 0
    since_us = _moment("startingTimestamp", told.get("startingtimestamp"))
    return None if since_us is None else since_us // 1000


def _spool(told: Mapping[str, str], is_batch: bool) -> Path:
    """Returns the directory of the spool, which must be there for a batch. Raises BadOption."""
    if not told.get("spool"):
        raise BadOption(
            'option spool is missing; write .option("spool", DIRECTORY), or in SQL CREATE TEMPORARY VIEW ... OPTIONS, '
            "or SELECT ... FROM TABLE WITH (...): Spark keeps no options of a table"
        )
    spool = Path(told["spool"]).absolute()
    if (spool.exists() or is_batch) and not spool.is_dir():
        raise BadOption(f"spool={spool} is no directory; name the one that the receiver writes")
    return spool


def _collector(address: str | None) -> str | None:
    """Returns the address of a collector without a slash at the end. Raises BadOption."""
    if address is None:
        return None
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadOption(f"otlp={address} is no web address; write e.g. http://127.0.0.1:4318")
    return address.rstrip("/")


def _canonical(given: Mapping[str, str]) -> dict[str, str]:
    """Names in lower case, aliases resolved. Raises BadOption for names we do not know."""
    told: dict[str, str] = {}
    for written, value in given.items():
        if written.lower() in SPARKS_OWN or written.lower().startswith("option."):
            continue
        name = ALIASES.get(written.lower(), written.lower())
        if name in ("inferschema", "schema"):
            raise BadOption(f"option {written} is not for veilmq: each stream has a fixed schema; remove it")
        if name not in NAMES:
            known = ", ".join(sorted(_SPELLED.get(each, each) for each in NAMES))
            raise BadOption(f"option {written!r} is unknown to veilmq; known are {known}")
        if written.lower() == "path":
            value = value.removeprefix("file:")  # noqa: PLW2901  as Spark writes a LOCATION
        if "\0" in value:
            raise BadOption(f"option {written} holds a zero character, which no name has; remove it")
        if told.setdefault(name, value) != value:
            other = next((alias for alias, meant in ALIASES.items() if meant == name), written)
            raise BadOption(f"options {name} and {other} are the same and have different values; give one of them")
    return told


def _grants(told: Mapping[str, str], spool: Path) -> tuple[Path, ...]:
    named = told.get("grants") or (str(Path(told["identity"]) / GRANTS_NAME) if told.get("identity") else None)
    if named is None:
        raise BadOption(
            f'option grants is missing; write .option("grants", FILE) with the file that the receiver writes: '
            f"{GRANTS_NAME} in its identity directory, if it was told nothing else"
        )
    files = tuple(Path(part.strip()).absolute() for part in named.split(",") if part.strip())
    if len(files) != 1 and (told.get("identity") or not files):
        raise BadOption(f"grants={named!r}: a receiver keeps its keys in one file; only who reads several names theirs")
    for grants in files:
        if grants.is_relative_to(spool):
            raise BadOption(
                f"grants={grants} lies in the spool: keys beside ciphertext and shares protect nothing; move it"
            )
    return files


def _extents(told: Mapping[str, str]) -> tuple[str | None, Path | None]:
    """Options extents and grants_identity."""
    text, identity = told.get("extents"), told.get("grants_identity")
    if text is None:
        return None, Path(identity).absolute() if identity else None
    address = _ADDRESS.fullmatch(text)
    if _STORAGE.fullmatch(text):
        if "@" in text.split("://")[1].split("/")[0]:
            raise BadOption(
                "extents has a login, and plans show options; give the keys of a bucket by environment or role"
            )
    elif address is None or not 0 < int(address[1]) < 1 << 16:
        raise BadOption(
            f"extents={text!r} is no HOST:PORT; name where `veilmq ingest serve` listens: spool.plant:9470, or a "
            "storage: s3://bucket/prefix"
        )
    if not identity:
        raise BadOption(
            "option extents needs option grants_identity: the file of scope keys travels sealed to that identity, and "
            "both ends show it"
        )
    return text, Path(identity)  # each process looks for it where it runs itself, as YARN places files


def _schemas(told: Mapping[str, str]) -> Path | None:
    if told.get("schemas") and not told.get("identity"):
        raise BadOption(
            "option schemas is for who receives; queries read the receiver's: typed_streams(rows, SPOOL), "
            "or a file of their own: typed_streams(rows, FILE)"
        )
    return _path(told, "schemas")


def _path(told: Mapping[str, str], name: str) -> Path | None:
    return Path(told[name]).absolute() if told.get(name) else None


def _packs(told: Mapping[str, str]) -> bool:
    packs = _choice("pack", told.get("pack", "false"), ("true", "false")) == "true"
    if packs and not told.get("identity"):
        raise BadOption(
            "option pack is for who receives; add identity and overlay, or remove it and run veilmq ingest pack"
        )
    return packs


def _shard(told: Mapping[str, str]) -> Shard | None:
    text = told.get("shard")
    if text == NOTHING and told.get("shard_before"):
        return None
    if text is None:
        return None
    try:
        return parse_shard(text)
    except ValueError:
        raise BadOption(f"shard={text!r} is no part; write i/n, as 1/3, 2/3 and 3/3") from None


def _shard_before(told: Mapping[str, str]) -> tuple[tuple[int, Shard | None], ...]:
    text = told.get("shard_before")
    if text is None:
        return ()
    if told.get("identity") and "receiver" not in told:
        raise BadOption(
            "option shard_before needs option receiver: a part of the spool keeps its name when shards change"
        )
    eras = []
    try:
        for era in text.split(","):
            part, _, time = era.strip().partition("@")
            until = datetime.fromisoformat(time)
            if until.tzinfo is None:
                raise ValueError
            eras.append((int(until.timestamp() * 1000), None if part == NOTHING else parse_shard(part)))
        if (
            "shard" not in told
            or len(eras) > SHARD_CHANGES_MAX
            or sorted({until for until, _ in eras}) != [until for until, _ in eras]
        ):
            raise ValueError
    except (ValueError, OverflowError):
        raise BadOption(
            f"shard_before={text!r} says what a receiver took until when, beside shard, oldest first: "
            f"1/2@2026-11-22T00:00:00Z, or {NOTHING}@... for one that is new"
        ) from None
    return tuple(eras)


def _place(name: str, value: str | None, ends: tuple[str, ...]) -> tuple[tuple[str, Position], ...] | None:
    """Returns the position in each receiver's rows; None for one of the `ends`."""
    if value is None or value.lower() in ends:
        return None
    try:
        return tuple(sorted(positions_of(json.loads(value)).items()))
    except (ValueError, SpoolError, RecursionError):
        raise BadOption(
            f"{name}={value!r} is none of {', '.join(ends)}, nor places as the progress of a query shows them: "
            '{"main": {"segment": 4, "byte": 290184}}'
        ) from None


def _moment(name: str, value: str | None) -> int | None:
    """UNIX time in microseconds."""
    if value is None:
        return None
    try:
        if value.strip().isdecimal():
            return int(value) * 1000
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError
        return int(moment.timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        raise BadOption(
            f"{name}={value!r} is no time; write 2026-11-22T00:00:00Z, or milliseconds since 1970"
        ) from None


def _limit(told: Mapping[str, str], name: str, highest: int) -> int | None:
    return _number(told, name, int, 1, 1, highest) if name in told else None


def _choice(name: str, value: str, known: tuple[str, ...]) -> str:
    if value.lower() not in known:
        raise BadOption(f"{name}={value!r} is none of {', '.join(known)}")
    return value.lower()


def _stream(value: str) -> IngestStream:
    try:
        return IngestStream(value.lower())
    except ValueError:
        raise BadOption(f"stream={value!r} is none of {', '.join(IngestStream)}") from None


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
        whole = "whole " if kind is int else ""
        raise BadOption(f"{name}={text!r} is not a {whole}number; from {lowest} to {highest}") from None
    if not lowest <= value <= highest:
        raise BadOption(f"{name}={text} is out of range; from {lowest} to {highest}")
    return value
