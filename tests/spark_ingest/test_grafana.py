"""Dashboards of Grafana, as far as they can be tried without it: what they ask for exists, and what they hold fits."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.base.figures import Figures
from gateway.base.limits import Limits
from gateway.mqtt5.actions import SessionFigures
from gateway.operation.prometheus import _GAUGES, broker_metrics, overlay_metrics
from gateway.operation.snapshot import BrokerSnapshot
from gateway.operation.traffic import Traffic
from spark_ingest.metrics import QueryMetrics, QueryTable
from tests.spark_ingest.test_metrics import progress

CONFIGS = Path(__file__).parents[2] / "configs"
BOARDS = pytest.mark.parametrize("path", sorted((CONFIGS / "dashboards").glob("*.json")), ids=lambda path: path.name)
OF_PROMETHEUS = {"instance", "job"}
"""Labels that every series has once it was scraped."""
OF_GRAFANA = {"__rate_interval", "__range"}


def receiver_metrics() -> list[Any]:
    """Those of `veilmq ingest run --metrics`, of a receiver that never started."""
    from spark_ingest.receiver.metrics import ReceiverMetrics
    from spark_ingest.receiver.receiver import Receiver, ReceiverSettings

    nowhere = Path("nowhere")
    receiver = Receiver(ReceiverSettings(nowhere, nowhere / "keys"), lambda: pytest.fail("it is not started"))
    return [*ReceiverMetrics(receiver, nowhere, ["main"], 1).collect()]


def exported() -> dict[str, set[str]]:
    """Labels by name, of every series that a scrape of ours can show."""
    table = QueryTable()
    table.progressed(progress())
    families = [*QueryMetrics(table).collect()]
    figures = Figures("site", "gateway", links=list)
    figures.named["r1"] = "why"
    families += overlay_metrics(figures, dict.fromkeys(_GAUGES, 1))
    broker = BrokerSnapshot(Traffic(), SessionFigures(), 0.0, *[0] * 15, reached=dict.fromkeys(Limits.model_fields, 0))  # type: ignore[arg-type]
    families += broker_metrics(broker, Limits())
    families += receiver_metrics()
    names: dict[str, set[str]] = {}
    for family in families:
        suffixes = {"counter": ("_total",), "summary": ("_count", "_sum")}.get(family.type, ("",))
        names |= {family.name + suffix: set(family._labelnames) for suffix in suffixes}
    return names


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A board and its targets."""
    board = json.loads(path.read_text())
    return board, [target for panel in board["panels"] for target in panel.get("targets", [])]


@BOARDS
def test_every_metric_of_a_dashboard_exists(path: Path) -> None:
    board, targets = read(path)
    asked = [target["expr"] for target in targets]
    asked += [each["definition"] for each in board["templating"]["list"] if each["type"] == "query"]
    names = set(re.findall(r"\bveilmq_\w+", " ".join(asked)))
    assert len(asked) >= 10
    assert names <= exported().keys(), names - exported().keys()


@BOARDS
def test_every_label_that_is_asked_for_exists(path: Path) -> None:
    """In selectors, groupings and legends; what a grouping drops is in no legend."""
    known = exported()
    for target in read(path)[1]:
        expression = target["expr"]
        has = OF_PROMETHEUS.union(*(known[name] for name in re.findall(r"\bveilmq_\w+", expression)))
        selected = re.findall(r"(\w+)(?:=~|!~|!=|=)\"", expression)
        grouped = {label for part in re.findall(r"\bby \(([^)]*)\)", expression) for label in part.split(", ")}
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert {*selected} <= has, expression
        assert grouped <= has, expression
        assert shown <= (grouped or has), expression


@BOARDS
def test_expressions_are_whole(path: Path) -> None:
    """No parser of PromQL: what a slip of the pen breaks."""
    board, targets = read(path)
    variables = {each["name"] for each in board["templating"]["list"]}
    for target in targets:
        expression = re.sub(r'"[^"]*"', "", target["expr"])
        opened: list[str] = []
        for each in re.findall(r"[(){}\[\]]", expression):
            if each in "({[":
                opened.append(each)
            else:
                assert opened and opened.pop() + each in ("()", "{}", "[]"), expression  # noqa: PT018
        assert not opened, expression
        assert re.fullmatch(r"[\w\s(){}\[\],.=~!<>+*/$-]+", expression), expression
        for counter in re.findall(r"\b(rate|increase)\((\w+)", expression):
            assert counter[1].endswith(("_total", "_sum", "_count")), expression
        assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables | OF_GRAFANA, expression


@BOARDS
def test_panels_have_their_places(path: Path) -> None:
    board, _ = read(path)
    assert board["schemaVersion"] >= 36, "sources are objects with a uid"
    assert board["uid"] == f"veilmq-{path.stem}" or path.stem in board["uid"]
    panels = board["panels"]
    assert {panel["datasource"]["uid"] for panel in panels} == {"${source}"}
    ids = [panel["id"] for panel in panels]
    assert len(ids) == len(set(ids))
    assert all(panel["title"] and panel.get("description") for panel in panels if panel["type"] != "row")
    for panel in panels:
        refs = [target["refId"] for target in panel.get("targets", [])]
        assert len(refs) == len(set(refs)), panel["title"]
        assert bool(refs) is (panel["type"] != "row"), panel["title"]
        at = panel["gridPos"]
        assert min(at["x"], at["y"]) >= 0 < min(at["w"], at["h"]), panel["title"]
        assert at["x"] + at["w"] <= 24, panel["title"]
    for one, other in itertools.combinations(panels, 2):
        a, b = one["gridPos"], other["gridPos"]
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        apart = apart or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart, (one["title"], other["title"])


def test_boards_are_told_apart() -> None:
    boards = [json.loads(path.read_text()) for path in (CONFIGS / "dashboards").glob("*.json")]
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == len(boards) == 3
