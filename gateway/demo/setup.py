"""Files of the demonstration: trust domains, identities, the signed overlay, a single YAML for each role.

All files are made by the functions behind `veilmq trust` and `veilmq overlay sign`, and `veilmq broker -c` reads the
YAML files anywhere: with other addresses they run on other machines. Every replica belongs to its own trust domain.
Nothing is started here.

    plant  (region 1): r1a r1b r1c ──┐
      gateway `site`                 │  joined by an edge of the region tree
    centre (region 2): r2a r2b r2c ──┘
      gateway `control`, ingest job `spark`
    key servers k1 k2 k3 k4, in no region: one may lie or be away, and none can derive a key alone
"""

from __future__ import annotations

import secrets
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bridge.base import OperatorError
from gateway.owner import sign_overlay
from gateway.trust import TrustDomain
from keys.identity import Role

HOST = "127.0.0.1"
REGIONS: Mapping[str, tuple[str, ...]] = {"plant": ("r1a", "r1b", "r1c"), "centre": ("r2a", "r2b", "r2c")}
REPLICAS = tuple(replica for replicas in REGIONS.values() for replica in replicas)
KEY_SERVERS = ("k1", "k2", "k3", "k4")
EPOCHS: Mapping[str, int] = {"length_s": 10, "ahead_s": 3, "grace_s": 2, "skew_s": 1, "history_epochs": 0}
"""Times of epochs in seconds, where an installation has hours: a short run is to see keys change."""
GATEWAYS: Mapping[str, str] = {"site": "plant", "control": "centre"}
INGEST = "spark"
DOMAINS: Mapping[str, str] = {
    **dict(zip(REPLICAS, ("opA", "opB", "opC", "opD", "opE", "opF"), strict=True)),
    **dict(zip(KEY_SERVERS, ("opG", "opH", "opI", "opJ"), strict=True)),
    "site": "site-operator",
    "control": "owner",
    INGEST: "owner",
}
"""Trust domains that issue the members' certificates, by member; the owner also signs the overlay."""
TELEMETRY = "machine/#"
PROTECTED: Mapping[str, Any] = {"filter": TELEMETRY, "tokens": True}
LINGER_MS = 50
"""Milliseconds for which a batch may wait for more publications. On two slow cores, which also run Spark, batches fill
and cost less work; on faster machines all replicas acknowledge a batch before the next reading, and no reading waits.
"""
AVAILABILITY = "entities/#"
AVAILABILITY_PREFIX = "entities"
PORTS = range(20_000, 32_000)
"""Ports below the range for outgoing connections, from which another process could take ours meanwhile."""
FREE_BYTES_MIN = 256 << 20
"""The most bytes that a run writes to disk, with a margin."""


class DemoError(OperatorError):
    """An error ending the demonstration, in a line: cause and cure.

    `status`: exit status. `tail`: last lines of the log of the process at fault.
    """

    def __init__(self, message: str, status: int = 2, tail: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.tail = tuple(tail)


@dataclass(frozen=True, slots=True)
class DemoLayout:
    """The paths of all files, and ports on the loopback interface."""

    directory: Path
    overlay_ports: Mapping[str, int]
    client_ports: Mapping[str, int]
    plain_port: int

    @property
    def overlay_path(self) -> Path:
        return self.directory / "overlay.json"

    @property
    def grants(self) -> Path:
        """The file in which Spark's receiver writes the scope keys for its executors."""
        return self.identity(INGEST) / "scope_keys.json"

    def config(self, name: str) -> Path:
        return self.directory / f"{name}.yaml"

    def identity(self, name: str) -> Path:
        return self.directory / "identities" / name


def build(directory: Path, now: float) -> DemoLayout:
    """Writes all files into the empty directory `directory`. Raises DemoError, TrustError, OverlayError, OSError."""
    free = shutil.disk_usage(directory).free
    if free < FREE_BYTES_MIN:
        raise DemoError(
            f"{directory}: only {free >> 20} MiB are free, {FREE_BYTES_MIN >> 20} are needed; make room or set TMPDIR"
        )
    ports = iter(free_ports(2 * len(REPLICAS) + len(KEY_SERVERS) + len(GATEWAYS) + 1))
    layout = DemoLayout(
        directory=directory,
        overlay_ports={name: next(ports) for name in (*REPLICAS, *KEY_SERVERS)},
        client_ports={name: next(ports) for name in (*REPLICAS, *GATEWAYS)},
        plain_port=next(ports),
    )
    domains = {
        name: TrustDomain.create(directory / "domains" / name, name, now) for name in dict.fromkeys(DOMAINS.values())
    }
    for member, domain in DOMAINS.items():
        domains[domain].issue(member, role_of(member), (HOST,), layout.identity(member), now)
    description = directory / "overlay.yaml"
    _write_yaml(description, overlay_description(layout), "What the owner signs: `veilmq overlay sign`.")
    sign_overlay(description, domains["owner"].directory, layout.overlay_path, now)
    for name in REPLICAS:
        _write_yaml(layout.config(name), replica_settings(layout, name), f"Replica {name} of {DOMAINS[name]}.")
    for name in KEY_SERVERS:
        _write_yaml(layout.config(name), key_server_settings(layout, name), f"Key server {name} of {DOMAINS[name]}.")
    for name in GATEWAYS:
        _write_yaml(layout.config(name), gateway_settings(layout, name), f"Gateway {name} of {DOMAINS[name]}.")
    return layout


def role_of(member: str) -> Role:
    """Returns the role in the certificate of a member of `DOMAINS`."""
    if member == INGEST:
        return Role.INGEST
    return Role.REPLICA if member in REPLICAS else Role.KEY_SERVER if member in KEY_SERVERS else Role.GATEWAY


def free_ports(count: int) -> list[int]:
    """Returns free ports of the loopback interface. Raises DemoError if there are too few."""
    found: list[int] = []
    start = secrets.randbelow(len(PORTS))
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise DemoError(f"fewer than {count} ports from {PORTS.start} to {PORTS.stop} are free; stop what uses them")


def overlay_description(layout: DemoLayout) -> dict[str, Any]:
    """Returns the owner's description: members, joined regions, sealed topics, rights."""
    members = {
        "site": {"publish": [TELEMETRY, f"{AVAILABILITY_PREFIX}/site/#"], "read": []},
        "control": {"publish": [f"{AVAILABILITY_PREFIX}/control/#"], "read": [TELEMETRY, AVAILABILITY]},
        INGEST: {"publish": [], "read": [TELEMETRY, AVAILABILITY]},
    }
    return {
        "name": "demo",
        "regions": [
            {
                "name": region,
                "id": number,
                "members": [
                    {"card": _card(layout, name), "address": f"{HOST}:{layout.overlay_ports[name]}"}
                    for name in replicas
                ],
            }
            for number, (region, replicas) in enumerate(REGIONS.items(), 1)
        ],
        "edges": [list(REGIONS)],
        "scopes": [{**PROTECTED, "batch": {"linger_ms": LINGER_MS}}, {"filter": AVAILABILITY}],
        "key_service": {
            "issuer": "threshold",
            "servers": [
                {"card": _card(layout, name), "address": f"{HOST}:{layout.overlay_ports[name]}"} for name in KEY_SERVERS
            ],
        },
        "epochs": dict(EPOCHS),
        "members": [
            {"card": _card(layout, name), "region": GATEWAYS.get(name, "centre"), **rights}
            for name, rights in members.items()
        ],
    }


def replica_settings(layout: DemoLayout, name: str) -> dict[str, Any]:
    """Returns a replica's settings: a listener for the overlay (mutual TLS), and one for its local operator."""
    return {
        "listeners": {
            "overlay": {"bind": f"{HOST}:{layout.overlay_ports[name]}", "overlay": True},
            "operator": {"bind": f"{HOST}:{layout.client_ports[name]}"},
        },
        "allow_anonymous": True,
        "data": f"data/{name}",
        "overlay": {"identity": f"identities/{name}", "overlay": layout.overlay_path.name},
    }


def key_server_settings(layout: DemoLayout, name: str) -> dict[str, Any]:
    """Returns a key server's settings: a listener for members of the overlay, and the material from the owner."""
    return {
        "listeners": {"overlay": {"bind": f"{HOST}:{layout.overlay_ports[name]}", "overlay": True}},
        "data": f"data/{name}",
        "overlay": {
            "identity": f"identities/{name}",
            "overlay": layout.overlay_path.name,
            "key_server": {"material": f"keyserver/{name}.material"},
        },
    }


def gateway_settings(layout: DemoLayout, name: str) -> dict[str, Any]:
    """Returns a gateway's settings: an ordinary listener for its clients, and the filters that it seals."""
    protect: list[Mapping[str, Any]] = [{"filter": AVAILABILITY}]
    if name == "site":
        protect.insert(0, PROTECTED)
    return {
        "listeners": {"default": {"bind": f"{HOST}:{layout.client_ports[name]}"}},
        "allow_anonymous": True,
        "data": f"data/{name}",
        "overlay": {
            "identity": f"identities/{name}",
            "overlay": layout.overlay_path.name,
            "protect": protect,
        },
        "availability": {"enabled": True, "topic_prefix": AVAILABILITY_PREFIX},
    }


def _card(layout: DemoLayout, name: str) -> str:
    return str((layout.identity(name) / "card.json").relative_to(layout.directory))


def _write_yaml(path: Path, content: Mapping[str, Any], title: str) -> None:
    path.write_text(f"# {title}\n" + yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")
