"""Plan of a new overlay: its members, their addresses, the owner's description and each member's YAML.

Names and contents only; `initialising` writes them. Members: replicas r1 r2 ..., gateways g1 g2 ..., key servers
k1 k2 ...; regions region1 region2 ..., joined in a row, with equal numbers of replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bridge.base import OperatorError
from gateway.setup.folders import CONFIG, DATA, IDENTITY, MATERIAL, OVERLAY, PASSWORDS
from keys.identity import Role

REPLICAS_MIN = 3
"""Fewer replicas cannot share a secret."""
KEY_SERVERS_MIN = 4
"""Fewer key servers tolerate no liar: 3f + 1."""
VALID_DAYS, RENEW_BEFORE_DAYS = 365, 60
"""Days for which certificates in the overlay are valid, and days before expiry at which they are renewed."""
MEMBERS_MAX = 200
"""Stops a typing error from filling a disk."""


class SetupError(OperatorError):
    """An overlay that cannot be made or run, in a line: cause and cure. Exit status 2."""


@dataclass(frozen=True, slots=True)
class PlannedMember:
    """A member of a plan. `address`: HOST:PORT where others reach it; `bind`: the address that its listener binds."""

    name: str
    role: Role
    address: str
    bind: str
    metrics: str
    region: str = ""

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def is_here(self) -> bool:
        """True if only this machine can reach the member, which then needs no logins."""
        return self.host in ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Plan:
    """The request to `veilmq init`."""

    replicas: int = REPLICAS_MIN
    gateways: int = 2
    regions: int = 1
    key_servers: int = 0
    protect: tuple[str, ...] = ("plant/#",)
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Addresses (HOST:PORT by name) of members that will run on other machines."""

    def check_plan(self) -> None:
        """Raises SetupError if no overlay can be made from the plan."""
        if self.replicas < REPLICAS_MIN:
            raise SetupError(
                f"--replicas {self.replicas}: a region of fewer than {REPLICAS_MIN} replicas cannot share a secret; "
                f"take {REPLICAS_MIN} or more"
            )
        if self.gateways < 1 or self.regions < 1:
            raise SetupError("an overlay has at least one region and one gateway; take --gateways 1 or more")
        if 0 < self.key_servers < KEY_SERVERS_MIN:
            raise SetupError(
                f"--key-servers {self.key_servers}: fewer than {KEY_SERVERS_MIN} bear no liar; take {KEY_SERVERS_MIN}, "
                "7, 10, or none: then the owner issues keys"
            )
        if len(self.member_roles) > MEMBERS_MAX:
            raise SetupError(
                f"{len(self.member_roles)} members are more than {MEMBERS_MAX}; sign a description of your own"
            )
        for name in self.addresses:
            if name not in self.member_roles:
                raise SetupError(
                    f"--address {name}=...: there is no {name}; members are {', '.join(self.member_roles)}"
                )

    @property
    def member_roles(self) -> dict[str, Role]:
        """All members with their roles, in the order in which they are started."""
        kinds = (
            ("r", self.regions * self.replicas, Role.REPLICA),
            ("k", self.key_servers, Role.KEY_SERVER),
            ("g", self.gateways, Role.GATEWAY),
        )
        return {f"{letter}{number}": role for letter, count, role in kinds for number in range(1, count + 1)}

    def region_of(self, name: str) -> str:
        """Returns a member's region: replicas fill one region after the other, gateways take turns."""
        place = int(name[1:]) - 1
        number = place // self.replicas if name.startswith("r") else place % self.regions
        return f"region{number + 1}"


def description(plan: Plan, members: Sequence[PlannedMember], overlay: str) -> dict[str, Any]:
    """Returns the description the owner signs (`configs/overlay.yaml` has every field)."""
    regions = [f"region{number}" for number in range(1, plan.regions + 1)]
    content: dict[str, Any] = {
        "name": overlay,
        "valid_days": VALID_DAYS,
        "renew_before_days": RENEW_BEFORE_DAYS,
        "regions": [
            {
                "name": region,
                "members": [_reached(m) for m in members if m.role is Role.REPLICA and m.region == region],
            }
            for region in regions
        ],
        "edges": [list(pair) for pair in pairwise(regions)],
        "scopes": [{"filter": each, "tokens": True} for each in plan.protect],
        "members": [
            {"card": _card(m), "region": m.region, "publish": list(plan.protect), "read": list(plan.protect)}
            for m in members
            if m.role is Role.GATEWAY
        ],
    }
    if plan.key_servers:
        servers = [_reached(m) for m in members if m.role is Role.KEY_SERVER]
        content["key_service"] = {"issuer": "threshold", "servers": servers}
    return content


def _reached(member: PlannedMember) -> dict[str, str]:
    return {"card": _card(member), "address": member.address}


def _card(member: PlannedMember) -> str:
    return f"{member.name}/{IDENTITY}/card.json"


def settings(member: PlannedMember, protect: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the YAML of a member, with paths relative to its folder."""
    section: dict[str, Any] = {"identity": IDENTITY, "overlay": OVERLAY}
    content: dict[str, Any] = {"listeners": {"default": {"bind": member.bind}}}
    if member.role is Role.GATEWAY:
        if member.is_here:
            content["allow_anonymous"] = True
        else:
            content["plugins"] = {"gateway.auth.passwords.PasswordPlugin": {"password_file": PASSWORDS}}
        section["protect"] = [{"filter": each, "tokens": True} for each in protect]
    else:
        content["listeners"]["default"]["overlay"] = True
    if member.role is Role.KEY_SERVER:
        section["key_server"] = {"material": MATERIAL}
    return {**content, "data": DATA, "metrics": {"bind": member.metrics}, "overlay": section}


def title(member: PlannedMember) -> str:
    """Returns the comment above a member's YAML: the command starting it and the first settings to change."""
    lines = [f"{member.name}, a {member.role.value}. From this folder: veilmq broker -c {CONFIG}"]
    if member.role is Role.GATEWAY and member.is_here:
        lines += [
            "Ordinary MQTT clients connect to the listener below. Before others than this machine can reach it, make",
            "logins by `veilmq passwd passwords USER`, remove allow_anonymous, and add",
            "plugins: {gateway.auth.passwords.PasswordPlugin: {password_file: passwords}}",
        ]
    elif member.role is Role.GATEWAY:
        lines += [
            "Ordinary MQTT clients connect to the listener below with a login of `veilmq passwd passwords USER`.",
            "Add ssl, certfile and keyfile, or passwords cross the network in clear.",
        ]
    return "".join(f"# {line}\n" for line in lines)
