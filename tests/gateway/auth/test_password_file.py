"""Changing a password file: other lines stay, the file is replaced in one step, and mistakes are one line."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gateway.auth import password_file
from gateway.auth.password_file import PasswordFile, PasswordFileError

KNOWN = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaA"
LINES = ["# ours", "", "ann:x", "ben:y", "no colon", "#ann:z"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "users"
    made.write_text("".join(f"{line}\n" for line in LINES))
    made.chmod(0o640)
    return made


def test_users_are_those_of_lines_that_name_one(path: Path) -> None:
    assert PasswordFile(path).users == {"ann": "x", "ben": "y"}


@pytest.mark.parametrize("code", [0x0B, 0x0C, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029])
def test_no_name_or_comment_begins_another_users_line(path: Path, code: int) -> None:
    with pytest.raises(PasswordFileError, match="cannot stand"):
        PasswordFile(path).put_hash(f"cat{chr(code)}ann", "c")
    path.write_text(f"# of{chr(code)}ann:forged\nben:y\n")
    file = PasswordFile(path)
    assert file.users == {"ben": "y"}
    file.save()
    assert path.read_text() == f"# of{chr(code)}ann:forged\nben:y\n"


def test_a_new_user_comes_last_and_a_known_one_has_one_line(path: Path) -> None:
    file = PasswordFile(path)
    assert file.put_hash("cat", "c")
    assert not file.put_hash("ann", "new")
    file.save()
    assert path.read_text().splitlines() == ["# ours", "", "ben:y", "no colon", "#ann:z", "cat:c", "ann:new"]


def test_who_is_removed_is_gone_and_who_is_not_there_is_named(path: Path) -> None:
    file = PasswordFile(path)
    file.remove_user("ann")
    assert file.users == {"ben": "y"}
    with pytest.raises(PasswordFileError, match="no user ann; nothing is changed"):
        file.remove_user("ann")
    with pytest.raises(PasswordFileError):
        file.remove_user("no colon")


@pytest.mark.parametrize("user", ["", "a:b", "a\nb", "a\rb", "a\0b", "#a", "é" * 32_768])
def test_a_name_that_no_line_can_hold_is_refused(path: Path, user: str) -> None:
    file = PasswordFile(path)
    with pytest.raises(PasswordFileError, match="cannot stand"):
        file.put_hash(user, "x")
    assert file.users == {"ann": "x", "ben": "y"}
    assert file.put_hash("é" * 32_767, "x")


def test_saving_keeps_the_mode_and_leaves_nothing_beside(path: Path) -> None:
    file = PasswordFile(path)
    file.put_hash("cat", "c")
    file.save()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [each.name for each in path.parent.iterdir()] == ["users"]


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    file = PasswordFile(tmp_path / "new")
    assert file.users == {}
    file.put_hash("ann", "x")
    file.save()
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


def test_a_file_that_cannot_be_written_says_so_and_is_as_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(password_file.os, "fsync", refuse)
    file = PasswordFile(path)
    file.put_hash("cat", "c")
    with pytest.raises(PasswordFileError, match="No space left"):
        file.save()
    assert path.read_text().splitlines() == LINES
    assert [each.name for each in path.parent.iterdir()] == ["users"]


def test_what_is_no_password_file_is_refused_unread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PasswordFileError, match="no such file; make it with"):
        PasswordFile(path.with_name("absent"), must_exist=True)
    with pytest.raises(PasswordFileError, match="name another file"):
        PasswordFile(path.parent)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PasswordFileError, match="not UTF-8"):
        PasswordFile(path)
    monkeypatch.setattr(password_file, "FILE_BYTES_MAX", 1)
    with pytest.raises(PasswordFileError, match="larger than 1 bytes"):
        PasswordFile(path)


def test_hashes_of_a_kind_that_nobody_verifies_are_named(path: Path) -> None:
    assert PasswordFile(path).unknown == ["ann", "ben"]
