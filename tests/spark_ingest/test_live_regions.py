"""A receiver on real brokers reads on while a replica joins its region and another one leaves."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from spark_ingest.opening.rows import RowReader
from spark_ingest.options import parse_options
from spark_ingest.receiver.receiver import Receiver, ReceiverSettings
from spark_ingest.receiver.replicas import RegionReplicas
from spark_ingest.spool.view import SpoolView
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.test_attach_detach import GRACE_S, overlay_at
from tests.waits import wait_until

OWNER = ("overlay.json", "--owner", "owner", "--grace", str(GRACE_S))


def settled(overlay: OverlayProcesses, view: int) -> bool:
    """Whether the job is in this view of its region, and in no other."""
    return wait_until(lambda: [v.number for v in overlay_at(overlay, "job").open_views(1)] == [view], 60, 0.25)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_row_is_there_after_an_attach_and_a_detach(overlay: OverlayProcesses, tmp_path: Path) -> None:
    overlay.make({"north": 3}, [], {"site": "north", "job": "north"})
    overlay.spare("north4")
    overlay.start("north1", "north2", "north3", "site")
    options = parse_options(
        {
            "spool": str(tmp_path / "spool"),
            "identity": str(overlay.directory / "job"),
            "overlay": str(overlay.directory / "job-overlay.json"),
            "topics": "plant/line/#",
        }
    )
    made: list[RegionReplicas] = []

    def connect() -> RegionReplicas:
        made.append(RegionReplicas(options))
        return made[-1]

    receiver = Receiver(ReceiverSettings(options.spool, options.grants), connect)
    receiver.start()
    assert wait_until(lambda: bool(made) and made[-1]._client.is_accepted, 60), receiver.trouble
    device, ended, sent = overlay.client("site", "device", paho.MQTTv5), threading.Event(), 0

    def publish() -> None:
        nonlocal sent
        for number in itertools.count():
            device.publish(f"plant/line/{number % 3}", b"%d" % number, 1)
            sent = number + 1
            if ended.wait(0.02):
                return

    load = threading.Thread(target=publish)
    load.start()
    try:
        address = f"127.0.0.1:{overlay.ports['north4']}"
        joining = ("--region", "north", "--card", "north4/card.json", "--address", address)
        overlay.veilmq("overlay", "attach", *OWNER, *joining)
        overlay.hand_out("north4", "north1")
        overlay.start("north4")
        assert settled(overlay, 2)
        copy = (overlay.directory / "job-overlay.json").read_bytes()
        (overlay.directory / "overlay.json").write_bytes(copy)
        overlay.veilmq("overlay", "detach", *OWNER, "--member", "north1")
        overlay.hand_out("north2")
        assert settled(overlay, 3)
        more = sent + 100
        assert wait_until(lambda: sent >= more)
    finally:
        ended.set()
        load.join()

    def rows() -> Counter[int]:
        view, reader = SpoolView(options.spool), RowReader(options)
        batches = (batch for extent in view.ranges({}, view.advance({}), 1) for batch in reader.read(extent))
        return Counter(int(payload) for batch in batches for payload in batch.column("payload").to_pylist())

    wait_until(lambda: rows().total() >= sent, 60, 1.0)
    receiver.stop()
    device.disconnect()
    device.loop_stop()
    assert rows() == Counter(range(sent)), receiver.figures
    assert receiver.failure is None
