"""The table of the files and tests that took most of a processor."""

from __future__ import annotations

import pytest

from tests.times import Times

pytest_plugins = ["pytester"]

WORK = """
import subprocess, sys, time
def work():
    begun = time.process_time()
    while time.process_time() < begun + 0.2:
        pass
"""
ITSELF, CHILD = "def test_a(): work()\n", "def test_b(): subprocess.run([sys.executable, __file__])\n"


def test_files_are_told_the_slowest_first_and_with_their_part(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_quick="def test_a(): pass",
        test_other="def test_a(): pass",
        test_long=f"{WORK}{ITSELF}{CHILD}if __name__ == '__main__':\n    work()\n",
    )
    ran = pytester.inline_run("-p", "no:cacheprovider", plugins=[times := Times(shown=1)])
    assert ran.ret == 0
    assert times.files.keys() == {"test_quick.py", "test_other.py", "test_long.py"}
    assert times.files["test_long.py"] >= 0.4
    assert all(times.tests[f"test_long.py::test_{name}"] >= 0.2 for name in "ab")
    written: list[str] = []

    class Terminal:
        def section(self, title: str) -> None:
            written.append(title)

        def write_line(self, line: str) -> None:
            written.append(line)

    times.pytest_terminal_summary(Terminal())
    shown = [line.rpartition(" ")[2] for line in written]
    assert shown[:2] == ["begin", "test_long.py"]
    assert shown[3] in ("test_long.py::test_a", "test_long.py::test_b")
