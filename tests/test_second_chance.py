"""A failure on a crowded machine gets a second run; a failure that stays, or one of pure code, fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_chance import FEW, deserve_it

SLOW_ONES = "tests/gateway/test_region.py::test_"
BEFORE = """
from pathlib import Path
def test_passes(): pass
def test_only_alone():
    mark = Path(__file__).with_suffix(".seen")
    seen = mark.exists()
    mark.touch()
    assert seen, "crowded"
"""
NEVER = "def test_never(): assert False, 'for good'\n"


def test_few_failures_of_tests_that_wait_get_one_and_pure_ones_do_not() -> None:
    assert deserve_it(tuple(f"{SLOW_ONES}{number}" for number in range(FEW)))
    assert not deserve_it(tuple(f"{SLOW_ONES}{number}" for number in range(FEW + 1)))
    assert not deserve_it(())
    assert not deserve_it((f"{SLOW_ONES}a", "tests/bridge/reader/test_blame.py::test_b"))


def run(folder: Path, content: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "gateway").mkdir()
    (folder / "gateway" / "test_it.py").write_text(content)
    (folder / "conftest.py").write_text(
        "from tests.second_chance import SecondChance\n"
        "def pytest_configure(config):\n"
        "    if config.option.numprocesses != 0 and not hasattr(config, 'workerinput'):\n"
        "        config.pluginmanager.register(SecondChance())\n"
    )
    paths = {
        **os.environ,
        "PYTHONPATH": os.fspath(Path(__file__).resolve().parents[1]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # hypothesis and others, which each process would import
        "PYTEST_ADDOPTS": "-p xdist",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "gateway"]
    return subprocess.run(command, cwd=folder, env=paths, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_what_passes_alone_is_named_and_its_failure_shown(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run(tmp_path, BEFORE, *options)
    assert done.returncode == 0, done.stdout
    assert "failed beside others, passed alone: gateway/test_it.py::test_only_alone" in done.stdout
    assert "crowded" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert "1 passed" in last
    assert "failed" not in last.replace("passed alone", ""), "a green run counts no failure"


def test_what_fails_alone_too_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, BEFORE + NEVER)
    assert done.returncode == 1
    assert "failed alone, too:" in done.stdout
    assert "passed alone: " not in done.stdout
