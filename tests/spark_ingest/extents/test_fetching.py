"""Executors that do not see the spool: the same rows, keys that came meanwhile, and what is missing is told as ever."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow.flight")
pytest.importorskip("pyspark")
from spark_ingest.errors import BadOption, GrantsError, IngestError, SpoolGap
from spark_ingest.extents.fetching import FetchedExtents
from spark_ingest.opening import RowReader
from spark_ingest.options import parse_options
from spark_ingest.source.reader import SpoolPartition, _read, _readings
from spark_ingest.spool import ByteRange, segment_path
from tests.spark_ingest.extents.served import Served, identity_in, rows_of


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{scratch},/nowhere")
    made = Served(tmp_path)
    made.fill(30)
    yield made
    made.stop()
    while _readings:
        _, reading = _readings.popitem()
        if reading.fetched is not None:
            reading.fetched.close()
    assert not list(scratch.iterdir()), "nothing is left behind"


def read(options: Any, *extents: ByteRange) -> list[tuple[str, int, bytes]]:
    """As a task does it, whose partition came over the network."""
    return rows_of(_read(options, pickle.loads(pickle.dumps(SpoolPartition(tuple(extents))))))


def test_a_task_reads_what_it_does_not_see(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ingest.spool.view.RANGE_BYTES_MIN", 1)
    extents = served.extents(parts=5)
    assert len(extents) > 2, "several of one segment, and of several"
    expected = [row for extent in extents for row in rows_of(RowReader(served.options()).read(extent))]
    options = served.options(extents=served.start())
    served.hide()
    assert read(options, *extents) == expected
    assert len(expected) == 80
    assert [row for extent in extents for row in read(options, extent)] == expected


def test_places_of_rows_are_those_in_the_spool(served: Served) -> None:
    extents = served.extents()
    columns = {"columns": "sequence,receiver,segment,offset"}
    here = [batch.to_pylist() for extent in extents for batch in RowReader(served.options(**columns)).read(extent)]
    options = served.options(extents=served.start(), **columns)
    there = [batch.to_pylist() for extent in extents for batch in _read(options, SpoolPartition((extent,)))]
    assert there == here


def test_keys_are_fetched_before_each_task(served: Served) -> None:
    options = served.options(extents=served.start())
    (first, *_) = served.extents()
    fetched = FetchedExtents(options)
    fetched.renew_grants()
    copy = fetched.options.grants
    assert copy.read_bytes() == served.keys.read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o600
    before = copy.stat()
    fetched.renew_grants()
    assert copy.stat() == before, "what did not change is not read again by who opens rows"
    served.keys.write_bytes(served.keys.read_bytes() + b" ")
    fetched.renew_grants()
    assert copy.read_bytes() == served.keys.read_bytes()
    fetched.close()
    assert not copy.exists()
    assert read(options, first)


def test_a_segment_that_is_gone_is_a_gap_and_one_cut_short_is_damaged(served: Served) -> None:
    address = served.start()
    gone, cut = served.extents()
    segment_path(served.spool / "main", 1).unlink()
    with pytest.raises(SpoolGap, match="gone"):
        read(served.options(extents=address), gone)
    assert read(served.options(extents=address, failOnDataLoss="false"), gone) == []
    path = Path(cut.path)
    path.write_bytes(path.read_bytes()[: cut.end - 100])
    with pytest.raises(IngestError, match="were synced"):
        read(served.options(extents=address), cut)


def test_a_server_that_is_away_or_of_others_is_one_line_and_comes_back(served: Served, tmp_path: Path) -> None:
    address = served.start()
    (extent, *_) = served.extents()
    options = served.options(extents=address)
    assert read(options, extent)
    served.stop()
    with pytest.raises(IngestError, match="veilmq ingest serve"):
        read(options, extent)
    identity_in(tmp_path / "stranger", b"s")
    again = served.options(extents=served.start(), grants_identity=str(tmp_path / "stranger"))
    with pytest.raises(IngestError, match="veilmq ingest serve"):
        read(again, extent)
    with pytest.raises(GrantsError, match="grants_identity"):
        read(served.options(extents=again.extents or "", grants_identity=str(tmp_path / "nobody")), extent)


def test_the_option_needs_the_identity_and_an_address(served: Served) -> None:
    base = {"spool": str(served.spool), "grants": str(served.keys)}
    with pytest.raises(BadOption, match="grants_identity"):
        parse_options(base | {"extents": "spool.plant:9470"})
    for address in ("spool.plant", "spool.plant:0", "spool.plant:65536", "grpc://spool:1", "[::1:9470", ""):
        with pytest.raises(BadOption, match="HOST:PORT"):
            parse_options(base | {"extents": address, "grants_identity": "reader"})
    options = parse_options(base | {"extents": "[::1]:9470", "grants_identity": "reader"})
    assert options.grants_identity == Path("reader"), "each process looks where it runs"
