"""A month of a small fleet, read back and asked for in one batch query: real processes, whose clock is injected."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import paho.mqtt.client as paho
import pytest

from tests.gateway.injected_clock import VEILMQ_AHEAD, InjectedClock
from tests.gateway.overlay_processes import ENVIRONMENT, OverlayProcesses
from tests.waits import wait_until

pytest.importorskip("pyspark")

DAY_S = 86_400.0
DEVICES, ROUNDS, READINGS = 20, 66, 5  # of two rounds a day, in 33 days
MEMBERS = ("north1", "north2", "north3", "site")


def publish(overlay: OverlayProcesses, first: int) -> None:
    """Lets each device tell some readings, until replicas have them."""
    client = overlay.client("site", "fleet", paho.MQTTv5)
    sent = [
        client.publish(f"plant/device-{device}/temperature", b"%d" % (first + reading), 1)
        for reading in range(READINGS)
        for device in range(DEVICES)
    ]
    for each in sent:
        each.wait_for_publish(60)
    client.disconnect()
    client.loop_stop()
    assert wait_until(lambda: overlay.figures("site").get("outbox_depth") == 0, 60)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_month_of_twenty_devices_is_in_one_batch_query_each_reading_once(
    overlay: OverlayProcesses, spark: Any
) -> None:
    overlay.make({"north": 3}, [], {"site": "north", "job": "north"})
    overlay.describe(lambda told: told["scopes"][0].update(history={"days": 60, "gigabytes": 1}))
    overlay.hand_out(*MEMBERS, "job")
    clock = InjectedClock(overlay.directory)
    overlay.start(*MEMBERS, command=VEILMQ_AHEAD)
    told_at: dict[int, float] = {}
    for number in range(ROUNDS):
        told_at[number * READINGS] = time.time() + clock.ahead_s
        publish(overlay, number * READINGS)
        clock.forward(DAY_S / 2)
    time.sleep(1.0)  # replicas write behind the traffic, at most half a second later

    where = ["--spool", "spool", "--identity", "job", "--overlay", "job-overlay.json"]
    command = [sys.executable, *VEILMQ_AHEAD[:2], "ingest", "backfill", *where]
    done = subprocess.run(
        command, cwd=overlay.directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "100%" in done.stdout

    begin = told_at[2 * READINGS] - 60.0  # a day and thirty more, of thirty-three
    first, behind = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}Z" for at in (begin, begin + 30 * DAY_S))
    rows = spark.read.format("veilmq").options(
        spool=str(overlay.directory / "spool"), grants=str(overlay.directory / "job" / "scope_keys.json")
    )
    month = rows.load().where(f"published_at >= '{first}' and published_at < '{behind}'")
    found = Counter(
        (row.topic, int(row.reading)) for row in month.selectExpr("topic", "string(payload) reading").collect()
    )
    expected = Counter(
        (f"plant/device-{device}/temperature", first_reading + reading)
        for first_reading, at in told_at.items()
        if begin <= at < begin + 30 * DAY_S
        for reading in range(READINGS)
        for device in range(DEVICES)
    )
    assert expected.total() == 60 * READINGS * DEVICES
    assert found == expected
    assert rows.load().count() == ROUNDS * READINGS * DEVICES, "what is around the month is there, too"
