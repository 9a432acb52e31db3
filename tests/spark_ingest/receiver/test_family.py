"""Which parts of a spool are of one receiver, and which file of scope keys goes with each."""

from __future__ import annotations

from pathlib import Path

from spark_ingest.receiver.family import grants_of, kin, part_of
from spark_ingest.spool import RECEIVER_NAME


def test_parts_of_one_receiver_whatever_its_number_of_workers(tmp_path: Path) -> None:
    parts = ["main", "main.w1of2", "main.w2of2", "main.w1of3", "mainly", "main-1of2", "main-1of2.w1of2", "consumers"]
    for name in parts:
        (tmp_path / name).mkdir()
    (tmp_path / "main.w9of9").write_text("no directory")
    assert kin(tmp_path, "main") == ["main.w1of2", "main.w1of3", "main.w2of2"]
    assert kin(tmp_path, "main.w1of2") == ["main", "main.w1of3", "main.w2of2"]
    assert kin(tmp_path, "main-1of2") == ["main-1of2.w1of2"], "of another identity"
    assert kin(tmp_path / "absent", "main") == []
    assert part_of("main", 1, 2) == "main.w1of2"
    assert RECEIVER_NAME.fullmatch(part_of("main", 1, 2))


def test_each_part_has_a_file_of_keys(tmp_path: Path) -> None:
    base, worker = tmp_path / "scope_keys.json", tmp_path / "scope_keys.w1of2.json"
    assert grants_of(base, "main", "main.w1of2") == worker
    assert grants_of(worker, "main.w1of2", "main") == base
    assert grants_of(worker, "main.w1of2", "main.w2of2") == tmp_path / "scope_keys.w2of2.json"
    assert grants_of(tmp_path / "keys", "a", "a.w1of1") == tmp_path / "keys.w1of1"
