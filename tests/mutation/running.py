"""Tests are run against a fault, in processes forked from one that has read all libraries already.

The quick way first: tests are collected once (`Collected`), and every fault that only changes functions is swapped into
a fork of that process. What cannot be swapped is written into a copy of the packages, and the tests are collected anew.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import _pytest.main
import hypothesis.strategies  # noqa: F401 - libraries are read once, before the forks
import pytest

from tests.mutation.swapping import UnswappableError, swap

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("keys", "bridge", "gateway", "papers", "spark_ingest")
COPIED = (*PACKAGES, "configs", "tests")
OPTIONS = ("-x", "-q", "--assert=plain", "--tb=no", "-m", "not slow", "--hypothesis-seed=0")
UNSHRUNK = ("--hypothesis-profile=unshrunk",)
LOOK_S = 0.5
MEMORY_BYTES = 4 << 30  # a fault may ask for all memory there is
_GREEN, _RED, _UNSWAPPABLE = 0, 1, 99
_ANSWERS = {b"green": True, b"red": False, b"unknown": None}


def copy_to(place: Path) -> None:
    for name in COPIED:
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "Makefile"):
        shutil.copy(ROOT / name, place)


def forked(work: Callable[[], int]) -> int:
    """A process of its own group that works and ends with that status."""
    child = os.fork()
    if child == 0:
        status = _RED
        try:
            os.setsid()
            status = work()
        finally:
            os._exit(status)
    return child


def end_with(parent: int) -> None:
    """From now on this process looks whether `parent`, which started it, is there, and ends soon after it."""

    def look(*_: object) -> None:
        if os.getppid() != parent:
            raise SystemExit(f"process {parent} is gone")

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, LOOK_S, LOOK_S)


def status_of(child: int, limit_s: float) -> int:
    """Of a process that ends; one that hangs is ended and counts as red, with all that it started."""
    end = time.monotonic() + limit_s
    try:
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        return _RED
    finally:
        end_all_of(child)


def end_all_of(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # processes that tests started, and tests that hang
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def passes(place: Path, files: Sequence[str], limit_s: float, keep_compiled: bool = False) -> bool:
    """Whether these tests are green in the copy at `place`; those that hang are not."""
    return status_of(forked(lambda: _test(place, files, keep_compiled)), limit_s) == 0


def _test(place: Path, files: Sequence[str], keep_compiled: bool, *plugins: object) -> int:
    os.chdir(place)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.path.insert(0, str(place))
    os.environ["PYTHONPATH"] = str(place)
    sys.dont_write_bytecode = not keep_compiled
    for name in [one for one in sys.modules if one.split(".")[0] in COPIED]:
        del sys.modules[name]
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    return int(pytest.main([*OPTIONS, *UNSHRUNK, *files], plugins=plugins))


class Collected:
    """A process that has collected the tests `files` of the copy at `place`, to meet faults of `module` (a path)."""

    def __init__(self, place: Path, module: str, files: Sequence[str], limit_s: float) -> None:
        self._talk, far = Pipe()
        faults = _Faults(far, module, (place / module).read_bytes(), limit_s)
        self._child = forked(lambda: _test(place, files, True, faults))
        far.close()

    def passes(self, faulty: bytes) -> bool | None:
        """Whether the tests are green; None if only a new import can show the fault."""
        try:
            self._talk.send_bytes(faulty)
            return _ANSWERS[self._talk.recv_bytes()]
        except (EOFError, OSError):
            return None  # ended on its own

    def close(self) -> None:
        self._talk.close()
        end_all_of(self._child)


class _Faults:
    """In place of running the tests once: once for each fault that comes, in a fork."""

    def __init__(self, talk: Connection, module: str, source: bytes, limit_s: float) -> None:
        self._talk, self._source, self._limit_s = talk, source, limit_s
        self._name = module.removesuffix(".py").replace("/", ".")
        self._parent = os.getpid()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Examples before properties: most faults are noticed by something that takes no time."""
        items.sort(key=lambda item: getattr(getattr(item, "obj", None), "is_hypothesis_test", False))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        end_with(self._parent)
        while True:
            try:
                faulty = self._talk.recv_bytes()
            except EOFError:
                return True
            status = status_of(forked(partial(self._meet, session, faulty)), self._limit_s)
            self._talk.send_bytes({_GREEN: b"green", _UNSWAPPABLE: b"unknown"}.get(status, b"red"))

    def _meet(self, session: pytest.Session, faulty: bytes) -> int:
        try:
            swap(self._name, self._source, faulty)
        except UnswappableError:
            return _UNSWAPPABLE
        with contextlib.suppress(session.Failed, session.Interrupted):
            _pytest.main.pytest_runtestloop(session)
        return _RED if session.testsfailed else _GREEN
