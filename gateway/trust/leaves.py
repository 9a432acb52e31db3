"""Renewal of identities by their own trust domain: TLS certificates before expiry, and cards of an older form.

The key stays. No other party has to agree to a TLS certificate, since members know each other by the key and not by the
certificate. The running process notices the new file (`live_overlay`). A new card counts once the owner has signed it.
Not here: a new key (`rotation`), the overlay's own certificates, which its
owner signs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509

from gateway.base import PrivateFileError, write_public
from gateway.trust.domains import (
    LEAF_DAYS,
    MAX_CARD_BYTES,
    PREVIOUS,
    LocalIdentity,
    TrustDomain,
    load_key,
    read_public,
)
from gateway.trust.errors import TrustError
from keys.errors import KeysError
from keys.identity import make_leaf

DAY_S = 86_400
BEFORE_DAYS = 60


@dataclass(frozen=True, slots=True)
class Leaf:
    """A TLS certificate of an identity. `is_new`: issued by this call. `ends_s`: expiry, UNIX time in seconds."""

    name: str
    is_new: bool
    ends_s: float


def renew_leaf(
    directory: Path, domain: TrustDomain, now: float, valid_days: int = LEAF_DAYS, before_days: int = BEFORE_DAYS
) -> Leaf:
    """Replaces the certificate of the identity in `directory` if fewer than `before_days` are left.

    No certificate outlives the domain's authority, so none is issued that would need renewal at once. Raises
    TrustError.
    """
    if valid_days <= before_days:
        raise TrustError(f"--days {valid_days} is no longer than --before {before_days}: it would renew for ever")
    local = LocalIdentity.load(directory)
    domain.check_issued(local)
    ends_s = _end_s(local.cert)
    if ends_s - now > before_days * DAY_S:
        return Leaf(local.name, False, ends_s)
    authority_s = _end_s(domain.directory / "ca.pem")
    days = min(valid_days, int((authority_s - now) // DAY_S))
    if days <= before_days:
        raise TrustError(
            f"{domain.directory}: its authority has {max(days, 0)} days left and can renew nothing; make a trust "
            "domain with `veilmq trust init` and a new identity of it"
        )
    try:
        leaf = make_leaf(domain.ca, domain.ca_pem, local.identity, local.name, domain.name, local.card.hosts, now, days)
        write_public(local.cert, leaf)
    except (KeysError, PrivateFileError) as error:
        raise TrustError(str(error)) from None
    return Leaf(local.name, True, _end_s(local.cert))


def renew_card(directory: Path) -> bool:
    """Writes a card with a hybrid key for boxes in the place of one without; returns True if there was one without.

    Raises TrustError.
    """
    local = LocalIdentity.load(directory)
    if local.card.agreement_key == local.identity.hybrid_bytes:
        return False
    former = directory / PREVIOUS / "key.pem"
    succeeded = load_key(former) if local.card.former and former.exists() else None
    card = replace(local.card, agreement_key=local.identity.hybrid_bytes, former_signature=b"")
    try:
        write_public(directory / "card.json", card.signed(local.identity, succeeded).to_json())
    except (KeysError, PrivateFileError) as error:
        raise TrustError(str(error)) from None
    return True


def _end_s(path: Path) -> float:
    try:
        certificate = x509.load_pem_x509_certificate(read_public(path, MAX_CARD_BYTES))
    except ValueError:
        raise TrustError(f"{path}: is not a certificate; restore it or issue the identity anew") from None
    return certificate.not_valid_after_utc.timestamp()
