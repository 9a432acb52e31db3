"""Executors that get what they read out of a storage: the same rows, nothing in clear there, and nothing for ever."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_ingest.errors import BadOption, GrantsError, IngestError
from spark_ingest.options import Options, parse_options
from spark_ingest.source.reader import SpoolReader, SpoolStreamReader, _readings
from spark_ingest.spool import segment_path
from tests.spark_ingest.extents.served import Served, rows_of
from tests.spark_ingest.region import write_grants


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(scratch))
    made = Served(tmp_path)
    yield made
    while _readings:
        _, reading = _readings.popitem()
        if reading.fetched is not None:
            reading.fetched.close()
    assert not list(scratch.iterdir()), "nothing is left behind"


def options(served: Served, **more: str) -> Options:
    return served.options(extents=(served.path / "bucket").as_uri(), **more)


def objects(served: Served) -> list[str]:
    root = served.path / "bucket"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def driver(served: Served) -> SpoolStreamReader:
    return SpoolStreamReader(options(served), _nobody)


def _nobody(_: Options) -> Any:
    raise AssertionError("nothing is received here")


def read(reader: Any, partitions: Any) -> list[tuple[str, int, bytes]]:
    """As tasks do it: reader and partitions came over the network, the spool did not."""
    hidden = reader._options.spool.parent.rename(reader._options.spool.parents[1] / "hidden")
    try:
        there = pickle.loads(pickle.dumps(reader))
        return [row for each in partitions for row in rows_of(there.read(pickle.loads(pickle.dumps(each))))]
    finally:
        hidden.rename(reader._options.spool.parent)


def test_tasks_read_what_the_driver_has_put_and_what_they_have_read_goes(served: Served) -> None:
    reader = driver(served)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadAllAvailable())
    assert len(read(reader, reader.partitions(start, first))) == 50
    before = objects(served)
    assert [name.split("/")[1] for name in before] == ["keys", "main"]
    assert len({name.split("/")[0] for name in before}) == 1
    assert read(reader, reader.partitions(start, first)) == read(reader, reader.partitions(start, first))
    assert objects(served) == before, "a batch that is planned again is where it was"
    served.fill(30)
    second = reader.latestOffset(first, ReadAllAvailable())
    assert len(read(reader, reader.partitions(first, second))) == 30
    assert not set(before[1:]) & set(objects(served))
    reader.stop()


def test_what_a_driver_that_died_left_behind_goes_with_the_next_start(served: Served) -> None:
    dead = driver(served)
    start = dead.initialOffset()
    first = dead.latestOffset(start, ReadAllAvailable())
    dead.partitions(start, first)
    left = objects(served)
    dead.stop()
    served.fill(10)
    again = driver(served)
    second = again.latestOffset(first, ReadAllAvailable())
    again.partitions(first, second)
    assert not set(left[1:]) & set(objects(served))
    assert len(objects(served)) == 2
    again.stop()


def test_a_batch_read_has_a_place_of_its_own(served: Served) -> None:
    reader = SpoolReader(options(served))
    assert len(read(reader, reader.partitions())) == 50
    assert {name.split("/")[0] for name in objects(served)} == {"_reads"}


def test_nothing_in_clear_is_put_there(served: Served) -> None:
    reader = SpoolReader(options(served))
    list(reader.partitions())
    content = b"".join((served.path / "bucket" / name).read_bytes() for name in objects(served))
    assert b"21.5" not in content
    assert b'"key"' not in content
    clear = write_grants(served.path / "clear.json")
    with pytest.raises(GrantsError, match="not sealed"):
        SpoolReader(options(served, grants=str(clear))).partitions()


def test_what_is_gone_or_altered_is_told(served: Served) -> None:
    reader = SpoolReader(options(served))
    partitions = reader.partitions()
    (stretch,) = (served.path / "bucket").rglob("*-*")
    stretch.write_bytes(b"x" + stretch.read_bytes()[1:])
    with pytest.raises(IngestError, match="no stretch"):
        read(reader, partitions)
    stretch.unlink()
    with pytest.raises(IngestError, match="gone"):
        read(reader, partitions)
    segment_path(served.spool / "main", 1).unlink()


@pytest.mark.parametrize(("url", "why"), [
    ("s3://key:secret@bucket/a", "login"), ("grpc://spool:1", "HOST:PORT"), ("fsspec+://a", "HOST:PORT"),
    ("s3://", "HOST:PORT"),
])  # fmt: skip
def test_a_url_that_cannot_be_is_one_line_without_secrets(served: Served, url: str, why: str) -> None:
    with pytest.raises(BadOption, match=why) as caught:
        served.options(extents=url)
    assert why != "login" or "secret" not in str(caught.value)


def test_other_urls_are_taken(served: Served) -> None:
    for url in ("s3://bucket", "gs://b/p", "abfss://c/p", "fsspec+memory://plant"):
        assert served.options(extents=url).places
    assert not parse_options({"spool": "/s", "grants": "/k"}).places
