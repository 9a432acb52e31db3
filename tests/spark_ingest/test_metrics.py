"""Figures of queries from Spark's reports, without Spark; with it they are tested beside the writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from spark_ingest.metrics import QUERIES_MAX, QueryMetrics, QueryTable

CONFIGS = Path(__file__).parents[2] / "configs"


def progress(name: str | None = "sink", rows: int = 100, **fields: Any) -> dict[str, Any]:
    """As Spark 4.3 reports it; offsets come as objects in its JSON, as texts over Connect."""
    latest = {"main": {"segment": 1, "byte": 900, "sealed_batches_behind": 7, "bytes_behind": 512},
              "other": {"segment": 3, "byte": 5, "sealed_batches_behind": 1, "bytes_behind": 8}}  # fmt: skip
    return {
        "id": f"id-of-{name}", "name": name, "batchId": 3, "batchDuration": 250, "numInputRows": rows,
        "inputRowsPerSecond": 50.5, "processedRowsPerSecond": 400.0,
        "stateOperators": [{"numRowsTotal": 8, "memoryUsedBytes": 2416}, {"numRowsTotal": 2, "memoryUsedBytes": 1}],
        "sources": [{"latestOffset": latest}, {"latestOffset": None}], "observedMetrics": {}, **fields,
    }  # fmt: skip


def shown(table: QueryTable) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(QueryMetrics(table))
    lines = generate_latest(registry).decode().splitlines()
    return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_a_query_from_its_start_to_its_end() -> None:
    table = QueryTable(clock=lambda: 1000.0)
    table.started("id-of-sink", "sink")
    assert shown(table)['veilmq_query_running{query="sink"}'] == 1
    table.progressed(progress())
    table.progressed(progress(rows=11, observedMetrics={"veilmq_quarantine": {"rows": 3}}))
    found = shown(table)
    assert found['veilmq_query_rows_total{query="sink"}'] == 111
    assert found['veilmq_query_batches_total{query="sink"}'] == 2
    assert found['veilmq_query_quarantine_rows_total{query="sink"}'] == 3
    assert found['veilmq_query_batch_duration_seconds{query="sink"}'] == 0.25
    assert found['veilmq_query_lag_sealed_batches{query="sink"}'] == 8
    assert found['veilmq_query_lag_bytes{query="sink"}'] == 520
    assert found['veilmq_query_state_rows{query="sink"}'] == 10
    assert found['veilmq_query_progress_timestamp_seconds{query="sink"}'] == 1000
    table.note_end("id-of-sink", failed=True)
    found = shown(table)
    assert found['veilmq_query_running{query="sink"}'] == 0
    assert found['veilmq_query_failures_total{query="sink"}'] == 1
    table.started("id-of-sink", "sink")
    assert shown(table)['veilmq_query_rows_total{query="sink"}'] == 111, "a restart goes on counting"


def test_offsets_as_text_and_of_other_sources() -> None:
    table = QueryTable()
    table.progressed(
        progress("a", sources=[{"latestOffset": '{"main": {"sealed_batches_behind": 5, "bytes_behind": 6}}'}])
    )
    table.progressed(progress("kafka", sources=[{"latestOffset": '{"topic": {"0": 12}}'}, {"latestOffset": "12"}]))
    found = shown(table)
    assert found['veilmq_query_lag_sealed_batches{query="a"}'] == 5
    assert 'veilmq_query_lag_sealed_batches{query="kafka"}' not in found
    assert found['veilmq_query_running{query="kafka"}'] == 1


def test_the_table_is_bounded_and_ended_queries_go_first() -> None:
    table = QueryTable()
    table.started("first", "first")
    for number in range(QUERIES_MAX):
        table.started(f"id{number}", None)
        if number:
            table.note_end(f"id{number}", failed=False)
    table.started("last", "last")
    names = set(table.snapshot())
    assert len(names) == QUERIES_MAX
    assert {"first", "last", "id0"} <= names
    assert table.snapshot()["first"].running
