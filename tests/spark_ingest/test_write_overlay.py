"""Rows that are written back through a gateway cross the overlay sealed, and come back with their ids."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from spark_ingest.opening.rows import RowReader
from spark_ingest.options import parse_options
from spark_ingest.receiver.receiver import Receiver, ReceiverSettings
from spark_ingest.receiver.replicas import RegionReplicas
from spark_ingest.spool.view import SpoolView
from spark_ingest.writing.outgoing_rows import ID_PROPERTY, OutgoingRows
from spark_ingest.writing.publish_options import parse_publish_options
from spark_ingest.writing.publisher import RowPublisher
from tests.gateway.overlay_processes import OverlayProcesses
from tests.waits import wait_until

ROWS = 200


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_written_back_is_sealed_and_comes_back_with_its_id(overlay: OverlayProcesses, tmp_path: Path) -> None:
    overlay.make({"north": 3}, [], {"site": "north", "job": "north"})
    overlay.start("north1", "north2", "north3", "site")
    job = overlay.directory / "job"
    told = {"spool": tmp_path / "spool", "identity": job, "overlay": overlay.directory / "job-overlay.json"}
    options = parse_options({name: str(value) for name, value in told.items()} | {"topics": "plant/back/#"})
    made: list[RegionReplicas] = []

    def connect() -> RegionReplicas:
        made.append(RegionReplicas(options))
        return made[-1]

    receiver = Receiver(ReceiverSettings(options.spool, options.grants), connect)
    receiver.start()
    assert wait_until(lambda: bool(made) and made[-1]._client.is_accepted, 60), receiver.trouble
    rows = [
        OutgoingRows(f"plant/back/{n % 3}", b"in clear %d" % n, 1, False, (("k", "v"), (ID_PROPERTY, f"w/0/0/{n}")))
        for n in range(ROWS)
    ]
    publish = parse_publish_options({"host": "127.0.0.1", "port": str(overlay.ports["site"])})
    assert asyncio.run(RowPublisher(publish).publish_all(iter(rows))) == ROWS

    def found() -> dict[bytes, list[tuple[str, str]]]:
        view, reader = SpoolView(options.spool), RowReader(options)
        batches = (batch for extent in view.ranges({}, view.advance({}), 1) for batch in reader.read(extent))
        return {
            payload: [(pair["name"], pair["value"]) for pair in properties]
            for batch in batches
            for payload, properties in zip(
                batch.column("payload").to_pylist(), batch.column("properties").to_pylist(), strict=True
            )
        }

    assert wait_until(lambda: len(found()) == ROWS, 60, 0.5), receiver.figures
    receiver.stop()
    assert found() == {row.payload: list(row.properties) for row in rows}
    spooled = b"".join(path.read_bytes() for path in options.spool.rglob("*.arrow"))
    assert b"in clear" not in spooled
    assert b"plant/back" not in spooled, "the scope hides names"
