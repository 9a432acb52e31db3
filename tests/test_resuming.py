"""A run that was cut goes on with the tests that had not passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.resuming import Resuming

pytest_plugins = ["pytester"]
TESTS = """
import pathlib

def note(name):
    with open("ran", "a") as file:
        file.write(name)

def test_a():
    note("a")

def test_b():
    note("b")
    assert pathlib.Path("mended").exists()
"""


def run(pytester: pytest.Pytester, now: str = "one") -> None:
    path = pytester.path / "passed"
    pytester.inline_run("-p", "no:cacheprovider", plugins=[Resuming(path, now, writes=True)])


def ran(pytester: pytest.Pytester) -> str:
    path = pytester.path / "ran"
    text = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    return text


def test_what_passed_is_left_out_until_all_passed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    run(pytester)
    assert ran(pytester) == "ab"
    run(pytester)
    assert ran(pytester) == "b"
    Path("mended").touch()
    run(pytester)
    assert ran(pytester) == "b"
    assert not (pytester.path / "passed").exists()
    run(pytester)
    assert ran(pytester) == "ab"


def test_other_files_begin_anew(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    run(pytester)
    ran(pytester)
    run(pytester, "two")
    assert ran(pytester) == "ab"
