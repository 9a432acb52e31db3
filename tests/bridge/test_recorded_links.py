"""Links recorded on real sockets: what is kept reads back, and our pings raise few alarms on it and tell deaths."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bridge.traces.presets import LAN
from tests.bench.detection import measure, pinged
from tests.bench.recorded import LOST, UNIT_S, Recording, load, recordings


def test_what_is_kept_reads_back(tmp_path: Path) -> None:
    made = Recording("link", 0.1, tuple(range(100)), (*range(50), LOST, *range(49)))
    (tmp_path / "link.txt").write_text(made.text(("made by: a test",)))
    assert load(tmp_path / "link.txt") == made


def test_a_replay_is_what_was_recorded_in_its_order() -> None:
    made = Recording("link", 0.1, tuple(range(100)), (LOST,) * 100)
    there, back = made.ways("seed", 3_600.0)
    arrivals = [there.arrival(place * 0.1 + 0.001) for place in range(200)]
    delays = [round((at - place * 0.1 - 0.001) / UNIT_S) for place, at in enumerate(arrivals) if at is not None]
    assert sorted(delays[:100]) == list(range(100))
    assert delays[:100] == delays[100:], "it is repeated"
    assert back.arrival(0.0) is None


def test_recordings_say_where_they_come_from_and_deaths_on_them_are_told() -> None:
    kept = recordings()
    assert {each.name for each in kept} >= {"lan, tcp", "wlan, udp", "cellular, udp"}
    for each in kept:
        outcome = measure(partial(pinged, LAN), each, 1, 5, 1)
        assert outcome.alarms_per_hour <= 5
        assert outcome.slowest_s < 15
