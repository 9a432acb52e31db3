"""Processes of the demonstration: accidents are told, kills are none, nothing is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gateway.demo import processes
from gateway.demo.processes import DemoProcesses
from gateway.demo.setup import DemoError
from tests.waits import wait_until


def _await(fleet: DemoProcesses) -> DemoError:
    errors: list[DemoError] = []

    def ended() -> bool:
        try:
            fleet.check_running()
        except DemoError as error:
            errors.append(error)
        return bool(errors)

    assert wait_until(ended), "the process did not end"
    return errors[0]


def test_a_process_that_dies_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with DemoProcesses(tmp_path) as fleet:
        fleet.start("r1a", "-c", "import sys; print('first'); sys.exit('last words')")
        error = _await(fleet)
    assert error.status == 1
    assert str(error).startswith("r1a ended unexpectedly with status 1")
    assert set(error.tail) == {"first", "last words"}


def test_bad_input_of_a_process_is_one_line_and_status_2(tmp_path: Path) -> None:
    code = "import sys; print('veilmq: the port is in use; bind another', file=sys.stderr); sys.exit(2)"
    with DemoProcesses(tmp_path) as fleet:
        fleet.start("plain", "-c", code)
        error = _await(fleet)
    assert (error.status, str(error), error.tail) == (2, "plain: the port is in use; bind another", ())


def test_a_killed_process_is_no_accident_and_runs_again(tmp_path: Path) -> None:
    with DemoProcesses(tmp_path) as fleet:
        process = fleet.start("r1a", "-c", "import time; time.sleep(60)")
        process.kill()
        fleet.check_running()
        fleet.start("r1a", "-c", "import time; time.sleep(60)")
        fleet.check_running()
        fleet["r1a"].signal(signal.SIGKILL)  # this one nobody asked for
        assert "by signal 9" in str(_await(fleet))


def test_nothing_is_left_of_a_process_that_will_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "TERMINATE_S", 0.2)
    code = (
        "import signal, subprocess, sys, time, pathlib\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path('pid.new').write_text(str(child.pid)); pathlib.Path('pid.new').rename('pid')\ntime.sleep(60)"
    )
    with DemoProcesses(tmp_path) as fleet:
        fleet.start("stubborn", "-c", code)
        assert wait_until((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, 0)
    assert wait_until(lambda: not _runs(pid)), "the kernel takes its time to end a killed process, not so long"


def _runs(pid: int) -> bool:
    """Whether it is there and no zombie that its new parent has not noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
