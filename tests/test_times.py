"""The table of the files that took most of the workers' time."""

from __future__ import annotations

import pytest

from tests.times import Times

pytest_plugins = ["pytester"]


def test_files_are_told_the_slowest_first_and_with_their_part(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_quick="def test_a(): pass",
        test_other="def test_a(): pass",
        test_long="import time\ndef test_a(): time.sleep(0.2)\ndef test_b(): time.sleep(0.2)",
    )
    ran = pytester.inline_run("-p", "no:cacheprovider", plugins=[times := Times(shown=1)])
    assert ran.ret == 0
    assert times.seconds.keys() == {"test_quick.py", "test_other.py", "test_long.py"}
    assert times.seconds["test_long.py"] >= 0.4
    written: list[str] = []

    class Terminal:
        def section(self, title: str) -> None:
            written.append(title)

        def write_line(self, line: str) -> None:
            written.append(line)

    times.pytest_terminal_summary(Terminal())
    assert [line.rpartition(" ")[2] for line in written] == ["file", "test_long.py"]
