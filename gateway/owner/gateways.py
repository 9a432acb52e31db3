"""Attaching and detaching of gateways and ingest jobs, with their rights, while members run.

Gateways and jobs are in no view of a region, so no endorsement is needed: the signed version counts as soon as
members adopt it. A detached member loses all rights at once, and the scopes whose keys it held get new keys. Not
here: replicas (`attaching`), rights of other members (`signing.grant`, `signing.revoke`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bridge.document import Overlay
from gateway.owner.cards import member_of
from gateway.owner.record import locked, open_record_of
from gateway.owner.rights import Taken, give, take
from gateway.owner.signing import check_certificates, next_version, publish
from gateway.owner.views import carried
from gateway.trust import Card, TrustDomain, TrustError
from keys.grants import Right
from keys.identity import Role

JOINING = (Role.GATEWAY, Role.INGEST)


def attach_gateway(
    out: Path,
    owner: Path,
    region: str,
    card: Card,
    wanted: Sequence[tuple[str, Right]],
    now: float,
    *,
    dry_run: bool = False,
) -> Overlay:
    """Signs the next version, in which the gateway or ingest job with this card is a member and has these rights.

    Raises TrustError, OverlayError.
    """
    if card.role not in JOINING:
        raise TrustError(f"{card.name} is a {card.role}; gateways and ingest jobs join like this")
    domain = TrustDomain.load(owner)
    with locked(domain):
        record, previous = open_record_of(domain, out)
        check_certificates(out, previous, now)
        view = next((view for view in previous.latest.values() if view.name == region), None)
        if view is None:
            known = ", ".join(view.name for view in previous.latest.values())
            raise TrustError(f"there is no region {region}; known are {known}")
        if card.name in previous.members:
            raise TrustError(f"{card.name} is a member already; have it made under another name")
        if wanted:
            give(record, previous.policy, card.name, wanted, False, now)
        not_after_ms = max(member.certificate.not_after_ms for member in previous.members.values())
        added = {card.name: member_of(domain, card, view.region, "", not_after_ms)}
        overlay = next_version(domain, record, previous, carried(previous, now), added, now)
        if not dry_run:
            publish(domain, record, overlay, out)
    return overlay


def detach_gateway(
    out: Path, owner: Path, member: str, now: float, *, dry_run: bool = False
) -> tuple[Overlay, tuple[str, ...]]:
    """Signs the next version without the member; also returns the scopes that have new keys.

    Raises TrustError, OverlayError.
    """
    domain = TrustDomain.load(owner)
    with locked(domain):
        record, previous = open_record_of(domain, out)
        check_certificates(out, previous, now)
        found = previous.members.get(member)
        if found is None or found.certificate.role not in JOINING:
            raise TrustError(f"no gateway or ingest job is called {member}; nothing to change")
        has_rights = any(granted.member == member for granted in record.granted)
        taken = take(record, previous.policy, domain.root, member, None, True, now) if has_rights else Taken(now)
        overlay = next_version(domain, record, previous, carried(previous, now), {}, now, gone=(member,))
        if not dry_run:
            publish(domain, record, overlay, out)
    return overlay, taken.bumped
