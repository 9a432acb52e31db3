"""Rules for a record of an opened batch, checked before any delivery.

Gateways check record by record and ingest jobs column by column, by equal rules: a record that one of them takes no
other refuses. Numbers may be integers or arrays of them. A bad record is refused alone, its neighbours go on. Not
here: structure and own numbers (`keys.records`), rights to topics (`bridge.document.RecordRights`).
"""

from __future__ import annotations

from typing import Any

from bridge.base import TopicError, check_name
from bridge.wire.admission import TIME_MS_MAX

NUL = "\0"
"""Character that no text may hold (MQTT 5.0 §1.5.4): it would break the connections of its receivers."""


def is_of_a_time(time_ms: Any) -> Any:
    """Returns True if calendars, and Spark's timestamps, can show the time."""
    return time_ms <= TIME_MS_MAX


def has_expired(time_ms: Any, expiry_s: Any, arrived_ms: Any) -> Any:
    """Returns True if the record came after its deadline; the batch's own deadline is judged on arrival too."""
    return time_ms + expiry_s * 1000 < arrived_ms


def is_topic(name: str) -> bool:
    """Returns True if a text may be the topic, or the response topic, of a record."""
    try:
        check_name(name)
    except TopicError:
        return False
    return True
