"""Every metric of the three endpoints, every topic of `$SYS`, every event that the overlay counts, from the code.

Metrics are those that the collectors show of a party where nothing has happened yet. Events are what the machines
count, as their registry says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bridge.contract.figures import FigureName
from gateway.base.figures import Figures
from gateway.base.limits import Limits
from gateway.mqtt5.actions import SessionFigures
from gateway.operation.prometheus import _GAUGES, broker_metrics, overlay_metrics, tracing_metrics
from gateway.operation.registry import BROKER_FIGURES
from gateway.operation.snapshot import BrokerSnapshot
from gateway.operation.sys_topics import ROOT, WINDOWS_S
from gateway.operation.traffic import Traffic
from spark_ingest.metrics import QueryMetrics, QueryTable
from spark_ingest.receiver.metrics import ReceiverMetrics

INTRODUCTION = """# Metrics and events

Made from the collectors themselves when this site is built. All metrics are in base units: seconds, bytes, counts.
Prometheus adds `_total` to the name of each counter.

| endpoint | how to get it |
|---|---|
| of a broker in any role | `metrics: {bind: 127.0.0.1:9466}` in its file |
| of a receiver for Spark | `veilmq ingest run --metrics 127.0.0.1:9464` |
| of streaming queries | `spark_ingest.metrics.listen(spark)`, port 9465 |

All three ask nobody's name. They bind loopback; put a proxy with a login in front for others.
"""


def metrics_page() -> str:
    """Markdown."""
    parts = [INTRODUCTION]
    parts += ["## Of a broker\n", *_table([*broker_metrics(_idle(), Limits())])]
    idle = Figures("", "")
    parts += ["## Of a member of an overlay\n", *_table([*overlay_metrics(idle, dict.fromkeys(_GAUGES, 0))])]
    parts += ["## Of a broker that traces\n", *_table([*tracing_metrics(idle, {})])]
    parts += ["## Of a receiver\n", *_table([*_receiver()])]
    parts += ["## Of a streaming query\n", *_table([*QueryMetrics(QueryTable()).collect()])]
    parts += ["## Events\n", *_events()]
    parts += ["## `$SYS` topics\n", *_sys_topics()]
    return "\n".join(parts)


def _table(metrics: Iterable[Any]) -> Iterator[str]:
    yield "| metric | kind | labels | meaning |"
    yield "|---|---|---|---|"
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in getattr(metric, "_labelnames", ()))
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        yield f"| `{name}` | {metric.type} | {labels} | {metric.documentation} |"
    yield ""


def _idle() -> BrokerSnapshot:
    """A broker where nothing has happened."""
    nothing: dict[str, Any] = {field.name: 0 for field in fields(BrokerSnapshot)}
    nothing |= {"traffic": Traffic(), "figures": SessionFigures(), "reached": dict.fromkeys(Limits.model_fields, 0)}
    return BrokerSnapshot(**nothing)


def _receiver() -> Iterator[Any]:
    told = SimpleNamespace(
        links=(), rows=0, bytes=0, groups=0, fsync_s=0.0, waiting=0, accepted=False, full=False, clock_off=False,
        reads_back=False,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as spool:
        receiver: Any = SimpleNamespace(progress=told, figures={}, alive=False, trouble=None)
        yield from ReceiverMetrics(receiver, Path(spool), "main", 0).collect()


def _events() -> Iterator[str]:
    yield "`veilmq_overlay_events_total{event, label}`, `veilmq_tracing_events_total{event, label}` and"
    yield "`veilmq_ingest_events_total{event, replica}` count what the machines did, by these names. A label says"
    yield "more: a member, or why something was refused. `$SYS/veilmq/figures` shows those of the overlay, as JSON."
    yield ""
    yield "| event | what happened once for each |"
    yield "|---|---|"
    for figure in FigureName:
        yield f"| `{figure}` | {figure.text} |"
    yield ""


def _sys_topics() -> Iterator[str]:
    yield f"Retained below `{ROOT}`, sent when they change, every `sys_interval` seconds. Names are Mosquitto's."
    yield ""
    yield "| topic | meaning |"
    yield "|---|---|"
    yield "| `version` | The version of the program. |"
    yield "| `uptime` | Seconds since the start. |"
    for figure in BROKER_FIGURES:
        if figure.topics:
            yield f"| {', '.join(f'`{topic}`' for topic in figure.topics)} | {figure.text} |"
    loads = ", ".join(f"`{figure.load}`" for figure in BROKER_FIGURES if figure.load)
    yield f"| `load/NAME/{{{','.join(WINDOWS_S)}}}` | Averages a minute. NAME is one of {loads}. |"
    yield ""
