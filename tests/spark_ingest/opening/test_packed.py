"""Reading packs: whatever is asked, the rows are those of the segment, also where a pack is damaged or not for us."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import pytest

from keys.envelope import KeyName
from spark_ingest.opening import packing
from spark_ingest.opening.packed import PackedRows, packed_stretches
from spark_ingest.opening.rows import EXTRAS, SCHEMAS, RowReader
from spark_ingest.options import IngestStream
from spark_ingest.secrets.grants import read_grants
from spark_ingest.secrets.sharebox import key_tag
from spark_ingest.spool.index import SegmentIndex
from spark_ingest.spool.segments import ByteRange, segment_path
from spark_ingest.spool.view import SpoolView
from tests.spark_ingest.packs import LOCAL_KEY, PackJob, filled
from tests.spark_ingest.region import NOW

ALL = ",".join([*SCHEMAS[IngestStream.TELEMETRY].names, *EXTRAS.names])


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackJob:
    """Four groups in two runs."""
    monkeypatch.setattr(packing, "RUN_BYTES", 7_000)
    return filled(tmp_path)


def packed(job: PackJob) -> bool:
    """Whether a reader with these keys uses the pack."""
    (extent,) = SpoolView(job.root).ranges({}, SpoolView(job.root).latest(), 1)
    found = list(packed_stretches(extent, read_grants(job.grants)))
    return all(isinstance(each, PackedRows) for each in found)


@pytest.mark.parametrize(("stream", "options"), [
    ("telemetry", {}),
    ("telemetry", {"columns": ALL}),
    ("telemetry", {"columns": "wire_topic,publisher_id,offset"}),
    ("telemetry", {"topic": "plant/b,plant/c"}),
    ("telemetry", {"rows_per_batch": "3"}),
    ("telemetry", {"startingTimestamp": str(int(NOW * 1000) + 1)}),
    ("telemetry", {"shard": "1/2"}),
    ("availability", {}),
    ("quarantine", {}),
])  # fmt: skip
def test_a_pack_gives_the_rows_of_its_segment(job: PackJob, stream: str, options: dict[str, str]) -> None:
    before = job.batches(stream, **options)
    assert [each.refused for each in job.pack()] == [False]
    after = job.batches(stream, **options)
    assert [each.to_pylist() for each in after] == [each.to_pylist() for each in before]
    assert all(one.schema.equals(other.schema) for one, other in zip(before, after, strict=True))
    assert packed(job)


def test_any_stretch_of_it_gives_the_rows_of_that_stretch(job: PackJob) -> None:
    path = str(segment_path(job.root / "main", 1))
    ends = [0, *(group.end for group in SegmentIndex(job.root / "main", 1).groups())]
    stretches = [ByteRange(path, begin, end, 1) for begin, end in itertools.combinations(ends, 2)]

    def read() -> list[Any]:
        reader = RowReader(job.options(columns=ALL))
        return [[row for batch in reader.read(each) for row in batch.to_pylist()] for each in stretches]

    before = read()
    job.pack()
    assert read() == before
    assert len(before[0]) == 4


def test_what_stays_closed_is_counted_as_before(job: PackJob, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="spark_ingest.opening.rows")  # a page in this process silences it
    job.rows()
    job.pack()
    job.rows()
    first, second = [each.getMessage() for each in caplog.records if "stay closed" in each.getMessage()]
    assert first == second
    assert "4 x content: a record on a topic" in first


@pytest.mark.long
def test_each_altered_byte_costs_the_pack_and_no_row(job: PackJob, caplog: pytest.LogCaptureFixture) -> None:
    before = job.rows(columns=ALL)
    job.pack()
    whole = job.pack_at().read_bytes()
    assert packed(job)
    for at in range(0, len(whole), 97):
        job.pack_at().write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        caplog.clear()
        with caplog.at_level(
            logging.WARNING, logger="spark_ingest.opening.packed"
        ):  # a page in this process silences it
            assert job.rows(columns=ALL) == before
        assert any("ingest pack" in each.getMessage() for each in caplog.records), at
    job.pack_at().write_bytes(whole[:-100])
    assert job.rows(columns=ALL) == before


def test_who_lacks_a_key_of_the_segment_sees_what_it_opens_and_no_more(job: PackJob) -> None:
    """The keys of one scope and the local key: the pack holds what they do not open."""
    everything = (job.overlay.held(), job.overlay.held({KeyName("plant/#", 0, 0)}))
    before = []
    for grants in everything:
        job.give(grants)
        before.append([job.rows(stream) for stream in ("telemetry", "availability")])
    job.give()
    job.pack()
    for grants, rows in zip(everything, before, strict=True):
        job.give(grants)
        assert [job.rows(stream) for stream in ("telemetry", "availability")] == rows
    assert before[1][1] == []
    assert not packed(job)
    job.give(local_key=None)
    assert job.rows() == []


def test_rows_that_a_micro_batch_was_planned_to_pass_over_stay_passed_over(job: PackJob) -> None:
    (extent,) = SpoolView(job.root).ranges({}, SpoolView(job.root).latest(), 1)
    reader = RowReader(job.options())
    held = ["scope plant/#, epoch 0, bump 0, local key " + key_tag(LOCAL_KEY).hex()]
    job.pack()
    assert list(reader.read(extent, held=held)) == []
    redriven = [row for batch in reader.read(extent, held=held, redriven_us=0) for row in batch.to_pylist()]
    assert redriven == job.rows()
