"""Which test files run beside each other, and which first, with several workers.

A file stays on one worker (`--dist loadfile`). Left to itself, that plan hands out files by their number of tests: the
files of one long test come last, and at the end one worker is at work where four could be. And each worker starts a
Spark of its own, which costs half a minute of two cores. So:

    all files that use the fixture `spark`    one after the other on one worker, begun first
    the longest others                        next: begun late, one of them would be at work alone
    files of a test that may take hours       then, with those
    files that start processes                which take long and mostly wait
    all others                                fill the gaps

With `--quick`, only the tests of single rooms that start no process and no Spark are collected.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
USES_SPARK = re.compile(r"\b(spark: Any|site: Site)\b")
STARTS_PROCESSES = re.compile(
    r"\b(OverlayProcesses|WorkingReceiver|subprocess|forking|run_veilmq|console\.running|mosquitto|chromium)\b"
)
ONE_ROOM = re.compile(r"tests/(keys|fuzz|(bridge|gateway|spark_ingest)/\w+)/")
TAKES_HOURS = re.compile(r"\btimeout\(7_200\)")

LONGEST = (
    *("tests/sim/test_organiser.py", "tests/sim/test_wrapped_paths.py", "tests/sim/test_restarts.py"),
    *("tests/sim/test_planes.py", "tests/sim/test_key_repository.py", "tests/test_repository.py"),
    *("tests/interop/test_hosted_brokers.py", "tests/gateway/test_region.py", "tests/gateway/test_attach_detach.py"),
    *("tests/gateway/test_shared_groups.py", "tests/sim/test_flood.py", "tests/sim/test_faults.py"),
    *("tests/gateway/console/test_page.py", "tests/sim/test_behaviours.py", "tests/sim/test_content.py"),
    *("tests/sim/test_trees.py", "tests/sim/test_placements.py", "tests/sim/test_history.py"),
)
"""As `make test PYTEST_ARGS="--times 30"` prints them, longest first. A name too many or too few costs seconds."""


@cache
def rank(path: str) -> int:
    """Returns 0 for a file of Spark's, 1 for one that starts processes or may take hours, 2 for any other."""
    text = (ROOT / path).read_text()
    if path.startswith("tests/spark_ingest/") and USES_SPARK.search(text):
        return 0
    return 1 if TAKES_HOURS.search(text) or STARTS_PROCESSES.search(text) else 2


def turn(path: str) -> tuple[int, int]:
    """Returns when a test file is begun: the least first."""
    if path in LONGEST:
        return 1, LONGEST.index(path)
    return (2 * rank(path), 0)


def is_quick(path: str) -> bool:
    """Returns true for a test file of one room that starts nothing."""
    return ONE_ROOM.match(path) is not None and rank(path) == 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="collect only the tests of one room that start nothing")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--quick") or not collection_path.name.startswith("test_"):
        return None
    return not is_quick(collection_path.relative_to(ROOT).as_posix()) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: turn(item.nodeid.partition("::")[0]))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist's own plan by files, but for the order and for Spark's files, which count as one."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Spreading(LoadFileScheduling):  # type: ignore[misc]  # not typed
        def _split_scope(self, nodeid: str) -> str:
            path = str(super()._split_scope(nodeid))
            return "spark" if rank(path) == 0 else path

    config.option.loadscopereorder = False
    return Spreading(config, log)
