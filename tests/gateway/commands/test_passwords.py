"""`veilmq passwd`: users are added, changed and removed; mistakes are one line and change nothing."""

from __future__ import annotations

import getpass
import io
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.password_file import PasswordFile, PasswordFileError
from gateway.auth.passwords import Users
from gateway.commands.passwords import asked
from tests import forking


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "passwords"


def let_in(file: Path, user: str, password: bytes) -> bool:
    return Users(PasswordFile(file).users).check_password(user, password)


def test_a_user_is_added_changed_and_removed(file: Path, veilmq: Any) -> None:
    assert veilmq("passwd", "-b", file, "ann", "first")[:2] == (0, f"ann is added to {file}\n")
    assert let_in(file, "ann", b"first")
    assert veilmq("passwd", "-b", file, "ann", "second")[:2] == (0, f"ann has a new password in {file}\n")
    assert let_in(file, "ann", b"second")
    assert not let_in(file, "ann", b"first")
    assert file.stat().st_mode & 0o077 == 0
    assert veilmq("passwd", "-D", file, "ann")[:2] == (0, f"ann is removed from {file}\n")
    assert PasswordFile(file).users == {}


def test_a_password_comes_from_standard_input_without_its_end_of_line(
    file: Path, veilmq: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("two words \r\nmore"))
    status, out, err = veilmq("passwd", file, "ann")
    assert (status, err) == (0, "")
    assert "two words" not in out
    assert let_in(file, "ann", b"two words ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("FILE", "ann", "secret"), "go together"),
        (("-b", "FILE", "ann"), "go together"),
        (("-b", "FILE", "ann", ""), "empty password"),
        (("-b", "FILE", "a:b", "secret"), "cannot stand in a password file"),
        (("-b", "-I", "-1", "FILE", "ann", "secret"), "-I: "),
        (("-b", "-I", "0", "FILE", "ann", "secret"), "-I: "),
        (("-D", "FILE", "ann"), "no such file"),
        (("-b", "FOLDER", "ann", "secret"), "name another file"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    file: Path, veilmq: Any, arguments: tuple[str, ...], said: str
) -> None:
    paths = {"FILE": str(file), "FOLDER": str(file.parent)}
    status, out, err = veilmq("passwd", *(paths.get(each, each) for each in arguments))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert "secret" not in err
    assert not file.exists()


def test_who_is_not_there_cannot_be_removed(file: Path, veilmq: Any) -> None:
    veilmq("passwd", "-b", file, "ann", "first")
    before = file.read_bytes()
    status, _, err = veilmq("passwd", "-D", file, "bob")
    assert (status, "no user bob" in err) == (2, True)
    assert file.read_bytes() == before


class Terminal(io.StringIO):
    """Standard input that is somebody at a keyboard."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("typed", [("one", "one"), ("one", "other")])
def test_a_terminal_is_asked_twice(monkeypatch: pytest.MonkeyPatch, typed: tuple[str, str]) -> None:
    words = iter(typed)
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr(getpass, "getpass", lambda prompt: next(words))
    if typed[0] == typed[1]:
        assert asked("ann") == "one"
    else:
        with pytest.raises(PasswordFileError, match="differ; nothing is changed"):
            asked("ann")


@pytest.mark.attack(161)
def test_a_user_who_is_removed_while_another_password_is_typed_stays_removed(
    file: Path, veilmq: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ann", "ben"):
        veilmq("passwd", "-b", file, name, "first")

    def typed() -> str:
        assert veilmq("passwd", "-D", file, "ben")[0] == 0
        return "second\n"

    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("sys.stdin.readline", typed, raising=False)
    assert veilmq("passwd", file, "ann")[0] == 0
    assert list(PasswordFile(file).users) == ["ann"]
    assert let_in(file, "ann", b"second")


@pytest.mark.attack(161)
def test_users_added_in_parallel_are_all_there(file: Path) -> None:
    """Processes of their own, since a thread of this process would not wait for a lock of another."""
    add = "import sys; from gateway.auth.password_file import changing; from pathlib import Path\n"
    add += (
        "for n in range(20):\n    with changing(Path(sys.argv[1])) as users: users.put_hash(f'{sys.argv[2]}{n}', 'x')"
    )
    said = file.with_name("said")
    made = [forking.run(["-c", add, str(file), name], None, os.environ, said, said) for name in "abc"]
    assert [one.wait(60) for one in made] == [0, 0, 0]
    assert len(PasswordFile(file).users) == 60
