"""Log lines for people and for programs: a line an event, `key=value` (logfmt) or JSON.

    time=2026-01-02T03:04:05.678Z level=warning logger=veilmq.limits event="limits.connections is reached" times=7

Text chosen by a client (its id, a topic) may hold line breaks and quotes: they are escaped, so that no client can
forge or split a line. Secrets never come here: each object with a secret keeps it out of its `repr`. Destination:
standard error.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from bridge.base import OperatorError

EVENT_CHARACTERS = 4_000
"""Stops one message (a hostile name, a traceback) from becoming a line that log collectors cut in the middle."""
LEVELS = ("debug", "info", "warning", "error")
OURS = ("veilmq", "spark_ingest")
"""Loggers of VeilMQ: of brokers, and of receivers for Spark."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogLevelError(OperatorError):
    """An error of the option `--log-level`, in a line."""


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Returns the fields of a line, in order; `extra` of the call at the end, empty values left out."""
    at = datetime.fromtimestamp(record.created, UTC)
    event = record.getMessage()
    found: dict[str, Any] = {
        "time": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z",
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": event[:EVENT_CHARACTERS],
    }
    found.update(
        (key, value) for key, value in vars(record).items() if key not in _STANDARD and value not in ("", None)
    )
    if record.exc_info and record.exc_info[0] is not None:
        found["exception"] = logging.Formatter().formatException(record.exc_info)[-EVENT_CHARACTERS:]
    return found


class JsonLines(logging.Formatter):
    """Formatter writing a single JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(fields_of(record), ensure_ascii=True, default=str, separators=(",", ":"))


class KeyValueLines(logging.Formatter):
    """Formatter writing a line of `key=value` pairs an event (logfmt)."""

    def format(self, record: logging.LogRecord) -> str:
        return line_of(fields_of(record))


def line_of(fields: Mapping[str, Any]) -> str:
    """Returns a line of `key=value` pairs (logfmt)."""
    return " ".join(f"{key}={_value(value)}" for key, value in fields.items())


def _value(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    plain = text.isascii() and text.isprintable() and not any(mark in text for mark in ' "=\\')
    # JSON's escapes are those of logfmt; an empty value needs its quotes too.
    return text if plain and text else json.dumps(text, ensure_ascii=True)


def configure(form: Literal["text", "json"], level: str = "info") -> None:
    """Sets the form of all log lines of this process: VeilMQ's from `level`, those of libraries from `warning`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else KeyValueLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    set_level(level)


def level_of(verbose: bool, told: str | None, otherwise: str = "info") -> str:
    """Returns the level that a command line asks for with `-v` or `--log-level`. Raises LogLevelError."""
    if told is None:
        return LEVELS[0] if verbose else otherwise
    if told not in LEVELS:
        raise LogLevelError(f"--log-level {told}: unknown; take {', '.join(LEVELS)}")
    return told


def set_level(level: str) -> None:
    """Sets the level of VeilMQ's own lines: debug, info, warning or error."""
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())
