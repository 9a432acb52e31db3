"""Operating-system processes of the demonstration: started, watched, commanded, and always cleaned up.

Each is a session of its own, so Ctrl-C reaches the starter alone, which then ends the others in order. A process that
does not end in time is killed with everything it started (Spark's JVM too). A process ending without a request ends
the demonstration: `DemoError` with a line, and the tail of its log. This module does not know the processes' work.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from gateway.demo.setup import DemoError

TAIL_LINES = 15
TERMINATE_S = 5.0
BAD_INPUT = 2
"""Exit status of our programs for errors that an operator can cure; the last line of the log has the error."""
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EVENTS_MAX = 100_000
"""Stops a child that emits events without end from filling memory."""
PACKAGE_ROOT = Path(__file__).resolve().parents[2]


class Process:
    """A process. `talks`: it speaks the protocol of `child.py`; otherwise all its output goes to the log."""

    def __init__(self, name: str, arguments: Sequence[str], directory: Path, talks: bool = False) -> None:
        self.name = name
        self.log = directory / "logs" / f"{name}.log"
        self._arguments = [sys.executable, *arguments]
        self._directory = directory
        self._talks = talks
        self._popen: subprocess.Popen[str] | None = None
        self._events: queue.Queue[dict[str, Any]] = queue.Queue(EVENTS_MAX)
        self._reader: threading.Thread | None = None
        self.may_end = False

    def start(self) -> None:
        """Starts the process, also again after `kill`."""
        self.log.parent.mkdir(exist_ok=True)
        environment = dict(os.environ)
        paths = [str(PACKAGE_ROOT), *filter(None, [environment.get("PYTHONPATH")])]
        environment.update(PYTHONPATH=os.pathsep.join(paths), PYTHONUNBUFFERED="1")
        with self.log.open("a", encoding="utf-8") as log:
            self._popen = subprocess.Popen(
                self._arguments,
                cwd=self._directory,
                env=environment,
                stdin=subprocess.PIPE if self._talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._talks else log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self.may_end = False
        if self._talks:
            self._reader = threading.Thread(target=self._read_events, args=(self._popen,), name=self.name, daemon=True)
            self._reader.start()

    def _read_events(self, popen: subprocess.Popen[str]) -> None:
        assert popen.stdout is not None
        for line in popen.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # output of a library
            if isinstance(event, dict) and not self._events.full():
                self._events.put(event)

    def events(self) -> list[dict[str, Any]]:
        """Returns the events since the last call."""
        found = []
        while not self._events.empty():
            found.append(self._events.get())
        return found

    def send_word(self, word: str) -> None:
        """Sends a command; does nothing if the process has ended."""
        if self._popen is None or self._popen.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._popen.stdin.write(word + "\n")
            self._popen.stdin.flush()

    def signal(self, number: int) -> None:
        """Sends a signal to the process alone."""
        if self._popen is not None and self._popen.poll() is None:
            self._popen.send_signal(number)

    def kill(self) -> None:
        """Sends SIGKILL to the process, as in a crash without clean-up, and waits until it is gone."""
        self.may_end = True
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()

    def check_running(self) -> None:
        """Raises DemoError if the process ended without a request."""
        status = self._popen.poll() if self._popen is not None else None
        if status is None or (self.may_end and status in (0, -signal.SIGKILL, -signal.SIGTERM)):
            return
        tail = self.tail()
        if status == BAD_INPUT and tail:
            raise DemoError(f"{self.name}: {tail[-1].removeprefix('veilmq: ')}")
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        raise DemoError(f"{self.name} ended unexpectedly {how}; the end of its log follows", 1, tail)

    def tail(self) -> list[str]:
        """Returns the last lines of the process's log."""
        if not self.log.exists():
            return []
        return self.log.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]

    def wait_for_end(self, timeout_s: float) -> bool:
        """Waits for the end of the process; returns True if it ended in time and all its events have been read."""
        if self._popen is None:
            return True
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        if self._reader is not None:
            self._reader.join(1.0)
        return True

    def terminate(self) -> None:
        """Asks the process to end: by its own protocol if it has one, so that Spark's JVM ends first."""
        self.may_end = True
        if self._talks:
            self.send_word("stop")
        else:
            self.signal(signal.SIGTERM)

    def kill_group(self) -> None:
        """Sends SIGKILL to the process and all processes that it started."""
        if self._popen is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        if self._reader is not None:
            self._reader.join(1.0)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class DemoProcesses:
    """All processes of a demonstration; the exit from the `with` block ends all of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: dict[str, Process] = {}

    def __enter__(self) -> DemoProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getitem__(self, name: str) -> Process:
        return self._processes[name]

    def start(self, name: str, *arguments: str, talks: bool = False) -> Process:
        """Starts `python ARGUMENTS`; `name` may be the name of a process that has ended."""
        process = Process(name, arguments, self._directory, talks)
        self._processes[name] = process
        process.start()
        return process

    def check_running(self) -> None:
        """Raises DemoError if any process ended without a request."""
        for process in self._processes.values():
            process.check_running()

    def close(self) -> None:
        """Asks all processes to end, then kills the rest. A second Ctrl-C meanwhile changes nothing."""
        with undisturbed():
            for process in self._processes.values():
                process.terminate()
            until = time.monotonic() + TERMINATE_S
            for process in self._processes.values():
                process.wait_for_end(max(0.0, until - time.monotonic()))
            for process in self._processes.values():
                process.kill_group()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignores requests to end. A signal mask would not do: threads started by libraries could take the signal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
