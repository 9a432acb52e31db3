"""Times on disk go on where they were, whatever a machine's clock showed in the former run, and shows now."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Version
from gateway.mqtt5.session import KeptSession
from gateway.sessions.clock_marks import EARLIEST_S, ClockMark, ClockMarks, shift_s
from gateway.sessions.database import Changes, SessionDatabase
from gateway.sessions.rows import message_row, session_row

DAY_S = 86_400.0
NOW = EARLIEST_S + 100 * DAY_S


@pytest.mark.parametrize(
    ("started", "set_to", "starts", "moves"),
    [
        (0.0, 0.0, 3_600.0, 0.0),  # all right: an hour has passed
        (0.0, 0.4, 3_600.0, 0.0),  # slewed
        (-400.0 * DAY_S, 0.0, 10.0, 400 * DAY_S),  # set right while it ran
        (-30.0 * DAY_S, 0.0, 9 * DAY_S, 30 * DAY_S),  # the same, and nine days away
        (-400.0 * DAY_S, -400.0 * DAY_S, 10.0, 400 * DAY_S + 10),  # wrong to the end: no time counts
        (9.0 * DAY_S, 9.0 * DAY_S, 10.0, -9 * DAY_S + 10),  # ahead to the end
        (0.0, 0.0, -400.0 * DAY_S, -400 * DAY_S),  # wrong now
        (9.0 * DAY_S, 0.0, 10.0, -9 * DAY_S),  # ahead, set right
    ],
)
def test_stored_times_move_as_the_clock_was_wrong(started: float, set_to: float, starts: float, moves: float) -> None:
    """`started`, `set_to`: how wrong the clock was at first and at the mark; `starts`: the next start, as it shows."""
    assert shift_s(ClockMark(NOW + started, NOW + set_to), NOW + starts) == pytest.approx(moves)


def test_a_mark_follows_the_machines_clock_and_not_the_brokers() -> None:
    difference = [5.0]
    now = [NOW]
    marks = ClockMarks(lambda: now[0], lambda: difference[0])
    assert marks() == (NOW, NOW)
    difference[0] += 400 * DAY_S
    now[0] += 7
    assert marks() == (NOW + 7, NOW + 7 + 400 * DAY_S)


def test_all_times_on_disk_move_once(tmp_path: Path) -> None:
    wrong = NOW - 400 * DAY_S
    database = SessionDatabase(tmp_path)
    kept = KeptSession(Version.V5, 600, None, wrong + 5, wrong + 600)
    message = Message("t", b"x", 1, True, expires_at=wrong + 60)
    endless = Message("u", b"x", 1, True)
    changes = Changes(
        sessions=[session_row(1, "away", None, True, False, kept)],
        messages=[message_row(2, message)],
        deliveries=[(3, 1, 2, 1, 0, None, 0, 0)],
        retained=[message_row("t", message), message_row("u", endless)],
    )
    changes.mark = ClockMark(wrong + 1, NOW + 1)
    database.commit(changes)
    for _ in range(2):
        database.close()
        database = SessionDatabase(tmp_path)
        database.set_right(NOW + 2)
        content = database.load()
        (row,) = content.sessions
        assert row[7:9] == (NOW + 5, NOW + 600)
        assert [one[2] for one in content.messages.values()] == [NOW + 60]
        assert {one[0]: one[2] for one in content.retained} == {"t": NOW + 60, "u": None}
    database.close()
