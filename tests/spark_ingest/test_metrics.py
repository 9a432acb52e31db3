"""Figures of queries from Spark's reports, without Spark; with it they are tested beside the writer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gateway.limits import Limits
from gateway.metrics import Figures
from gateway.mqtt5.actions import SessionFigures
from gateway.prometheus import _GAUGES, broker_metrics, overlay_metrics
from gateway.traffic import Snapshot, Traffic
from spark_ingest.metrics import QUERIES_MAX, QueryMetrics, QueryTable

CONFIGS = Path(__file__).parents[2] / "configs"


def progress(name: str | None = "sink", rows: int = 100, **fields: Any) -> dict[str, Any]:
    """As Spark 4.3 reports it; offsets come as objects in its JSON, as texts over Connect."""
    latest = {"main": {"segment": 1, "byte": 900, "rows_behind": 7, "bytes_behind": 512},
              "other": {"segment": 3, "byte": 5, "rows_behind": 1, "bytes_behind": 8}}  # fmt: skip
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
    assert found['veilmq_query_lag_rows{query="sink"}'] == 8
    assert found['veilmq_query_lag_bytes{query="sink"}'] == 520
    assert found['veilmq_query_state_rows{query="sink"}'] == 10
    assert found['veilmq_query_progress_timestamp_seconds{query="sink"}'] == 1000
    table.ended("id-of-sink", failed=True)
    found = shown(table)
    assert found['veilmq_query_running{query="sink"}'] == 0
    assert found['veilmq_query_failures_total{query="sink"}'] == 1
    table.started("id-of-sink", "sink")
    assert shown(table)['veilmq_query_rows_total{query="sink"}'] == 111, "a restart goes on counting"


def test_offsets_as_text_and_of_other_sources() -> None:
    table = QueryTable()
    table.progressed(progress("a", sources=[{"latestOffset": '{"main": {"rows_behind": 5, "bytes_behind": 6}}'}]))
    table.progressed(progress("kafka", sources=[{"latestOffset": '{"topic": {"0": 12}}'}, {"latestOffset": "12"}]))
    found = shown(table)
    assert found['veilmq_query_lag_rows{query="a"}'] == 5
    assert 'veilmq_query_lag_rows{query="kafka"}' not in found
    assert found['veilmq_query_running{query="kafka"}'] == 1


def test_the_table_is_bounded_and_ended_queries_go_first() -> None:
    table = QueryTable()
    table.started("first", "first")
    for number in range(QUERIES_MAX):
        table.started(f"id{number}", None)
        if number:
            table.ended(f"id{number}", failed=False)
    table.started("last", "last")
    names = set(table.snapshot())
    assert len(names) == QUERIES_MAX
    assert {"first", "last", "id0"} <= names
    assert table.snapshot()["first"].running


# ------------------------------------------------------------------------------------------ dashboards of Grafana


def receiver_metrics() -> list[Any]:
    """Those of `veilmq ingest run --metrics`, of a receiver that never started."""
    from spark_ingest.receiver import Receiver, ReceiverSettings
    from spark_ingest.receiver_metrics import ReceiverMetrics

    nowhere = Path("nowhere")
    receiver = Receiver(ReceiverSettings(nowhere, nowhere / "keys"), lambda: pytest.fail("it is not started"))
    return [*ReceiverMetrics(receiver, nowhere, "main", 1).collect()]


def exported() -> set[str]:
    """Every name that a scrape of ours can show."""
    table = QueryTable()
    table.progressed(progress())
    families = [*QueryMetrics(table).collect()]
    figures = Figures("site", "gateway", links=list)
    figures.named["r1"] = "why"
    families += overlay_metrics(figures, dict.fromkeys(_GAUGES, 1))
    broker = Snapshot(Traffic(), SessionFigures(), 0.0, *[0] * 12, reached=dict.fromkeys(Limits.model_fields, 0))  # type: ignore[arg-type]
    families += broker_metrics(broker, Limits())
    families += receiver_metrics()
    names = set()
    for family in families:
        suffixes = {"counter": ("_total",), "summary": ("_count", "_sum")}.get(family.type, ("",))
        names |= {family.name + suffix for suffix in suffixes}
    return names


@pytest.mark.parametrize("path", sorted((CONFIGS / "dashboards").glob("*.json")), ids=lambda path: path.name)
def test_every_metric_of_a_dashboard_exists(path: Path) -> None:
    board = json.loads(path.read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    asked += [each["definition"] for each in board["templating"]["list"] if each["type"] == "query"]
    names = set(re.findall(r"\bveilmq_\w+", " ".join(asked)))
    assert len(asked) >= 10
    assert names <= exported(), names - exported()
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {"${source}"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    assert all(panel["title"] and panel.get("description") for panel in board["panels"] if panel["type"] != "row")
