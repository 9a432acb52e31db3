"""`veilmq join`: an operator's own folder for one member, made where it will run, so that no private key travels.

Only the card goes to the owner, who signs it in; the signed overlay comes back. Nothing is connected here.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from gateway.base import PrivateFileError, write_private, write_public
from gateway.setup.folders import DOMAIN, IDENTITY, RoleFolder
from gateway.setup.initialising import LOOPBACK, METRICS_ABOVE, PORT_MAX
from gateway.setup.plan import PlannedMember, SetupError, settings, title
from gateway.trust import TrustDomain
from keys.identity import Role

ROLES = (Role.REPLICA, Role.GATEWAY, Role.KEY_SERVER)
GATEWAY_ADDRESS = "127.0.0.1:1883"


@dataclass(frozen=True, slots=True)
class Joined:
    """What was made, and what the operator sends to the owner."""

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
) -> Joined:
    """Make the folder. `address`: HOST:PORT where others reach it, of a gateway its clients; `domain`: a trust domain
    of the operator's that exists, else one is made in the folder; `name`: that of the folder unless given; `protect`:
    the owner's scopes that a gateway seals.

    Raises SetupError, TrustError.
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
    metrics = f"{LOOPBACK}:{_metrics_port(int(port))}"
    member = PlannedMember(name, role, address, address, metrics)
    if not member.is_here:
        member = replace(member, bind=f"0.0.0.0:{port}")
    folder = RoleFolder(directory)
    if folder.config.exists():
        raise SetupError(f"{directory}: holds a member already; name a new directory")
    issuer = TrustDomain.load(domain) if domain else TrustDomain.create(directory / DOMAIN, f"operator-{name}", now)
    issuer.issue(name, role, (member.host,), directory / IDENTITY, now)
    try:
        content = yaml.safe_dump(settings(member, protect), sort_keys=False)
        write_public(folder.config, (title(member) + content).encode())
        if role is Role.GATEWAY and not member.is_here:
            write_private(folder.passwords, b"")
    except PrivateFileError as error:
        raise SetupError(str(error)) from None
    return Joined(folder, member)


def _metrics_port(port: int) -> int:
    """A port for metrics that nobody uses now; others than ours may take it before the start, which then says so."""
    for candidate in range(min(port + METRICS_ABOVE, PORT_MAX - 1_000), PORT_MAX + 1):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, candidate))
            return candidate
    raise SetupError(f"no port near {port + METRICS_ABOVE} is free for metrics; stop what uses them")
