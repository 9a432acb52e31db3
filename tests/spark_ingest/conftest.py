"""What tests of Spark share. One session for all tests of a run: each new one takes seconds, and as long again until it
is warm.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_ingest.session import QUICK_PROGRESS
from tests.spark_ingest.site import Site
from tests.spark_ingest.warm_python import warm_python
from tests.support.processes import ending


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark tells history servers what it did."""
    return tmp_path_factory.mktemp("events")


QUICK = {
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    **QUICK_PROGRESS,
}
"""For queries of a hundred rows. Spark would compile each of them, which takes longer than all rows."""


@pytest.fixture(scope="session")
def spark(event_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from spark_ingest import register, spark_session
    from tests.spark_ingest.replayed import ReplayedDataSource

    events = {"enabled": "true", "compress": "false", "dir": event_log.as_uri()}
    events = {f"spark.eventLog.{name}": value for name, value in events.items()}
    with warm_python(tmp_path_factory.mktemp("python")) as python:
        session = spark_session("veilmq tests", 2, {**QUICK, **events})
        session.sparkContext.pythonExec = str(python)
        register(session)
        session.dataSource.register(ReplayedDataSource)
        yield session
        session.stop()


@pytest.fixture
def site(spark: Any, tmp_path: Path) -> Site:
    return Site(spark, tmp_path)


overlay = ending()
"""Real processes, which the test makes and starts; they end with it."""
