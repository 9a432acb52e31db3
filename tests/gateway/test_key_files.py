"""Epoch keys and key material on disk: sealed, replaced whole, bound to us, and gone when they should be."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.private import write_private
from gateway.base.sealed_file import MAGIC, SealedFile, SealedFileError
from gateway.overlay.key_cache import FILE_NAME, KeyCache
from gateway.overlay.key_material import DIRECTORY, KeyMaterial, KeyMaterialError
from keys.epochs import KeyName, ScopeKeys

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
OWNER = b"o" * 32
NAMES = [KeyName("plant/#", 3, 0), KeyName("plant/#", 4, 0), KeyName("plant/#", 4, 1), KeyName("other/+", 4, 0)]


def held() -> ScopeKeys:
    keys = ScopeKeys()
    for number, name in enumerate(NAMES, 1):
        keys.put(name, bytes([number]) * 32)
    return keys


def cache(directory: Path, key: bytes = KEY, owner: bytes = OWNER, name: str = "site") -> KeyCache:
    return KeyCache(directory, key, owner, name)


def test_keys_come_back_after_a_restart_and_lie_sealed(tmp_path: Path) -> None:
    cache(tmp_path).save(held())
    again = ScopeKeys()
    assert cache(tmp_path).load(again) == len(NAMES)
    assert dict(again) == dict(held())
    path = tmp_path / FILE_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not any(key in path.read_bytes() for _, key in held())
    assert b"plant" not in path.read_bytes()


def test_keys_of_ended_epochs_are_not_kept(tmp_path: Path) -> None:
    cache(tmp_path).save(held(), since_epoch=4)
    again = ScopeKeys()
    cache(tmp_path).load(again)
    assert sorted(name for name, _ in again) == sorted(NAMES[1:])


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    kept = cache(tmp_path)
    kept.save(held())
    before = (tmp_path / FILE_NAME).stat().st_ino
    kept.save(held())
    assert (tmp_path / FILE_NAME).stat().st_ino == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:20] + b"\xff" + path.read_bytes()[21:]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"x" * 100),
        lambda path: path.chmod(0o644),
    ],
    ids=["cut", "altered", "empty", "foreign", "open to others"],
)
def test_a_damaged_cache_is_one_line_and_a_fresh_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], object]
) -> None:
    cache(tmp_path).save(held())
    spoil(tmp_path / FILE_NAME)
    again = ScopeKeys()
    fresh = cache(tmp_path)
    assert fresh.load(again) == 0
    assert len(again) == 0
    assert len(caplog.records) == 1
    assert "fetched anew" in caplog.text
    fresh.save(held())
    assert cache(tmp_path).load(again) == len(NAMES)


@pytest.mark.parametrize(
    "whose", [{"key": OTHER_KEY}, {"owner": b"p" * 32}, {"name": "sit"}], ids=["store", "overlay", "member"]
)
def test_a_cache_of_somebody_else_is_not_used(tmp_path: Path, whose: dict[str, object]) -> None:
    cache(tmp_path).save(held())
    again = ScopeKeys()
    assert cache(tmp_path, **whose).load(again) == 0  # type: ignore[arg-type]
    assert len(again) == 0


def test_a_full_disk_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gone = tmp_path / "gone"
    cache(gone).save(held())
    assert "are not kept" in caplog.text
    assert len(caplog.records) == 1


@settings(max_examples=30, deadline=None)
@given(content=st.binary(max_size=300), cut=st.integers(0, 400))
def test_a_sealed_file_gives_what_was_put_in_or_refuses(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, cut: int
) -> None:
    path = tmp_path_factory.mktemp("sealed") / "file"
    SealedFile(path, KEY, b"test").replace(content)
    assert SealedFile(path, KEY, b"test").read() == content
    whole = path.read_bytes()
    assert whole.startswith(MAGIC)
    path.write_bytes(whole[:cut])
    if cut < len(whole):
        with pytest.raises(SealedFileError):
            SealedFile(path, KEY, b"test").read()
    assert SealedFile(path.with_name("none"), KEY, b"test").read() is None


def test_a_crash_between_writing_and_erasing_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file is durable, the old one is erased or not: the next start has the new one."""
    file = SealedFile(tmp_path / "file", KEY, b"test")
    file.replace(b"old")
    for step in ("gateway.base.sealed_file.erase", "gateway.base.sealed_file.os.rename"):
        with monkeypatch.context() as patched:

            def crash(*_: object) -> None:
                raise OSError("power failed")

            patched.setattr(step, crash)
            with pytest.raises(SealedFileError, match="power failed"):
                file.replace(b"new" + step.encode())
        assert SealedFile(tmp_path / "file", KEY, b"test").read() == b"new" + step.encode()
        assert [path.name for path in tmp_path.iterdir()] == ["file"]


# ----------------------------------------------------------------------------------------- key servers


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
    server.keep(b"epoch 0")
    path = tmp_path / "data" / DIRECTORY / "material"
    held_before = tmp_path / "hard-link"
    os.link(path, held_before)
    before = held_before.read_bytes()
    server.keep(b"epoch 1")
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
    server.keep(b"secret")
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
