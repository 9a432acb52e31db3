"""Layout of a member's folder: all files of a process and none of other members, so that it can move to any host.

NAME/broker.yaml     its configuration, with paths relative to the folder
NAME/identity/       its key, certificate and card
NAME/domain/         the trust domain that issued it: for new keys, not needed to run; keep a backup elsewhere
NAME/overlay.json    the signed overlay, rewritten by the process when a newer one arrives
NAME/material        a key server's, until its first start
NAME/passwords       logins of a gateway that other machines reach; empty at first
NAME/data/           state that must survive a restart; made by the process
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CONFIG, OVERLAY, IDENTITY, DOMAIN, DATA, MATERIAL, PASSWORDS = (
    "broker.yaml", "overlay.json", "identity", "domain", "data", "material", "passwords",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RoleFolder:
    """The folder of a member. `name`: the folder's name, which `veilmq init` and `join` set to the member's name."""

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
    def overlay_path(self) -> Path:
        return self.path / OVERLAY

    @property
    def is_ready(self) -> bool:
        """True if the member can be started: a member that has just joined still waits for the signed overlay."""
        return self.config.is_file() and (self.overlay_path.is_file() or not (self.path / IDENTITY).is_dir())


def role_folders(directory: Path) -> list[RoleFolder]:
    """Returns the members' folders in `directory`, sorted by name: replicas and key servers before gateways."""
    found = [RoleFolder(path) for path in directory.iterdir() if (path / CONFIG).is_file()]
    return sorted(found, key=lambda folder: (folder.name.startswith("g"), folder.name))
