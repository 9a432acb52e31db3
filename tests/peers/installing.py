"""Where software of others comes from: PyPI, npm and Debian, at pinned versions, below `.tools/peers`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

PLACE = ROOT / ".tools" / "peers"
INSTALL_S = 600.0
_LAST_WORDS = 160
"""Characters of an installer's last line that the page shows."""


@dataclass(frozen=True)
class Pypi:
    """Packages of PyPI (`name==version`), in a folder of their own, so that peers may want versions that differ."""

    packages: tuple[str, ...]

    @property
    def version(self) -> str:
        return self.packages[0].partition("==")[2]

    @property
    def place(self) -> Path:
        return PLACE / self.packages[0].replace("==", "-")

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.place)}

    def install(self) -> str:
        """Returns why the packages cannot be had, or nothing."""
        if self.place.exists():
            return ""
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]
        return _installed([*pip, str(self.place), *self.packages], self.place)


@dataclass(frozen=True)
class Npm:
    """Packages of npm (`name@version`), in a folder of their own."""

    packages: tuple[str, ...]

    @property
    def version(self) -> str:
        return self.packages[0].rpartition("@")[2]

    @property
    def place(self) -> Path:
        return PLACE / self.packages[0].replace("@", "-")

    def environment(self) -> dict[str, str]:
        return {**os.environ, "NODE_PATH": str(self.place / "node_modules")}

    def install(self) -> str:
        """Returns why the packages cannot be had, or nothing."""
        if self.place.exists():
            return ""
        if shutil.which("npm") is None:
            return "npm is not here; make tools"
        npm = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--silent", "--prefix"]
        return _installed([*npm, str(self.place), *self.packages], self.place)


@dataclass(frozen=True)
class Debian:
    """A package of Debian, at the version that the distribution has. `make peers` installs it as root."""

    package: str

    @property
    def version(self) -> str:
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", self.package], capture_output=True, text=True, check=False
        )
        return done.stdout.partition("-")[0].rpartition(":")[2]

    def environment(self) -> dict[str, str]:
        return {**os.environ}

    def install(self) -> str:
        """Returns why the package cannot be had, or nothing."""
        if self.version:
            return ""
        if shutil.which("apt-get") is None or os.getuid() != 0:
            return f"Debian's {self.package} is not here; run as root where apt-get is"
        # Exit status 101 keeps maintainer scripts from starting a service.
        policy = Path("/usr/sbin/policy-rc.d")
        is_ours = not policy.exists()
        if is_ours:
            policy.write_text("#!/bin/sh\nexit 101\n")
            policy.chmod(0o755)
        try:
            return _installed(["apt-get", "install", "-y", "-qq", "--no-install-recommends", self.package], None)
        finally:
            if is_ours:
                policy.unlink()


Source = Pypi | Npm | Debian


def _installed(command: Sequence[str], place: Path | None) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S, env=environment, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        said, code = "it took too long", 1
    else:
        said, code = done.stderr or done.stdout, done.returncode
    if not code:
        return ""
    if place is not None:
        shutil.rmtree(place, ignore_errors=True)
    lines = [line.removeprefix("ERROR: ").removeprefix("E: ") for line in said.splitlines() if "WARNING" not in line]
    return (lines or [f"{command[0]} ends with {code}"])[-1][:_LAST_WORDS]
