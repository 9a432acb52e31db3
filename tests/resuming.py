"""A long run that goes on where it was cut: `pytest --resume FILE`.

FILE names the state of the files under version control, then each test that passed in that state. A later run with the
same files leaves these tests out. When a run of all tests has passed, FILE is removed.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--resume", type=Path, metavar="FILE", help="leave out what passed before, by FILE")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--resume")
    if path is not None:
        config.pluginmanager.register(Resuming(path, state(), not hasattr(config, "workerinput")))


def state() -> str:
    """Returns a hash of the commit and of each change to tracked files since."""
    said = [["rev-parse", "HEAD"], ["diff", "HEAD"]]
    output = [subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout for words in said]
    return hashlib.sha256(b"".join(output)).hexdigest()


class Resuming:
    """Plugin that reads and writes the file of passed tests; with xdist, the process without tests writes."""

    def __init__(self, path: Path, now: str, writes: bool) -> None:
        self.path, self.now, self.writes = path, now, writes

    def passed(self) -> set[str]:
        """Returns the tests that passed with these files; none if the file is of another state."""
        lines = self.path.read_text().splitlines() if self.path.is_file() else []
        return set(lines[1:]) if lines[:1] == [self.now] else set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        passed = self.passed()
        left_out = [item for item in items if item.nodeid in passed]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid not in passed]

    def pytest_sessionstart(self) -> None:
        if self.writes and not self.passed():
            self.path.write_text(f"{self.now}\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.writes and report.when == "call" and report.passed:
            with self.path.open("a") as file:
                file.write(f"{report.nodeid}\n")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if self.writes and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            self.path.unlink(missing_ok=True)
