"""The registry of log events: what a line carries, and that the table holds together."""

from __future__ import annotations

import logging
import re

import pytest

from gateway.base.log_events import LogEvent
from gateway.base.logs import KeyValueLines, fields_of

log = logging.getLogger("veilmq.test")


def test_a_line_has_level_text_id_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "veilmq.test")
    LogEvent.LIMIT_REACHED.say(log, "connections", who="192.0.2.7", times=7, cause="")
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.WARNING, "veilmq.test")
    line = KeyValueLines().format(record)
    assert line.endswith(
        'level=warning logger=veilmq.test event="limits.connections is reached" id=limit_reached who=192.0.2.7 times=7'
    )


def test_what_nobody_listens_to_is_not_made(caplog: pytest.LogCaptureFixture) -> None:
    class Unwilling:
        def __str__(self) -> str:
            raise AssertionError("made for nobody")

    caplog.set_level(logging.ERROR, "veilmq.test")
    LogEvent.BRIDGE_UP.say(log, Unwilling(), Unwilling())
    assert not caplog.records


def test_a_defect_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ZeroDivisionError
    except ZeroDivisionError as error:
        LogEvent.HEALTH_FAILED.say(log, exc_info=True)
        LogEvent.STORE_FAILED.say(log, exc_info=error)
    assert all("ZeroDivisionError" in fields_of(record)["exception"] for record in caplog.records)
    assert len(caplog.records) == 2


def test_a_row_says_what_it_means_in_plain_words() -> None:
    for event in LogEvent:
        assert event.level in (logging.INFO, logging.WARNING, logging.ERROR), event
        assert event.text, event
        assert event.meaning.endswith("."), event
        assert re.fullmatch(r"[a-z_]+", event.id), event
        assert "|" not in event.text + event.meaning, f"a table shows {event}"


def test_no_two_events_are_one() -> None:
    """Equal values would make the second name an alias of the first."""
    assert len(LogEvent.__members__) == len(LogEvent)
    told = [(event.level, event.text) for event in LogEvent if event.text != "%s"]
    assert len(set(told)) == len(told)
