"""Tests are run against a fault, in processes forked from one that has read all libraries already.

The quick way first: tests are collected once (`Collected`), and every fault that only changes functions is swapped into
a fork of that process. Only tests that call such a function run there, the shortest first: each test ran once before
in a fork of its own, which noted all functions that it called. A fault that cannot be swapped is written into a copy of
the packages, and the tests are collected anew.
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
from math import ceil, inf
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType
from typing import TypeAlias

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
PATIENCE = 3.0
"""How many times longer than while it was noted a test may take with a fault before it counts as hanging."""
LEAST_S = 5.0
MEMORY_BYTES = 4 << 30  # a fault may ask for all memory there is
_GREEN, _RED, _UNSWAPPABLE = 0, 1, 99
_ANSWERS = {b"green": True, b"red": False, b"unknown": None}
Called: TypeAlias = dict[str, tuple[float, frozenset[tuple[str, str]]]]
"""By test: its processor seconds, and the functions of ours that it calls, each a path and a qualified name."""


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


def passes(place: Path, files: Sequence[str], limit_s: float) -> bool:
    """Whether these tests are green in the copy at `place`; those that hang are not."""
    return status_of(forked(lambda: _test(place, files, False)), limit_s) == 0


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


def called_by(place: Path, files: Sequence[str], longest_s: float = inf, workers: int = 1) -> Called:
    """Runs the tests once, each in a fork of its own; empty if one of them is red. A test that takes more processor
    time than `longest_s` is left out.
    """
    children, talks = list[int](), list[Connection]()
    for part in range(workers):
        talk, far = Pipe()
        noting = _Noting(far, place, longest_s, slice(part, None, workers))
        children.append(forked(partial(_test, place, files, True, noting)))
        far.close()
        talks.append(talk)
    called: Called = {}
    try:
        for talk in talks:
            called |= talk.recv()
    except EOFError:
        called.clear()
    for child in children:
        end_all_of(child)
    return called


class _Noting:
    """In place of running the tests in one process: notes for each the functions that it calls."""

    def __init__(self, talk: Connection, place: Path, longest_s: float, part: slice) -> None:
        self._talk, self._place, self._longest_s, self._part = talk, place, longest_s, part

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        called: Called = {}
        for item in session.items[self._part]:
            talk, far = Pipe()
            child = forked(partial(self._note, item, far))
            far.close()
            try:
                called[item.nodeid] = talk.recv()
            except EOFError:
                if os.waitpid(child, 0)[1] != signal.SIGXCPU:  # red, or it ended the process
                    return True
            finally:
                end_all_of(child)
        self._talk.send(called)
        return True

    def _note(self, item: pytest.Item, talk: Connection) -> int:
        if self._longest_s < inf:
            signal.signal(signal.SIGXCPU, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CPU, (ceil(self._longest_s), ceil(self._longest_s) + 1))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        codes: dict[int, CodeType] = {}
        sys.settrace(lambda frame, *_: codes.update({id(frame.f_code): frame.f_code}))
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        sys.settrace(None)
        if item.session.testsfailed:
            return _RED
        home, begin = len(str(self._place)) + 1, tuple(str(self._place / name) for name in PACKAGES)
        ours = [code for code in codes.values() if code.co_filename.startswith(begin)]
        functions = frozenset({(code.co_filename[home:], code.co_qualname) for code in ours})
        talk.send((time.process_time(), functions))
        return _GREEN


class Collected:
    """A process that has collected the tests `files` of the copy at `place`, to meet faults."""

    def __init__(self, place: Path, files: Sequence[str], called: Called, limit_s: float) -> None:
        self._talk, far = Pipe()
        faults = _Faults(far, place, called, limit_s)  # made here: it ends with this process
        self._child = forked(lambda: _test(place, files, True, faults))
        far.close()

    def passes(self, module: str, faulty: bytes) -> bool | None:
        """Returns True if the tests are green with the fault in `module`, a path; None if only a new import can show
        the fault.
        """
        try:
            self._talk.send((module, faulty))
            return _ANSWERS[self._talk.recv_bytes()]
        except (EOFError, OSError):
            return None  # ended on its own

    def close(self) -> None:
        self._talk.close()
        end_all_of(self._child)


class _Faults:
    """In place of running the tests once: for each fault that comes, those that call the faulty function, in a fork."""

    def __init__(self, talk: Connection, place: Path, called: Called, limit_s: float) -> None:
        self._talk, self._place, self._called, self._limit_s = talk, place, called, limit_s
        self._parent = os.getpid()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The shortest first: most faults are noticed by something that takes no time."""
        items[:] = [item for item in items if item.nodeid in self._called]
        items.sort(key=lambda item: self._called[item.nodeid][0])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        end_with(self._parent)
        while True:
            try:
                module, faulty = self._talk.recv()
            except EOFError:
                return True
            status = status_of(forked(partial(self._meet, session, module, faulty)), self._limit_s)
            self._talk.send_bytes({_GREEN: b"green", _UNSWAPPABLE: b"unknown"}.get(status, b"red"))

    def _meet(self, session: pytest.Session, module: str, faulty: bytes) -> int:
        name, source = module.removesuffix(".py").replace("/", "."), (self._place / module).read_bytes()
        try:
            changed = {(module, function) for function in swap(name, source, faulty)}
        except UnswappableError:
            return _UNSWAPPABLE
        session.items = [item for item in session.items if changed & self._called[item.nodeid][1]]
        most_s = int(LEAST_S + PATIENCE * sum(self._called[item.nodeid][0] for item in session.items))
        resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s))  # a fault may make a loop endless
        with contextlib.suppress(session.Failed, session.Interrupted):
            _pytest.main.pytest_runtestloop(session)
        return _RED if session.testsfailed else _GREEN
