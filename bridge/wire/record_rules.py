"""What one record of an opened batch has to be before anybody gets it.

Asked by gateways record by record and by ingest jobs column by column, with the same words: what one of them takes, no
other refuses. Numbers may be integers or arrays of them. What fails is refused alone, its neighbours go on.
Not here: structure and own numbers (`keys.records`), who may publish on which topic (`bridge.document.RecordRights`).
"""

from __future__ import annotations

from typing import Any

from bridge.base import TopicError, check_name
from bridge.wire.admission import TIME_MS_MAX

NUL = "\0"
"""No text may hold it (MQTT 5.0 §1.5.4): it would break the connections of whoever gets it."""


def is_of_a_time(time_ms: Any) -> Any:
    """Whether calendars, and Spark's timestamps, can show its time."""
    return time_ms <= TIME_MS_MAX


def has_expired(time_ms: Any, expiry_s: Any, arrived_ms: Any) -> Any:
    """Whether it came after its deadline, as the batch's own is judged on arrival."""
    return time_ms + expiry_s * 1000 < arrived_ms


def is_topic(name: str) -> bool:
    """Whether a text may be the topic, or the response topic, of a record."""
    try:
        check_name(name)
    except TopicError:
        return False
    return True
