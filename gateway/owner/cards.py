"""Certification of cards: admits members by name, and lets a name get a new key.

A name signed before keeps its key, unless the present key countersigned the card with another key (`veilmq trust
rotate`): the former certificate then stays valid during the overlap. Any other card for that name is refused as
another party's, unless the owner declares the key lost. Not here: rights, scopes, signatures of the whole
(`signing`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from bridge.document import Member, Overlay
from gateway.owner.description import Description, HostedEntry, region_id
from gateway.trust import Card, TrustDomain, TrustError, read_public
from keys.errors import KeysError
from keys.identity import Certificate, Identity, Role

DAY_MS = 86_400_000
OVERLAP_HOURS = 24
NO_REGION = 0
MAX_CA_BYTES = 64 << 10
"""Stops a wrong path from being read as an authority."""


@dataclass(frozen=True, slots=True)
class SignOptions:
    """The options of a signing besides the description.

    `cards`: newer cards replacing cards of the description. `overlap_hours`: validity of a former key. `drained`: the
    owner's word that no publication waits in scopes whose mode changes to or from plain, or `shares_only` (`scopes`).
    `grace_s`: seconds for which the former tree of regions stays open, if the tree changes; None: the default.
    """

    cards: tuple[Path, ...] = ()
    replace_lost: tuple[str, ...] = ()
    overlap_hours: float = OVERLAP_HOURS
    new_tokens: bool = False
    drop_retiring: bool = False
    drained: bool = False
    rekey: bool = False
    grace_s: int | None = None


def certify(
    description: Path,
    wanted: Description,
    ids: dict[str, int],
    domain: TrustDomain,
    previous: Overlay | None,
    options: SignOptions,
    now: float,
) -> dict[str, Member]:
    """Returns members by name: replicas by region, key servers, then the rest, in the description's order.

    Raises TrustError.
    """
    newer = {card.name: card for card in map(Card.load, options.cards)}
    not_after_ms = int(now * 1000) + wanted.valid_days * DAY_MS
    found: dict[str, Member] = {}
    lost = set(options.replace_lost)
    for path, roles, region, address in _entries(wanted, ids):
        if isinstance(path, HostedEntry):
            if path.name in found:
                raise TrustError(f"{description}: {path.name} is listed twice; list each member once")
            found[path.name] = _hosted(description, path, region, domain, previous, not_after_ms)
            continue
        card = Card.load(description.parent / path)
        card = newer.pop(card.name, card)
        if card.role not in roles:
            raise TrustError(f"{path}: is the card of a {card.role}, not of a {' or '.join(sorted(roles))}")
        if card.name in found:
            raise TrustError(f"{description}: {card.name} is listed twice; list each member once")
        old = previous.members.get(card.name) if previous else None
        member = member_of(domain, card, region, address, not_after_ms)
        if old is not None and old.certificate.role is not card.role:
            raise TrustError(f"{path}: {card.name} was a {old.certificate.role} before; issue it under another name")
        if old is not None and old.certificate.public_key != card.public_key:
            if card.name in lost:
                lost.discard(card.name)
            else:
                member = _succeed(domain, path, card, member, old, int((now + options.overlap_hours * 3600) * 1000))
        elif old is not None and old.before is not None:
            member = Member(member.certificate, address, card.ca, b"", _moved(domain, old.before, region))
        found[card.name] = member
    if newer:
        raise TrustError(f"{', '.join(newer)}: no member of {description} has that name; leave the card out")
    if lost:
        raise TrustError(f"--replace-lost {', '.join(sorted(lost))}: no new card of that name; leave it out")
    return found


def _entries(wanted: Description, ids: dict[str, int]) -> Iterator[tuple[Path | HostedEntry, set[Role], int, str]]:
    for region in wanted.regions:
        for replica in region.members:
            card = replica if isinstance(replica, HostedEntry) else replica.card
            yield card, {Role.REPLICA}, ids[region.name], replica.address
    for server in wanted.key_service.servers if wanted.key_service else ():
        yield server.card, {Role.KEY_SERVER}, NO_REGION, server.address
    for entry in wanted.members:
        yield entry.card, {Role.GATEWAY, Role.INGEST}, region_id(ids, entry.region, str(entry.card)), ""


def _hosted(
    description: Path,
    entry: HostedEntry,
    region: int,
    domain: TrustDomain,
    previous: Overlay | None,
    not_after_ms: int,
) -> Member:
    """Certifies a hosted broker, which has no key.

    Its certificate holds the public part of a random key that is thrown away; later versions keep that as its mark.
    """
    old = previous.members.get(entry.name) if previous else None
    if old is not None and old.certificate.role is not Role.HOSTED:
        raise TrustError(f"{entry.name} was a {old.certificate.role} before; name the hosted broker otherwise")
    if old is None:
        nobody = Identity.generate(secrets.token_bytes(32))
        public, agreement = nobody.public_bytes, nobody.agreement_bytes
    else:
        public, agreement = old.certificate.public_key, old.certificate.agreement_key
    certificate = _issue(domain, entry.name, Role.HOSTED, public, agreement, entry.domain, region, not_after_ms)
    ca = b""
    if entry.ca is not None:
        path = description.parent / entry.ca
        try:
            found = x509.load_pem_x509_certificates(read_public(path, MAX_CA_BYTES))
        except ValueError:
            raise TrustError(f"{path}: holds no certificate in PEM; ask {entry.domain} for its CA") from None
        ca = b"".join(each.public_bytes(Encoding.DER) for each in found)
    return Member(certificate, entry.address, ca)


def member_of(domain: TrustDomain, card: Card, region: int, address: str, not_after_ms: int) -> Member:
    """Certifies the holder of the card's key as a member. Raises TrustError."""
    certificate = _issue(
        domain, card.name, card.role, card.public_key, card.agreement_key, card.domain, region, not_after_ms
    )
    return Member(certificate, address, card.ca)


def _succeed(domain: TrustDomain, path: Path, card: Card, member: Member, old: Member, overlap_ends_ms: int) -> Member:
    """Returns the member after a rotation, also for a description that still names the card of the former key."""
    present, region = old.certificate, member.certificate.region
    if old.before is not None and card.public_key == old.before.public_key:
        certificate = _again(domain, present, region, member.certificate.not_after_ms)
        return Member(certificate, member.address, old.ca, b"", _moved(domain, old.before, region))
    if card.former != present.public_key:
        raise TrustError(
            f"{path}: is a card for another key than {card.name} has, and that key did not sign it; have it made by "
            f"`veilmq trust rotate`, or if the key is lost sign with --replace-lost {card.name}"
        )
    until_ms = min(overlap_ends_ms, present.not_after_ms)
    return Member(member.certificate, member.address, card.ca, b"", _again(domain, present, region, until_ms))


def reissued(domain: TrustDomain, old: Certificate, not_after_ms: int) -> Certificate:
    """Returns the certificate with another expiry time."""
    return _again(domain, old, old.region, not_after_ms)


def _moved(domain: TrustDomain, former: Certificate, region: int) -> Certificate:
    return former if former.region == region else _again(domain, former, region, former.not_after_ms)


def _again(domain: TrustDomain, old: Certificate, region: int, not_after_ms: int) -> Certificate:
    return _issue(domain, old.name, old.role, old.public_key, old.agreement_key, old.domain, region, not_after_ms)


def _issue(
    domain: TrustDomain,
    name: str,
    role: Role,
    public_key: bytes,
    agreement_key: bytes,
    party_domain: str,
    region: int,
    not_after_ms: int,
) -> Certificate:
    try:
        return Certificate.issue(
            domain.owner, name=name, role=role, public_key=public_key, agreement_key=agreement_key,
            domain=party_domain, region=region, not_after_ms=not_after_ms,
        )  # fmt: skip
    except KeysError as error:
        raise TrustError(f"{name}: {error}") from None
