"""A clock that cannot be believed acknowledges nothing."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from bridge.reader.intake import FRESH_S
from spark_ingest.errors import ClockTrouble
from spark_ingest.receiver import receiver as receiver_module
from spark_ingest.receiver.clock import (
    OFF_S,
    PAUSE_MAX_S,
    STEP_S,
    SessionClock,
    most_ahead_s,
    most_ended_s,
    next_pause_s,
)
from spark_ingest.receiver.receiver import Receiver, ReceiverSettings
from spark_ingest.spool.status import status_of
from tests.spark_ingest.receiver.test_receiver import Replicas
from tests.spark_ingest.region import Overlay, Publisher
from tests.waits import wait_until


class Clock:
    """Both clocks of a machine."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_000_000.0, 50.0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def session(self) -> SessionClock:
        return SessionClock(lambda: self.wall, lambda: self.monotonic)


@pytest.mark.parametrize(("step_s", "way"), [(3_600.0, "forward"), (-3_600.0, "back"), (STEP_S + 1, "forward")])
def test_a_clock_that_is_set_ends_the_session(step_s: float, way: str) -> None:
    clock, overlay = Clock(), Overlay().signed
    session = clock.session()
    clock.passes(7_200)
    session.check_clock(overlay)
    clock.wall += step_s
    with pytest.raises(ClockTrouble, match=way):
        session.check_clock(overlay)
    clock.session().check_clock(overlay)


def test_time_that_is_slewed_is_no_trouble() -> None:
    clock, overlay = Clock(), Overlay().signed
    session = clock.session()
    clock.wall -= STEP_S - 1
    session.check_clock(overlay)


def test_beyond_the_end_of_most_certificates_the_clock_is_to_blame() -> None:
    clock, region = Clock(), Overlay()
    assert most_ended_s(region.signed) == math.inf, "nobody who could be wrong"
    Publisher(region)
    overlay = region.signed
    end = most_ended_s(overlay)
    clock.wall = end
    clock.session().check_clock(overlay)
    clock.wall = 2 * end
    with pytest.raises(ClockTrouble, match="nothing is acknowledged"):
        clock.session().check_clock(overlay)


def test_a_receiver_of_such_a_clock_acknowledges_nothing_until_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = Overlay()
    publisher, replicas = Publisher(overlay), Replicas(overlay)
    ahead = [most_ended_s(overlay.signed)]
    monkeypatch.setattr(receiver_module, "SessionClock", lambda: SessionClock(lambda: time.time() + ahead[0]))
    monkeypatch.setattr(receiver_module, "RETRY_S", 0.05)
    receiver = Receiver(ReceiverSettings(tmp_path / "spool", tmp_path / "keys.json"), lambda: replicas)
    receiver.start()
    try:
        replicas.publish(publisher.seal("plant/a", time=time.time()))
        assert wait_until(lambda: receiver.trouble is not None)
        assert "certificates of most gateways" in str(receiver.trouble)
        assert receiver.progress.rows == 0
        ahead[0] = 0.0
        assert wait_until(lambda: receiver.progress.rows == 1), receiver.trouble
    finally:
        receiver.stop()


def test_time_of_a_session_does_not_depend_on_who_sets_the_clock() -> None:
    clock = Clock()
    session, began = clock.session(), clock.wall
    clock.passes(10)
    clock.wall -= 3_600
    assert session.now() == began + 10


@pytest.mark.parametrize(
    ("ahead_s", "replicas", "most"),
    [
        ((), 3, None),
        ((0.1, -0.2), 3, 0.0),
        ((0.1,), 3, None),
        ((0.1, 900.0, -900.0), 3, None),
        ((400.0, 0.0, 400.5), 3, 400.0),
        ((-400.0, -OFF_S - 1), 3, -OFF_S - 1),
        ((400.0, -400.0), 3, None),
        ((400.0, 400.0, 0.0, 0.0, 0.0), 5, 0.0),
        ((-400.0,), 1, -400.0),
    ],
)
def test_only_most_replicas_of_a_region_can_say_that_our_clock_is_off(
    ahead_s: tuple[float, ...], replicas: int, most: float | None
) -> None:
    assert most_ahead_s(ahead_s, replicas) == most


@pytest.mark.parametrize(("ahead_s", "way"), [(-400.0, "ahead of"), (400.0, "behind")])
def test_a_clock_that_differs_from_those_of_most_replicas_is_trouble(ahead_s: float, way: str) -> None:
    clock = Clock().session()
    clock.check_clock(Overlay().signed, 0.0)
    with pytest.raises(ClockTrouble, match=f"400 s {way}"):
        clock.check_clock(Overlay().signed, ahead_s)


def test_attempts_under_a_clock_that_stays_off_become_few() -> None:
    """Each leaves a segment: one a second for a weekend would be 200,000."""
    pauses_s = [1.0]
    for _ in range(6):
        pauses_s.append(next_pause_s(pauses_s[-1], 1.0, lived_s=2.0))
    assert pauses_s == [1.0, 2.0, 4.0, 8.0, 16.0, PAUSE_MAX_S, PAUSE_MAX_S]
    assert next_pause_s(PAUSE_MAX_S, 1.0, lived_s=3_600.0) == 1.0, "the clock was set just now"


@pytest.mark.long
@pytest.mark.parametrize("told", [True, False], ids=["replicas tell the time", "stock brokers do not"])
def test_at_first_start_with_a_clock_that_is_off_nothing_is_set_apart_and_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    overlay = Overlay()
    publisher, replicas = Publisher(overlay), Replicas(overlay)
    ahead = [FRESH_S + 100]
    replicas.ahead = (-ahead[0],) * 3 if told else ()
    monkeypatch.setattr(receiver_module, "SessionClock", lambda: SessionClock(lambda: time.time() + ahead[0]))
    monkeypatch.setattr(receiver_module, "RETRY_S", 0.05)
    monkeypatch.setattr(receiver_module, "TICK_S", 0.05)
    receiver = Receiver(
        ReceiverSettings(tmp_path / "spool", tmp_path / "keys.json", incomplete_s=0.1), lambda: replicas
    )
    receiver.start()
    try:
        replicas.publish(publisher.seal("plant/a", time=time.time()))
        assert wait_until(lambda: receiver.progress.clock_off)
        assert wait_until(lambda: "set the clock" in str(status_of(tmp_path / "spool").receivers[0].trouble))
        time.sleep(0.5)  # beyond the patience with incomplete publications
        assert (receiver.progress.rows, replicas.unacknowledged) == (0, 3)
        ahead[0], replicas.ahead = 0.0, (0.0,) * 3
        assert wait_until(lambda: replicas.unacknowledged == 0), receiver.trouble
        assert wait_until(lambda: not receiver.progress.clock_off)
        assert receiver.figures["spooled", ""] == 1, "a row, not set apart"
    finally:
        receiver.stop()


class Subscribing(Replicas):
    """Know what is wanted when the test says so; how often somebody looked."""

    subscribed, looks = False, 0

    @property
    def is_accepted(self) -> bool:  # type: ignore[override]
        self.looks += 1
        return self.subscribed


def test_a_clock_that_is_off_ends_no_session_before_replicas_know_what_to_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a first start nobody keeps anything for it yet. With a clock that is behind replicas take the subscription."""
    overlay = Overlay()
    publisher, replicas = Publisher(overlay), Subscribing(overlay)
    replicas.ahead = (-400.0,) * 3
    monkeypatch.setattr(receiver_module, "RETRY_S", 0.01)
    monkeypatch.setattr(receiver_module, "TICK_S", 0.01)
    receiver = Receiver(ReceiverSettings(tmp_path / "spool", tmp_path / "keys.json"), lambda: replicas)
    receiver.start()
    try:
        assert wait_until(lambda: replicas.connections == 1)
        replicas.publish(publisher.seal("plant/a", time=time.time()))
        assert wait_until(lambda: replicas.looks > 20)
        assert (replicas.connections, receiver.progress.rows, replicas.unacknowledged) == (1, 0, 3)
        replicas.subscribed = True
        assert wait_until(lambda: "set the clock" in str(receiver.trouble))
        assert (receiver.progress.rows, replicas.unacknowledged) == (0, 3)
    finally:
        receiver.stop()
