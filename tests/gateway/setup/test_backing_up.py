"""A backup comes back whole or not at all, and data never does."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.security import Security
from gateway.cli import run
from gateway.setup import Plan, SetupError, make_overlay
from gateway.setup.backing_up import MANIFEST, back_up, restore
from gateway.setup.folders import CONFIG
from tests.support.files import edited

NOW = time.time()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = make_overlay(tmp_path / "site", Plan(), 21000, NOW)
    (made.directory / "g1" / "data").mkdir()
    (made.directory / "g1" / "data" / "outbox.sqlite3").write_text("of the moment")
    return made.directory / "g1"


def test_a_lost_folder_comes_back_and_is_checked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "g1.tar.gz"
    assert run(["backup", str(folder), str(archive)]) == 0
    assert archive.stat().st_mode & 0o077 == 0
    before = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file() and "data" not in p.parts}
    shutil.rmtree(folder)
    assert run(["restore", str(archive), str(folder)]) == 0
    assert {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before | {
        path.relative_to(folder): path.read_bytes()
        for path in (*folder.rglob("overlay.pin"), folder / "identity" / ".restored")
    }
    assert not (folder / "data").exists()
    assert (folder / "identity" / "key.pem").stat().st_mode & 0o077 == 0
    assert run(["restore", str(archive), str(folder)]) == 2
    assert "holds something already" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["data/security.json", "data/kept/of-the-console.json", "users.json"])
def test_users_that_the_console_made_are_in_it_and_nothing_else_of_the_data(
    folder: Path, tmp_path: Path, place: str
) -> None:
    with edited(folder / CONFIG) as settings:
        settings["plugins"] = {"gateway.auth.dynamic.DynamicPlugin": {"file": place}}
    (folder / place).parent.mkdir(exist_ok=True)
    Security().save(folder / place)
    (folder / "data" / "console-tokens.json").write_text("[]")
    assert place in back_up(folder, tmp_path / "a.tar.gz")
    assert restore(tmp_path / "a.tar.gz", tmp_path / "again") > 0
    assert Security.load(tmp_path / "again" / place) == Security()
    found = [path for path in (tmp_path / "again").rglob("*") if path.is_file() and "data" in path.parts]
    assert [path.relative_to(tmp_path / "again").as_posix() for path in found] == [place] * place.startswith("data/")


def repacked(archive: Path, change: dict[str, bytes], extra: tarfile.TarInfo | None = None) -> None:
    with tarfile.open(archive) as packed:
        found = {entry.name: packed.extractfile(entry).read() for entry in packed}  # type: ignore[union-attr]
    with tarfile.open(archive, "w:gz") as packed:
        for name, content in {**found, **change}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
        if extra is not None:
            packed.addfile(extra)


def link(name: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return entry


@pytest.mark.parametrize(
    ("change", "extra", "said"),
    [
        ({"broker.yaml": b"altered: true"}, None, "not as it was"),
        ({"more": b"x"}, None, "not as it was"),
        ({"../outside": b"x"}, None, "which no backup does"),
        ({"/outside": b"x"}, None, "which no backup does"),
        ({}, link("overlay.json2"), "which no backup does"),
        ({MANIFEST: b"{}"}, None, "is no backup"),
        ({MANIFEST: b'{"veilmq_backup": 2, "files": {}}'}, None, "upgrade veilmq"),
    ],
)
def test_what_was_altered_writes_nothing(
    folder: Path, tmp_path: Path, change: dict[str, bytes], extra: tarfile.TarInfo | None, said: str
) -> None:
    archive = tmp_path / "g1.tar.gz"
    back_up(folder, archive)
    repacked(archive, change, extra)
    with pytest.raises(SetupError, match=said):
        restore(archive, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_file_cut_anywhere_is_refused(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "g1.tar.gz"
    back_up(folder, archive)
    whole = archive.read_bytes()
    for length in range(0, len(whole) * 9 // 10, len(whole) // 20):  # only padding is at its very end
        archive.write_bytes(whole[:length])
        with pytest.raises(SetupError):
            restore(archive, tmp_path / "new")


def test_links_and_absent_folders_are_no_backup(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no such folder"):
        back_up(tmp_path / "absent", tmp_path / "a.tar.gz")
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(SetupError, match="is a link"):
        back_up(folder, tmp_path / "a.tar.gz")


@pytest.mark.parametrize("unreadable", ["identity", "domain", "overlays"])
def test_a_folder_that_may_not_be_read_is_no_backup(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: str
) -> None:
    """Root reads all, so that the refusal of the system is played."""
    hidden = folder / unreadable
    hidden.mkdir(exist_ok=True)
    scandir = os.scandir

    def refused(path: str) -> Any:
        if Path(path) == hidden:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(SetupError, match=f"{unreadable}: Permission denied"):
        back_up(folder, tmp_path / "a.tar.gz")
    assert not (tmp_path / "a.tar.gz").exists()


@pytest.mark.parametrize("gone", ["identity/key.pem", "overlay.json"])
def test_a_folder_without_what_its_configuration_names_is_no_backup(folder: Path, tmp_path: Path, gone: str) -> None:
    (folder / gone).unlink()
    with pytest.raises(SetupError, match=f"{gone}: is missing"):
        back_up(folder, tmp_path / "a.tar.gz")


def test_an_identity_elsewhere_is_said_and_a_linked_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "identity").rename(tmp_path / "identity")
    (folder / "identity").symlink_to(tmp_path / "identity")
    with pytest.raises(SetupError, match="is a link"):
        back_up(folder, tmp_path / "a.tar.gz")
    (folder / "identity").unlink()
    text = (folder / CONFIG).read_text()
    (folder / CONFIG).write_text(text.replace("identity: identity", f"identity: {tmp_path / 'identity'}"))
    with pytest.raises(SetupError, match="is outside"):
        back_up(folder, tmp_path / "a.tar.gz")


def test_an_owner_from_a_backup_signs_no_version_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = make_overlay(tmp_path / "site", Plan(), 21000, NOW).directory
    owner, description, signed = site / "owner", site / "overlay.yaml", site / "overlay.json"
    sign = ["overlay", "sign", "--owner", str(owner), str(description), "--out"]
    archive = tmp_path / "owner.tar.gz"
    assert run(["backup", str(owner), str(archive)]) == 0
    assert run([*sign, str(signed)]) == 0
    shutil.rmtree(owner)
    assert run(["restore", str(archive), str(owner)]) == 0
    capsys.readouterr()
    assert run([*sign, str(tmp_path / "fresh.json")]) == 2
    assert "so that no version is signed twice" in capsys.readouterr().err
    assert run([*sign, str(signed)]) == 2
    assert "restore a newer backup of it" in capsys.readouterr().err


def test_an_owner_from_the_newest_backup_goes_on_from_the_file_that_members_have(tmp_path: Path) -> None:
    site = make_overlay(tmp_path / "site", Plan(), 21000, NOW).directory
    owner, signed = site / "owner", site / "overlay.json"
    sign = ["overlay", "sign", "--owner", str(owner), str(site / "overlay.yaml"), "--out"]
    archive = tmp_path / "owner.tar.gz"
    assert run(["backup", str(owner), str(archive)]) == 0
    shutil.rmtree(owner)
    assert run(["restore", str(archive), str(owner)]) == 0
    assert run([*sign, str(signed)]) == 0
    assert run([*sign, str(tmp_path / "fresh.json")]) == 0
