"""The overlay as files: from the owner's YAML to the signed `overlay.json`, and to the grants of those who may read.

    veilmq overlay sign OVERLAY.yaml --owner DIR --out overlay.json

writes the signed file and, beside it, `grants/NAME.json` (mode 0600) for each gateway and ingest job: the keys of
the scopes that it may use. A grant is a secret that the owner hands over by a way of its own, to be put into the
identity directory as `grant.json`; it is not yet wrapped to the receiver's key, nor fetched from a key service.

Rights and scopes are written with clear names; where a scope hides names, the signed file has tokens only.
Versions follow from the file that is replaced: the policy's always rises, a view's when its region changes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bridge.sealing import ScopeSecret
from bridge.topics import TopicError, check_filter, covers, overlaps
from bridge.views import Member, Overlay, OverlayError, Policy, RegionView, Scope
from gateway.private import PrivateFileError, private_directory, read_private, write_private, write_public
from gateway.trust import Card, LocalIdentity, TrustDomain, TrustError, read_public
from keys.envelope import Mode
from keys.epochs import scope_key, token_key
from keys.errors import KeysError
from keys.identity import Certificate, Role
from keys.topictokens import tokenise_filter

MAX_OVERLAY_BYTES = 16 << 20
"""Stops a wrong path from being read as an overlay; 10,000 members are below it."""
DAY_MS = 86_400_000
GRANT_FORMAT = 1
EPOCH = 0


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ReplicaEntry(_Model):
    card: Path
    address: str = Field(pattern=r"^\[?[^\s/]+\]?:\d{1,5}$", description="HOST:PORT of its overlay listener")


class RegionEntry(_Model):
    name: str
    id: int | None = Field(default=None, ge=1, le=0xFFFF)
    members: list[ReplicaEntry] = Field(min_length=1, max_length=255)
    trusted: bool = False


class ScopeEntry(_Model):
    filter: str
    mode: Literal["copies", "plain"] = "copies"
    regions: list[str] = []
    tokens: bool = False
    shares_only: bool = False


class MemberEntry(_Model):
    card: Path
    region: str
    publish: list[str] = []
    read: list[str] = []


class Description(_Model):
    """The owner's YAML. `edges`: pairs of region names that are joined; one fewer than regions, no circle."""

    name: str
    valid_days: int = Field(default=365, ge=1, le=3650)
    regions: list[RegionEntry] = Field(min_length=1)
    edges: list[tuple[str, str]] = []
    scopes: list[ScopeEntry] = []
    members: list[MemberEntry] = []


# ------------------------------------------------------------------------------------------ owner's side


def sign_overlay(description: Path, owner: Path, out: Path, now: float) -> tuple[Overlay, list[Path]]:
    """Make `out` and the grants beside it; the overlay and the grant files. Raises TrustError, OverlayError."""
    domain = TrustDomain.load(owner)
    wanted = read_description(description)
    previous = _previous(out, domain)
    ids = _region_ids(wanted)
    tokens = token_key(domain.root)
    scopes = [_scope(entry, ids, tokens) for entry in wanted.scopes]
    not_after_ms = int(now * 1000) + wanted.valid_days * DAY_MS
    members: list[Member] = []
    for region in wanted.regions:
        for replica in region.members:
            card = _card(description, replica.card, {Role.REPLICA})
            certificate = _certify(domain, card, ids[region.name], not_after_ms)
            members.append(Member(certificate, replica.address, card.ca))
    for entry in wanted.members:
        card = _card(description, entry.card, {Role.GATEWAY, Role.INGEST})
        rights = [
            _wire_rights(filters, wanted.scopes, tokens, f"{card.name}: {what}")
            for filters, what in ((entry.publish, "publish"), (entry.read, "read"))
        ]
        certificate = _certify(domain, card, _region_id(ids, entry.region, card.name), not_after_ms, rights)
        members.append(Member(certificate, "", card.ca))
    names = [member.certificate.name for member in members]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TrustError(f"{description}: {', '.join(sorted(twice))} is listed twice; list each member once")
    views = [_view(region, ids, _names_of(members, ids[region.name]), previous) for region in wanted.regions]
    edges = tuple((_region_id(ids, a, "edges"), _region_id(ids, b, "edges")) for a, b in wanted.edges)
    version = previous.policy.version + 1 if previous else 1
    policy = Policy(wanted.name, version, edges, tuple(scopes))
    try:
        overlay = Overlay.sign(domain.owner, policy, views, members)
        document = json.dumps(overlay.to_document(), indent=1).encode() + b"\n"
    except KeysError as error:
        raise TrustError(f"{description}: {error}") from None
    Overlay.load(json.loads(document), int(now * 1000), domain.owner.public_bytes)
    try:
        write_public(out, document)
        return overlay, _write_grants(overlay, wanted, scopes, domain, out.parent / "grants")
    except PrivateFileError as error:
        raise TrustError(str(error)) from None


def read_description(path: Path) -> Description:
    """The owner's YAML. Raises TrustError: file, place, cause."""
    try:
        content = yaml.safe_load(read_public(path, MAX_OVERLAY_BYTES))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}" if mark else ""
        raise TrustError(f"{path}{place}: not valid YAML: {getattr(error, 'problem', error)}") from None
    try:
        wanted = Description.model_validate(content)
        for scope in wanted.scopes:
            check_filter(scope.filter)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise TrustError(f"{path}: {place}: {first['msg'].lower()}; configs/README.md shows the form") from None
    except TopicError as error:
        raise TrustError(f"{path}: scopes: {error}") from None
    return wanted


def _previous(out: Path, domain: TrustDomain) -> Overlay | None:
    if not out.exists():
        return None
    try:
        document = json.loads(read_public(out, MAX_OVERLAY_BYTES))
        # Expired certificates are no reason to refuse their replacement: judged at the beginning of time.
        return Overlay.load(document, 0, domain.owner.public_bytes)
    except (OverlayError, ValueError) as error:
        raise TrustError(f"{out}: exists and is not this owner's overlay ({error}); take another --out") from None


def _region_ids(wanted: Description) -> dict[str, int]:
    ids: dict[str, int] = {}
    for place, region in enumerate(wanted.regions, 1):
        number = place if region.id is None else region.id
        if region.name in ids or number in ids.values():
            raise TrustError(f"region {region.name} (id {number}) is listed twice; give each its own name and id")
        ids[region.name] = number
    return ids


def _region_id(ids: dict[str, int], name: str, where: str) -> int:
    if name not in ids:
        raise TrustError(f"{where}: there is no region {name}; known are {', '.join(ids)}")
    return ids[name]


def _scope(entry: ScopeEntry, ids: dict[str, int], tokens: bytes) -> Scope:
    wire = tokenise_filter(entry.filter, tokens) if entry.tokens else entry.filter
    regions = tuple(sorted(_region_id(ids, name, f"scope {entry.filter}") for name in entry.regions))
    return Scope(wire, Mode[entry.mode.upper()], regions, entry.tokens, entry.shares_only)


def _card(description: Path, path: Path, roles: set[Role]) -> Card:
    card = Card.load(description.parent / path)
    if card.role not in roles:
        raise TrustError(f"{path}: is the card of a {card.role}, not of a {' or '.join(sorted(roles))}")
    return card


def _certify(
    domain: TrustDomain,
    card: Card,
    region: int,
    not_after_ms: int,
    rights: Sequence[Sequence[str]] = ((), ()),
) -> Certificate:
    """`rights`: wire filters that the member may publish on, and those that it may read."""
    publish, read = rights
    try:
        return Certificate.issue(
            domain.owner, name=card.name, role=card.role, public_key=card.public_key, domain=card.domain,
            region=region, not_after_ms=not_after_ms, publish=publish, read=read,
        )  # fmt: skip
    except KeysError as error:
        raise TrustError(f"{card.name}: {error}") from None


def _wire_rights(filters: Sequence[str], scopes: Sequence[ScopeEntry], tokens: bytes, where: str) -> list[str]:
    """Clear filters as the wire shows them: inside a scope with tokens only the tokens are granted.

    A filter wider than such a scope grants the scope's token filter beside itself.
    """
    granted: dict[str, None] = {}
    for clear in filters:
        try:
            check_filter(clear)
        except TopicError as error:
            raise TrustError(f"{where}: {clear}: {error}") from None
        hidden = [scope.filter for scope in scopes if scope.tokens]
        if any(covers(scope, clear) for scope in hidden):
            granted[tokenise_filter(clear, tokens)] = None
            continue
        granted[clear] = None
        granted.update({tokenise_filter(scope, tokens): None for scope in hidden if covers(clear, scope)})
    return list(granted)


def _names_of(members: Sequence[Member], region: int) -> tuple[str, ...]:
    return tuple(
        m.certificate.name for m in members if m.certificate.role is Role.REPLICA and m.certificate.region == region
    )


def _view(region: RegionEntry, ids: dict[str, int], names: tuple[str, ...], previous: Overlay | None) -> RegionView:
    number = ids[region.name]
    old = previous.views.get(number) if previous else None
    if old is None:
        return RegionView(number, 1, region.name, names, region.trusted)
    same = RegionView(number, old.number, region.name, names, region.trusted)
    if same.body() == old.body():
        return same
    return RegionView(number, old.number + 1, region.name, names, region.trusted)


def _write_grants(
    overlay: Overlay, wanted: Description, scopes: Sequence[Scope], domain: TrustDomain, directory: Path
) -> list[Path]:
    private_directory(directory)
    paths = []
    for member in overlay.members.values():
        certificate = member.certificate
        if certificate.role not in (Role.GATEWAY, Role.INGEST):
            continue
        rights = (*certificate.publish, *certificate.read)
        granted = []
        for entry, scope in zip(wanted.scopes, scopes, strict=True):
            if not any(overlaps(right, scope.filter) for right in rights):
                continue
            keyed = scope.mode is not Mode.PLAIN and not scope.shares_only
            granted.append({
                "filter": entry.filter,
                "wire": scope.filter,
                "epoch": EPOCH,
                "key": _b64(scope_key(domain.root, entry.filter, EPOCH)) if keyed else None,
                "token_key": _b64(token_key(domain.root)) if scope.tokens else None,
            })  # fmt: skip
        document = {
            "veilmq_grant": GRANT_FORMAT,
            "name": certificate.name,
            "owner": _b64(overlay.owner),
            "policy_version": overlay.policy.version,
            "scopes": granted,
        }
        path = directory / f"{certificate.name}.json"
        write_private(path, json.dumps(document, indent=1).encode() + b"\n", replace=True)
        paths.append(path)
    return paths


# ----------------------------------------------------------------------------------------- member's side


def load_overlay(path: Path, now_ms: int, pin: Path | None = None) -> Overlay:
    """Read and verify the signed overlay. Raises TrustError, OverlayError.

    `pin`: a private file of ours that remembers the owner of the first overlay and the highest version seen;
    another owner or an older version is refused afterwards.
    """
    try:
        document = json.loads(read_public(path, MAX_OVERLAY_BYTES))
    except ValueError:
        raise OverlayError(f"{path}: is not JSON; fetch the overlay file from its owner") from None
    if not isinstance(document, dict):
        raise OverlayError(f"{path}: is not an overlay file; make it with `veilmq overlay sign`")
    if pin is None:
        return Overlay.load(document, now_ms)
    owner, version = _read_pin(pin)
    overlay = Overlay.load(document, now_ms, owner)
    if overlay.policy.version < version:
        raise OverlayError(
            f"{path}: is version {overlay.policy.version}, but {version} was seen before; fetch the newest one"
        )
    if owner is None or overlay.policy.version > version:
        content = json.dumps({"owner": _b64(overlay.owner), "version": overlay.policy.version}).encode()
        try:
            write_private(pin, content, replace=True)
        except PrivateFileError as error:
            raise TrustError(str(error)) from None
    return overlay


def _read_pin(pin: Path) -> tuple[bytes | None, int]:
    if not pin.exists():
        return None, 0
    try:
        content = json.loads(read_private(pin))
        return base64.b64decode(content["owner"], validate=True), int(content["version"])
    except PrivateFileError as error:
        raise TrustError(str(error)) from None
    except (ValueError, KeyError, TypeError):
        raise TrustError(f"{pin}: is damaged; remove it if you trust the overlay file that is there now") from None


def grant_path(local: LocalIdentity, overlay_path: Path) -> Path:
    """Where our grant lies: `grant.json` in the identity directory, else `grants/NAME.json` beside the overlay."""
    own = local.directory / "grant.json"
    return own if own.exists() else overlay_path.parent / "grants" / f"{local.name}.json"


def load_grant(path: Path, overlay: Overlay, name: str) -> list[ScopeSecret]:
    """The scope secrets of member `name`. Raises TrustError when the grant is not of this overlay and member.

    A scope of the grant that the overlay no longer has is left out; a new one needs a new grant.
    """
    try:
        content = json.loads(read_private(path))
        if content["veilmq_grant"] != GRANT_FORMAT or content["name"] != name:
            raise TrustError(f"{path}: is the grant of {content['name']}, not of {name}; ask the owner for yours")
        if base64.b64decode(content["owner"], validate=True) != overlay.owner:
            raise TrustError(f"{path}: is of another overlay; ask the owner for a grant of this one")
        return [
            ScopeSecret(scope, str(entry["filter"]), _key(entry["key"]), _key(entry["token_key"]))
            for entry in content["scopes"]
            if (scope := overlay.scope_named(str(entry["wire"]))) is not None
        ]
    except PrivateFileError as error:
        raise TrustError(f"{error}; the owner makes it with `veilmq overlay sign`") from None
    except (ValueError, KeyError, TypeError):
        raise TrustError(f"{path}: is not a grant; ask the overlay's owner for it") from None


def describe_overlay(overlay: Overlay) -> dict[str, Any]:
    """What `veilmq overlay show` prints; all of it is public."""
    return {
        "overlay": overlay.policy.overlay,
        "version": overlay.policy.version,
        "owner": overlay.owner.hex(),
        "regions": [
            {
                "region": view.region, "name": view.name, "view": view.number, "threshold": view.threshold,
                "trusted": view.trusted,
                "replicas": [{"name": n, "address": overlay.members[n].address} for n in view.members],
            }
            for _, view in sorted(overlay.views.items())
        ],
        "edges": [list(edge) for edge in overlay.policy.edges],
        "scopes": [
            {
                "filter": scope.filter, "mode": scope.mode.name.lower(), "tokens": scope.tokens,
                "shares_only": scope.shares_only, "regions": sorted(overlay.regions_of(scope)),
            }
            for scope in overlay.policy.scopes
        ],
        "members": [
            {
                "name": name, "role": m.certificate.role.value, "domain": m.certificate.domain,
                "region": m.certificate.region, "not_after_ms": m.certificate.not_after_ms,
                "publish": list(m.certificate.publish), "read": list(m.certificate.read),
            }
            for name, m in sorted(overlay.members.items())
        ],
    }  # fmt: skip


def _key(text: str | None) -> bytes | None:
    if text is None:
        return None
    key = base64.b64decode(text, validate=True)
    if len(key) != 32:
        raise ValueError("a key has 32 bytes")
    return key


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
