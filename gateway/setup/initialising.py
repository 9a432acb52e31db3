"""Work of `veilmq init`: trust domains, identities, the signed overlay and a single folder a member, on free ports.

Every member has its own trust domain, since different parties must run replicas and key servers; the owner of the
overlay has another. All files are made by the functions behind `veilmq trust` and `veilmq overlay sign`. A directory
that is not empty is refused: nothing is overwritten.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gateway.base import PrivateFileError, private_directory, write_private, write_public
from gateway.owner import sign_overlay
from gateway.setup.folders import DOMAIN, IDENTITY, MATERIAL, RoleFolder
from gateway.setup.plan import Plan, PlannedMember, SetupError, description, settings, title
from gateway.trust import TrustDomain
from keys.identity import Role

LOOPBACK = "127.0.0.1"
OWNER, SIGNED, DESCRIPTION = "owner", "overlay.json", "overlay.yaml"
MEMBERS_ABOVE, METRICS_ABOVE = 7_000, 8_000
"""Offsets from the first gateway's port to ports of replicas and key servers, and to ports of metrics."""
PORT_MAX = 65_535  # of TCP


@dataclass(frozen=True, slots=True)
class Made:
    """The result of `veilmq init`. `members` are in the order in which they are started."""

    directory: Path
    members: tuple[PlannedMember, ...]

    @property
    def overlay_path(self) -> Path:
        return self.directory / SIGNED

    @property
    def first_gateway(self) -> PlannedMember:
        return next(member for member in self.members if member.role is Role.GATEWAY)

    def folder(self, member: PlannedMember) -> RoleFolder:
        return RoleFolder(self.directory / member.name)


def make_overlay(directory: Path, plan: Plan, first_port: int, now: float) -> Made:
    """Writes all files into the new or empty `directory`. `first_port`: the first gateway's port.

    Raises SetupError, TrustError, OverlayError.
    """
    plan.check_plan()
    try:
        if directory.exists() and any(directory.iterdir()):
            raise SetupError(f"{directory}: holds something already; name a new directory")
        private_directory(directory)
        members = tuple(_members(plan, first_port))
        owner = TrustDomain.create(directory / OWNER, "owner", now)
        for member in members:
            domain = TrustDomain.create(directory / member.name / DOMAIN, f"operator-{member.name}", now)
            domain.issue(member.name, member.role, (member.host,), directory / member.name / IDENTITY, now)
        described = directory / DESCRIPTION
        _write_yaml(
            described, description(plan, members, "overlay"), "# What the owner signs: `veilmq overlay sign`.\n"
        )
        signed = sign_overlay(described, owner.directory, directory / SIGNED, now)
        for material in signed.materials:
            material.rename(directory / material.stem / MATERIAL)
        if signed.materials:
            signed.materials[0].parent.rmdir()
        made = Made(directory, members)
        for member in members:
            folder = made.folder(member)
            write_public(folder.overlay_path, made.overlay_path.read_bytes())
            _write_yaml(folder.config, settings(member, plan.protect), title(member))
            if member.role is Role.GATEWAY and not member.is_here:
                write_private(folder.passwords, b"")
    except PrivateFileError as error:
        raise SetupError(str(error)) from None
    except OSError as error:
        raise SetupError(f"{error.filename or directory}: {error.strerror or error}; correct that") from None
    return made


def _members(plan: Plan, first_port: int) -> Iterator[PlannedMember]:
    if not 0 < first_port <= PORT_MAX - METRICS_ABOVE:
        above = f"replicas listen {MEMBERS_ABOVE} above it, metrics {METRICS_ABOVE}"
        raise SetupError(f"--port {first_port}: take 1 to {PORT_MAX - METRICS_ABOVE}; {above}")
    taken: set[int] = set()
    for name, role in plan.member_roles.items():
        first = first_port if role is Role.GATEWAY else first_port + MEMBERS_ABOVE
        metrics = f"{LOOPBACK}:{_free(first_port + METRICS_ABOVE, taken)}"
        region = "" if role is Role.KEY_SERVER else plan.region_of(name)
        given = plan.addresses.get(name)
        if given is None:
            bind = f"{LOOPBACK}:{_free(first, taken)}"
            yield PlannedMember(name, role, bind, bind, metrics, region)
            continue
        host, _, port = given.rpartition(":")
        if not host or not port.isdigit():
            raise SetupError(f"--address {name}={given}: is no HOST:PORT; write e.g. {name}=a.example.net:8883")
        yield PlannedMember(name, role, given, f"0.0.0.0:{port}", metrics, region)


def _free(first: int, taken: set[int]) -> int:
    """Returns the first port from `first` on that is free, and takes it. Raises SetupError."""
    port = first_free(first, taken)
    if port is None:
        raise SetupError(f"no port from {first} to {PORT_MAX} is free; give another --port")
    taken.add(port)
    return port


def first_free(first: int, taken: Collection[int]) -> int | None:
    """Returns the first port from `first` on that is not taken, and free on this machine now; None without one."""
    for port in range(first, PORT_MAX + 1):
        if port in taken:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a listener: old connections hold no port
            probe.bind((LOOPBACK, port))
            probe.listen(1)
            return port
    return None


def _write_yaml(path: Path, content: Mapping[str, Any], heading: str) -> None:
    write_public(path, (heading + yaml.safe_dump(dict(content), sort_keys=False)).encode())
