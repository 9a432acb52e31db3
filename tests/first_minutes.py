"""The first minutes of a new operator, timed: the commands of docs/how-to/first-minutes.md, run as written.

    python -m tests.first_minutes             with the program of this directory, without the first command
    python -m tests.first_minutes --install   pip install of a wheel made from this directory, into a new environment

Only ports are replaced, by free ones. Between two commands it waits for what the page says that one sees, as a person
would; that time counts for the command before.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

from paho.mqtt.publish import single

from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "how-to" / "first-minutes.md"
COMMANDS = ("pip ", "veilmq ", "kill ")
COMMANDS_MAX = 12
WAIT_S = 120.0
"""For one thing to be seen: a machine may be busy."""
END = "## Measured"
Row = tuple[str, float]


def commands(page: str) -> list[str]:
    """The commands of the story, in order."""
    story = page[: page.index(END)]
    lines = [line[4:] for line in story.splitlines() if line.startswith("    ")]
    return [line for line in lines if line.startswith(COMMANDS)]


def wheel_of(source: Path, out: Path) -> Path:
    """A wheel of the program in `source`."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(out), str(source)], check=True)
    return next(out.glob("*.whl"))


class Walk:
    """One walk through the commands in `directory`. `wheel`: what `pip install` installs; None: nothing is."""

    def __init__(self, directory: Path, wheel: Path | None = None) -> None:
        self._directory, self._wheel = directory, wheel
        bin_directory = directory / "bin"
        if wheel is None:
            bin_directory.mkdir()
            (bin_directory / "veilmq").write_text(f'#!/bin/sh\nexec {sys.executable} -m gateway.cli "$@"\n')
            (bin_directory / "veilmq").chmod(0o755)
        else:
            venv.create(directory / "env", with_pip=True)
            bin_directory = directory / "env" / "bin"
        paths = {} if wheel else {"PYTHONPATH": str(ROOT)}
        self._environment = {**os.environ, **paths, "PATH": f"{bin_directory}:{os.environ['PATH']}"}
        first, _second_gateway, *replicas = free_ports(4)  # `veilmq init` gives gateways ports that follow each other
        self._first = first
        self._replicas = replicas
        self._running: list[subprocess.Popen[bytes]] = []
        self.seen = ""

    # ------------------------------------------------------------------------------------------ the walk

    def run(self, page: str) -> list[Row]:
        """Command and seconds, one after the other."""
        done: list[Row] = []
        for command in commands(page):
            if command.startswith("pip ") and self._wheel is None:
                continue
            begun = time.monotonic()
            self.do(self._with_ports(command))
            self._then(command)
            done.append((command, time.monotonic() - begun))
        return done

    def _with_ports(self, command: str) -> str:
        """As written, at ports that are free here."""
        if command.startswith("pip "):
            return f"pip install --quiet --disable-pip-version-check {self._wheel}"
        if command.startswith("veilmq init"):
            command += f" --port {self._first}"
        for written, name in (("1883", "g1"), ("1884", "g2")):
            if f"-p {written}" in command:
                command = command.replace(f"-p {written}", f"-p {self.port(name)}")
        return command.replace("127.0.0.1:8890", f"127.0.0.1:{self._replicas[0]}").replace(
            "127.0.0.1:8891", f"127.0.0.1:{self._replicas[1]}"
        )

    def do(self, command: str) -> None:
        """Run one command; one that ends with & goes on until the end."""
        if command.endswith("&"):
            name = f"{shlex.split(command)[1]}{len(self._running)}"
            shell = f"exec {command[:-1]}"
            with (self._directory / name).open("wb") as log:
                self._running.append(
                    subprocess.Popen(
                        ["bash", "-c", shell], cwd=self._directory, env=self._environment, stdout=log, stderr=log,
                        start_new_session=True,
                    )
                )  # fmt: skip
            return
        done = subprocess.run(
            ["bash", "-c", command], cwd=self._directory, env=self._environment, capture_output=True, text=True,
            timeout=240, check=False,
        )  # fmt: skip
        self.seen = done.stdout + done.stderr
        expected = (0, 1) if "status" in command else (0,)
        assert done.returncode in expected, f"{command}\n{self.seen}"

    def _then(self, command: str) -> None:
        """Wait for what the page says that one sees."""
        if command.startswith("veilmq up"):
            self.until(lambda: "well: all 5 members" in self._written("up"), "never well")
        elif command.startswith("veilmq sub"):
            self.until(lambda: self.reads("probe"), "the other gateway reads nothing")
        elif command.startswith("veilmq pub"):
            self.until(lambda: "21.5" in self._written("sub"), "the message never arrived")
        elif command.startswith("kill"):
            self.until(lambda: "r2 is away" in self._status(), "the replica is not missed")
            self.until(lambda: self.reads(f"without-r2-{time.time()}"), "two replicas of three did not do")
        elif command.startswith("veilmq status"):
            assert "degraded: region region1: 2 of 3 replicas connected, 2 needed: r2 is away" in self.seen, self.seen
        elif "revoke" in command:
            self.until(lambda: not self.reads(f"after-{time.time()}"), "the reader was never shut out")
            assert not self.reads("secret"), "the reader was shut out for a moment only"
        elif "overlay attach" in command and "r5" in command:
            self.until(lambda: re.search(r"4 of 5\s+3\s+r2", self._status()), "the two were never let in")

    # ------------------------------------------------------------------------------------------ looking

    def port(self, name: str) -> int:
        """Where clients of a gateway connect."""
        match = re.search(r"bind: 127\.0\.0\.1:(\d+)", (self._directory / "site" / name / "broker.yaml").read_text())
        assert match is not None
        return int(match.group(1))

    def _written(self, start: str) -> str:
        paths = [path for path in self._directory.iterdir() if path.name.startswith(start) and path.is_file()]
        return "".join(path.read_text() for path in paths)

    def _status(self) -> str:
        command = ["veilmq", "status", "-c", "site/g1/broker.yaml"]
        return subprocess.run(
            command, cwd=self._directory, env=self._environment, capture_output=True, text=True, timeout=60, check=False
        ).stdout

    def listens(self, name: str) -> bool:
        """Whether clients can connect to a gateway."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port(name)), 5.0):
            return True
        return False

    def reads(self, payload: str) -> bool:
        """Whether what is published at one gateway is read at the other within two seconds."""
        try:
            single("plant/line1/probe", payload, 1, port=self.port("g1"))
        except OSError:
            return False
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            if payload in self._written("sub"):
                return True
            time.sleep(0.05)
        return False

    def until(self, holds: Callable[[], object], otherwise: str) -> None:
        """Look until it holds."""
        end = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < end, f"{otherwise}\n{self._written('up')}\n{self._status()}"
            time.sleep(0.1)

    def end(self) -> None:
        """Ctrl-C for what runs, the reader first."""
        for process in reversed(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            if process.poll() is None:
                process.kill()
                process.wait()


@contextlib.contextmanager
def walking(directory: Path, wheel: Path | None = None) -> Iterator[Walk]:
    """A walk whose processes end with it."""
    walk = Walk(directory, wheel)
    try:
        yield walk
    finally:
        walk.end()


def main(arguments: list[str]) -> int:
    """Print a table of commands and seconds."""
    with tempfile.TemporaryDirectory() as directory:
        wheel = wheel_of(ROOT, Path(directory) / "wheel") if "--install" in arguments else None
        (Path(directory) / "walk").mkdir()
        with walking(Path(directory) / "walk", wheel) as walk:
            rows = walk.run(PAGE.read_text("utf-8"))
    for command, seconds in rows:
        print(f"{seconds:6.1f} s  {command}")
    print(f"{sum(seconds for _, seconds in rows):6.1f} s  {len(rows)} commands")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
