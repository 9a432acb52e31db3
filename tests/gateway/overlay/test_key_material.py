"""Key material on disk: taken in once, walked forward, archived by epoch, and erased where it was."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from gateway.files import write_private
from gateway.overlay.key_material import DIRECTORY, KeyMaterial, KeyMaterialError

KEY = bytes(range(32))
OWNER = b"o" * 32


def material(tmp_path: Path) -> KeyMaterial:
    return KeyMaterial(tmp_path / "data", KEY, OWNER, "ks1")


def test_material_is_taken_in_once_and_erased_where_it_came_from(tmp_path: Path) -> None:
    source, secret = tmp_path / "ks1.material", secrets.token_bytes(64)
    write_private(source, secret)
    other_name = tmp_path / "hard-link"
    os.link(source, other_name)
    server = material(tmp_path)
    assert server.load() is None
    given_over = server.handed_over(source)
    assert given_over == secret
    server.take_in(source, secret)
    assert not source.exists()
    assert other_name.read_bytes() == bytes(64)  # overwritten, not only unlinked
    again = material(tmp_path)
    assert again.load() == secret
    assert again.handed_over(source) is None
    assert secret not in b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())


def test_walked_material_is_overwritten(tmp_path: Path) -> None:
    server = material(tmp_path)
    server.keep_material(b"epoch 0")
    path = tmp_path / "data" / DIRECTORY / "material"
    held_before = tmp_path / "hard-link"
    os.link(path, held_before)
    before = held_before.read_bytes()
    server.keep_material(b"epoch 1")
    assert held_before.read_bytes() == bytes(len(before))
    assert material(tmp_path).load() == b"epoch 1"


def test_material_that_others_may_read_or_that_is_damaged_is_refused_in_one_line(tmp_path: Path) -> None:
    source = tmp_path / "ks1.material"
    source.write_bytes(b"secret")
    source.chmod(0o640)
    server = material(tmp_path)
    with pytest.raises(KeyMaterialError, match="chmod 600") as caught:
        server.handed_over(source)
    assert "\n" not in str(caught.value)
    server.keep_material(b"secret")
    path = tmp_path / "data" / DIRECTORY / "material"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00\x01")
    with pytest.raises(KeyMaterialError, match="rekey"):
        material(tmp_path).load()


def test_archives_are_kept_by_epoch_and_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = material(tmp_path)
    server.archive(3, b"three")
    server.archive(4, b"four")
    server.archive(3, b"three again")
    (tmp_path / "data" / DIRECTORY / "archive" / "notes.txt").write_text("not ours")
    assert material(tmp_path).archived() == {3: b"three again", 4: b"four"}
    server.archive(3, None)
    server.archive(3, None)
    assert material(tmp_path).archived() == {4: b"four"}
    (tmp_path / "data" / DIRECTORY / "archive" / "4").chmod(0o644)
    assert material(tmp_path).archived() == {}
    assert "chmod 600" in caplog.text
    (tmp_path / "data" / DIRECTORY / "archive").rename(tmp_path / "gone")
    with pytest.raises(KeyMaterialError, match="keys of epoch 5 are not archived"):
        server.archive(5, b"five")
