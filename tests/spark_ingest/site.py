"""One publisher, the spool that a receiver fills, and queries over it: what tests with a real Spark session share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_ingest.spool.writer import SpoolWriter
from spark_ingest.writing.sink import PublicationSink
from tests.spark_ingest.region import Link, Overlay, Publisher, Sealed, write_grants
from tests.waits import wait_until

PATIENCE_S = 60.0


class Site:
    """A publisher, the spool that a receiver fills, and queries over it."""

    def __init__(self, spark: Any, tmp_path: Path) -> None:
        self.spark = spark
        self.path = tmp_path
        self.overlay = Overlay()
        self.publisher = Publisher(self.overlay)
        self.spool = tmp_path / "spool"
        self.grants = write_grants(tmp_path / "keys.json")
        self.published: list[tuple[int, str, str]] = []
        self.link = Link(self.overlay)

    def seal(self, topic: str, payload: bytes, **fields: Any) -> Sealed:
        sealed = self.publisher.seal(topic, payload, **fields)
        self.published.append((sealed.publication[1], topic, hashlib.sha256(payload).hexdigest()))
        return sealed

    def fill(self, count: int, per_group: int = 20) -> None:
        """Another receiver process, from its start to its end."""
        writer = SpoolWriter(self.spool, "main", cap_bytes=1 << 30)
        writer.roll(b"")
        for number in range(count):
            self.link.publish(self.seal(f"plant/{number % 3}", json.dumps({"n": number}).encode()))
        self.link.write(writer, per_group)
        writer.close()

    def stream(self, source: str = "veilmq", **options: str) -> Any:
        given = {"spool": str(self.spool), "grants": str(self.grants)} | options
        return self.spark.readStream.format(source).options(**given).load()

    def run(self, rows: Any, write: Any, **trigger: Any) -> Any:
        query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(self.path / "checkpoint"))
        return query.trigger(**(trigger or {"availableNow": True})).start()

    def sink(self) -> PublicationSink:
        return PublicationSink(self.path / "sink.sqlite")


def wait_for_query(query: Any, what: Callable[[], bool]) -> None:
    """Until it holds, while the query runs."""

    def holds() -> bool:
        assert query.exception() is None, query.exception()
        return what()

    assert wait_until(holds, PATIENCE_S, every_s=0.1)
