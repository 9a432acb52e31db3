"""Work of `veilmq join`: an operator makes a member's folder on its own host, so that no private key travels.

Only the card goes to the owner, who adds it to the signed overlay and returns the overlay. Opens no connection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from gateway.base import PrivateFileError, write_private, write_public
from gateway.setup.folders import DOMAIN, IDENTITY, RoleFolder, role_folders
from gateway.setup.initialising import LOOPBACK, METRICS_ABOVE, PORT_MAX, first_free
from gateway.setup.plan import PlannedMember, SetupError, settings, title
from gateway.trust import TrustDomain, token_key
from keys.identity import Role

ROLES = (Role.REPLICA, Role.GATEWAY, Role.KEY_SERVER)
GATEWAY_ADDRESS = "127.0.0.1:1883"
_BOUND = re.compile(r"^\s*bind: .*:(\d{1,5})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of `veilmq join`: the folder, and the member whose card the operator sends to the owner."""

    folder: RoleFolder
    member: PlannedMember

    @property
    def card(self) -> Path:
        return self.folder.path / IDENTITY / "card.json"


def join(
    directory: Path,
    role: Role,
    address: str,
    now: float,
    name: str = "",
    domain: Path | None = None,
    protect: Sequence[str] = (),
    key: str = "",
) -> Joined:
    """Makes the folder of a member.

    `address`: HOST:PORT where others reach the member (a gateway: its clients). `domain`: an existing trust domain of
    the operator, else one is made in the folder. `name`: default is the folder's name. `protect`: the owner's scopes a
    gateway seals. `key`: URI of the member's key, if it is in a token. Raises SetupError, TrustError.
    """
    if role not in ROLES:
        raise SetupError(f"--role {role}: take one of {', '.join(ROLES)}; for other roles use `veilmq trust issue`")
    if protect and role is not Role.GATEWAY:
        raise SetupError(f"--protect is for gateways, which seal and open; a {role} does neither: leave it out")
    name = name or directory.resolve().name
    address = address or (GATEWAY_ADDRESS if role is Role.GATEWAY else "")
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > PORT_MAX:
        raise SetupError(f"--address {address}: is no HOST:PORT; write e.g. {name}.example.net:8883")
    metrics = f"{LOOPBACK}:{_metrics_port(int(port), directory)}"
    member = PlannedMember(name, role, address, address, metrics)
    if not member.is_here:
        member = replace(member, bind=f"0.0.0.0:{port}")
    folder = RoleFolder(directory)
    if folder.config.exists():
        raise SetupError(f"{directory}: holds a member already; name a new directory")
    if key:
        token_key(key)  # before anything is written
    issuer = TrustDomain.load(domain) if domain else TrustDomain.create(directory / DOMAIN, f"operator-{name}", now)
    issuer.issue(name, role, (member.host,), directory / IDENTITY, now, key=key)
    try:
        content = yaml.safe_dump(settings(member, protect), sort_keys=False)
        write_public(folder.config, (title(member) + content).encode())
        if role is Role.GATEWAY and not member.is_here:
            write_private(folder.passwords, b"")
    except PrivateFileError as error:
        raise SetupError(str(error)) from None
    return Joined(folder, member)


def _metrics_port(port: int, directory: Path) -> int:
    """Returns a port for metrics that is free now and that no member in a folder beside `directory` has: that member
    may not run yet. Another process may take the port first; the start then reports that.
    """
    taken = {each for folder in role_folders(directory.resolve().parent) for each in _ports(folder.config)}
    found = first_free(min(port + METRICS_ABOVE, PORT_MAX - 1_000), taken)
    if found is None:
        raise SetupError(f"no port near {port + METRICS_ABOVE} is free for metrics; stop what uses them")
    return found


def _ports(path: Path) -> set[int]:
    """Returns the ports of a configuration; none of a file that is damaged or may not be read."""
    try:
        content = path.read_text("utf-8")
    except (OSError, ValueError):
        return set()
    return {int(port) for port in _BOUND.findall(content)}
