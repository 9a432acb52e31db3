"""Delta Lake and Iceberg on S3, as moto's server speaks it: a batch is there once, read back by Polars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from spark_ingest.sinks.delta import DeltaSink
from spark_ingest.sinks.iceberg import IcebergSink
from spark_ingest.sinks.sink import BatchName

moto_server = pytest.importorskip("moto.server")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

QUERY, BUCKET, REGION = "plant", "plant", "us-east-1"
KEY = {"id": "tester", "secret": "of-no-worth"}
DAYS = ["2026-11-22", "2026-11-22", "2026-11-23", "2026-11-22"]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A server with one bucket; its URL."""
    import boto3

    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    own = {"aws_access_key_id": KEY["id"], "aws_secret_access_key": KEY["secret"], "region_name": REGION}
    boto3.client("s3", endpoint_url=url, **own).create_bucket(Bucket=BUCKET)
    yield url
    server.stop()


def fill(sink: Any, second: Any, rows: Any, overtaken: AbstractContextManager[Any]) -> None:
    """Batches 0 to 2, the first and last twice; a driver that is taken for dead wakes with batch 1."""
    sink(rows(1, 2), 0)
    sink(rows(1, 2), 0)
    assert not second.has(BatchName(QUERY, 1))
    sink(rows(3, day=23, more="1.5D AS value"), 1)
    with overtaken:
        second.commit(rows(3, day=23, more="1.5D AS value"), BatchName(QUERY, 1))
    for _ in range(2):
        sink(rows(4), 2)
        sink.write(rows(5), "november")


def test_delta_lake_on_s3(s3: str, rows: Any) -> None:
    import polars
    from deltalake.exceptions import CommitFailedError

    storage = {
        "AWS_ENDPOINT_URL": s3, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": KEY["id"],
        "AWS_SECRET_ACCESS_KEY": KEY["secret"], "AWS_REGION": REGION,
    }  # fmt: skip
    table = f"s3://{BUCKET}/delta"
    fill(
        *(DeltaSink(table, QUERY, merge_after=2, storage=storage) for _ in range(2)),
        rows,
        pytest.raises(CommitFailedError),
    )
    frame = polars.read_delta(table, storage_options=storage).sort("sequence")
    assert frame["sequence"].to_list() == [1, 2, 3, 4, 5]
    assert frame["day"].cast(str).to_list() == [*DAYS, "2026-11-22"]
    assert frame["value"].to_list() == [None, None, 1.5, None, None]


def test_iceberg_on_s3(s3: str, rows: Any, tmp_path: Any) -> None:
    import polars
    from pyiceberg.catalog import load_catalog

    properties = {
        "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"s3://{BUCKET}/iceberg",
        "s3.endpoint": s3, "s3.access-key-id": KEY["id"], "s3.secret-access-key": KEY["secret"], "s3.region": REGION,
    }  # fmt: skip
    fill(
        *(IcebergSink("plant.rows", QUERY, merge_after=2, properties=properties) for _ in range(2)), rows, nullcontext()
    )
    table = load_catalog("default", **properties).load_table("plant.rows")
    assert table.metadata_location.startswith(f"s3://{BUCKET}/iceberg")
    frame = polars.from_arrow(table.scan().to_arrow()).sort("sequence")
    assert frame["sequence"].to_list() == [1, 2, 3, 4, 5]
    assert frame["value"].to_list() == [None, None, 1.5, None, None]
