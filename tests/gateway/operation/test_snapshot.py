"""Totals that a snapshot adds up: what sessions and the path of QoS 0 sent, and what nobody got."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from gateway.mqtt5.actions import SessionFigures
from gateway.operation.snapshot import BrokerSnapshot
from gateway.operation.traffic import Traffic


def snapshot(figures: SessionFigures, traffic: Traffic) -> BrokerSnapshot:
    nothing: dict[str, Any] = {field.name: 0 for field in fields(BrokerSnapshot)}
    return BrokerSnapshot(**(nothing | {"traffic": traffic, "figures": figures, "reached": {}}))


def test_what_was_sent_is_that_of_sessions_and_of_the_short_way() -> None:
    figures, traffic = SessionFigures(), Traffic()
    figures.delivered, figures.delivered_bytes = 5, 500
    traffic.flooded, traffic.flooded_bytes = 70, 7_000
    now = snapshot(figures, traffic)
    assert (now.published, now.published_bytes) == (75, 7_500)


def test_every_reason_for_a_drop_is_one_and_none_is_missing() -> None:
    names = [field.name for field in fields(SessionFigures) if field.name.startswith("dropped_")]
    figures = SessionFigures()
    for amount, name in enumerate(names, 1):
        setattr(figures, name, amount)
    now = snapshot(figures, Traffic())
    assert sorted(now.dropped.values()) == list(range(1, len(names) + 1))
    assert figures.dropped == sum(now.dropped.values()), "the page shows the same for one client"
    assert replace(now, figures=SessionFigures()).dropped == dict.fromkeys(now.dropped, 0)
