"""A token of SoftHSM in a folder of its own, with Ed25519 keys made by pkcs11-tool."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

MODULES = ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so")
MODULE = next((path for path in MODULES if Path(path).is_file()), MODULES[0])
PIN = "2468-plant"


class Token:
    """A token with a PIN in a private file. `label`: its name."""

    def __init__(self, directory: Path, label: str = "plant") -> None:
        self.directory, self.label = directory, label
        self.conf, self.pin = directory / "softhsm2.conf", directory / "pin"
        self.store = directory / "tokens"
        self.store.mkdir(parents=True)
        self.conf.write_text(f"directories.tokendir = {self.store}\nobjectstore.backend = file\nlog.level = ERROR\n")
        self.pin.write_text(f"{PIN}\n")
        self.pin.chmod(0o600)
        self.environment = {**os.environ, "SOFTHSM2_CONF": str(self.conf)}
        self._run("softhsm2-util", "--init-token", "--free", "--label", label, "--pin", PIN, "--so-pin", "13579-plant")

    def make(self, label: str, number: str = "01", kind: str = "EC:edwards25519") -> str:
        """Makes a key pair; returns its URI."""
        login = ("--token-label", self.label, "--login", "--pin", PIN)
        self._run(
            "pkcs11-tool", "--module", MODULE, *login, "--keypairgen", "--key-type", kind,
            "--label", label, "--id", number,
        )  # fmt: skip
        return self.uri(f"token={self.label};object={label}")

    def uri(self, path: str, query: str | None = None) -> str:
        """Returns a URI of this token's module and PIN file."""
        query = f"module-path={MODULE}&pin-source=file:{self.pin}" if query is None else query
        return f"pkcs11:{path}?{query}"

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, (command[0], done.stdout, done.stderr)
