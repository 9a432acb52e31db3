"""Seconds of workers by test file: `pytest --times 20` prints the twenty files that took most."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=int, metavar="N", help="print the N files that took most of the workers' time")


def pytest_configure(config: pytest.Config) -> None:
    if (shown := config.getoption("--times")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Times(shown))


class Times:
    """Plugin that adds up what setup, call and teardown of each test took; with xdist, in the process without tests."""

    def __init__(self, shown: int) -> None:
        self.shown = shown
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        whole = sum(self.seconds.values())
        terminalreporter.section(f"{whole:,.0f} s of workers, by file")
        for path, seconds in sorted(self.seconds.items(), key=lambda each: -each[1])[: self.shown]:
            terminalreporter.write_line(f"{seconds:8.1f} s {100 * seconds / (whole or 1):5.1f} %  {path}")
