"""Receipts of a job through real processes: a device hears what the spool has, and a stranger can check it."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

import paho.mqtt.client as paho

from spark_ingest.spool.segments import read_groups
from spark_ingest.spool.view import SpoolView
from tests.forking import run
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ, OverlayProcesses
from tests.support.processes import ending
from tests.waits import wait_until

TOPIC, PAYLOAD = "plant/valve", b"open the valve"


def begin(made: OverlayProcesses) -> None:
    scope = {"filter": "plant/#", "tokens": True, "receipts": True}
    made.make({"north": 3}, [], {"site": "north", "job": "north"}, scopes=[scope])
    made.start("north1", "north2", "north3", "site")


overlay = ending(begin)


def numbers(spool: Path) -> set[int]:
    view = SpoolView(spool)
    extents = view.ranges({}, view.advance({}), 1)
    return {n for extent in extents for batch in read_groups(extent) for n in batch.column("sequence").to_pylist()}


def test_a_device_hears_that_its_message_is_in_the_spool_and_it_is_proved(overlay: OverlayProcesses) -> None:
    """With two workers, of which each has a part of the spool, and neither the identity."""
    where = ["--spool", "spool", "--identity", "job", "--overlay", "job-overlay.json", "--workers", "2"]
    log = overlay.directory / "job.log"
    running = run([*VEILMQ[:2], "ingest", "run", *where], overlay.directory, ENVIRONMENT, log, log)
    told: list[paho.MQTTMessage] = []
    try:
        device = overlay.client("site", "device", paho.MQTTv5)
        device.on_message = lambda client, userdata, message: told.append(message)
        device.subscribe(f"$veilmq/receipts/{TOPIC}", 1)
        deadline = time.monotonic() + 60
        while not told and time.monotonic() < deadline:  # the job's subscription has to cross first
            device.publish(TOPIC, PAYLOAD, 1).wait_for_publish(10)
            wait_until(lambda: bool(told), 3)
        device.disconnect()
        device.loop_stop()
    finally:
        running.terminate()
        running.wait(60)
    said = json.loads(told[0].payload)
    assert said["reader"] == "job"
    overlay.stop()
    overlay.veilmq("receipts", "prove", str(said["number"]), "-c", "site.yaml", "--out", "delivery.json")
    proved = json.loads(overlay.veilmq("verify", "delivery.json", "--overlay", "overlay.json", "--json"))
    assert (proved["publisher"], proved["reader"]) == ("site", "job")
    assert proved["payload_sha256"] == hashlib.sha256(PAYLOAD).hexdigest()
    assert said["number"] in numbers(overlay.directory / "spool")
