"""A member's folder: everything that one process needs and nothing of anybody else, so that it can go to any host.

NAME/broker.yaml     its configuration, with paths relative to the folder
NAME/identity/       its key, certificate and card
NAME/domain/         the trust domain that issued it: for new keys, not needed to run; keep a backup elsewhere
NAME/overlay.json    the signed overlay, rewritten by the process when a newer one arrives
NAME/material        a key server's, until its first start
NAME/passwords       logins, of a gateway that others than this machine reach; nobody's at first
NAME/data/           what must survive a restart; made by the process
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CONFIG, OVERLAY, IDENTITY, DOMAIN, DATA, MATERIAL, PASSWORDS = (
    "broker.yaml", "overlay.json", "identity", "domain", "data", "material", "passwords",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RoleFolder:
    """One member's folder. `name`: that of the folder, which is the member's where `veilmq init` or `join` made it."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def passwords(self) -> Path:
        return self.path / PASSWORDS

    @property
    def overlay(self) -> Path:
        return self.path / OVERLAY

    @property
    def is_ready(self) -> bool:
        """Whether it can be started: a member that has just joined still waits for the signed overlay."""
        return self.config.is_file() and (self.overlay.is_file() or not (self.path / IDENTITY).is_dir())


def role_folders(directory: Path) -> list[RoleFolder]:
    """The folders in `directory` that hold a member, in the order of their names: replicas and key servers first."""
    found = [RoleFolder(path) for path in directory.iterdir() if (path / CONFIG).is_file()]
    return sorted(found, key=lambda folder: (folder.name.startswith("g"), folder.name))
