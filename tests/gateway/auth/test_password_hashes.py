"""Hashes and password files that Mosquitto and ours read from each other; `veilmq passwd` as an operator uses it."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.auth.password_file import PasswordFile
from gateway.auth.password_hashes import HashError, is_known, make_hash, verify
from gateway.cli import run

# Made by `mosquitto_passwd -b` of Mosquitto 2.0.11, and by its `-H sha512`, with the password `pw1`.
MADE_THERE = {
    "seven": "$7$101$A/ypQqsS2H36LkE0$ezqbqCf+1RPJyRAHJeWFjemnbu3TeK/5"
    "EKhbuNc7dLxMM9xDCWFadM1DUVf++U4/3BAgdYAy7+cOiGeTHFTiIw==",
    "six": "$6$R41awLr93EtFlero$Id70o0J+MU+yuKWchINwqpk+Yd/0ckZucX"
    "Bdn5c4eVx1ZMRnvyFaYkxH/ejoKOvVqTDN5oTPNo7+XTh2lk2etg==",
}  # fmt: skip


def test_what_mosquitto_made() -> None:
    for hashed in MADE_THERE.values():
        assert verify(b"pw1", hashed)
        assert not verify(b"pw2", hashed)


@given(st.binary(max_size=100), st.binary(max_size=100))
@example(b"", b"\0")
def test_a_hash_is_of_its_password_only(password: bytes, other: bytes) -> None:
    """Zeros at the end count for nothing: HMAC fills a key of less than a block with them (RFC 2104)."""
    hashed = make_hash(password, os.urandom, iterations=1)
    assert verify(password, hashed)
    assert verify(other, hashed) == (other.rstrip(b"\0") == password.rstrip(b"\0"))


@given(st.text())
def test_any_text_is_a_hash_or_refused(text: str) -> None:
    assert not is_known(text)
    with pytest.raises(HashError):
        verify(b"", text)


@pytest.mark.parametrize(
    "hashed",
    ["$7$0$YQ==$YQ==", "$7$99999999999$YQ==$YQ==", "$7$-1$YQ==$YQ==", "$7$1$YQ==$YQ==", "$6$YQ==$", "$8$1$a$b",
     "7$1$YQ==$" + "A" * 86 + "==", "$7$" + "1" * 2000],
)  # fmt: skip
def test_what_would_cost_much_or_prove_little_is_refused(hashed: str) -> None:
    with pytest.raises(HashError):
        verify(b"", hashed)


def test_the_command_adds_changes_and_removes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "passwords"
    assert run(["passwd", str(file), "ann", "one", "-b"]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr("sys.stdin", io.StringIO("two\n"))
    assert run(["passwd", str(file), "bob"]) == 0
    assert run(["passwd", str(file), "ann", "three", "-b", "-I", "5"]) == 0
    users = PasswordFile(file).users
    assert verify(b"three", users["ann"])
    assert verify(b"two", users["bob"])
    assert run(["passwd", str(file), "bob", "-D"]) == 0
    assert list(PasswordFile(file).users) == ["ann"]
    assert "three" not in capsys.readouterr().out


def test_the_file_keeps_its_mode_and_lines_of_others(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    file.write_text("# of the site\nold:$argon2id$x\n")
    file.chmod(0o640)
    assert run(["passwd", str(file), "ann", "one", "-b"]) == 0
    assert file.read_text().startswith("# of the site\nold:$argon2id$x\nann:$7$")
    assert file.stat().st_mode & 0o777 == 0o640
    assert PasswordFile(file).unknown == ["old"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ann", "pw"], "go together"),
        (["ann", "-b"], "go together"),
        (["a:b", "pw", "-b"], "cannot stand"),
        (["#a", "pw", "-b"], "cannot stand"),
        (["ann", "", "-b"], "empty password"),
        (["ann", "-D"], "no such file"),
        (["ann", "pw", "-b", "-I", "999999999"], "not between"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(["passwd", str(tmp_path / "passwords"), *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "passwords").exists()


@pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="no mosquitto_passwd; make tools")
def test_mosquittos_own_tool_reads_our_file(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    assert run(["passwd", str(file), "ann", "one", "-b"]) == 0
    subprocess.run(["mosquitto_passwd", "-b", str(file), "bob", "two"], check=True, timeout=20)
    users = PasswordFile(file).users
    assert verify(b"one", users["ann"])
    assert verify(b"two", users["bob"])
