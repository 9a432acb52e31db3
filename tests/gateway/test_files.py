"""Files that hold a secret: whole or not there, readable by their owner only, and gone when they were erased."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gateway import files
from gateway.files import (
    PrivateFileError,
    erase,
    lock_exclusively,
    private_directory,
    read_private,
    write_durably,
    write_private,
    write_public,
)

SECRET = b"a secret"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_reads_back_and_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "key"
    umask = os.umask(0)
    try:
        write_private(path, SECRET)
        write_public(tmp_path / "card", b"card")
    finally:
        os.umask(umask)
    assert (mode(path), read_private(path)) == (0o600, SECRET)
    assert mode(tmp_path / "card") == 0o644
    assert sorted(each.name for each in tmp_path.iterdir()) == ["card", "key"], "nothing temporary is left"


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o610, 0o601, 0o644, 0o777])
def test_what_others_may_read_or_write_is_refused_with_the_cure(tmp_path: Path, bits: int) -> None:
    path = tmp_path / "key"
    write_private(path, SECRET)
    path.chmod(bits)
    with pytest.raises(PrivateFileError, match=f"chmod 600 {path}") as caught:
        read_private(path)
    assert "secret" not in str(caught.value).replace("a secret", "")
    path.chmod(0o400)
    assert read_private(path) == SECRET


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PrivateFileError, match="No such file"):
        read_private(tmp_path / "none")
    with pytest.raises(PrivateFileError, match="regular file"):
        read_private(private_directory(tmp_path / "folder"))
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(PrivateFileError, match="regular file"):
        read_private(tmp_path / "pipe")


def test_what_no_secret_can_be_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_PRIVATE_BYTES", 8)
    write_private(tmp_path / "fits", bytes(8))
    assert read_private(tmp_path / "fits") == bytes(8)
    write_private(tmp_path / "large", bytes(9))
    with pytest.raises(PrivateFileError, match="more than"):
        read_private(tmp_path / "large")


def test_a_secret_is_not_written_over_unless_that_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_private(path, b"old")
    with pytest.raises(PrivateFileError, match="exists already"):
        write_private(path, b"new")
    assert read_private(path) == b"old"
    write_private(path, b"new", replace=True)
    assert read_private(path) == b"new"
    write_public(path, b"public")
    assert mode(path) == 0o644


def test_of_two_writers_at_once_one_wins_and_the_other_sees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    link = os.link

    def race(source: Path, target: Path) -> None:
        path.write_bytes(b"the other's")
        link(source, target)

    monkeypatch.setattr(files.os, "link", race)
    with pytest.raises(PrivateFileError, match="exists already"):
        write_private(path, SECRET)
    assert path.read_bytes() == b"the other's"
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_a_crash_in_the_middle_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"
    write_private(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(PrivateFileError, match="No space left"):
        write_private(path, SECRET, replace=True)
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_a_directory_of_secrets_is_its_owners_and_may_be_there(tmp_path: Path) -> None:
    made = private_directory(tmp_path / "data" / "inner")
    assert mode(made) == 0o700
    assert private_directory(made) == made
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PrivateFileError, match="cannot be made"):
        private_directory(tmp_path / "file" / "inner")


def test_a_data_directory_has_one_user(tmp_path: Path) -> None:
    held = lock_exclusively(tmp_path / "LOCK")
    assert mode(tmp_path / "LOCK") == 0o600
    with pytest.raises(PrivateFileError, match="used by another"):
        lock_exclusively(tmp_path / "LOCK")
    os.close(held)
    os.close(lock_exclusively(tmp_path / "LOCK"))


def test_what_is_erased_is_overwritten_before_its_name_goes(tmp_path: Path) -> None:
    path, other_name = tmp_path / "key", tmp_path / "other name"
    write_private(path, SECRET)
    os.link(path, other_name)
    erase(path)
    assert not path.exists()
    assert other_name.read_bytes() == bytes(len(SECRET))
    erase(path)


def test_executors_that_write_files_load_no_configuration() -> None:
    """They start for seconds, and models of configurations take half of one."""
    told = "import sys, spark_ingest.spool; print(*(name for name in sys.modules if name.startswith('pydantic')))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_what_is_written_durably_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_durably(path, b"old")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def fail(_: int) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        write_durably(path, b"new")
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])
