"""Renewal by `veilmq up` of certificates before they expire, so that a directory can run for years.

TLS certificates are renewed for members whose trust domain lies in their folder: the operator decides that alone.
Certificates in the overlay need the owner's standing consent, `renew_before_days` in the signed description, and the
owner's trust domain in the directory. On other hosts timers run commands that do this.
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
    """The renewals of a directory. `say` prints a line for the operator."""

    def __init__(self, owner: Path, signed: Path, say: Callable[[str], None]) -> None:
        self._owner, self._signed, self._say = owner, signed, say
        self._next_s = 0.0
        self._said: set[str] = set()

    def step(self, folders: list[RoleFolder], now: float) -> None:
        """Renews due certificates, at most once an hour, and reports each failure once.

        `now`: UNIX time in seconds.
        """
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
