"""Processes that are forked for a test behave as `Popen`'s do."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.forking import Forked, Process, run
from tests.spark_ingest.warm_python import warm_python
from tests.waits import wait_until

NOTHING = "import gateway\n"


def begin(directory: Path, code: str, *arguments: str) -> Process:
    process = run(["-c", NOTHING + code, *arguments], directory, {"A": "b"}, directory / "out", directory / "err")
    assert isinstance(process, Forked)
    return process


def test_a_process_has_its_place_arguments_environment_and_files(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), sys.argv, dict(os.environ), sys.stdin.read()); sys.exit('no')"
    process = begin(tmp_path, code, "x", "y")
    assert process.wait(20) == 1
    assert (tmp_path / "out").read_text() == f"{tmp_path} ['-c', 'x', 'y'] {{'A': 'b'}} \n"
    assert (tmp_path / "err").read_text() == "no\n"
    assert process.poll() == process.returncode == 1


def test_a_process_that_raises_says_so(tmp_path: Path) -> None:
    process = begin(tmp_path, "raise ValueError('seven')")
    assert process.wait(20) == 1
    assert "ValueError: seven" in (tmp_path / "err").read_text()


def test_processes_are_waited_for_and_killed_one_by_one(tmp_path: Path) -> None:
    first, second = (begin(tmp_path, "import time; time.sleep(60)") for _ in range(2))
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.05)
    assert first.poll() is None
    first.kill()
    assert first.wait(20) == -signal.SIGKILL
    assert second.poll() is None
    second.terminate()
    assert second.wait(20) == -signal.SIGTERM
    second.kill()  # of a process that ended it is nothing


def test_one_process_knows_nothing_of_another(tmp_path: Path) -> None:
    """Neither its modules nor its random numbers."""
    code = "import gateway, random; print(getattr(gateway, 'left', random.random())); gateway.left = 'something'"
    for _ in range(2):
        assert begin(tmp_path, code).wait(20) == 0
    numbers = [float(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert len(set(numbers)) == 2


def test_other_programs_are_not_forked(tmp_path: Path) -> None:
    process = run(["-c", "print(1)"], tmp_path, {}, tmp_path / "out", tmp_path / "err")
    assert isinstance(process, subprocess.Popen)
    assert process.wait(20) == 0


def test_periods_are_shorter_than_in_operation(tmp_path: Path) -> None:
    code = "from gateway.overlay import driver; from gateway.trust import live_overlay as operation\n"
    code += "print(driver.LOOK_EVERY_S < operation.LOOK_EVERY_S)"
    assert begin(tmp_path, code).wait(20) == 0
    assert (tmp_path / "out").read_text() == "True\n"


def test_a_worker_of_spark_that_is_forked_has_its_streams_and_ends_with_the_process_that_asked(tmp_path: Path) -> None:
    with warm_python(tmp_path) as program:
        shown = subprocess.run(
            [program, "-m", "json.tool", "--compact"], input=b"[1, 2]", capture_output=True, check=True
        )
        assert (shown.stdout, shown.stderr) == (b"[1,2]\n", b"")
        endless = [program, "-m", "timeit", "-n", "1", "open('begun', 'w'); import time; time.sleep(60)"]
        with subprocess.Popen(endless, cwd=tmp_path, stdout=subprocess.PIPE) as asking:
            assert asking.stdout is not None
            assert wait_until((tmp_path / "begun").exists)
            asking.terminate()
            assert asking.stdout.read() == b"", "the end of a stream that both had"
        assert asking.returncode == -signal.SIGTERM
