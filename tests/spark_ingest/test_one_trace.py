"""One trace from a device's PUBLISH through gateway, replicas and receiver to the opened row, at a real collector."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
import yaml
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

pytest.importorskip("pyspark")
from spark_ingest.options import parse_options
from spark_ingest.receiver.receiver import Receiver, ReceiverSettings
from spark_ingest.receiver.replicas import RegionReplicas
from spark_ingest.source.reader import SpoolReader
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.telemetry.collector import ROTEL, Collector, collector, through_rotel
from tests.gateway.telemetry.test_context import TEXT
from tests.waits import wait_until

REPLICAS = ("north1", "north2", "north3")


def with_telemetry(overlay: OverlayProcesses, name: str, address: str) -> None:
    path = overlay.directory / f"{name}.yaml"
    content = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**content, "telemetry": {"otlp": address, "metrics_every_s": 2}}))


def rows_told(options: Any) -> int:
    """Reads the spool as a task of a query does; the number of rows."""
    reader = SpoolReader(options)
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(
            through_rotel,
            marks=[
                pytest.mark.tools, pytest.mark.skipif(not ROTEL.is_file(), reason="no Rotel; run `make tools` as root"),
            ],
        ),
        pytest.param(collector, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_one_trace_from_publish_to_row(
    overlay: OverlayProcesses, tmp_path: Path, place: Callable[[Path], AbstractContextManager[Collector]]
) -> None:
    overlay.make({"north": 3}, [], {"site": "north", "control": "north", "job": "north"})
    with place(tmp_path) as there:
        for name in ("site", "control", "north1"):
            with_telemetry(overlay, name, there.address)
        overlay.start(*REPLICAS, "site", "control")
        options = parse_options(
            {
                "spool": str(tmp_path / "spool"),
                "identity": str(overlay.directory / "job"),
                "overlay": str(overlay.directory / "job-overlay.json"),
                "topics": "plant/#",
            }
        )
        made: list[RegionReplicas] = []

        def connect() -> RegionReplicas:
            made.append(RegionReplicas(options))
            return made[-1]

        receiver = Receiver(ReceiverSettings(options.spool, options.grants), connect)
        receiver.start()
        assert wait_until(lambda: bool(made) and made[-1]._client.is_accepted, 60), receiver.trouble
        got: list[paho.MQTTMessage] = []
        desk = overlay.client("control", "desk", paho.MQTTv5)
        desk.on_message = lambda client, userdata, message: got.append(message) if message.topic == "plant/a" else None
        desk.subscribe("plant/#", 1)
        device = overlay.client("site", "device", paho.MQTTv5)

        def publish() -> bool:
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = [("traceparent", TEXT), ("unit", "C")]
            device.publish("plant/a", b"hush", 1, properties=properties)
            return wait_until(lambda: bool(got), 1)

        assert wait_until(publish, 60)
        told = {"spool": str(options.spool), "grants": str(options.grants), "otlp": there.address}
        assert wait_until(lambda: rows_told(parse_options(told, batch=True)) > 0, 60, 1.0)
        for client in (desk, device):
            client.disconnect()
            client.loop_stop()
        receiver.stop()
        assert wait_until(lambda: {"veilmq_messages_received", "veilmq_health"} & metrics(there.metrics()), 30)
        overlay.stop()  # members send what waits
    spans = there.spans()
    trace = [span for span in spans if span["trace"] == TEXT[3:35]]
    assert len(trace) == len(spans)
    by_id = {span["span"]: span for span in trace}
    publishes = [span for span in trace if span["name"] == "publish"]
    assert {span["member"] for span in publishes} == {"site"}
    assert {span["parent"] for span in publishes} == {TEXT[36:52]}
    for name, member in (("deliver", "control"), ("row", "telemetry")):
        ends = [span for span in trace if span["name"] == name]
        assert ends, name
        assert {by_id[span["parent"]]["name"] for span in ends} == {"publish"}
        assert name == "row" or {span["member"] for span in ends} == {member}
    user = dict(got[0].properties.UserProperty)
    assert by_id[user["traceparent"][36:52]]["name"] == "deliver", "a client goes on from there"
    assert user["unit"] == "C"
    assert "hush" not in str(spans)
    assert not {span["member"] for span in spans} & set(REPLICAS), "replicas know of no trace"


def metrics(lines: list[dict[str, Any]]) -> set[str]:
    return {line["metric"] for line in lines}
