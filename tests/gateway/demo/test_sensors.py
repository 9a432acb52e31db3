"""The values that the demonstration sends: real ones, on topics that do not tell the host."""

from __future__ import annotations

import math
import os
import socket

from bridge.base.topics import check_name
from gateway.demo.sensors import machine_id, sweep


def test_sensors_are_real_values_on_valid_topics_that_do_not_tell_the_host() -> None:
    readings = sweep()
    assert len([r for r in readings if r.kind == "cpu"]) == os.cpu_count()
    for reading in readings:
        check_name(f"machine/{machine_id()}/{reading.kind}/{reading.number}")
        assert math.isfinite(reading.value)
    places = [(reading.kind, reading.number) for reading in readings]
    assert len(set(places)) == len(places)
    assert socket.gethostname() not in machine_id()
