"""Spark's part of the demonstration, without Spark: what it tells its starter, and its exit status."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_ingest import demo
from spark_ingest.demo import BAD_INPUT, DemoSink, Entities, emit, main, show_windows
from spark_ingest.errors import NoJava
from spark_ingest.writing import PublicationSink
from spark_ingest.writing.sink import Arrived


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """The events since the last call."""

    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return read


class Row(SimpleNamespace):
    """As pyspark's: by attribute, and by name where a method has it."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


class Rows:
    """A collected micro-batch."""

    def __init__(self, *rows: Row) -> None:
        self.rows = rows

    def select(self, *names: str) -> Rows:
        return self

    def collect(self) -> list[Row]:
        return list(self.rows)


def test_an_event_is_one_line_of_json(told: Any) -> None:
    emit("rows", count=3, text="two\nlines")
    assert told() == [{"event": "rows", "count": 3, "text": "two\nlines"}]


def window(topic: str) -> Row:
    return Row(
        topic=topic, start=datetime(2026, 1, 1, 8, 0, 5, tzinfo=UTC), mean=1234.56, least=1.0, greatest=2.0, count=9
    )


def test_windows_are_a_few_lines_of_other_sensors_each_time(told: Any) -> None:
    rows = Rows(*(window(f"machine/m/cpu/{number}") for number in (3, 1, 0, 4, 2)))
    for batch in range(2):
        show_windows(rows, batch)
    first, second = told()
    assert first["rows"][0] == "08:00:05 cpu/0: mean 1,234.6, 1.0 to 2.0, 9 readings"
    assert [line.split()[1] for line in first["rows"]] == ["cpu/0:", "cpu/1:", "cpu/2:"]
    assert [line.split()[1] for line in second["rows"]] == ["cpu/3:", "cpu/4:", "cpu/0:"]
    show_windows(Rows(), 7)
    assert told() == []


def state(entity: str, sequence: int, word: str, gateway: str = "site") -> Row:
    return Row(gateway=gateway, entity=entity, sequence=sequence, state=word)


def test_the_newest_word_of_an_entity_counts_whatever_the_order(told: Any) -> None:
    entities = Entities()
    entities.take_batch(Rows(state("pump", 5, "offline"), state("pump", 4, "online"), state("fan", 1, "online")), 0)
    entities.take_batch(Rows(state("pump", 3, "online"), state("pump", 1, "online", gateway="other")), 1)
    first, second = told()
    assert (first["online"], first["known"]) == (1, 2)
    assert (second["online"], second["known"]) == (2, 3), "another gateway's pump is another one"


def test_the_sink_is_ready_with_its_first_row_and_counts_no_probe_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Any
) -> None:
    batches = {0: [], 1: ["probe-1", "m1"], 2: ["m1", "m2", ""]}
    monkeypatch.setattr(PublicationSink, "write", lambda self, rows, batch: None)

    def arrived(self: PublicationSink, batch: int) -> Iterator[Arrived]:
        return (Arrived("gw", 1, "t", "digest", id_) for id_ in batches[batch])

    monkeypatch.setattr(PublicationSink, "arrived_in", arrived)
    sink = DemoSink(tmp_path / "sink.sqlite")
    for batch in batches:
        sink.write(None, batch)
    assert told() == [
        {"event": "rows", "count": 0}, {"event": "ready"}, {"event": "rows", "count": 1}, {"event": "rows", "count": 2},
    ]  # fmt: skip


@pytest.mark.parametrize("words", ["stop\n", "hello\nstop\n", ""])
def test_stop_or_the_end_of_standard_input_ends_it(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(words))
    stopped = threading.Event()
    demo._wait_for_stop(stopped)
    assert stopped.is_set()


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`main` with nothing behind it; what was done, in order."""
    done: list[str] = []
    arguments = [f"--{name}={tmp_path / name}" for name in ("identity", "overlay", "grants", "work", "sink")]
    monkeypatch.setattr("sys.argv", ["demo", *arguments])
    monkeypatch.setattr("sys.stdin", io.StringIO("stop\n"))
    monkeypatch.setattr(demo, "TOLD_S", 0.0)
    session = SimpleNamespace(stop=lambda: done.append("session stopped"))
    monkeypatch.setattr(demo, "spark_session", lambda name, cores: session)
    monkeypatch.setattr(demo, "start", lambda spark, options: done.append(str(options.telemetry)) or [])
    return done


def test_stopped_is_status_0(started: list[str], tmp_path: Path) -> None:
    assert main() == 0
    assert started == ["machine/#", "session stopped"]
    assert (tmp_path / "work").stat().st_mode & 0o777 == 0o700


def test_a_query_that_fails_is_told_in_one_line(
    started: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(seconds: float) -> bool:
        raise RuntimeError("the disk is full")

    failed = SimpleNamespace(ended=ended)
    monkeypatch.setattr(demo, "start", lambda spark, options: [failed])
    monkeypatch.setattr(demo, "_wait_for_stop", lambda stopped: None)
    monkeypatch.setattr(threading.Event, "wait", lambda self, seconds=None: False)
    assert main() == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {"event": "trouble", "text": "the disk is full"}
    assert "the disk is full" in err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NoJava("no Java; install one"), "veilmq: no Java; install one\n"),
        (ModuleNotFoundError("No module named 'pyspark'"), "pip install 'veilmq[spark]'\n"),
        (OSError(28, "No space left on device"), "No space left on device\n"),
    ],
)
def test_what_is_missing_here_is_one_line_and_status_2(
    started: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    def fails(name: str, cores: int) -> Any:
        raise error

    monkeypatch.setattr(demo, "spark_session", fails)
    assert main() == BAD_INPUT
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.endswith(said)
