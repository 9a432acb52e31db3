"""Statements about entities on the availability topics: two forms, told apart by the last level of the topic.

    PREFIX/GATEWAY/ENTITY/availability   whether a client is connected, retained (`bridge.traces.availability`):
                                         {"state": text, "since": ms, "last_seen": ms, "reason": text}
    PREFIX/GATEWAY/ENTITY/trace          a report of a trace (`bridge.traces.reporting`):
                                         {"entity": name, "gateway": name,
                                         "kind": text, "time_ms": ms, "number": n, "fields": {...}}

Times are UNIX milliseconds. Any other payload raises `Unreadable` with a reason for the quarantine: a hostile
payload costs its own row and no query. The publisher had the right to the topic, so a report must name the gateway
and
the entity of its topic.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple
from urllib.parse import unquote

TRACE = "trace"
"""The last level of the topics of reports."""
_YEAR_10000_MS = 253_402_300_800_000
_LARGEST = 1e300
"""A larger number in a payload is no measurement, and may be too large for a float."""
_STATES = {
    "INITIALIZING": "initializing", "RECOVERING": "recovering", "READY": "ready", "SHUTDOWN": "shutdown",
    "JOIN": "alive", "FAILURE_SUSPICION": "suspected", "FAILED": "failed", "DISCONNECT": "disconnected",
    "REVERTING_TO_SILENT_MODE": "silent", "UNKNOWN": "unknown",
    "ALLS_WELL": None, "LOAD_INFORMATION": None, "NETWORK_METRICS": None,
}  # fmt: skip
"""The state of an entity by kind of trace; None: unchanged."""


class Unreadable(Exception):  # noqa: N818  as the errors of this package
    """A payload states nothing about an entity; the message is the row's `reason`."""


class AvailabilityStatement(NamedTuple):
    """A row of the stream availability, without topic and publisher. Times in microseconds."""

    entity: str
    gateway: str | None
    state: str | None
    since: int | None
    last_seen: int | None
    reason: str | None
    kind: str | None
    time: int
    number: int | None
    latency_ms: float | None
    loss_rate: float | None
    load: list[tuple[str, float]] | None
    fields: str | None


def statement_of(topic: str, payload: bytes, time_ms: int) -> AvailabilityStatement | None:
    """Returns the statement of a publication on an availability topic; None for an empty one, which clears a retained
    value.

    `time_ms`: the time of publishing. Raises Unreadable.
    """
    levels = topic.split("/")
    if levels[-1] == TRACE:
        return _report(levels, _object(payload))
    if not payload:
        return None
    body = _object(payload)
    if not isinstance(body.get("state"), str):
        raise Unreadable("content: no JSON object with a state, on an availability topic")
    return AvailabilityStatement(
        entity=unquote(levels[-2]) if len(levels) > 1 else "",
        gateway=unquote(levels[-3]) if len(levels) > 2 else None,
        state=_text(body["state"]),
        since=_microseconds(body.get("since")),
        last_seen=_microseconds(body.get("last_seen")),
        reason=_text(body["reason"]) if isinstance(body.get("reason"), str) else None,
        kind=None,
        time=time_ms * 1000,
        number=None,
        latency_ms=None,
        loss_rate=None,
        load=None,
        fields=None,
    )


def _report(levels: list[str], body: dict[str, Any]) -> AvailabilityStatement:
    kind, fields, number = body.get("kind"), body.get("fields"), body.get("number")
    if not isinstance(kind, str) or kind not in _STATES:
        raise Unreadable(f"content: a trace report of no known kind ({_text(str(kind))[:40]})")
    entity, gateway, time = body.get("entity"), body.get("gateway"), _microseconds(body.get("time_ms"))
    if len(levels) < 3 or not _is_level_of(levels[-2], entity) or not _is_level_of(levels[-3], gateway):
        raise Unreadable("content: a trace report whose topic names another entity or gateway")
    if time is None or not isinstance(fields, dict):
        raise Unreadable("content: a trace report without time or fields")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 63:
        raise Unreadable("content: a trace report without a number")
    load = [(_text(name), float(value)) for name, value in fields.items() if _number(value) is not None]
    return AvailabilityStatement(
        entity=str(entity),
        gateway=str(gateway),
        state="alive" if kind == "ALLS_WELL" and "after" in fields else _STATES[kind],
        since=None,
        last_seen=None,
        reason=None,
        kind=kind,
        time=time,
        number=number,
        latency_ms=_number(fields.get("latency_ms")),
        loss_rate=_number(fields.get("loss_rate")),
        load=load if kind == "LOAD_INFORMATION" else None,
        fields=_text(_dumped(fields)),
    )


def _object(payload: bytes) -> dict[str, Any]:
    try:
        body = json.loads(payload, parse_constant=lambda _: None)  # NaN and infinities are no JSON, but common
    except (ValueError, RecursionError):
        raise Unreadable("content: no JSON, on an availability topic") from None
    if not isinstance(body, dict):
        raise Unreadable("content: no JSON object, on an availability topic")
    return body


def _dumped(fields: dict[str, Any]) -> str:
    try:
        return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise Unreadable("content: a trace report nested too deep") from None
    except ValueError:  # 1e999 is JSON, and infinite once it is read
        raise Unreadable("content: a trace report with a number beyond all measure") from None


def _is_level_of(level: str, name: object) -> bool:
    """Returns True if a level of the topic names it: percent-encoded, a long name cut and followed by its hash."""
    if not isinstance(name, str):
        return False
    head, cut, digest = level.rpartition("%-")
    if cut and digest:
        try:
            return digest == hashlib.sha256(name.encode()).hexdigest()[: len(digest)] and len(digest) == 32
        except UnicodeEncodeError:
            return False
    return unquote(head if cut else level) == name


def _text(text: str) -> str:
    """Returns a text that Arrow takes: JSON can spell half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


def _microseconds(value: object) -> int | None:
    number = _number(value)
    return None if number is None or not 0 <= number < _YEAR_10000_MS else int(number * 1000)


def _number(value: object) -> float | None:
    """Returns a finite number of a payload, else None. Its size is checked first: an integer may be too large for a
    float.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST < value < _LARGEST:
        return None
    return float(value)
