"""Pages of the manual, run as written: the commands of a page in order, in a clean folder, with its own ports.

    python -m tests.pages docs/how-to/client.md ...     prints each command and its seconds

A page that installs something has a machine of its own (`tests/machine.py`). Any other page has a network of its own (a
namespace of Linux: root and iproute2), so that no port has to be replaced. What a page takes for granted, such as an
overlay of the page before, is in its `Recipe`, with the few words that stand for something of the reader's. A command
that ends with `&`, or that the recipe says goes on, runs until the page ends.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.machine import Machine
from tests.pages_known import RECIPES, Recipe
from tests.ports import free_ports
from tests.waits import wait_until

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = (
    "veilmq",
    "sed",
    "mosquitto_pub",
    "mosquitto_sub",
    "printf",
    "curl",
    "kill",
    "touch",
    "chmod",
    "openssl",
    "export",
    "amqtt",
    "make",
    "python3",
    ".venv/bin/pip",
    ".venv/bin/veilmq",
    "/usr/bin/python3",
    "/opt/veilmq/bin/pip",
    "ln",
    "dpkg",
    "install",
    "systemd-sysusers",
    "cp",
    "chown",
    "systemctl",
    "podman",
    "echo",
    "SITE=$PWD/site",
    "rm",
    "spark-submit",
    "mkdir",
    "(umask",
    "kubectl",
)
"""First words of commands in indented blocks; other lines there are what a command prints."""
WITHIN_S = 300.0
"""For one command, or for one thing to be seen: a machine may be busy."""
INSTALLED_WITHIN_S = 600.0
"""For a command of a page that installs something."""
FENCED = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass
class Step:
    """Step of a page: a command, or the content of a file that the recipe names."""

    text: str
    file: str = ""


def steps_of(page: str, recipe: Recipe) -> Iterator[Step]:
    """Yields the steps of a page, in order. Blocks of a language that the recipe names a file for are files."""
    files = {language: list(names) for language, names in recipe.files.items()}
    at = 0
    for block in FENCED.finditer(page):
        yield from (Step(line) for line in indented(page[at : block.start()]))
        at = block.end()
        language, content = block.groups()
        if language == "sh":
            yield from (Step(line) for line in joined(content.splitlines()) if line and not line.startswith("#"))
        elif names := files.get(language):
            name = names.pop(0)
            if name:
                yield Step(content, name)
    yield from (Step(line) for line in indented(page[at:]))


def indented(text: str) -> Iterator[str]:
    """Yields the commands of indented blocks."""
    lines = [line.strip() for line in text.splitlines() if re.match(r"(    |\t)", line)]
    yield from (line for line in joined(lines) if line.split(" ", 1)[0] in PROGRAMS)


def joined(lines: list[str]) -> Iterator[str]:
    """Yields lines, those that end with a backslash with the next, and a loop over several lines as one."""
    kept = ""
    for line in lines:
        if line.endswith("\\"):
            kept += line[:-1].strip() + " "
            continue
        if (kept.startswith("for ") or line.startswith("for ")) and not line.rstrip().endswith("done"):
            kept += line.strip() + ("\n" if not line.rstrip().endswith(" do") else " ")
            continue
        yield re.sub(r"\s+# .*$", "", kept + line.strip())
        kept = ""


class PageRun:
    """Run of one page in `directory`."""

    def __init__(self, directory: Path, recipe: Recipe) -> None:
        self._directory, self._recipe = directory, recipe
        self._running: list[subprocess.Popen[bytes]] = []
        self._begun = 0
        self._machine: Machine | None = None
        if recipe.installs:
            ports = {"CHECKOUT": str(ROOT), "PORT": str(free_ports(1)[0])}
            self._machine = Machine(directory, ports)
            self._environment = dict(os.environ)
            return
        self._network = f"page{os.getpid()}"
        programs = directory / ".programs"
        programs.mkdir()
        (programs / "veilmq").write_text(f'#!/bin/sh\nexec {sys.executable} -m gateway.cli "$@"\n')
        (programs / "veilmq").chmod(0o755)
        (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (programs / "python").chmod(0o755)
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(directory)}

    def begin(self) -> None:
        """Makes the network or the machine, and what the page takes for granted."""
        if self._machine is not None:
            self._machine.start()
        else:
            subprocess.run(["ip", "netns", "add", self._network], check=True)
            subprocess.run(["ip", "-n", self._network, "link", "set", "lo", "up"], check=True)
        if self._recipe.begin:
            self.do(f"set -e; {self._recipe.begin.strip()}")
        for command, condition in self._recipe.runs.items():
            self._go_on(command)
            self._wait(condition, command)

    def end(self) -> None:
        """Ends what runs, and the network."""
        for process in reversed(self._running):
            self._stop(process)
        if self._machine is not None:
            self._machine.stop()
            return
        left = subprocess.run(["ip", "netns", "pids", self._network], capture_output=True, text=True, check=False)
        for daemon in left.stdout.split():  # a page may have put some into the background
            with suppress(ProcessLookupError):
                os.kill(int(daemon), signal.SIGTERM)
        subprocess.run(["ip", "netns", "del", self._network], check=False)

    @staticmethod
    def _stop(process: subprocess.Popen[bytes]) -> None:
        """Ctrl-C, and kill for what does not end."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def run(self, page: str) -> list[tuple[str, float]]:
        """Returns each command and file with its seconds. Raises AssertionError for the first one that does not do."""
        done = []
        for step in steps_of(page, self._recipe):
            begun = time.monotonic()
            if step.file:
                self._write(step)
                self._do_what_follows(step.file.rstrip("+"))
                done.append((f"file {step.file}", time.monotonic() - begun))
                continue
            if not any(step.text.startswith(each) for each in self._recipe.left):
                self._step(step.text)
                done.append((step.text, time.monotonic() - begun))
        return done

    def _write(self, step: Step) -> None:
        """Writes the content of a block, behind what its file has already if the recipe's name ends with +."""
        path = self._directory / step.file.rstrip("+")
        before = path.read_text() if step.file.endswith("+") else ""
        path.write_text(before + self._swapped(step.text))
        path.chmod(0o600)

    def _swapped(self, text: str) -> str:
        for written, here in self._recipe.swap.items():
            text = text.replace(written, here)
        return text

    def _step(self, command: str) -> None:
        here = self._swapped(command)
        goes_on = here.endswith("&") or any(
            command.startswith(each) for each in (*self._recipe.goes_on, *self._recipe.stops)
        )
        if goes_on:
            self._go_on(here.rstrip("& "))
        else:
            said = next((said for start, said in self._recipe.refused.items() if command.startswith(start)), None)
            self.do(here, said, int(str(_first(self._recipe.ends, command, 0))))
        self._do_what_follows(command)
        if wait := _first(self._recipe.waits, command, ""):
            self._wait(str(wait), command)
        if any(command.startswith(each) for each in self._recipe.stops):
            self._stop(self._running.pop())

    def _do_what_follows(self, command: str) -> None:
        for following in next((each for start, each in self._recipe.after.items() if command.startswith(start)), ()):
            if following.endswith("&"):
                self._go_on(following.rstrip("& "))
            else:
                self.do(following)

    def do(self, command: str, refused: str | None = None, status: int = 0) -> None:
        """Runs a command to its end. `refused`: it must end with status 2 and this in its line."""
        done = subprocess.run(
            self._inside(command), cwd=self._directory, env=self._environment, capture_output=True, text=True,
            timeout=self._within_s, check=False, input=self._recipe.typed,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert done.returncode == (status if refused is None else 2), f"{command}\nends with {done.returncode}: {said}"
        assert refused is None or refused in said, f"{command}\nsays: {said}"

    def _go_on(self, command: str) -> None:
        self._begun += 1
        with (self._directory / f".output{self._begun}").open("wb") as log:
            self._running.append(
                subprocess.Popen(
                    self._inside(f"exec {command}"), cwd=self._directory, env=self._environment, stdout=log, stderr=log,
                    start_new_session=True,
                )
            )  # fmt: skip

    @property
    def _within_s(self) -> float:
        return WITHIN_S if self._machine is None else INSTALLED_WITHIN_S

    def _inside(self, command: str) -> list[str]:
        if self._machine is not None:
            return self._machine.inside(command)
        return ["ip", "netns", "exec", self._network, "bash", "-ec", command]

    def _wait(self, condition: str, command: str) -> None:

        def holds() -> bool:
            done = subprocess.run(
                self._inside(condition), cwd=self._directory, env=self._environment, capture_output=True, check=False,
                timeout=self._within_s,
            )  # fmt: skip
            return done.returncode == 0

        assert wait_until(holds, self._within_s, every_s=0.2), f"{command}\nnever: {condition}\n{self.outputs()}"

    def outputs(self) -> str:
        """Returns the ends of what the running commands printed."""
        return "\n".join(path.read_text()[-2000:] for path in sorted(self._directory.glob(".output*")))


def _first(table: Mapping[str, object], command: str, otherwise: object) -> object:
    return next((value for start, value in table.items() if command.startswith(start)), otherwise)


@contextmanager
def running(directory: Path, recipe: Recipe) -> Iterator[PageRun]:
    """A run that leaves nothing behind."""
    run = PageRun(directory, recipe)
    try:
        run.begin()
        yield run
    finally:
        run.end()


def pages() -> dict[str, Path]:
    """Returns the pages that a reader follows, by name."""
    found = {f"how-to/{path.name}": path for path in sorted((ROOT / "docs" / "how-to").glob("*.md"))}
    return {**found, "tutorial.md": ROOT / "docs" / "tutorial.md", "README.md": ROOT / "README.md"}


def main(names: list[str]) -> int:
    """Runs pages and prints a table of commands and seconds."""
    for name in [name.removeprefix("docs/") for name in names] or RECIPES:
        with tempfile.TemporaryDirectory() as directory, running(Path(directory), RECIPES[name]) as run:
            for command, seconds in run.run(pages()[name].read_text("utf-8")):
                print(f"{seconds:6.1f} s  {command}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
