"""Log lines: one event a line, whatever a client chose, and readable by programs."""

from __future__ import annotations

import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.logs import EVENT_CHARACTERS, JsonLines, KeyValueLines, LogLevelError, configure, level_of

HOSTILE = [
    "two\nlines", 'quo"te', "back\\slash", "a=b", "", " ", "\x1b[31mred", "\x00", "ü", "\u2028", "x" * 9_000,
]  # fmt: skip


def record(event: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("veilmq.test", logging.WARNING, "file", 1, "%s", (event,), None)
    made.created = 1_767_323_045.678
    vars(made).update(extra)
    return made


def test_a_line_says_when_how_bad_who_and_what() -> None:
    line = KeyValueLines().format(record("limits.connections is reached", times=7, who="10.0.0.1"))
    assert line == (
        'time=2026-01-02T03:04:05.678Z level=warning logger=veilmq.test event="limits.connections is reached"'
        " times=7 who=10.0.0.1"
    )


def test_a_line_of_json_says_the_same() -> None:
    assert json.loads(JsonLines().format(record("an event", times=7))) == {
        "time": "2026-01-02T03:04:05.678Z", "level": "warning", "logger": "veilmq.test", "event": "an event",
        "times": 7,
    }  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("form", [KeyValueLines(), JsonLines()], ids=["text", "json"])
def test_nobody_forges_or_splits_a_line(form: logging.Formatter, text: str) -> None:
    for line in (form.format(record(text)), form.format(record("event", who=text))):
        assert line.isascii()
        assert line.isprintable()
        assert line.count(" level=") + line.count('"level":') == 1


@given(st.text(min_size=1))
def test_values_come_back_from_either_form(text: str) -> None:
    assert json.loads(JsonLines().format(record("event", who=text)))["who"] == text
    shown = KeyValueLines().format(record("event", who=text)).split(" who=", 1)[1]
    assert (json.loads(shown) if shown.startswith('"') else shown) == text


def test_what_says_nothing_is_left_out() -> None:
    line = KeyValueLines().format(record("event", who="", cause=None, times=0))
    assert line.endswith("event=event times=0")


def test_long_events_and_tracebacks_are_cut() -> None:
    assert len(json.loads(JsonLines().format(record("x" * 9_000)))["event"]) == EVENT_CHARACTERS
    try:
        raise ValueError("y" * 9_000)
    except ValueError:
        failed = record("event")
        failed.exc_info = sys.exc_info()
    found = json.loads(JsonLines().format(failed))["exception"]
    assert len(found) == EVENT_CHARACTERS
    assert found.endswith("yyy")


@pytest.mark.parametrize(("form", "starts"), [("text", "time="), ("json", "{")])
def test_the_process_logs_its_own_from_info_and_libraries_from_warning(
    form: str, starts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(form)  # type: ignore[arg-type]
    logging.getLogger("veilmq.test").info("ours")
    logging.getLogger("veilmq.test").debug("too much")
    logging.getLogger("library").info("too much")
    logging.getLogger("library").warning("theirs")
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith(starts) for line in lines] == [True, True]
    assert "ours" in lines[0]
    assert "theirs" in lines[1]


@pytest.mark.parametrize(("verbose", "told", "level"), [
    (False, None, "warning"), (True, None, "debug"), (False, "error", "error"), (True, "info", "info"),
])  # fmt: skip
def test_a_command_line_chooses_the_level(verbose: bool, told: str | None, level: str) -> None:
    assert level_of(verbose, told, "warning") == level


def test_an_unknown_level_is_one_line() -> None:
    with pytest.raises(LogLevelError, match="--log-level loud: unknown; take debug, info, warning, error"):
        level_of(False, "loud")
