"""What hybrid boxes cost an overlay of many gateways, beside classical ones: `python -m tests.bench.members [--json]`.

An owner signs an overlay of 200 gateways, attaches a replica, and renews all certificates; a member reads each version.
Once with hybrid keys in the cards, and once with classical ones, as before they existed. Times are processor time,
which other work on the machine changes less than the clock's. Sizes: of the file, and packed as members send it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from bridge.membership.adopting import canonical
from gateway.owner.attaching import attach
from gateway.owner.renewing import renew
from gateway.owner.signing import sign_overlay
from gateway.trust.domains import LocalIdentity, TrustDomain
from gateway.trust.overlay_file import load_overlay
from keys.identity import Role

GATEWAYS = 200
NOW = 1_800_000_000.0
HOSTS = ("127.0.0.1",)
DAYS = 365
RUNS = 3


class Party:
    """An owner in a folder, with a number of gateways of hybrid or classical keys."""

    def __init__(self, directory: Path, gateways: int, is_hybrid: bool) -> None:
        self._directory, self._is_hybrid = directory, is_hybrid
        self.owner, self.out = directory / "owner", directory / "overlay.json"
        self._domain = TrustDomain.create(self.owner, "owner", NOW)
        names = [f"g{number}" for number in range(gateways)]
        replicas = [self._issue(f"r{number}", Role.REPLICA) for number in range(4)]
        members = [{"card": self._issue(name, Role.GATEWAY), "region": "north", "read": ["plant/#"]} for name in names]
        listed = [{"card": card, "address": f"127.0.0.1:{8880 + n}"} for n, card in enumerate(replicas[:3])]
        described: dict[str, Any] = {
            "name": "plant",
            "regions": [{"name": "north", "members": listed}],
            "scopes": [{"filter": "plant/#"}],
            "members": members,
            "quantum_safe": "required" if is_hybrid else "preferred",
            "valid_days": DAYS,
        }
        self.description, self.late = directory / "overlay.yaml", directory / replicas[3]
        self.description.write_text(yaml.safe_dump(described))

    def _issue(self, name: str, role: Role) -> str:
        domain = self._domain
        if role is Role.REPLICA:  # each of another party
            domain = TrustDomain.create(self._directory / f"{name}-domain", name, NOW)
        local = domain.issue(name, role, HOSTS, self._directory / name, NOW)
        if not self._is_hybrid:
            self._make_classical(local)
        return f"{name}/card.json"

    def _make_classical(self, local: LocalIdentity) -> None:
        card = replace(local.card, agreement_key=local.identity.agreement_bytes)
        (local.directory / "card.json").write_bytes(card.signed(local.identity, None).to_json())

    def steps(self) -> dict[str, Callable[[], object]]:
        """What is done, in order; each begins with the files that the one before left."""
        ms = int(NOW * 1000)
        return {
            "sign": lambda: sign_overlay(self.description, self.owner, self.out, NOW),
            "attach": lambda: attach(self.out, self.owner, "north", self.late, "127.0.0.1:8890", NOW + 60),
            "read": lambda: load_overlay(self.out, ms),
            "renew": lambda: renew(self.out, self.owner, NOW + 7200, DAYS, DAYS - 1),
            "read after the renewal": lambda: load_overlay(self.out, ms),
        }


def measured(directory: Path, gateways: int, is_hybrid: bool) -> dict[str, float]:
    """Milliseconds of each step, and sizes in bytes, of one run."""
    party, found = Party(directory, gateways, is_hybrid), dict[str, float]()
    for step, do in party.steps().items():
        began = time.process_time()
        do()
        found[f"{step}, ms"] = 1000 * (time.process_time() - began)
        if step in ("attach", "renew"):
            document = canonical(load_overlay(party.out, int(NOW * 1000)))
            found[f"file after {step}, bytes"] = party.out.stat().st_size
            found[f"sent after {step}, bytes"] = len(zlib.compress(document))
    return found


def compared(gateways: int, runs: int) -> dict[str, tuple[float, float]]:
    """The least of some runs, hybrid and classical, of which each takes turns."""
    found: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for _ in range(runs):
        for is_hybrid in (True, False):
            directory = Path(tempfile.mkdtemp())
            try:
                found[is_hybrid].append(measured(directory, gateways, is_hybrid))
            finally:
                shutil.rmtree(directory)
    least = {kind: {row: min(run[row] for run in rows) for row in rows[0]} for kind, rows in found.items()}
    return {row: (least[True][row], least[False][row]) for row in least[True]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--gateways", type=int, default=GATEWAYS)
    parser.add_argument("--runs", type=int, default=RUNS)
    asked = parser.parse_args()
    if not asked.json:
        print(f"{f'{asked.gateways} gateways':<36}{'hybrid':>12}{'classical':>12}{'ratio':>8}")
    for row, (hybrid, classical) in compared(asked.gateways, asked.runs).items():
        if asked.json:
            fields = {"bench": "members", "work": row, "ours": round(hybrid, 2), "peer": round(classical, 2)}
            print(json.dumps(fields | {"peer_name": "classical", "ratio": round(hybrid / classical, 3)}))
        else:
            print(f"{row:<36}{hybrid:>12,.1f}{classical:>12,.1f}{hybrid / classical:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
