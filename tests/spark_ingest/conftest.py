"""What tests of Spark share. One session for all tests of a run: each new one takes seconds, and as long again until it
is warm.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark_ingest.site import Site
from tests.support.processes import ending


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark tells history servers what it did."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(event_log: Path) -> Iterator[Any]:
    from spark_ingest import register, spark_session
    from tests.spark_ingest.replayed import ReplayedDataSource

    events = {"enabled": "true", "compress": "false", "dir": event_log.as_uri()}
    events = {f"spark.eventLog.{name}": value for name, value in events.items()}
    session = spark_session("veilmq tests", 2, {"spark.driver.memory": "1g", **events})
    register(session)
    session.dataSource.register(ReplayedDataSource)
    yield session
    session.stop()


@pytest.fixture
def site(spark: Any, tmp_path: Path) -> Site:
    return Site(spark, tmp_path)


overlay = ending()
"""Real processes, which the test makes and starts; they end with it."""
