"""Delta Lake: a batch is there once, whoever brings it and however often."""

from __future__ import annotations

from tests.spark_ingest.sink_targets import Delta
from tests.spark_ingest.sinks.driver_written import DriverWrittenTests


class TestDelta(DriverWrittenTests):
    """Read by Polars."""

    kind = Delta
