"""Real Spark writes to a real broker process: batches, streams, and what a listener measures of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.overlay.region_client import MqttClient
from spark_ingest.writing.outgoing_rows import ID_PROPERTY
from tests.gateway.test_durability import Broker
from tests.waits import wait_until

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_S = 60.0


class Listener:
    """A subscriber in a thread: (id, payload) as they came."""

    def __init__(self, broker: Broker) -> None:
        self.seen: list[tuple[str, str]] = []
        self._broker, self._stop, self._ready = broker, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    async def _main(self) -> None:
        client: MqttClient = self._broker.client("listener")
        client.on_publish = lambda message: self.seen.append(
            (dict(message.properties.user)[ID_PROPERTY], message.payload.decode())
        )
        await client.connect()
        client.subscribe("back/#", 1, on_answer=lambda _: self._ready.set())
        while not self._stop.is_set():
            await asyncio.sleep(0.05)
        await client.close()

    def wait_for(self, what: Callable[[], bool]) -> None:
        assert wait_until(what, PATIENCE_S), f"it did not happen; {len(self.seen)} came"

    def close(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "broker").mkdir()
    process = Broker(tmp_path / "broker")
    asyncio.run(process.start())
    yield process
    process.end()


@pytest.fixture
def listener(broker: Broker) -> Iterator[Listener]:
    subscriber = Listener(broker)
    yield subscriber
    subscriber.close()


def test_a_batch_is_published_and_a_wrong_one_is_one_line(spark: Any, broker: Broker, listener: Listener) -> None:
    told = {"host": "127.0.0.1", "port": str(broker.port), "write_id": "nightly"}
    frame = spark.range(0, 40, 1, 2).selectExpr(
        "'back/a' AS topic", "string(id) AS payload", "map('k', 'v') AS properties"
    )
    frame.write.format("veilmq").options(**told).mode("append").save()
    listener.wait_for(lambda: len(listener.seen) >= 40)
    assert sorted(int(payload) for _, payload in listener.seen) == list(range(40))
    assert {key for key, _ in listener.seen} == {f"nightly/0/{task}/{row}" for task in (0, 1) for row in range(20)}
    with pytest.raises(Exception, match="password_file"):
        frame.write.format("veilmq").options(**told, password="x").mode("append").save()
    with pytest.raises(Exception, match="column id is bigint"):
        spark.range(1).selectExpr("'a' AS topic", "'b' AS payload", "id").write.format("veilmq").options(**told).mode(
            "append"
        ).save()


def test_a_stream_whose_broker_is_killed_repeats_the_batch_with_the_same_ids(
    spark: Any, broker: Broker, listener: Listener, tmp_path: Path
) -> None:
    """The broker dies in mid-batch and stays away for longer than the task's patience: the query fails, is started
    again from its checkpoint, and repeats the batch."""
    total, source = 20_000, tmp_path / "source"
    source.mkdir()
    spark.range(0, total, 1, 1).selectExpr("string(id) AS value").write.mode("overwrite").text(str(source))
    told = {"host": "127.0.0.1", "port": str(broker.port), "patience_s": "1", "in_flight": "100"}

    def start() -> Any:
        rows = spark.readStream.schema("value string").text(str(source))
        rows = rows.selectExpr("'back/b' AS topic", "value AS payload")
        return (
            rows.writeStream.format("veilmq").options(**told).queryName("back")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip

    query = start()
    listener.wait_for(lambda: len(listener.seen) > 200)
    broker.end()
    with pytest.raises(Exception, match=r"acknowledged nothing for 1 s|no gateway for 1 s"):
        query.awaitTermination(PATIENCE_S)
    listener.close()  # its session stays; the new one does not wait for the old one's next attempt
    before = listener.seen
    assert len(before) < total
    asyncio.run(broker.start())
    again = Listener(broker)
    query = start()
    query.awaitTermination(PATIENCE_S)
    assert query.exception() is None
    again.wait_for(lambda: len({*before, *again.seen}) >= total)
    again.close()
    seen = {*before, *again.seen}
    assert len(seen) == len({payload for _, payload in seen}) == total, "a payload came under two ids"
    assert {key.split("/")[0] for key, _ in seen} == {query.id}


def test_a_listener_measures_queries(spark: Any, tmp_path: Path) -> None:
    import urllib.request

    from spark_ingest.metrics import counted, listen
    from spark_ingest.sample.spool import write_sample

    made = write_sample(tmp_path / "sample", rows=400, devices=2)
    told = {"spool": str(made.spool), "grants": str(made.grants)}
    endpoint = listen(spark, port=0)
    try:
        with pytest.raises(Exception, match="cannot bind"):
            listen(spark, port=endpoint.port)
        rows = spark.readStream.format("veilmq").options(**told, stream="quarantine", max_rows="200").load()
        query = counted(rows).writeStream.format("noop").queryName("closed").trigger(availableNow=True).start()
        query.awaitTermination(PATIENCE_S)

        def scraped() -> dict[str, float]:
            with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("veilmq_query_"))
            return {name: float(value) for name, value in pairs}

        assert wait_until(lambda: scraped().get('veilmq_query_running{query="closed"}') == 0, PATIENCE_S), scraped()
        found = scraped()
        assert found['veilmq_query_rows_total{query="closed"}'] == made.quarantine
        assert found['veilmq_query_quarantine_rows_total{query="closed"}'] == made.quarantine
        assert found['veilmq_query_batches_total{query="closed"}'] >= 2
        assert found['veilmq_query_lag_sealed_batches{query="closed"}'] == 0
        assert found['veilmq_query_failures_total{query="closed"}'] == 0
    finally:
        endpoint.stop()
