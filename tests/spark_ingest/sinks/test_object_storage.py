"""Delta Lake and Iceberg on S3, as moto's server speaks it: a batch is there once, read back by Polars."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_ingest.sinks.delta import DeltaSink
from spark_ingest.sinks.iceberg import IcebergSink
from spark_ingest.sinks.sink import BatchName
from tests.ports import free_ports
from tests.waits import wait_until

pytest.importorskip("moto")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

QUERY, BUCKET, REGION = "plant", "plant", "us-east-1"
START_S = 120.0
KEY = {"id": "tester", "secret": "of-no-worth"}
DAYS = ["2026-11-22", "2026-11-22", "2026-11-23", "2026-11-22"]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A server with one bucket, in a process of its own, since delta-rs waits with the interpreter's lock; its URL."""
    import boto3

    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            assert wait_until(lambda: _listens(port), START_S, 0.2)
            own = {"aws_access_key_id": KEY["id"], "aws_secret_access_key": KEY["secret"], "region_name": REGION}
            boto3.client("s3", endpoint_url=url, **own).create_bucket(Bucket=BUCKET)
            yield url
        finally:
            server.terminate()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


class Rows:
    """Rows of these sequences on a day of November, as a DataFrame gives them to the driver."""

    def __init__(self, *sequences: int, day: int = 22, **more: float) -> None:
        at = datetime(2026, 11, day, 23, 30, tzinfo=UTC)
        self._columns = {"publisher": ["someone"] * len(sequences), "sequence": list(sequences)}
        self._columns |= {"published_at": [at] * len(sequences)}
        self._columns |= {name: [value] * len(sequences) for name, value in more.items()}

    def toArrow(self) -> Any:
        """Returns the rows as a table."""
        return pa.table(self._columns)


def fill(sink: Any, second: Any, overtaken: AbstractContextManager[Any]) -> None:
    """Batches 0 to 2, the first and last twice; a driver that is taken for dead wakes with batch 1."""
    sink(Rows(1, 2), 0)
    sink(Rows(1, 2), 0)
    assert not second.has(BatchName(QUERY, 1))
    sink(Rows(3, day=23, value=1.5), 1)
    with overtaken:
        second.commit(Rows(3, day=23, value=1.5), BatchName(QUERY, 1))
    for _ in range(2):
        sink(Rows(4), 2)
        sink.write(Rows(5), "november")


def test_delta_lake_on_s3(s3: str) -> None:
    import polars
    from deltalake.exceptions import CommitFailedError

    storage = {
        "AWS_ENDPOINT_URL": s3, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": KEY["id"],
        "AWS_SECRET_ACCESS_KEY": KEY["secret"], "AWS_REGION": REGION,
    }  # fmt: skip
    table = f"s3://{BUCKET}/delta"
    fill(
        *(DeltaSink(table, QUERY, merge_after=2, storage=storage) for _ in range(2)),
        pytest.raises(CommitFailedError),
    )
    frame = polars.read_delta(table, storage_options=storage).sort("sequence")
    assert frame["sequence"].to_list() == [1, 2, 3, 4, 5]
    assert frame["day"].cast(str).to_list() == [*DAYS, "2026-11-22"]
    assert frame["value"].to_list() == [None, None, 1.5, None, None]


def test_iceberg_on_s3(s3: str, tmp_path: Path) -> None:
    import polars
    from pyiceberg.catalog import load_catalog

    properties = {
        "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"s3://{BUCKET}/iceberg",
        "s3.endpoint": s3, "s3.access-key-id": KEY["id"], "s3.secret-access-key": KEY["secret"], "s3.region": REGION,
    }  # fmt: skip
    fill(*(IcebergSink("plant.rows", QUERY, merge_after=2, properties=properties) for _ in range(2)), nullcontext())
    table = load_catalog("default", **properties).load_table("plant.rows")
    assert table.metadata_location.startswith(f"s3://{BUCKET}/iceberg")
    frame = polars.from_arrow(table.scan().to_arrow()).sort("sequence")
    assert frame["sequence"].to_list() == [1, 2, 3, 4, 5]
    assert frame["value"].to_list() == [None, None, 1.5, None, None]
