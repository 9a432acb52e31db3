"""Signing of the overlay: a description, cards and a record of rights become the next version of `overlay.json`.

    sign_overlay     description and cards; rights of members signed before stay
    grant, revoke    rights of one member, on top of the last signed version
    rekey            as sign_overlay, and new material for the key servers

Every member's box (`keys.handover`) is sealed anew with each version. With a key service the box holds names and
token keys only. The material from which the key servers derive keys is dealt here, to `keyserver/NAME.material`
beside the signed file, and is not kept: afterwards this directory cannot derive a scope's key. Material is written
first, then the record, then the file; signing again repairs a crash between them. Not here: descriptions, scopes,
rights, replicas, trees.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.base import covers
from bridge.document import Issuer, Member, Overlay, Policy, Scope
from bridge.document.overlay import Endorsement, RegionView
from gateway.base import PrivateFileError, private_directory, write_private, write_public
from gateway.owner.cards import SignOptions, certify
from gateway.owner.description import Description, read_description, region_ids
from gateway.owner.record import (
    GrantedRight,
    OwnerRecord,
    keys_elsewhere,
    locked,
    open_record,
    open_record_of,
    record_path,
    save_record,
)
from gateway.owner.rights import (
    Taken,
    check_wanted,
    differences,
    first_unissued,
    forget_ended,
    give,
    holds_key,
    refreshed,
    scopes_lost,
    take,
)
from gateway.owner.scopes import scopes_of
from gateway.owner.trees import described_edges, next_organising, next_tree
from gateway.owner.views import carried, described_views, leaving, without_strangers
from gateway.trust import TrustDomain, TrustError, document_bytes
from keys import material
from keys.epochs import Calendar, KeyName, scope_key, token_key
from keys.errors import KeysError
from keys.grants import ENDLESS, Grant, Right
from keys.handover import KEYS_MAX, ScopeGrant, seal_grants
from keys.identity import Role

MATERIALS = "keyserver"
REKEY = "`veilmq trust rekey`"


@dataclass(frozen=True, slots=True)
class Signed:
    """A new version.

    `materials`: secret files to hand over, one to each key server. `bumped`: clear filters of scopes with new keys,
    after an exclusion or a change of `refresh`. `since_s`: UNIX time in seconds from which new material counts.
    """

    overlay: Overlay
    materials: tuple[Path, ...] = ()
    bumped: tuple[str, ...] = ()
    since_s: float = 0.0


def sign_overlay(description: Path, owner: Path, out: Path, now: float, options: SignOptions | None = None) -> Signed:
    """Signs `out`, or the next version of an existing `out`. Raises TrustError, OverlayError."""
    domain = TrustDomain.load(owner)
    wanted = read_description(description)
    with locked(domain):
        return _sign(description, wanted, domain, out, now, options or SignOptions())


def _sign(
    description: Path, wanted: Description, domain: TrustDomain, out: Path, now: float, options: SignOptions
) -> Signed:
    record, previous = open_record(domain, wanted.name, out)
    calendar, material_epoch = _epochs(wanted, previous, options.rekey, now)
    if previous is not None and previous.policy.issuer is not wanted.issuer:
        _restart(record, previous, wanted.issuer)
    ids = region_ids(wanted)
    members = certify(description, wanted, ids, domain, previous, options, now)
    scopes = scopes_of(wanted, ids, record, domain.root, previous, options)
    present = calendar.epoch_at(now)
    before = record.grants(domain.root)
    _rights(description, wanted, record, members, previous, present)
    forget_ended(record, calendar, members, now)
    record.valid_days, record.renew_before_days = wanted.valid_days, wanted.renew_before_days
    after = record.grants(domain.root)
    lost = _gone(scopes, previous, members, before, after, present, options)
    lost += [scope for scope in refreshed(scopes, previous) if scope not in lost]
    if previous is not None and wanted.quantum_safe == "required" and not previous.policy.quantum_safe:
        lost += [scope for scope in scopes if scope.keyed and scope not in lost]  # their keys were in classical boxes
    bumped = tuple(record.raise_bumps(lost))
    edges, tree = next_tree(wanted, ids, scopes, previous, now, options.grace_s, record.edges)
    record.edges = [list(edge) for edge in described_edges(wanted, ids)]
    policy = Policy(
        overlay=wanted.name,
        version=previous.policy.version + 1 if previous else 1,
        edges=edges,
        tree=tree,
        scopes=tuple(scopes),
        calendar=calendar,
        issuer=wanted.issuer,
        key_servers=_server_names(members, previous, options.rekey),
        budgets=wanted.budgets.budgets(),
        organising=next_organising(wanted, ids, previous, edges),
        quantum_safe=wanted.quantum_safe == "required",
    )
    views = described_views(description, wanted, ids, members, previous, now)
    if previous is not None:
        members |= leaving(previous, views)
    overlay = _signed(domain, record, policy, views, members, now, previous.endorsements if previous else ())
    materials: tuple[Path, ...] = ()
    since_s = 0.0
    if material_epoch is not None:
        materials = _deal(policy, material_epoch, out.parent / MATERIALS, replace_undealt=previous is None)
        since_s = calendar.start_s(material_epoch)
    publish(domain, record, overlay, out)
    return Signed(overlay, materials, bumped, since_s)


def rekey(description: Path, owner: Path, out: Path, now: float, options: SignOptions | None = None) -> Signed:
    """Signs, and deals new material; the key service, its servers and the length of epochs may change.

    Raises TrustError, OverlayError.
    """
    return sign_overlay(description, owner, out, now, replace(options or SignOptions(), rekey=True))


def grant(
    out: Path, owner: Path, member: str, wanted: Sequence[tuple[str, Right]], now: float, history: bool = False
) -> Overlay:
    """Signs the next version, in which `member` also has these rights. Raises TrustError, OverlayError."""

    def change(record: OwnerRecord, overlay: Overlay, root: bytes) -> None:
        give(record, overlay.policy, member, wanted, history, now)

    return _change(out, owner, member, now, change)[0]


def revoke(
    out: Path,
    owner: Path,
    member: str,
    wanted: Sequence[tuple[str, Right]] | None,
    now: float,
    at_once: bool = False,
) -> tuple[Overlay, Taken]:
    """Signs the next version, in which these rights of `member` end; None: all rights.

    Raises TrustError, OverlayError.
    """

    def change(record: OwnerRecord, overlay: Overlay, root: bytes) -> Taken:
        return take(record, overlay.policy, root, member, wanted, at_once, now)

    overlay, taken = _change(out, owner, member, now, change)
    assert taken is not None
    return overlay, taken


def _change(
    out: Path, owner: Path, member: str, now: float, change: Callable[[OwnerRecord, Overlay, bytes], Taken | None]
) -> tuple[Overlay, Taken | None]:
    domain = TrustDomain.load(owner)
    with locked(domain):
        return _changed(domain, out, member, now, change)


def _changed(
    domain: TrustDomain,
    out: Path,
    member: str,
    now: float,
    change: Callable[[OwnerRecord, Overlay, bytes], Taken | None],
) -> tuple[Overlay, Taken | None]:
    record, previous = open_record_of(domain, out)
    entry = previous.members.get(member)
    if entry is None or entry.certificate.role not in (Role.GATEWAY, Role.INGEST):
        able = sorted(n for n, m in previous.members.items() if m.certificate.role in (Role.GATEWAY, Role.INGEST))
        raise TrustError(f"no gateway or ingest job is called {member}; known are {', '.join(able) or 'none'}")
    check_certificates(out, previous, now)
    taken = change(record, previous, domain.root)
    overlay = next_version(domain, record, previous, carried(previous, now), {}, now)
    publish(domain, record, overlay, out)
    return overlay, taken


def check_certificates(out: Path, overlay: Overlay, now: float) -> None:
    """Raises TrustError for a version with expired certificates, on top of which members adopt no other version."""
    if any(m.certificate.not_after_ms < now * 1000 for m in overlay.members.values()):
        raise TrustError(f"{out}: certificates in it have ended; renew them by `veilmq overlay sign` first")


def next_version(
    domain: TrustDomain,
    record: OwnerRecord,
    previous: Overlay,
    views: Sequence[RegionView],
    added: Mapping[str, Member],
    now: float,
    gone: Collection[str] = (),
    policy: Policy | None = None,
) -> Overlay:
    """Signs the next version with the record's rights and the given changes. Raises TrustError, OverlayError."""
    stay = {**without_strangers(previous, views), **added}
    members = {name: member for name, member in stay.items() if name not in gone}
    forget_ended(record, previous.policy.calendar, members, now)
    policy = policy or previous.arrangement.in_policy(previous.policy)
    policy = replace(policy, version=previous.policy.version + 1)
    return _signed(domain, record, policy, views, members, now, previous.endorsements)


# -------------------------------------------------------------------------------------- key service and epochs


def _epochs(wanted: Description, previous: Overlay | None, rekey: bool, now: float) -> tuple[Calendar, int | None]:
    """Returns the calendar, and the epoch from which new material counts (None: no new material).

    Raises TrustError.
    """
    if previous is None:
        length_s = wanted.calendar(0).length_s
        zero_ms = int(now // length_s * length_s * 1000) if length_s else 0
        return wanted.calendar(zero_ms), None if wanted.issuer is Issuer.OWNER else 0
    held = previous.policy.calendar
    new = wanted.calendar(held.zero_ms)
    restart = wanted.issuer is not previous.policy.issuer or new.length_s != held.length_s
    if not rekey:
        if restart:
            raise TrustError(
                f"key service or length of epochs differ from what was signed before; change them by {REKEY}"
            )
        return new, None
    if wanted.issuer is Issuer.OWNER:
        if not restart:
            raise TrustError("there is no key service to rekey; to shut somebody out use `veilmq trust revoke`")
        return new, None
    if not restart:
        epoch = first_unissued(new, now)
        return new, epoch
    # Numbers of epochs go on, so that old keys and grants keep their meaning and no two keys have one name.
    present = held.epoch_at(now) + 1
    zero_ms = int((now // new.length_s - present) * new.length_s * 1000)
    if zero_ms < 0:
        raise TrustError(f"epoch {present} of {new.length_s} s would begin before 1970; take a shorter length_s")
    return wanted.calendar(zero_ms), present


def _restart(record: OwnerRecord, previous: Overlay, issuer: Issuer) -> None:
    """Adapts the record to another issuer.

    An owner has no epochs: rights about to end do end, and old keys end too.
    """
    if issuer is Issuer.OWNER:
        record.raise_bumps(previous.policy.scopes)
        since = dict(record.bumps)
        record.granted = [replace(g, first_epoch=0, since=since) for g in record.granted if g.last_epoch == ENDLESS]


def _server_names(members: dict[str, Member], previous: Overlay | None, rekey: bool) -> tuple[str, ...]:
    """Returns key servers in the description's order, which numbers them.

    Raises TrustError for a change without a rekey.
    """
    names = tuple(name for name, m in members.items() if m.certificate.role is Role.KEY_SERVER)
    if previous is not None and names != previous.policy.key_servers and not rekey:
        raise TrustError(f"the list of key servers differs from what was signed before; change it by {REKEY}")
    return names


def _deal(policy: Policy, epoch: int, directory: Path, replace_undealt: bool) -> tuple[Path, ...]:
    """Writes a single secret file for each key server, the only copies of the material. Raises TrustError.

    `replace_undealt`: existing files belong to a first signing a crash interrupted.
    """
    servers = policy.key_servers
    paths = tuple(directory / f"{name}.material" for name in servers)
    for path in paths:
        if path.exists() and not replace_undealt:
            raise TrustError(f"{path}: is still here; hand it to its server if that needs it, remove it, rekey again")
    try:
        if policy.issuer is Issuer.CHAIN:
            dealt = [material.chain(epoch, secrets.token_bytes)] * len(servers)
        else:
            dealt = material.deal(len(servers), policy.server_faults, epoch, secrets.token_bytes)
        private_directory(directory)
        for path, each in zip(paths, dealt, strict=True):
            write_private(path, each.encode(), replace=True)
    except (KeysError, PrivateFileError) as error:
        raise TrustError(str(error)) from None
    return paths


# --------------------------------------------------------------------------------------------- scopes and rights


def _rights(
    description: Path,
    wanted: Description,
    record: OwnerRecord,
    members: dict[str, Member],
    previous: Overlay | None,
    present: int,
) -> None:
    """Gives new members their described rights; checks the description repeats the signed rights of others."""
    held = record.granted_by_member()
    asked = [m.certificate.name for m in members.values() if m.certificate.role in (Role.GATEWAY, Role.INGEST)]
    for name, entry in zip(asked, wanted.members, strict=True):
        rights = [(clear, Right.PUBLISH) for clear in entry.publish] + [(clear, Right.READ) for clear in entry.read]
        check_wanted(rights, name)
        if previous is not None and name in previous.members:
            found = differences(held.get(name, ()), rights)
            if found:
                raise TrustError(
                    f"{description}: {name}: {', '.join(found)}, compared with version {previous.policy.version}; "
                    "write what was signed, and change rights by `veilmq trust grant|revoke`"
                )
            continue
        since = dict(record.bumps)
        held[name] = [
            GrantedRight(name, clear, right, present, ENDLESS, since) for clear, right in dict.fromkeys(rights)
        ]
    record.granted = [granted for of_member in held.values() for granted in of_member]


def _gone(
    scopes: Sequence[Scope],
    previous: Overlay | None,
    members: dict[str, Member],
    before: Sequence[Grant],
    after: Sequence[Grant],
    present: int,
    options: SignOptions,
) -> list[Scope]:
    """Returns scopes whose keys a removed member held, or a lost key may expose."""
    if previous is None:
        return []
    left = [name for name in previous.members if name not in members]
    found = [scope for name in left for scope in scopes_lost(scopes, name, before, after, present)]
    found += [scope for name in options.replace_lost for scope in scopes if holds_key(scope, name, before, present)]
    return list(dict.fromkeys(found))


# ---------------------------------------------------------------------------------------------------- signing


def _signed(
    domain: TrustDomain,
    record: OwnerRecord,
    policy: Policy,
    views: Sequence[RegionView],
    members: dict[str, Member],
    now: float,
    endorsements: Iterable[Endorsement],
) -> Overlay:
    """Signs the version that follows from the record, and verifies it as members do.

    Raises TrustError, OverlayError.
    """
    scopes = tuple(replace(scope, bump=record.bumps.get(scope.filter, 0)) for scope in policy.scopes)
    policy = replace(policy, scopes=scopes, grants=record.grants(domain.root))
    now_ms = int(now * 1000)
    try:
        sealed = []
        held = record.granted_by_member()
        grants: dict[str, list[Grant]] = {}
        for each in policy.grants:
            grants.setdefault(each.member, []).append(each)
        elsewhere = keys_elsewhere(domain, policy.overlay)
        for name, member in members.items():
            if (other := elsewhere.get(member.certificate.public_key)) is not None:
                raise TrustError(
                    f"{name}: its key stands in overlay {other}, too, and what it signs names no overlay; take the "
                    f"card of another identity, or remove {record_path(domain, other)} if that overlay is no more"
                )
            before = member.before if member.before and member.before.not_after_ms > now_ms else None
            box = _box(domain.root, record, policy, member, grants.get(name, ()), held.get(name, ()))
            sealed.append(replace(member, box=box, before=before))
        overlay = Overlay.sign(domain.owner, policy, views, sealed, endorsements)
        return Overlay.from_document(overlay.to_document(), now_ms, domain.owner.public_bytes)
    except KeysError as error:
        raise TrustError(str(error)) from None


def _box(
    root: bytes,
    record: OwnerRecord,
    policy: Policy,
    member: Member,
    mine: Sequence[Grant],
    held: Sequence[GrantedRight],
) -> bytes:
    """Returns the owner's box for a member; empty for a member that neither reads nor publishes."""
    name = member.certificate.name
    granted = []
    for scope in policy.scopes:
        # Ended rights count: messages sealed before may still wait to be opened.
        if not any(holds_key(scope, name, (replace(g, last_epoch=ENDLESS),), ENDLESS) for g in mine):
            continue
        known = record.scopes[scope.filter]
        tokens = None if known.generation is None else token_key(root, known.generation)
        keys = _own_keys(root, record, scope, mine, held) if policy.issuer is Issuer.OWNER and scope.keyed else ()
        granted.append(ScopeGrant(scope.filter, known.clear, tokens, keys))
    if not granted:
        return b""
    return seal_grants(policy.overlay, name, member.certificate.agreement_key, granted, secrets.token_bytes(32))


def _own_keys(
    root: bytes, record: OwnerRecord, scope: Scope, mine: Sequence[Grant], held: Sequence[GrantedRight]
) -> tuple[tuple[KeyName, bytes], ...]:
    """Returns keys of the endless epoch: for readers the keys since their grant, for publishers the present key."""
    first, known = scope.bump, record.scopes[scope.filter]
    if any(grant.may_read_all(scope.filter, 0) for grant in mine):
        starts = [
            granted.since.get(scope.filter, 0)
            for granted in held
            if granted.right is Right.READ and covers(granted.filter, known.clear)
        ]
        first = max(min(starts, default=first), scope.bump - KEYS_MAX + 1)
    names = [KeyName(scope.filter, 0, bump) for bump in range(first, scope.bump + 1)]
    return tuple((key, scope_key(root, *key)) for key in names)


def publish(domain: TrustDomain, record: OwnerRecord, overlay: Overlay, out: Path) -> None:
    """Stores the version in the record, then writes it to `out` for the members. Raises TrustError."""
    save_record(domain, record, overlay)
    try:
        write_public(out, document_bytes(overlay))
    except PrivateFileError as error:
        raise TrustError(f"{error}; then sign again") from None
