"""The broker's figures: each named once, and the same for Prometheus, `$SYS` and the documentation."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gateway.base.limits import Limits
from gateway.mqtt5.actions import SessionFigures
from gateway.operation.prometheus import PREFIX, broker_metrics
from gateway.operation.registry import BROKER_FIGURES
from gateway.operation.snapshot import BrokerSnapshot
from gateway.operation.sys_topics import totals, values
from gateway.operation.traffic import Traffic


def snapshot(**known: Any) -> BrokerSnapshot:
    nothing: dict[str, Any] = {field.name: 0 for field in fields(BrokerSnapshot)}
    nothing |= {"traffic": Traffic(), "figures": SessionFigures(), "reached": dict.fromkeys(Limits.model_fields, 0)}
    return BrokerSnapshot(**(nothing | known))


def test_no_name_and_no_topic_stands_twice() -> None:
    names = [figure.name for figure in BROKER_FIGURES if figure.name]
    topics = [topic for figure in BROKER_FIGURES for topic in figure.topics]
    assert len(set(names)) == len(names) > 20
    assert len(set(topics)) == len(topics) > 20
    assert all(figure.name or figure.topics for figure in BROKER_FIGURES), "shown somewhere"


def test_both_ways_show_the_same_number() -> None:
    now = snapshot(clients_connected=7, sessions=9, retained_messages=3, queued_messages=2)
    shown = {metric.name: metric.samples[0].value for metric in broker_metrics(now, Limits()) if metric.samples}
    said = dict(values(now))
    assert shown[PREFIX + "clients_connected"] == said["clients/connected"] == said["clients/active"] == 7
    assert said["clients/disconnected"] == 2
    assert said["messages/stored"] == 5
    assert set(totals(now)) >= {"messages/received", "publish/dropped", "sockets"}
