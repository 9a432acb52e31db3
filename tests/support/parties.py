"""Parties of an overlay as files: trust domains, identities, and what the owner signs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.owner.cards import SignOptions
from gateway.owner.signing import Signed, rekey, sign_overlay
from gateway.trust.domains import LocalIdentity, TrustDomain
from keys.identity import Role
from keys.material import Material

NOW = 1_800_000_000.0
NOW_MS = int(NOW * 1000)
HOSTS = ("127.0.0.1",)


class Parties:
    """An owner, three replicas of three parties, one gateway and one ingest job, as files."""

    def __init__(self, directory: Path, now: float = NOW) -> None:
        self.directory = directory
        self.now = now
        self.owner = directory / "owner"
        TrustDomain.create(self.owner, "owner-org", now)
        for place in range(1, 4):
            party = TrustDomain.create(directory / f"party{place}", f"party{place}", now)
            party.issue(f"r{place}", Role.REPLICA, HOSTS, directory / f"r{place}", now)
        owner = TrustDomain.load(self.owner)
        owner.issue("g1", Role.GATEWAY, HOSTS, directory / "g1", now)
        owner.issue("spark", Role.INGEST, HOSTS, directory / "spark", now)
        self.out = directory / "overlay.json"
        self.description: dict[str, Any] = {
            "name": "demo",
            "regions": [
                {
                    "name": "north",
                    "members": [{"card": f"r{n}/card.json", "address": f"127.0.0.1:{8880 + n}"} for n in (1, 2, 3)],
                }
            ],
            "scopes": [
                {"filter": "ward/#", "tokens": True},
                {"filter": "pumps/#", "mode": "copies"},
                {"filter": "public/#", "mode": "plain"},
                {"filter": "vault/#", "shares_only": True},
            ],
            "members": [
                {
                    "card": "g1/card.json",
                    "region": "north",
                    "publish": ["#"],
                    "read": ["ward/#", "public/#"],
                },
                {"card": "spark/card.json", "region": "north", "read": ["pumps/#"]},
            ],
        }

    def sign(
        self,
        change: Callable[[dict[str, Any]], object] | None = None,
        now: float | None = None,
        **options: Any,
    ) -> Signed:
        if change:
            change(self.description)
        path = self.directory / "overlay.yaml"
        path.write_text(yaml.safe_dump(self.description))
        when = self.now if now is None else now
        return sign_overlay(path, self.owner, self.out, when, SignOptions(**options))

    def local(self, name: str) -> LocalIdentity:
        return LocalIdentity.load(self.directory / name)


class ServedParties(Parties):
    """Parties with four key servers, and epochs of a day."""

    def __init__(self, directory: Path, issuer: str = "threshold", servers: int = 4) -> None:
        super().__init__(directory)
        for place in range(1, servers + 2):  # one more, of whom a test may make a server
            operator = TrustDomain.create(directory / f"operator{place}", f"operator-{place}", self.now)
            operator.issue(f"k{place}", Role.KEY_SERVER, HOSTS, directory / f"k{place}", self.now)
        self.description["key_service"] = {"issuer": issuer, "servers": [self.server(n + 1) for n in range(servers)]}
        self.description["epochs"] = {"history_epochs": 3}

    @staticmethod
    def server(place: int) -> dict[str, str]:
        return {"card": f"k{place}/card.json", "address": f"127.0.0.1:{8890 + place}"}

    def materials(self, signed: Signed) -> dict[str, Material]:
        """As the servers take them in: read once, then erased."""
        found = {path.stem: Material.decode(path.read_bytes()) for path in signed.materials}
        for path in signed.materials:
            path.unlink()
        return found

    def rekey(self, now: float = NOW, **options: Any) -> Signed:
        for path in (self.directory / "keyserver").glob("*.material"):
            path.unlink()
        path = self.directory / "overlay.yaml"
        path.write_text(yaml.safe_dump(self.description))
        return rekey(path, self.owner, self.out, now, SignOptions(**options))


def signed(directory: Path, now: float = NOW) -> Parties:
    """Parties whose owner has signed."""
    made = Parties(directory, now)
    made.sign()
    return made


def on_disk(build: Callable[[Path], Any]) -> Any:
    """A fixture: what `build` makes in the directory of a test."""

    @pytest.fixture
    def made(tmp_path: Path) -> Any:
        return build(tmp_path)

    return made
