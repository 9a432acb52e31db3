"""Renewal of the members' certificates in the overlay: same keys, same rights, a later expiry.

A repeated call does nothing until the first certificate has less than `before_days` to live. The owner consents by
`renew_before_days` in the signed description, or by a timer running the command. Members adopt the version while they
run. Not here: new keys (`veilmq trust rotate`), TLS certificates of identities, which their trust domains issue
(`gateway.trust.leaves`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from bridge.document import Overlay
from gateway.owner.cards import DAY_MS, reissued
from gateway.owner.record import locked, open_record_of
from gateway.owner.signing import next_version, publish
from gateway.owner.views import carried, without_strangers
from gateway.trust import TrustDomain, TrustError

BEFORE_DAYS = 60


@dataclass(frozen=True, slots=True)
class Renewed:
    """The result of a renewal.

    `overlay` is None if none was due. `first_end_s`: next expiry (UNIX time in seconds).
    """

    overlay: Overlay | None
    first_end_s: float


def consented(out: Path, owner: Path) -> bool:
    """Returns True if the last signed description allows automatic renewal of certificates. Raises TrustError."""
    return open_record_of(TrustDomain.load(owner), out)[0].renew_before_days is not None


def renew(out: Path, owner: Path, now: float, valid_days: int | None = None, before_days: int | None = None) -> Renewed:
    """Signs the next version of `out` if a renewal is due. Values of None are taken from the last signed description.

    Expired certificates are renewed too: members adopt no other change on top of such a version. Raises TrustError,
    OverlayError.
    """
    domain = TrustDomain.load(owner)
    with locked(domain):
        record, previous = open_record_of(domain, out)
        valid_days = valid_days or record.valid_days
        before_days = before_days or record.renew_before_days or min(BEFORE_DAYS, valid_days // 2)
        if valid_days <= before_days:
            raise TrustError(f"--days {valid_days} is no longer than --before {before_days}: it would renew for ever")
        first_end_ms = min(member.certificate.not_after_ms for member in previous.members.values())
        if first_end_ms - now * 1000 > before_days * DAY_MS:
            return Renewed(None, first_end_ms / 1000)
        views = carried(previous, now)
        not_after_ms = int(now * 1000) + valid_days * DAY_MS
        added = {
            name: replace(member, certificate=reissued(domain, member.certificate, not_after_ms))
            for name, member in without_strangers(previous, views).items()
        }
        overlay = next_version(domain, record, previous, views, added, now)
        publish(domain, record, overlay, out)
    return Renewed(overlay, not_after_ms / 1000)
