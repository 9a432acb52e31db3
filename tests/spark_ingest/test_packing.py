"""`veilmq ingest pack`: which segments it packs, what it says, and who may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keys.envelope import KeyName
from spark_ingest.errors import GrantsError, SpoolBusy, SpoolError
from spark_ingest.opening.rows import RowReader
from spark_ingest.options import parse_options
from spark_ingest.packing import PACKED_PART, pack
from spark_ingest.sample.spool import write_sample
from spark_ingest.spool.consumers import alone_packing
from spark_ingest.spool.packs import pack_path
from spark_ingest.spool.segments import directory_bytes, segment_path
from spark_ingest.spool.view import SpoolView
from tests.spark_ingest.packs import PackJob, filled
from tests.spark_ingest.region import write_grants
from tests.spark_ingest.test_cli import run


@pytest.fixture
def job(tmp_path: Path) -> PackJob:
    return filled(tmp_path)


def test_finished_segments_are_packed_once_and_the_newest_stays(job: PackJob) -> None:
    job.publish(job.publisher.seal("plant/a", b"newest"))
    (told,) = job.pack()
    assert told.told.startswith("main 1: packed, 20 rows")
    assert job.pack() == []
    assert not job.pack_at(2).exists()
    job.finish()
    (told,) = job.pack()
    assert told.told.startswith("main 2: packed, 1 rows")
    assert [row["payload"] for row in job.rows()][-1] == b"newest"


def test_so_much_is_packed_that_the_spool_stays_well_below_its_cap(job: PackJob) -> None:
    """Packs beyond that would go again as soon as the spool is full, and be made anew."""
    job.publish(job.publisher.seal("plant/a", b"more"))
    job.finish()
    before = directory_bytes(job.root / "main")
    large, small = (segment_path(job.root / "main", number).stat().st_size for number in (1, 2))
    tight = (before + small + 1) / PACKED_PART
    (told,) = pack(job.root, job.grants, None, None, int(tight))
    assert told.told.startswith("main 2: packed")
    assert directory_bytes(job.root / "main") < tight
    assert large > small
    assert next(iter(pack(job.root, job.grants, None, None, 10 * before))).told.startswith("main 1: packed")


def test_a_damaged_pack_is_made_anew(job: PackJob) -> None:
    rows = job.rows()
    job.pack()
    job.pack_at().write_bytes(b"nothing")
    assert len(job.pack()) == 1
    assert job.rows() == rows
    assert job.pack() == []


def test_what_lacks_a_key_or_is_damaged_is_told_and_the_rest_is_packed(job: PackJob) -> None:
    for _ in range(2):
        job.publish(job.publisher.seal("plant/a", b"more"))
        job.finish()
    job.give(job.overlay.held({KeyName("plant/#", 0, 0)}))  # the first segment holds another scope, too
    path = segment_path(job.root / "main", 2)
    content = bytearray(path.read_bytes())
    content[-400] ^= 1
    path.write_bytes(content)
    status, out, err = run("pack", job.root, "--grants", job.grants)
    assert (status, err) == (1, "")
    first, second, third = out.splitlines()
    assert first.startswith("main 1: not packed: the grants file has no key for scope entities/#")
    assert second.startswith(("main 2: not packed", "main 2: packed"))
    assert third.startswith("main 3: packed")


@pytest.mark.parametrize(("arguments", "said"), [
    (("SPOOL/none", "--grants", "KEYS"), "is no spool"),
    (("SPOOL", "--grants", "KEYS", "--receiver", "other"), "known: main"),
    (("SPOOL", "--grants", "SPOOL/none"), "grants="),
])  # fmt: skip
def test_what_a_user_gets_wrong_is_one_line(job: PackJob, arguments: tuple[str, ...], said: str) -> None:
    told = [each.replace("SPOOL", str(job.root)).replace("KEYS", str(job.grants)) for each in arguments]
    status, out, err = run("pack", *told)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_one_packs_at_a_time_and_what_another_left_goes(job: PackJob) -> None:
    with alone_packing(job.root), pytest.raises(SpoolBusy, match="packing"):
        job.pack()
    left = job.pack_at().with_name(".00000001.pack.1.new")
    left.write_bytes(bytes(200))
    assert len(job.pack()) == 1
    assert not left.exists()


def test_who_may_not_open_may_not_pack(job: PackJob, tmp_path: Path) -> None:
    other = write_grants(tmp_path / "others.json", job.overlay.held(), b"o" * 32)
    (told,) = pack(job.root, other, None, None)
    assert told.refused
    assert "local key" in told.told
    assert not job.pack_at().exists()
    other.chmod(0o644)
    with pytest.raises(GrantsError, match="lets others read"):
        list(pack(job.root, other, None, None))
    with pytest.raises(SpoolError, match="known: main"):
        list(pack(job.root, job.grants, None, "nobody"))


def test_a_row_that_was_given_up_for_want_of_its_key_keeps_no_segment_from_being_packed(tmp_path: Path) -> None:
    """It is in the quarantine, and comes anew with its key: the segment would be read unpacked for ever."""
    made = write_sample(tmp_path / "sample", rows=40, devices=2)
    told = {"spool": str(made.spool), "grants": str(made.grants)}

    def rows(stream: str) -> list[dict[str, Any]]:
        options = parse_options(told | {"stream": stream})
        view, reader = SpoolView(options.spool), RowReader(options)
        batches = [batch for extent in view.ranges({}, view.advance({}), 1) for batch in reader.read(extent)]
        return [row for batch in batches for row in batch.to_pylist()]

    before = {stream: rows(stream) for stream in ("telemetry", "availability", "quarantine")}
    assert any(row["reason"].startswith("grant") for row in before["quarantine"])
    assert len(before["telemetry"]) == 40
    (found,) = pack(made.spool, made.grants, None, None)
    assert not found.refused, found.told
    assert pack_path(made.spool / "main", 1).exists()
    assert {stream: rows(stream) for stream in before} == before
