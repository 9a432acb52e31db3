"""What failed while other tests crowded the machine is run once more, alone.

Several hundred tests start real processes and wait for what these do; four files run at a time on two cores. Now and
then one of them fails for want of processor time alone. Such tests are run again by themselves at the end, and a run in
which they all pass then is green. Nothing is hidden: the first failure is printed whole as ever, and the summary names
each test that passed only alone. Two ends are kept tight:

    tests of `keys/`, `bridge/`, `sim/`, `fuzz/`    wait for nothing: a failure is a failure
    more than a few failures                        are no accident: nothing is run again
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PURE = ("tests/keys/", "tests/bridge/", "tests/sim/", "tests/fuzz/", "tests/mutation/", "tests/test_")
FEW = 4
ALONE_S = 900.0
"""How long all second runs together may take."""


class SecondChance:
    """Plugin of the process that hands out the tests."""

    def __init__(self) -> None:
        self.failed: dict[str, None] = {}
        self.passed_alone: list[str] = []
        self.first_failures: list[pytest.TestReport] = []
        self.last_words = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.TESTS_FAILED and deserve_it(tuple(self.failed)):
            self.last_words = run_alone(tuple(self.failed), session.config)
            if not self.last_words:
                self.passed_alone = list(self.failed)
                session.exitstatus = pytest.ExitCode.OK
                self._count_no_failure(session.config)

    def _count_no_failure(self, config: pytest.Config) -> None:
        """Takes first failures out of the count of failures: a run that is green does not end with "2 failed"."""
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            self.first_failures = reporter.stats.pop("failed", [])
            reporter.stats["passed alone"] = self.first_failures

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.last_words:
            terminalreporter.write_line("failed alone, too:", red=True)
            terminalreporter.write_line(self.last_words)
        for report in self.first_failures:
            terminalreporter.write_sep("_", f"first failure of {report.nodeid}")
            terminalreporter.write_line(report.longreprtext)
        for nodeid in self.passed_alone:
            terminalreporter.write_line(f"failed beside others, passed alone: {nodeid}", yellow=True, bold=True)


def deserve_it(failed: tuple[str, ...]) -> bool:
    """Whether these failures may be for want of processor time: few, and each of a test that waits for something."""
    return 0 < len(failed) <= FEW and not any(nodeid.startswith(PURE) for nodeid in failed)


def run_alone(failed: tuple[str, ...], config: pytest.Config) -> str:
    """What pytest prints when one of them fails by itself; nothing when all pass."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "", *failed]
    try:
        done = subprocess.run(
            command, cwd=config.rootpath, capture_output=True, text=True, timeout=ALONE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not done within {ALONE_S:g} s"
    return "" if done.returncode == 0 else done.stdout[-20_000:] + done.stderr[-2_000:]
