"""A machine of its own for what a test does to a system: systemd as its first process, the files of this one below it.

Changes are kept in memory and end with the machine. Its network is this system's, so that it reaches registries of
packages. Needs root, overlayfs and systemd-nspawn.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.waits import wait_until

BOOTS_WITHIN_S = 90.0
MEMORY = "6G"
"""The most that changes of files may take."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def lacking() -> str:
    """Returns the reason for which no machine can be had here; empty if one can."""
    if os.geteuid() != 0:
        return "a machine of its own needs root"
    return "" if shutil.which("systemd-nspawn") else "needs systemd-nspawn; run `make tools` as root"


class Machine:
    """A machine that shares `directory` with this system. Commands run there, with the variables of `environment`."""

    def __init__(self, directory: Path, environment: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        self.environment = {**kept, "PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **(environment or {})}
        self._place = Path(tempfile.mkdtemp(prefix="machine"))
        self._boot: subprocess.Popen[bytes] | None = None
        self._leader = 0

    def start(self) -> None:
        """Boots. Raises AssertionError if that takes too long."""
        changes, work, root = (self._place / name for name in ("changes", "work", "root"))
        _said("mount", "-t", "tmpfs", "-o", f"size={MEMORY}", "tmpfs", self._place)
        for folder in (changes, work, root):
            folder.mkdir()
        layers = f"lowerdir=/,upperdir={changes},workdir={work}"
        _said("mount", "-t", "overlay", "overlay", "-o", layers, root)
        how = {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "SYSTEMD_NSPAWN_TMPFS_TMP": "0"}
        command = ["systemd-nspawn", "--quiet", "--console=pipe", "--register=no", "--keep-unit"]
        command += [f"--machine=page{os.getpid()}", f"--bind={self._directory}", f"--directory={root}", "--boot"]
        # No services of this system, and no tidying: files for temporary use are those of other tests, too.
        command += ["systemd.unit=basic.target", "systemd.mask=systemd-tmpfiles-setup.service"]
        with (self._place / "log").open("wb") as log:
            self._boot = subprocess.Popen(
                command, env={**os.environ, **how}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        assert wait_until(self._is_up, BOOTS_WITHIN_S, every_s=0.2), (self._place / "log").read_text()

    def _is_up(self) -> bool:
        assert self._boot is not None
        pid = self._boot.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            return False
        self._leader = int(children[0])
        done = subprocess.run(self.inside("systemctl is-system-running"), capture_output=True, text=True, check=False)
        return done.stdout.strip() in {"running", "degraded"}

    def inside(self, command: str) -> list[str]:
        """Returns the words that run a command of the shell in the machine."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        enter = ["nsenter", f"--target={self._leader}", "--all", "--wdns=/", "env", "--ignore-environment", *variables]
        return [*enter, "bash", "-ec", f"cd '{self._directory}'; {command}"]

    def stop(self) -> None:
        """Ends all that runs there, and drops its files."""
        if self._boot is not None:
            with suppress(ProcessLookupError):
                os.kill(self._leader or self._boot.pid, signal.SIGKILL)  # the first process takes all others along
            with suppress(subprocess.TimeoutExpired):
                self._boot.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(self._boot.pid, signal.SIGKILL)
            self._boot.wait()
        for place in (self._place / "root", self._place):
            subprocess.run(["umount", "--lazy", place], check=False, stderr=subprocess.DEVNULL)
        self._place.rmdir()


def _said(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)
