"""What `veilmq up` renews by itself before it ends, so that a directory that runs for years does not stop one day.

TLS certificates of members whose trust domain lies in their folder: that is the operator's own affair. Certificates in
the overlay only with the owner's standing consent, which is `renew_before_days` in the description that was signed, and
only where the owner's trust domain lies in the directory. On real hosts timers run the commands that do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from bridge.document import OverlayError
from gateway.owner.renewing import consented, renew
from gateway.setup.folders import DOMAIN, IDENTITY, RoleFolder
from gateway.trust import TrustDomain, TrustError, date_of
from gateway.trust.leaves import renew_leaf

LOOK_EVERY_S = 3_600.0


class Renewals:
    """One directory's. `say`: a line for the operator."""

    def __init__(self, owner: Path, signed: Path, say: Callable[[str], None]) -> None:
        self._owner, self._signed, self._say = owner, signed, say
        self._next_s = 0.0
        self._said: set[str] = set()

    def step(self, folders: list[RoleFolder], now: float) -> None:
        """Renew what is due; an hour later look again. `now`: UNIX time. What cannot be renewed is said once."""
        if now < self._next_s:
            return
        self._next_s = now + LOOK_EVERY_S
        for line in self._renewed(folders, now):
            if line not in self._said:
                self._said.add(line)
                self._say(line)

    def _renewed(self, folders: list[RoleFolder], now: float) -> Iterator[str]:
        if (self._owner / "ca.key").exists() and self._signed.exists():
            try:
                done = consented(self._signed, self._owner) and renew(self._signed, self._owner, now)
                if done and done.overlay is not None:
                    yield f"certificates in {self._signed} renewed until {date_of(done.first_end_s)}"
            except (TrustError, OverlayError) as error:
                yield f"certificates in {self._signed} are not renewed: {error}"
        for folder in folders:
            domain = folder.path / DOMAIN
            if not (domain / "ca.key").exists() or not (folder.path / IDENTITY).is_dir():
                continue
            try:
                leaf = renew_leaf(folder.path / IDENTITY, TrustDomain.load(domain), now)
                if leaf.is_new:
                    yield f"the TLS certificate of {leaf.name} renewed until {date_of(leaf.ends_s)}"
            except TrustError as error:
                yield f"the TLS certificate of {folder.name} is not renewed: {error}"
