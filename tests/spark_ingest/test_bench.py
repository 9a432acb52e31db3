"""What the benches of rows and receivers make is what the library reads: a change that breaks them shows here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    ours = {"p50": 150.0, "p99": 500.0, "batch_p50": 130.0, "batch_p99": 130.0, "parts_ms": parts}
    socket = {**ours, "p50": 140.0, "p99": 140.0, "parts_ms": {"walCommit": 0, "addBatch": 60.0}}
    end = {
        "ours": ours, "apart": {**ours, "p50": 201.0}, "socket": socket, "clock": ours,
        "stages_ms": {"our plan": 5.0}, "calls_ms": {"commit": [3.0, 1.0]},
    }  # fmt: skip
    rows = {(row.work, row.peer_name): row for row in ingest._delay_rows(end, ", quick")}
    judged = {key: row.target.is_met(row.ratio) for key, row in rows.items() if row.target}
    p50, p99 = (f"device to row, {name}, 1000 msg/s, quick" for name in ("p50", "p99"))
    lines = "lines into Spark's socket source, same load"
    assert {work: met for (work, peer), met in judged.items() if peer == "goal"} == {p50: True, p99: False}
    assert {work: met for (work, peer), met in judged.items() if peer == lines} == {p50: True, p99: False}
    assert len(judged) == 4
    assert rows["walCommit of a micro-batch, p50, quick", "of lines"].ratio == 30.0
    assert rows["of it our plan, p50, quick", "device to row"].ratio == pytest.approx(5 / 150)
    assert rows["commit of our reader, p50, quick", "its processor time"].peer == 1.0


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


def turn_of(delays_ms: list[float], *triggers_ms: int, begin: float = 0.0) -> ingest_delay.Turn:
    rows = [ingest_calls.Taken(10.0, 10.0, 10.0 + each / 1000) for each in delays_ms]
    told = [SimpleNamespace(durationMs={"triggerExecution": each, "addBatch": each - 1}) for each in triggers_ms]
    return ingest_delay.Turn(rows, told, begin, begin + 10)


def test_figures_of_a_way_are_medians_of_its_turns() -> None:
    turns = [turn_of([30, 10, 20], 60, 40, 50), turn_of([700, 800, 900], 1000), turn_of([50, 60, 40], 70)]
    figures = ingest_delay.figures_of(turns)
    assert figures["p50"] == pytest.approx(50)
    assert figures["p99"] == pytest.approx(60)
    assert (figures["batch_p50"], figures["batch_p99"]) == (70, 70)
    assert (figures["parts_ms"]["addBatch"], figures["parts_ms"]["walCommit"]) == (59, 0)


def test_turns_begin_with_another_way_each_round_and_the_first_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def turn(way: ingest_delay.Way, *_: object) -> str:
        told.append(way.rows())
        return f"{told[-1]}{len(told)}"

    @contextmanager
    def receiving(_: object) -> Iterator[None]:
        told.append("receiver")
        yield

    monkeypatch.setattr(ingest_delay, "turn", turn)
    monkeypatch.setattr(ingest_delay, "receiving", receiving)
    monkeypatch.setattr(ingest_delay, "RUNS", 2)
    ways = {"ours": ingest_delay.Way(lambda: "ours", receives=True), "socket": ingest_delay.Way(lambda: "socket")}
    found = ingest_delay.in_turns(ways, 1.0, {"spool": str(tmp_path / "spool")})
    assert told == ["ours", "receiver", "socket", "receiver", "socket", "ours", "ours", "receiver", "socket"]
    assert found == {"ours": ["ours6", "ours7"], "socket": ["socket5", "socket9"]}


def test_calls_belong_to_a_turn_from_when_it_settles() -> None:
    turns = [turn_of([1], 1, begin=100.0), turn_of([1], 1, begin=200.0)]
    calls = [ingest_calls.Call("commit", at, 0.0, 0.0) for at in (95.0, 97.0, 109.0, 111.0, 205.0)]
    assert [call.begin for call in ingest_delay.within(calls, turns)] == [97.0, 109.0, 205.0]
