"""The streaming reader as Spark drives it, without Spark: checkpoints and their names, the last batch, trouble."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_ingest.errors import BadOption, ReceiverTrouble, SpoolGap
from spark_ingest.options import parse_options
from spark_ingest.receiver.receiver import Receiver, ReceiverSettings
from spark_ingest.source import reader as reader_module
from spark_ingest.source.reader import SpoolReader, SpoolStreamReader
from spark_ingest.spool.segments import Offset, segment_numbers, segment_path
from spark_ingest.spool.standing import standings
from spark_ingest.spool.view import SpoolView
from tests.spark_ingest.spool.test_segments import fill, opened

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

from tests.waits import wait_until


def no_client(_: object) -> Any:
    raise AssertionError("a query that only reads connects to nobody")


class Checkpoint:
    """What Spark does with a reader: plans, logs, runs, commits; may die in between."""

    def __init__(self, root: Path, **options: str) -> None:
        told = {"spool": str(root), "grants": str(root.with_name("keys.json"))} | options
        self.options = parse_options(told)
        self.at: Offset | None = None
        self.pending: Offset | None = None
        self.rows = 0

    def run(self, *, dies: bool = False, available_now: bool = True) -> int:
        """Batches until there is nothing new; rows that were planned."""
        reader = SpoolStreamReader(self.options, no_client)
        planned = 0
        try:
            if available_now:
                reader.prepareForTriggerAvailableNow()
            start = reader.initialOffset() if self.at is None else self.at
            while True:
                end = self.pending or json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
                if end == start:
                    return planned
                self.pending = end
                planned += sum(each.rows for part in reader.partitions(start, end) for each in part.extents)
                if dies:
                    return planned
                self.at, self.pending = end, None
                start = end
        finally:
            reader.stop()


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    fill(opened(tmp_path / "spool", segment=10_000), range(400))
    return tmp_path / "spool"


def test_a_second_checkpoint_under_one_name_is_refused(spool: Path) -> None:
    """Two scheduled jobs: the second one would read what the first one left."""
    first, second = Checkpoint(spool, consumer="job"), Checkpoint(spool, consumer="job")
    assert first.run() == 400
    for _ in range(2):
        with pytest.raises(BadOption, match="consumer=NAME"):
            second.run()
    assert first.run() == 0
    assert Checkpoint(spool, consumer="second").run() > 0
    fill(opened(spool, "more"), range(20))
    assert first.run() == 20


def test_a_query_without_a_name_runs_again_under_another_checkpoint(spool: Path) -> None:
    """As a console query does, which has a new temporary checkpoint each time."""
    assert [Checkpoint(spool).run() for _ in range(2)] == [400, 400]
    names = [each.name for each in standings(spool)]
    assert len(set(names)) == 2
    assert all(name.startswith("telemetry.") for name in names)


@pytest.mark.parametrize("named", [{}, {"consumer": "job"}])
def test_a_query_that_died_in_its_first_batch_is_the_same_query(spool: Path, named: dict[str, str]) -> None:
    query = Checkpoint(spool, **named)
    assert query.run(dies=True) == 400
    assert query.run() == 400
    assert query.run() == 0


@pytest.mark.parametrize("named", [{}, {"consumer": "job"}])
def test_one_that_began_at_the_end_repeats_its_first_batch_from_there(spool: Path, named: dict[str, str]) -> None:
    """Spark asks for the first offset anew, when the end of that batch stands in the checkpoint."""
    query = Checkpoint(spool, startingOffsets="latest", **named)
    reader = SpoolStreamReader(query.options, no_client)
    start = reader.initialOffset()
    fill(opened(spool, "more"), range(30))
    query.pending = reader.latestOffset(start, ReadAllAvailable())
    assert sum(each.rows for part in reader.partitions(start, query.pending) for each in part.extents) == 30
    reader.stop()
    assert query.run(available_now=False) == 30


def test_all_that_was_delivered_is_behind_the_query_and_trimmed(spool: Path) -> None:
    """Spark tells a source of each batch when the next is planned, and so never of the last one."""
    query = Checkpoint(spool, consumer="job")
    query.run()
    (standing,) = standings(spool)
    assert standing.behind is not None
    assert standing.behind.sealed_batches == 0
    assert len(segment_numbers(spool / "main")) == 1


def test_a_place_is_written_at_most_once_a_second_and_no_commit_is_forgotten(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync in each micro-batch made rows wait; a place that is late keeps a segment a little longer."""
    clock = [100.0]
    monkeypatch.setattr(reader_module, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
    options = {"spool": str(spool), "grants": str(spool.with_name("keys.json")), "max_rows_per_batch": "100"}
    reader = SpoolStreamReader(parse_options(options | {"consumer": "job"}), no_client)
    limit = reader.getDefaultReadLimit()
    ends = [reader.initialOffset()]
    left = []
    for _ in range(3):
        ends.append(reader.latestOffset(ends[-1], limit))
        reader.partitions(ends[-2], ends[-1])
        reader.commit(ends[-1])
        left.append(behind(spool))
    assert left[0] < 400
    assert left == [left[0]] * 3, "the first is written, two within a second are not"
    clock[0] += reader_module.PLACE_EVERY_S
    reader.latestOffset(ends[-1], limit)
    assert behind(spool) < left[0], "a trigger without new rows writes it"
    reader.stop()


def behind(spool: Path) -> int:
    """Sealed batches behind the only query."""
    (standing,) = standings(spool)
    assert standing.behind is not None
    return standing.behind.sealed_batches


def test_a_gap_fails_the_query_and_may_be_passed_over(spool: Path) -> None:
    segment_path(spool / "main", 3).unlink()
    with pytest.raises(SpoolGap, match="failOnDataLoss=false"):
        Checkpoint(spool).run()
    query = Checkpoint(spool, failOnDataLoss="false")
    assert 300 < query.run() < 400
    reader = SpoolStreamReader(query.options, no_client)
    reader.latestOffset(query.at or {}, ReadAllAvailable())
    told = reader.reportLatestOffset()
    assert told is not None
    assert told["main"]["sealed_batches_behind"] == 0
    reader.stop()


def test_a_receiver_in_trouble_fails_the_query_after_a_while(tmp_path: Path) -> None:
    """A disk that is full or fails: the query had nothing to read, and looked well for ever."""

    class Client:
        overlay, home_region = SimpleNamespace(members={}, by_party={}), None

        def held_grants(self) -> object:
            raise OSError(28, "No space left on device")

    settings = ReceiverSettings(tmp_path / "spool", tmp_path / "keys.json")
    receiver = Receiver(settings, Client)  # type: ignore[arg-type]
    receiver.check_progress(0.0)
    receiver.start()
    try:
        until(lambda: receiver.trouble is not None)
        receiver.check_progress(3_600.0)
        with pytest.raises(ReceiverTrouble, match="No space left"):
            receiver.check_progress(0.0)
    finally:
        receiver.stop()


def test_what_other_receivers_bring_hides_no_trouble_of_ours(tmp_path: Path) -> None:
    class InTrouble:
        def check_progress(self, trouble_s: float) -> None:
            raise ReceiverTrouble(f"for {trouble_s:.0f} s")

        def stop(self) -> None:
            """Nothing to end."""

    spool = tmp_path / "spool"
    writers = {name: opened(spool, name) for name in ("main", "other")}
    for writer in writers.values():
        fill(writer, range(20))
    reader = SpoolStreamReader(parse_options({"spool": str(spool), "grants": str(tmp_path / "keys.json")}), no_client)
    start = reader.initialOffset()
    reader._receiver = InTrouble()  # type: ignore[assignment]
    both = reader.latestOffset(start, ReadAllAvailable())  # what is there is read first
    fill(writers["other"], range(20, 40))
    with pytest.raises(ReceiverTrouble, match="for 60 s"):
        reader.latestOffset(both, ReadAllAvailable())
    reader.stop()
    for writer in writers.values():
        writer.close()


def test_a_damaged_spool_ends_the_receiver_at_once(tmp_path: Path) -> None:
    writer = opened(tmp_path / "spool")
    fill(writer, range(20))
    writer.close()
    path = segment_path(tmp_path / "spool" / "main", 1)
    path.write_bytes(path.read_bytes()[:3_000])
    receiver = Receiver(ReceiverSettings(tmp_path / "spool", tmp_path / "keys.json"), lambda: no_client(None))
    receiver.start()
    until(lambda: receiver.failure is not None)
    with pytest.raises(type(receiver.failure or Exception), match="were synced"):
        receiver.check_progress(3_600.0)
    receiver.stop()


def until(holds: Callable[[], bool]) -> None:
    assert wait_until(holds, 8.0), "never"


def test_progress_tells_what_was_passed_over(spool: Path) -> None:
    segment_path(spool / "main", 3).unlink()
    view = SpoolView(spool, lossy=True)
    view.sizes_between({}, view.latest())
    assert view.lost["main"] == 1


def test_progress_tells_of_damage_that_tasks_pass_over(spool: Path) -> None:
    """The index is whole, so that planning alone sees nothing of it."""
    path = segment_path(spool / "main", 3)
    path.write_bytes(path.read_bytes()[:5_000])
    reader = SpoolStreamReader(Checkpoint(spool, failOnDataLoss="false").options, no_client)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.partitions(start, end)
    told = reader.reportLatestOffset()
    reader.stop()
    assert told is not None
    assert told["main"]["lost"] == 1


def test_a_batch_waits_for_rows_but_not_for_ever(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Checkpoint(spool, minRowsPerTrigger="410", maxTriggerDelay="30")
    reader = SpoolStreamReader(query.options, no_client)
    assert reader.getDefaultReadLimit() == ReadMinRows(410)
    start = reader.initialOffset()
    clock = [100.0]
    monkeypatch.setattr("spark_ingest.source.reader.time.monotonic", lambda: clock[0])
    assert reader.latestOffset(start, ReadMinRows(410)) == start
    clock[0] += 29
    assert reader.latestOffset(start, ReadMinRows(410)) == start
    assert reader.latestOffset(start, ReadAllAvailable()) != start, "the trigger once waits for nothing"
    clock[0] += 1
    assert reader.latestOffset(start, ReadMinRows(410)) != start
    assert reader.latestOffset(start, ReadMinRows(410)) == start, "the next one waits anew"
    fill(opened(spool, "more"), range(10))
    assert reader.latestOffset(start, ReadMinRows(410)) != start
    reader.stop()
    assert query.run() == 410, "nor does availableNow"


def test_a_query_begins_where_it_is_told_to(spool: Path) -> None:
    view = SpoolView(spool)
    place = view.advance(view.earliest(), 100)
    left = 400 - view.rows_between({}, place)
    assert Checkpoint(spool, startingOffsets=json.dumps(place), consumer="a", retain_s="1000").run() == left
    assert Checkpoint(spool, startingTimestamp="2026-01-01T00:00:00Z", consumer="b").run() == 0
    assert Checkpoint(spool, startingTimestamp="0", consumer="c").run() == 400


def test_a_batch_read_has_a_beginning_and_an_end(spool: Path) -> None:
    view = SpoolView(spool)
    first, second = (view.advance(view.earliest(), rows) for rows in (100, 300))
    told = {"spool": str(spool), "grants": str(spool.with_name("keys.json"))}

    def rows(**options: str) -> int:
        parts = SpoolReader(parse_options(told | options, batch=True)).partitions()
        return sum(each.rows for part in parts for each in part.extents)  # type: ignore[attr-defined]

    assert rows() == 400
    both = rows(startingOffsets=json.dumps(first), endingOffsets=json.dumps(second))
    assert both == view.rows_between(first, second)
    assert rows(endingTimestamp="1970-01-01T00:00:00Z") == 0
    assert rows(startingTimestamp="1970-01-01T00:00:00Z", endingTimestamp="1") == 400
    assert rows(startingTimestamp="1") == 0
