"""Processes of ours that need not import anything: one process has imported a broker, and forks for each of them.

To import a broker takes a second of processor time, and tests start hundreds. `run` is `Popen` for Python code: each
process has its own id and memory, is killed and waited for as any other, and begins with none of the test's files.
Benches, and tests of the start itself, do without.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import typer.main

ROOT = Path(__file__).resolve().parents[1]
IMPORTED = (
    *("gateway.cli", "gateway.party", "gateway.broker.running", "gateway.checking.check", "gateway.operation"),
    *("gateway.owner.signing", "gateway.overlay.region_client", "gateway.base.config", "uvloop"),
    *("spark_ingest.receiver.daemon", "spark_ingest.sample.spool", "spark_ingest.spool.standing"),
)
"""What members, receivers and the owner's commands need. Nothing of it may start a thread."""
SOONER = (
    ("gateway.overlay.driver", "LOOK_EVERY_S", 0.25),
    ("gateway.health.watching", "LOOK_EVERY_S", 0.25),
    ("gateway.health.watching", "SETTLE_S", 4.0),
)
"""Periods of members, shorter than in operation: a test waits again and again for the next look."""


class Forked:
    """Process that runs code of ours. Its attributes and methods are those of `subprocess.Popen`."""

    def __init__(self, pid: int, forking: Forking) -> None:
        self.pid, self.returncode, self._forking = pid, None, forking

    returncode: int | None

    def poll(self) -> int | None:
        """Returns the exit status, or None while the process runs."""
        if self.returncode is None:
            self.returncode = self._forking.ask({"pid": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status. Raises TimeoutExpired."""
        if self.returncode is None:
            ended = os.pidfd_open(self.pid)
            try:
                poll = select.poll()
                poll.register(ended, select.POLLIN)
                if not poll.poll(None if timeout is None else 1000 * timeout):
                    raise subprocess.TimeoutExpired("veilmq", timeout or 0.0)
            finally:
                os.close(ended)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Forking:
    """Test's end of the process that forks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._link, theirs = socket.socketpair()
        command = [sys.executable, "-m", "tests.forking", str(theirs.fileno())]
        self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self._told = self._link.makefile("rw")
        atexit.register(self.close)

    def ask(self, what: Mapping[str, Any]) -> Any:
        """Returns the answer to a request."""
        with self._lock:
            print(json.dumps(what), file=self._told, flush=True)
            return json.loads(self._told.readline())

    def close(self) -> None:
        """Ends the process; those that it forked go on."""
        self._told.close()
        self._link.close()
        self._process.wait()


@cache
def _forking() -> Forking:
    return Forking()


Process = Forked | subprocess.Popen[bytes]


def run(
    command: Sequence[str],
    cwd: Path | None,
    env: Mapping[str, str],
    stdout: Path,
    stderr: Path,
    prefix: Sequence[str] = (),
) -> Process:
    """Runs `prefix python *command`, with output at the end of these files. For `-c` and code of ours a test forks."""
    forks = hasattr(os, "pidfd_open") and "PYTEST_CURRENT_TEST" in os.environ
    if forks and not prefix and command[0] == "-c" and "gateway" in command[1]:
        for path in (stdout, stderr):  # as a test may read them at once
            path.touch()
        begin = {"code": command[1], "arguments": [*command[2:]], "cwd": str(cwd or Path.cwd()), "env": dict(env)}
        pid = _forking().ask(begin | {"stdout": str(stdout), "stderr": str(stderr)})
        return Forked(pid, _forking())
    with stdout.open("ab") as out, stderr.open("ab") as err:
        return subprocess.Popen([*prefix, sys.executable, *command], cwd=cwd, env=env, stdout=out, stderr=err)


def _serve(link: int) -> str:
    """Forks on request, until the test's end closes. Returns, in each process that it made, the code to run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the test's
    for module in IMPORTED:
        importlib.import_module(module)
    for module, name, seconds in SOONER:
        assert getattr(sys.modules[module], name) > seconds
        setattr(sys.modules[module], name, seconds)
    typer.main.get_command = cache(typer.main.get_command)
    typer.main.get_command(importlib.import_module("gateway.cli").app)
    gc.freeze()
    assert threading.active_count() == 1
    ended: dict[int, int] = {}
    with socket.socket(fileno=link) as stream, stream.makefile("rw") as told:
        for line in told:
            asked = json.loads(line)
            answer = _status(asked["pid"], ended) if "pid" in asked else os.fork()
            if answer == 0 and "pid" not in asked:
                _become(asked)
                return str(asked["code"])
            if "pid" not in asked:
                ended.pop(answer, None)  # of a process that had this number before
            print(json.dumps(answer), file=told, flush=True)
    return ""


def _status(pid: int, ended: dict[int, int]) -> int | None:
    """Returns the exit status of a process that was forked, or None while it runs. `ended`: statuses by process."""
    if pid not in ended:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            ended[pid] = os.waitstatus_to_exitcode(status)
    return ended.get(pid)


def _become(asked: Mapping[str, Any]) -> None:
    """Takes on the place, environment, arguments and files of a process that was asked for."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv[:] = ["-c", *asked["arguments"]]
    for number, path in enumerate((os.devnull, asked["stdout"], asked["stderr"])):
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        os.dup2(file, number)
        os.close(file)


if __name__ == "__main__":
    exec(compile(_serve(int(sys.argv[1])), "<string>", "exec"), {"__name__": "__main__"})
