"""Alarms: since when, until when, again; what a former process kept; bounds."""

from __future__ import annotations

import pytest

from gateway.health import BROKEN, DEGRADED, Finding
from gateway.health.alarms import ALARMS_MAX, TEXT_MAX, Alarms


def finding(key: str, level: str = DEGRADED, text: str = "it; cure") -> Finding:
    return Finding(level, key, text)


def times(alarms: Alarms) -> list[tuple[str, float, float | None]]:
    return [(one["key"], one["since"], one["over"]) for one in alarms.shown_alarms()]


def test_a_finding_begins_lasts_is_over_and_comes_again() -> None:
    alarms = Alarms()
    alarms.take_findings([finding("disk")], 10.0)
    alarms.take_findings([finding("disk", text="now 4 s old"), finding("link")], 20.0)
    assert times(alarms) == [("link", 20.0, None), ("disk", 10.0, None)]
    assert alarms.shown_alarms()[1]["text"] == "now 4 s old"
    alarms.take_findings([finding("link", BROKEN, "worse")], 30.0)
    assert times(alarms) == [("link", 20.0, None), ("disk", 10.0, 30.0)]
    assert alarms.shown_alarms()[0]["level"] == BROKEN
    alarms.take_findings([finding("disk")], 40.0)
    assert times(alarms) == [("disk", 40.0, None), ("link", 20.0, 40.0), ("disk", 10.0, 30.0)]


def test_what_lasted_when_the_process_died_goes_on_or_is_over() -> None:
    before = Alarms()
    before.take_findings([finding("disk"), finding("link")], 10.0)
    after = Alarms()
    assert after.restore_alarms(before.encode())
    after.take_findings([finding("disk")], 99.0)
    assert times(after) == [("disk", 10.0, None), ("link", 10.0, 99.0)]


@pytest.mark.parametrize("content", [
    b"", b"{}x", b"[1]", b'[{"key": 1, "level": "well", "text": "", "since": 0}]', b"\xff", b'[{"key": "k"}]',
    b'[{"key": "k", "level": "bad", "text": "", "since": 0}]',
    b'[{"key": "k", "level": "well", "text": "", "since": "x"}]',
])  # fmt: skip
def test_a_file_that_is_not_ours_is_not_taken(content: bytes) -> None:
    alarms = Alarms()
    assert not alarms.restore_alarms(content)
    assert len(alarms) == 0


def test_alarms_that_are_over_go_first() -> None:
    alarms = Alarms()
    alarms.take_findings([finding("lasts", text="t" * 10_000)], 0.0)
    for number in range(2 * ALARMS_MAX):
        alarms.take_findings([finding("lasts"), finding(f"k{number}")], float(number))
    assert len(alarms) == ALARMS_MAX
    assert ("lasts", 0.0, None) in times(alarms)
    assert all(len(one["text"]) <= TEXT_MAX for one in alarms.shown_alarms())


def test_only_what_is_new_has_to_be_kept_again() -> None:
    alarms = Alarms()
    alarms.take_findings([finding("disk")], 0.0)
    alarms.is_changed = False
    alarms.take_findings([finding("disk", text="1 s later")], 1.0)
    assert not alarms.is_changed
    alarms.take_findings([], 2.0)
    assert alarms.is_changed
