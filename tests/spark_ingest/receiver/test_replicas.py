"""The receiver on real brokers, with a key service and short epochs: no Spark, but all that is below it."""

from __future__ import annotations

from pathlib import Path

import paho.mqtt.client as paho
import pytest

from spark_ingest.opening.rows import RowReader
from spark_ingest.options import Options, parse_options
from spark_ingest.receiver.receiver import Receiver, ReceiverSettings
from spark_ingest.receiver.replicas import RegionReplicas
from spark_ingest.secrets.grants import read_grants
from spark_ingest.spool.view import SpoolView
from tests.gateway.overlay_processes import KeyService, OverlayProcesses
from tests.seldom import slow
from tests.waits import wait_until

REPLICAS = ("north1", "north2", "north3")


def rows(options: Options) -> dict[bytes, str]:
    """Payloads and topics of what an executor can open now."""
    view, reader = SpoolView(options.spool), RowReader(options)
    batches = (batch for extent in view.ranges({}, view.advance({}), 1) for batch in reader.read(extent))
    return {row["payload"]: row["topic"] for batch in batches for row in batch.to_pylist()}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("keys", ["riding", *slow(["topic"])])
def test_rows_of_several_epochs_come_through_real_brokers_and_open(
    overlay: OverlayProcesses, tmp_path: Path, keys: str
) -> None:
    service = KeyService(servers=1, issuer="chain")
    overlay.make({"north": 3}, [], {"site": "north", "job": "north"}, service=service)
    if keys == "topic":
        refreshed = {"keys": keys, "refresh": {"messages": 5}}
        overlay.describe(lambda description: description["scopes"][0].update(refreshed))
        overlay.hand_out(*overlay.ports)
    overlay.start(*service.names, *REPLICAS, "site")
    options = parse_options(
        {
            "spool": str(tmp_path / "spool"),
            "identity": str(overlay.directory / "job"),
            "overlay": str(overlay.directory / "job-overlay.json"),
            "topics": "plant/line/#,open/#",
        }
    )
    assert options.grants == overlay.directory / "job" / "scope_keys.json"
    made: list[RegionReplicas] = []

    def connect() -> RegionReplicas:
        made.append(RegionReplicas(options))
        return made[-1]

    receiver = Receiver(ReceiverSettings(options.spool, options.grants), connect)
    receiver.start()
    wait_until(lambda: receiver.failure is not None or (bool(made) and made[-1]._client.is_accepted))
    assert receiver.failure is None, receiver.failure
    device = overlay.client("site", "device", paho.MQTTv5)
    sent: dict[bytes, str] = {}

    def epochs() -> set[int]:
        scopes = read_grants(options.grants).scopes.values() if options.grants.exists() else ()
        return {name.epoch for scope in scopes for name in scope.segments}

    def publish_until_two_epochs_were_used() -> bool:
        for topic in ("plant/line/temperature", "open/weather"):
            payload = b"%d" % len(sent)
            sent[payload] = topic
            device.publish(topic, payload, qos=1)
        return len(epochs()) >= 2

    assert wait_until(publish_until_two_epochs_were_used, 40), (receiver.trouble, receiver.figures)
    assert wait_until(lambda: len(rows(options)) >= len(sent), 20), (len(sent), receiver.figures)
    receiver.stop()
    device.disconnect()
    device.loop_stop()
    assert rows(options) == sent
    assert not [figure for figure in receiver.figures if figure[0].startswith(("wrong_", "refused_"))]
