"""A clock that cannot be believed acknowledges nothing."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from spark_ingest.errors import ClockTrouble
from spark_ingest.receiver import receiver as receiver_module
from spark_ingest.receiver.clock import STEP_S, SessionClock, most_ended_s
from spark_ingest.receiver.receiver import Receiver, ReceiverSettings
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
    session.check(overlay)
    clock.wall += step_s
    with pytest.raises(ClockTrouble, match=way):
        session.check(overlay)
    clock.session().check(overlay)


def test_time_that_is_slewed_is_no_trouble() -> None:
    clock, overlay = Clock(), Overlay().signed
    session = clock.session()
    clock.wall -= STEP_S - 1
    session.check(overlay)


def test_beyond_the_end_of_most_certificates_the_clock_is_to_blame() -> None:
    clock, region = Clock(), Overlay()
    assert most_ended_s(region.signed) == math.inf, "nobody who could be wrong"
    Publisher(region)
    overlay = region.signed
    end = most_ended_s(overlay)
    clock.wall = end
    clock.session().check(overlay)
    clock.wall = 2 * end
    with pytest.raises(ClockTrouble, match="nothing is acknowledged"):
        clock.session().check(overlay)


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
