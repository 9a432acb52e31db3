"""Renewal of TLS certificates of identities by their own trust domain before expiry: same key, later end.

No other party has to agree, since members know each other by the key and not by the certificate. The running process
notices the new file (`live_overlay`). Not here: a new key (`rotation`), the overlay's own certificates, which its
owner signs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from gateway.base import PrivateFileError, write_public
from gateway.trust.domains import LEAF_DAYS, MAX_CARD_BYTES, LocalIdentity, TrustDomain, TrustError, read_public
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


def _end_s(path: Path) -> float:
    try:
        certificate = x509.load_pem_x509_certificate(read_public(path, MAX_CARD_BYTES))
    except ValueError:
        raise TrustError(f"{path}: is not a certificate; restore it or issue the identity anew") from None
    return certificate.not_valid_after_utc.timestamp()
