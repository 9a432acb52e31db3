"""What the dashboard shows: figures from looks and scrapes, and the HTML of its cards, without a browser."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from prometheus_client import CollectorRegistry, generate_latest

from spark_ingest.dashboard import board as board_module
from spark_ingest.dashboard.board import (
    CELLS_MAX,
    Board,
    BoardSample,
    HeardEntity,
    Look,
    Scrape,
    members,
    quantile,
    queries,
)
from spark_ingest.dashboard.html import cards
from spark_ingest.metrics import QueryMetrics
from tests.spark_ingest.test_metrics import QueryTable as Table
from tests.spark_ingest.test_metrics import progress

# ------------------------------------------------------------------------------------------------------------- model


def test_the_first_look_fills_tables_and_the_second_is_a_rate() -> None:
    board = Board()
    board.take_look(Look(sealed_batches=1000, read=1000, streams={"telemetry": 990, "quarantine": 10}), 100.0)
    assert board.shown_figures().rates["telemetry"] == ()
    assert board.shown_figures().seen == {"telemetry": 990, "availability": 0, "quarantine": 10}
    board.take_look(Look(sealed_batches=400, read=100, streams={"telemetry": 90, "availability": 10}), 102.0)
    shown = board.shown_figures()
    assert shown.rates["telemetry"] == (180.0,), "90 of 100 were read, of 400 in two seconds"
    assert shown.rates["availability"] == (20.0,)
    assert shown.sampled
    board.take_look(Look(), 104.0)
    assert board.shown_figures().rates["telemetry"] == (180.0, 0.0)
    assert not board.shown_figures().sampled


def test_delays_are_of_the_newest_minute() -> None:
    board = Board()
    board.take_look(Look(sealed_batches=3, read=3, delays=[(10.0, 99.0), (1000.0, 0.5), (1001.0, 0.1)]), 2000.0)
    shown = board.shown_figures()
    assert (shown.p50_s, shown.p99_s, shown.newest_at) == (0.1, 0.5, 1001.0)
    assert Board().shown_figures().p50_s is None


def test_quantiles_are_values_that_were_there() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile(values, 1.0)) == (50.0, 99.0, 100.0)
    assert quantile([7.0], 0.01) == 7.0
    assert quantile([], 0.5) is None


def test_the_newest_word_about_an_entity_counts_and_trouble_comes_first() -> None:
    board = Board()
    board.take_look(
        Look(heard=[HeardEntity("g", "a", "online", 5, None), HeardEntity("g", "b", "offline", 1, None)]), 1.0
    )
    board.take_look(
        Look(heard=[HeardEntity("g", "a", "offline", 4, None), HeardEntity("h", "a", "online", 1, 2.0)]), 2.0
    )
    shown = board.shown_figures()
    assert [(each.gateway, each.entity, each.state) for each in shown.cells] == [
        ("g", "b", "offline"), ("g", "a", "online"), ("h", "a", "online"),
    ]  # fmt: skip
    assert dict(shown.states) == {"online": 2, "offline": 1}


def test_everything_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "ENTITIES_MAX", 1000)
    board = Board()
    for turn in range(3):
        heard = [HeardEntity("g", f"{turn}-{n}", "online", 1, None) for n in range(600)]
        board.take_look(
            Look(sealed_batches=1, read=1, heard=heard, reasons={f"r{turn}{n}": 1 for n in range(100)}), float(turn)
        )
    for turn in range(500):
        board.take_look(Look(), 10.0 + turn)
    shown = board.shown_figures()
    assert sum(count for _, count in shown.states) == 1000
    assert len(shown.cells) == CELLS_MAX
    assert len(shown.reasons) == board_module.REASONS_MAX
    assert len(shown.rates["telemetry"]) == board_module.POINTS
    assert "and 600 more" in cards(shown, 0.0)["entities"]


def test_blame_and_queries_from_scrapes() -> None:
    samples = [
        BoardSample("veilmq_ingest_link_up", {"replica": "r1"}, 1),
        BoardSample("veilmq_ingest_link_up", {"replica": "r2"}, 0),
        BoardSample("veilmq_link_up", {"peer": "r2", "direction": "out"}, 1),
        BoardSample("veilmq_link_up", {"peer": "r2", "direction": "in"}, 1),
        BoardSample("veilmq_ingest_received_total", {"replica": "r1"}, 40),
        BoardSample("veilmq_ingest_events_total", {"event": "duplicates", "replica": ""}, 7),
        BoardSample("veilmq_ingest_events_total", {"event": "duplicates", "replica": "r1"}, 7),
        BoardSample("veilmq_ingest_events_total", {"event": "refused_content", "replica": "r2"}, 3),
        BoardSample("veilmq_overlay_suspicions_total", {"member": "r1"}, 2),
        BoardSample("veilmq_overlay_named", {"member": "r3"}, 1),
    ]  # fmt: skip
    found = [(each.name, each.up, each.of, each.wrong, each.suspected, each.named) for each in members(samples)]
    assert found == [("r3", 0, 0, 0, 0, True), ("r2", 1, 2, 3, 0, False), ("r1", 1, 1, 0, 2, False)]
    table = Table()
    table.started("id-of-sink", "sink")
    table.progressed(progress())
    registry = CollectorRegistry()
    registry.register(QueryMetrics(table))
    told = [BoardSample(each.name, each.labels, each.value) for family in registry.collect() for each in family.samples]
    (query,) = queries(told)
    assert (query.name, query.running, query.rows_per_second, query.batch_s, query.lag_sealed_batches) == (
        "sink", True, 50.5, 0.25, 8.0,
    )  # fmt: skip
    assert generate_latest(registry)


def test_a_receivers_cap_is_believed_before_the_option() -> None:
    board = Board(cap_bytes=100)
    assert board.shown_figures().cap_bytes == 100
    board.scraped([Scrape("u", [BoardSample("veilmq_ingest_spool_cap_bytes", {}, 70), BoardSample("x", {}, 1)])])
    assert board.shown_figures().cap_bytes == 70


def test_an_entity_that_was_not_heard_of_for_long_is_one_to_look_at() -> None:
    board, day = Board(), board_module.UNHEARD_S
    told = [("old", "online", 1.0), ("fresh", "online", day), ("bad", "offline", 1.0), ("nobody knows", "online", None)]
    board.take_look(Look(heard=[HeardEntity("g", name, state, 1, None, at) for name, state, at in told]), 2 * day)
    assert [each.entity for each in board.shown_figures().cells] == ["bad", "old", "fresh", "nobody knows"]
