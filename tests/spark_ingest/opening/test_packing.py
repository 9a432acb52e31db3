"""Making packs: only of what all opens, each run within its bounds, under a key of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from keys.envelope import KeyName
from spark_ingest.errors import GrantsError
from spark_ingest.opening import packing
from spark_ingest.opening.decode import Opener
from spark_ingest.opening.packing import PackMaker
from spark_ingest.secrets.packbox import pack_key
from spark_ingest.secrets.sharebox import key_tag
from spark_ingest.spool.index import SegmentIndex
from spark_ingest.spool.packs import PackFile, PackTable
from spark_ingest.spool.segments import open_segment, segment_path
from tests.spark_ingest.packs import LOCAL_KEY, PackJob, filled
from tests.spark_ingest.region import stream_of_bytes


def made(job: PackJob) -> tuple[PackTable, bytes, list[bytes]]:
    opener = Opener(job.grants)
    opener.refresh()
    segment = open_segment(str(segment_path(job.root / "main", 1)))
    groups = SegmentIndex(job.root / "main", 1).groups()
    return PackMaker(opener, stream_of_bytes("pack")).make(segment, groups[-1].end)


def test_runs_cover_the_segment_and_each_opens_at_its_place_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "RUN_BYTES", 1)
    job = filled(tmp_path)
    table, slot, runs = made(job)
    groups = SegmentIndex(job.root / "main", 1).groups()
    assert [run.end for run in table.runs] == [group.end for group in groups]
    assert [run.begin for run in table.runs] == [0, *(group.end for group in groups[:-1])]
    assert [run.size for run in table.runs] == [len(run) for run in runs]
    opener = Opener(job.grants)
    opener.refresh()
    key = pack_key(opener.grants, PackFile(tmp_path, table, table.encode(), slot, memoryview(b"")))
    assert key is not None
    aead = AESGCM(key)
    for number, run in enumerate(runs):
        assert aead.decrypt(number.to_bytes(12), run, None)
        with pytest.raises(InvalidTag):
            aead.decrypt((number + 1).to_bytes(12), run, None)
    assert b"state" not in b"".join(runs)


def test_the_table_names_each_key_of_the_segment(tmp_path: Path) -> None:
    table, _, _ = made(filled(tmp_path))
    assert table.keys == (("entities/#", 0, 0), ("plant/#", 0, 0))
    assert table.tags == (key_tag(LOCAL_KEY).hex(),)


def test_a_row_that_waits_for_a_key_keeps_its_segment_from_being_packed(tmp_path: Path) -> None:
    job = filled(tmp_path)
    job.give(job.overlay.held({KeyName("plant/#", 0, 0)}))
    with pytest.raises(GrantsError, match=r"entities/#.*receiver writes"):
        made(job)
    job.give(local_key=b"x" * 32)
    with pytest.raises(GrantsError, match="local key"):
        made(job)
