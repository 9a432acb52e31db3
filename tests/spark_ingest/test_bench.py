"""What the benches of rows and receivers make is what the library reads: a change that breaks them shows here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_ingest.opening.rows import RowReader
from spark_ingest.options import parse_options
from spark_ingest.packing import pack
from spark_ingest.spool.view import SpoolView
from tests.bench import ingest, ingest_calls, ingest_delay, receiving, spools


@pytest.mark.parametrize("records", [1, 4])
def test_a_receiver_makes_a_row_of_all_that_the_bench_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """`measure` itself looks at rows and acknowledgements."""
    none = SimpleNamespace(collect=int, freeze=int, set_threshold=lambda *_: None)
    monkeypatch.setattr(receiving, "gc", none)  # this process goes on with other tests
    overlay = receiving.Steady()
    wires = receiving.premade(receiving.GATEWAYS, overlay, records)
    figures = receiving.measure(overlay, wires, tmp_path)
    assert figures.publications == receiving.GATEWAYS * receiving.TOGETHER


@pytest.mark.parametrize(("messages_a_key", "batch"), [(1, 1), (64, 1), (1024, 64)])
def test_every_row_of_a_spool_of_the_bench_opens(tmp_path: Path, messages_a_key: int, batch: int) -> None:
    """As it is, and packed."""
    keys, spool = spools.grants(tmp_path / "keys.json"), tmp_path / "spool"
    spools.fill(spool, 640, messages_a_key, batch, segment_bytes=20_000)
    options = parse_options({"spool": str(spool), "grants": str(keys)})

    def payloads() -> list[bytes]:
        view, reader = SpoolView(spool), RowReader(options)
        read = [each for extent in view.ranges({}, view.latest(), 1) for each in reader.read(extent)]
        return [payload for each in read for payload in each.column("payload").to_pylist()]

    before = payloads()
    assert sorted(before) == sorted(spools.reading(number)[1] for number in range(640))
    assert list(pack(spool, keys, None, None))
    assert payloads() == before


def test_delays_are_judged_by_the_goal_and_by_sparks_own_socket_source() -> None:
    parts = {"walCommit": 30.0, "addBatch": 90.0}
    end = {
        "delays": [0.1, 0.15, 0.5], "clock": [0.2] * 3, "socket": [0.14] * 3, "floor_ms": [100.0] * 3,
        "triggers_ms": [130.0] * 3, "parts_ms": parts, "floor_parts_ms": {"addBatch": 60.0},
        "stages_ms": {"our plan": 5.0}, "calls_ms": {"commit": [3.0, 1.0]},
    }  # fmt: skip
    rows = {(row.work, row.peer_name): row for row in ingest._delay_rows(end, ", quick")}
    judged = {key: row.target.is_met(row.ratio) for key, row in rows.items() if row.target}
    p50, p99 = (f"device to row, {name}, 1000 msg/s, quick" for name in ("p50", "p99"))
    socket = "lines into Spark's socket source, same load"
    assert judged == {(p50, "goal"): True, (p50, socket): True, (p99, "goal"): False, (p99, socket): False}
    assert rows["walCommit of a micro-batch, p50, quick", "of one row"].ours == 30.0
    assert rows["of it our plan, p50, quick", "device to row"].ratio == pytest.approx(5 / 150)
    assert rows["commit of our reader, p50, quick", "its processor time"].peer == 1.0


def test_a_receiver_apart_is_judged_by_the_goal_alone() -> None:
    end = {
        "delays": [0.1] * 3, "floor_ms": [100.0] * 3, "triggers_ms": [], "parts_ms": {}, "floor_parts_ms": {},
        "stages_ms": {}, "calls_ms": {},
    }  # fmt: skip
    assert {row.peer_name for row in ingest._delay_rows(end, "") if row.target} == {"goal"}


def test_stages_of_a_row_are_those_of_the_last_plan_before_it() -> None:
    calls = [
        ingest_calls.Call("latestOffset", 10.0, 0.1, 0.05), ingest_calls.Call("partitions", 10.5, 0.2, 0.1),
        ingest_calls.Call("latestOffset", 11.5, 0.1, 0.05), ingest_calls.Call("latestOffset", 12.0, 0.1, 0.05),
        ingest_calls.Call("partitions", 12.5, 0.2, 0.1),
    ]  # fmt: skip
    stages = ingest_calls.stages_ms(calls, [ingest_calls.Taken(sent=11.0, received=11.25, taken=13.0)])
    assert list(stages.values()) == pytest.approx([250, 750, 100, 400, 200, 300])
    assert sum(stages.values()) == pytest.approx(2000)
    assert ingest_calls.calls_ms(calls)["partitions"] == pytest.approx((200, 100))


def test_parts_of_a_micro_batch_are_medians_of_those_that_had_rows() -> None:
    progress = [
        SimpleNamespace(numInputRows=rows, durationMs={"addBatch": took, "walCommit": 3})
        for rows, took in ((1, 900), (1, 800), (0, 700), (5, 40), (5, 50), (5, 90))
    ]
    parts = ingest_delay.parts_ms(SimpleNamespace(recentProgress=progress))
    assert (parts["addBatch"], parts["walCommit"], parts["latestOffset"]) == (50, 3, 0)
    assert ingest_delay.parts_ms(SimpleNamespace(recentProgress=progress[:2])) == {}
