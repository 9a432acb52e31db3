"""Rotation of an identity's key while its member runs: prepared, countersigned, taken, and the old key erased.

    veilmq trust rotate IDENTITY_DIR --domain DIR    makes IDENTITY_DIR/next; both keys sign its card
    veilmq overlay sign ... --card next/card.json    the overlay lists the new key, and the former one for a while
    take_next                                        the process moves next/ to its place, the old files to previous/
    drop_previous                                    erases previous/ once the overlay no longer lists its key

The move is a rename that records the intent, then steps that may be repeated (`trust.finish_taking`). Not here: the
moment at which a process switches (`live_overlay`), the cards the owner accepts (`owner.cards`).
"""

from __future__ import annotations

import os
from pathlib import Path

from bridge.document import Overlay
from gateway.base import PrivateFileError, erase, sync_directory
from gateway.trust.domains import (
    IDENTITY_FILES,
    PREVIOUS,
    TAKING,
    Card,
    LocalIdentity,
    TrustDomain,
    finish_taking,
)
from gateway.trust.errors import TrustError

NEXT = "next"


def prepare(directory: Path, domain: TrustDomain, now: float, key: str = "") -> LocalIdentity:
    """Makes `next/` in an identity directory, issued by its own trust domain; `key`: URI of a key in a token.

    Raises TrustError.
    """
    local = LocalIdentity.load(directory)
    domain.check_issued(local)
    if (directory / NEXT / "key.pem").exists():
        raise TrustError(f"{directory / NEXT}: is prepared already; give its card.json to the overlay's owner")
    return domain.issue(local.name, local.role, local.card.hosts, directory / NEXT, now, local.identity, key)


def take_next(directory: Path) -> None:
    """Makes `next/` the identity from now on, and moves the former files to `previous/`. Raises TrustError."""
    LocalIdentity.load(directory / NEXT)
    _erase_previous(directory)
    try:
        os.rename(directory / NEXT, directory / TAKING)  # noqa: PTH104  the moment of the change
        sync_directory(directory)
    except OSError as error:
        raise TrustError(f"{directory / NEXT}: cannot be moved ({error.strerror or error}); correct that") from None
    finish_taking(directory)


def drop_previous(directory: Path, overlay: Overlay, now_ms: int) -> bool:
    """Erases the former key unless the overlay still lists it; returns True if no former key is left.

    Raises TrustError.
    """
    card = directory / PREVIOUS / "card.json"
    if card.exists():
        former = Card.load(card)
        member = overlay.members.get(former.name)
        if member is not None and any(
            certificate.public_key == former.public_key and certificate.not_after_ms > now_ms
            for certificate in member.certificates
        ):
            return False
    _erase_previous(directory)
    return True


def _erase_previous(directory: Path) -> None:
    previous = directory / PREVIOUS
    try:
        for name in IDENTITY_FILES:
            erase(previous / name)
        if previous.exists():
            previous.rmdir()
    except (OSError, PrivateFileError) as error:
        raise TrustError(f"{previous}: cannot be erased ({error}); remove it") from None
