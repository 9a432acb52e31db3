"""Options of the source beyond those of `test_rows`: aliases, contradictions, limits, shards."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ingest.errors import BadOption
from spark_ingest.options import parse_options
from spark_ingest.spool.sharding import Shard
from spark_ingest.spool.view import SpoolView
from tests.spark_ingest.spool.test_segments import fill, opened

BASE = {"spool": "/s/spool", "grants": "/s/keys.json"}


@pytest.mark.parametrize(
    ("change", "message"),
    [({"topic": "a", "topics": "b"}, "the same and have different"), ({"path": "/s/other"}, "the same and have"),
     ({"max_rows": "1", "max_rows_per_batch": "2"}, "the same and have"),
     ({"max_rows_per_batch": "0"}, "from 1 to"), ({"max_bytes_per_batch": "1.5"}, "not a whole number"),
     ({"max_bytes_per_batch": "-1"}, "from 1 to"), ({"retain_s": "-1"}, "out of range"), ({"retain_s": "inf"}, "range"),
     ({"retain_s": "an hour"}, "is not a number"), ({"startingOffsets": "middle"}, "earliest, latest"),
     ({"inferSchema": "true"}, "fixed schema"), ({"Schema": "a int"}, "fixed schema"),
     ({"shard": "0/3"}, "1/3, 2/3"), ({"shard": "4/3"}, "i/n"), ({"shard": "1"}, "i/n"), ({"shard": "a/b"}, "i/n"),
     ({"shard": "1/1025"}, "i/n"), ({"shard": "1/²"}, "i/n"), ({"cap_bytes": "big"}, "whole number"),
     ({"startingOffset": "latest"}, "known are .*startingOffsets")],
)  # fmt: skip
def test_each_option_that_cannot_work_is_one_clear_line(change: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message) as error:
        parse_options(BASE | change)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["max_rows", "max_rows_per_batch", "max_bytes_per_batch", "retain_s"])
def test_what_a_batch_read_would_ignore_is_refused(tmp_path: Path, name: str) -> None:
    told = BASE | {"spool": str(tmp_path), name: "5"}
    assert parse_options(told)
    with pytest.raises(BadOption, match="readStream only"):
        parse_options(told, batch=True)


def test_a_spool_that_is_a_file_or_for_a_batch_nowhere_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(BadOption, match="no directory"):
        parse_options(BASE | {"spool": str(file)})
    assert parse_options(BASE | {"spool": str(tmp_path / "to come")})
    with pytest.raises(BadOption, match="no directory"):
        parse_options(BASE | {"spool": str(tmp_path / "to come")}, batch=True)


def test_names_are_told_apart_by_no_case_and_aliases_are_the_same() -> None:
    told = {"Topics": "a/#, b", "MAX_ROWS": "7", "startingoffsets": "Latest", "Max_Bytes_Per_Batch": "9", "path": "/s"}
    options = parse_options(BASE | {"spool": "/s", "grants": "/k"} | told)
    assert options.topics == ("a/#", "b")
    assert (options.max_rows, options.max_bytes, options.from_latest) == (7, 9, True)


def test_shards_have_names_of_their_own() -> None:
    options = parse_options(BASE | {"shard": "2/3"})
    assert options.shard == Shard(2, 3)
    assert (options.consumer, options.receiver) == ("telemetry-2of3", "main-2of3")
    assert parse_options(BASE | {"shard": "2/3", "consumer": "mine"}).consumer == "mine"


@pytest.mark.parametrize(("rows", "size", "expected"), [(35, None, 30), (None, 1, 10), (1, 1 << 30, 10), (35, 1, 10)])
def test_a_batch_ends_at_whichever_limit_comes_first(
    tmp_path: Path, rows: int | None, size: int | None, expected: int
) -> None:
    fill(opened(tmp_path), range(100))
    view = SpoolView(tmp_path)
    end = view.advance({}, rows, max_bytes=size)
    assert view.rows_between({}, end) == expected
    two = view.sizes_between({}, view.advance({}, 20))["main"].bytes
    assert view.rows_between({}, view.advance({}, max_bytes=two)) == 20
    assert view.rows_between({}, view.advance({}, max_bytes=two - 1)) == 10
