"""Seconds of a processor by test file: `pytest --times 20` prints the twenty files and the twenty tests that took most.

Two cores are busy all the while `make test` runs, so that its length follows from what tests take of a processor, and
not from what they wait for. Counted is the process of a test with all that descend from it, such as Java and brokers.
"""

from __future__ import annotations

import os
import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PER_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=int, metavar="N", help="print the N files and tests that took most of a processor")


def pytest_configure(config: pytest.Config) -> None:
    if shown := config.getoption("--times"):
        config.pluginmanager.register(Times(shown))


def processor_s() -> float:
    """Returns the seconds of a processor that this process took, and all that descend from it, also if they live on."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(_with_descendants_s, _children("self")))


def _children(process: str) -> list[str]:
    found: list[str] = []
    for told in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += told.read_text().split()
        except OSError:  # the thread has ended
            continue
    return found


def _with_descendants_s(process: str) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # the process has ended, and is among those waited for by the next reading
        return 0.0
    return PER_TICK_S * sum(map(int, fields[11:15])) + sum(map(_with_descendants_s, _children(process)))


class Times:
    """Plugin that adds up what each test took. With xdist, workers measure and the process without tests adds up."""

    def __init__(self, shown: int) -> None:
        self.shown = shown
        self.until = 0.0
        self.before: list[float] = []
        self.files: dict[str, float] = defaultdict(float)
        self.tests: dict[str, float] = defaultdict(float)
        self.lasted: dict[str, float] = defaultdict(float)

    def pytest_configure(self, config: pytest.Config) -> None:
        self.config = config

    def _since(self) -> float:
        until, self.until = self.until, processor_s()
        return self.until - until

    def pytest_collection_finish(self) -> None:
        self.before.append(self._since())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report: Any = yield
        report.processor_s = self._since()
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.files[report.nodeid.partition("::")[0]] += report.processor_s
        self.tests[report.nodeid] += report.processor_s
        for name in (report.nodeid.partition("::")[0], report.nodeid):
            self.lasted[name] += report.duration

    def pytest_sessionfinish(self) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["before_s"] = self.before[0]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.before.append(getattr(node, "workeroutput", {}).get("before_s", 0.0))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        whole = sum(self.files.values())
        terminalreporter.section(f"{whole:,.0f} s of a processor, by file; {sum(self.before):,.0f} s until tests begin")
        for taken in (self.files, self.tests):
            for name, seconds in sorted(taken.items(), key=lambda each: -each[1])[: self.shown]:
                part = 100 * seconds / (whole or 1)
                terminalreporter.write_line(f"{seconds:8.1f} s {part:5.1f} %  in {self.lasted[name]:6.1f} s  {name}")
            terminalreporter.write_line("")
