"""Every exception of ours is counted; its traceback is said, but not once for each."""

from __future__ import annotations

import logging

import pytest

from gateway.base.defects import LOG_EVERY_S, Defects
from gateway.base.log_events import LogEvent

log = logging.getLogger("veilmq.test")


def test_each_kind_is_said_at_most_once_in_a_while_and_every_one_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 5.0
    defects = Defects(lambda: now)
    for _ in range(100):
        defects.note_error(log, LogEvent.PUBLICATION_FAILED, IndexError("tuple index out of range"), "pump")
    defects.note_error(log, LogEvent.CONNECTION_FAILED, KeyError("x"), "127.0.0.1:5")
    assert (defects.count, defects.last) == (101, "KeyError")
    assert [each.id for each in caplog.records] == ["publication_failed", "connection_failed"]  # type: ignore[attr-defined]
    assert all(each.exc_info for each in caplog.records)
    now += LOG_EVERY_S
    defects.note_error(log, LogEvent.PUBLICATION_FAILED, IndexError(), "pump")
    assert caplog.records[-1].total == 102  # type: ignore[attr-defined]
