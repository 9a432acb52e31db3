"""The signed overlay as a member's file: read, verified, pinned, rewritten; and the member's own box opened.

A *pin* is a private file holding the owner of the first overlay and the highest version seen; another owner or an
older version is refused afterwards. Not here: making and signing the file (`owner`), noticing its changes
(`live_overlay`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bridge.document import Issuer, Overlay, OverlayError, Scope, ScopeSecret
from bridge.document.overlay import RegionView
from gateway.base import FileStamp, PrivateFileError, read_private, replace_public, write_private
from gateway.trust.domains import LocalIdentity, read_public
from gateway.trust.errors import TrustError
from keys.columnsearch import worst_steps
from keys.envelope import Mode
from keys.epochs import ScopeKeys
from keys.errors import BadContent, BadFrame, OurFault
from keys.grants import ENDLESS
from keys.handover import open_grants
from keys.wrapping import is_long, wrapping_hops
from keys.wrapsearch import worst_wrap_steps

MAX_OVERLAY_BYTES = 16 << 20
"""Stops a wrong path from being read as an overlay; 10,000 members fit."""


def load_overlay(path: Path, now_ms: int, pin: Path | None = None, *, raises_pin: bool = True) -> Overlay:
    """Reads and verifies the signed overlay, and raises the pin unless told not to. Raises TrustError, OverlayError."""
    document = read_document(path)
    if pin is None:
        return Overlay.from_document(document, now_ms)
    owner, name, version = _read_pin(pin)
    overlay = Overlay.from_document(document, now_ms, owner)
    _check_name(path, overlay, name, pin)
    if overlay.policy.version < version:
        raise OverlayError(
            f"{path}: is version {overlay.policy.version}, but {version} was seen before; fetch the newest one"
        )
    if raises_pin and (not name or overlay.policy.version > version):
        _write_pin(pin, overlay)
    return overlay


def save_overlay(path: Path, pin: Path, overlay: Overlay, seen: FileStamp | None) -> FileStamp | None:
    """Writes a newer verified overlay; returns the stamp of the written file, or None if none was written.

    The file is written before the pin: after a crash it is newer than the pin, which `load_overlay` raises; the other
    order could leave a file the pin refuses. A file that is as new or newer stays, unless it lacks endorsements or
    swaps; so does a file that was replaced since `seen`. Raises TrustError, OverlayError.
    """
    owner, name, version = _read_pin(pin)
    if owner not in (None, overlay.owner):
        raise OverlayError(f"{path}: the new overlay is of another owner; remove {pin} if you trust it")
    _check_name(path, overlay, name, pin)
    if overlay.policy.version < version:
        raise OverlayError(f"{path}: version {overlay.policy.version} would replace version {version}; keep the newer")
    written = None
    if _is_behind(path, overlay):
        try:
            written = replace_public(path, document_bytes(overlay), seen)
        except PrivateFileError as error:
            raise TrustError(str(error)) from None
    if not name or overlay.policy.version > version:
        _write_pin(pin, overlay)
    return written


def document_bytes(overlay: Overlay) -> bytes:
    """Returns the content of the overlay's file."""
    return json.dumps(overlay.to_document(), indent=1).encode() + b"\n"


def read_document(path: Path) -> dict[str, Any]:
    """Returns the file's JSON object, unverified. Raises TrustError, OverlayError."""
    try:
        document = json.loads(read_public(path, MAX_OVERLAY_BYTES))
    except (ValueError, RecursionError):
        raise OverlayError(f"{path}: is not JSON; fetch the overlay file from its owner") from None
    if not isinstance(document, dict):
        raise OverlayError(f"{path}: is not an overlay file; make it with `veilmq overlay sign`")
    return document


def load_secrets(local: LocalIdentity, overlay: Overlay) -> tuple[list[ScopeSecret], ScopeKeys]:
    """Opens the member's box: names and token keys of its scopes and, without a key service, the scopes' keys.

    A scope the overlay no longer has is left out. Raises TrustError when the box is not for the member's key.
    """
    member = overlay.members.get(local.name)
    if member is None:
        raise TrustError(
            f"{local.name} is no member of overlay {overlay.policy.overlay}; ask its owner to add your card"
        )
    secrets: list[ScopeSecret] = []
    keys = ScopeKeys()
    try:
        for grant in open_grants(overlay.policy.overlay, local.name, local.identity, member.box):
            scope = overlay.scope_named(grant.wire_filter)
            if scope is None:
                continue
            secrets.append(ScopeSecret(scope, grant.clear_filter, grant.token_key))
            for name, key in grant.keys:
                keys.put_key(name, key)
    except (BadContent, BadFrame, OurFault) as error:
        raise TrustError(
            f"{local.directory}: what the owner sealed for {local.name} does not open ({error}); "
            "give the owner card.json of this key"
        ) from None
    return secrets, keys


def worst_search(overlay: Overlay, scope: Scope) -> int:
    """Returns the most choices of replicas a reader tries for a key of the scope if f of each region lie.

    Each choice takes some 10 us (`make bench-keys`). Returns 0 for a scope without keys.
    """
    if scope.mode is Mode.PLAIN:
        return 0
    regions = overlay.regions_of(scope)
    return max(_worst_steps(overlay, start, end, regions) for start in regions for end in regions)


def _worst_steps(overlay: Overlay, start: int, end: int, regions: Collection[int]) -> int:
    hops = overlay.hops_between(start, end)
    is_wrapped = is_long(overlay.trees.in_force.longest(start, regions))
    return worst_wrap_steps(hops) if is_wrapped and wrapping_hops(hops) else worst_steps(hops)


def describe_overlay(overlay: Overlay) -> dict[str, Any]:
    """Returns the output of `veilmq overlay show`; all of it is public."""
    policy = overlay.policy
    calendar = policy.calendar
    return {
        "overlay": policy.overlay,
        "version": policy.version,
        "owner": overlay.owner.hex(),
        "key_service": {
            "issuer": policy.issuer.name.lower(), "faults": policy.server_faults,
            "servers": [{"name": n, "address": overlay.members[n].address} for n in policy.key_servers],
        },
        "epochs": {
            "length_s": calendar.length_s, "ahead_s": calendar.ahead_s, "grace_s": calendar.grace_s,
            "skew_s": calendar.skew_s, "history_epochs": calendar.history_epochs,
            "first": date_of(calendar.start_s(0)) if calendar.length_s else "",
        },
        "regions": [
            {
                "region": view.region, "name": view.name, "view": view.number, "threshold": view.threshold,
                "trusted": view.trusted,
                "replicas": [{"name": n, "address": overlay.members[n].address} for n in view.members],
            }
            for _, view in sorted(overlay.views.items())
        ],
        "changes": [_change(overlay, view) for _, view in sorted(overlay.latest.items()) if view.former is not None],
        "edges": [list(edge) for edge in overlay.arrangement.edges],
        "tree": _tree(overlay),
        "scopes": [
            {
                "filter": scope.filter, "mode": scope.mode.name.lower(), "tokens": scope.tokens,
                "route": "planes" if scope.planes else "region",
                "shares_only": scope.shares_only, "bump": scope.bump, "retiring": scope.retiring,
                "regions": sorted(overlay.regions_of(scope)), "worst_search": worst_search(overlay, scope),
                "batch": dict(zip(("records", "bytes", "linger_ms"), scope.batch.values, strict=True)),
                **describe_keys(scope),
            }
            for scope in policy.scopes
        ],
        "members": [
            {
                "name": name, "role": m.certificate.role.value, "party_id": m.certificate.party_id.hex(),
                "domain": m.certificate.domain, "region": m.certificate.region,
                "until": day_of(m.certificate.not_after_ms / 1000),
                "former_key_until": date_of(m.before.not_after_ms / 1000) if m.before else "",
            }
            for name, m in sorted(overlay.members.items())
        ],
    }  # fmt: skip


def describe_keys(scope: Scope) -> dict[str, Any]:
    """Returns how a scope's data keys travel and when they are renewed; empty for a plain scope."""
    if scope.mode is Mode.PLAIN:
        return {}
    messages, sealed_bytes, seconds = scope.refresh.values
    return {
        "keys": "topic" if scope.keys_on_topic else "riding",
        "refresh": {"messages": messages, "bytes": sealed_bytes, "seconds": seconds},
    }


def _tree(overlay: Overlay) -> dict[str, Any]:
    """Returns the number of the tree; while the former tree is open also its edges and the time of its end."""
    change = overlay.arrangement.change
    shown: dict[str, Any] = {"number": change.number, "swaps": len(overlay.swaps)}
    if change.former is not None:
        shown |= {"former": [list(edge) for edge in change.former], "closes": date_of(change.closes_ms / 1000)}
    return shown


def _change(overlay: Overlay, view: RegionView) -> dict[str, Any]:
    """Returns the change of a view whose former view is still in the document."""
    former = view.former
    assert former is not None
    closes_s = overlay.closes_at(view.region)
    before, after = set(former.members), set(view.members)
    return {
        "region": view.name, "view": view.number, "signed": date_of(view.since_ms / 1000),
        "joins": sorted(after - before), "leaves": sorted(before - after),
        "in_force": overlay.in_force(view.region), "needed": former.threshold,
        "endorsed_by": sorted(overlay.endorsers(view.region) & before),
        "former_open_until": date_of(closes_s) if closes_s is not None else "",
    }  # fmt: skip


def describe_grants(overlay: Overlay, names: dict[str, str] | None = None) -> dict[str, Any]:
    """Returns the output of `veilmq trust show` for a signed overlay: each member's rights with their epochs as dates.

    `names`: clear filters by wire filter, as far as the caller knows them.
    """
    policy, known = overlay.policy, names or {}
    calendar = policy.calendar
    epochs = policy.issuer is not Issuer.OWNER
    return {
        "kind": "overlay",
        "overlay": policy.overlay,
        "version": policy.version,
        "issuer": policy.issuer.name.lower(),
        "grants": [
            {
                "member": grant.member,
                "filter": known.get(grant.filter, grant.filter),
                "rights": [right.name.lower() for right in grant.rights if right.name],
                "first_epoch": grant.first_epoch,
                "from": date_of(calendar.start_s(grant.first_epoch)) if epochs else "",
                "last_epoch": None if grant.last_epoch == ENDLESS else grant.last_epoch,
                "until": "" if grant.last_epoch == ENDLESS or not epochs else date_of(calendar.end_s(grant.last_epoch)),
            }
            for grant in sorted(policy.grants, key=lambda g: (g.member, known.get(g.filter, g.filter), g.first_epoch))
        ],
    }


def date_of(moment_s: float) -> str:
    """Returns a UNIX time in seconds as an operator reads it, in UTC."""
    try:
        return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "never"


def day_of(moment_s: float) -> str:
    """Returns a UNIX time in seconds as a date in UTC, without the time of day."""
    return date_of(moment_s)[:10]


def _is_behind(path: Path, overlay: Overlay) -> bool:
    """Returns True if a file is of an older version, lacks endorsements or swaps, or is not a file of this owner."""
    try:
        there = Overlay.from_document(read_document(path), 0, overlay.owner)
    except (TrustError, OverlayError):
        return True
    if there.policy.version == overlay.policy.version:
        return not overlay.endorsements <= there.endorsements or there.hears(overlay.swap_news) is not there
    return there.policy.version < overlay.policy.version


def _check_name(path: Path, overlay: Overlay, pinned: str, pin: Path) -> None:
    """Raises OverlayError for another overlay than the one of the pin, of the same owner."""
    if pinned not in ("", overlay.policy.overlay):
        raise OverlayError(
            f"{path}: is overlay {overlay.policy.overlay}, but {pin.parent} is an identity of overlay {pinned}; "
            "make another identity for it"
        )


def _read_pin(pin: Path) -> tuple[bytes | None, str, int]:
    """Returns owner, name and version that a member saw; the name is empty in pins of before."""
    if not pin.exists():
        return None, "", 0
    try:
        content = json.loads(read_private(pin))
        owner = base64.b64decode(content["owner"], validate=True)
        return owner, str(content.get("overlay", "")), int(content["version"])
    except PrivateFileError as error:
        raise TrustError(str(error)) from None
    except (ValueError, KeyError, TypeError):
        raise TrustError(f"{pin}: is damaged; remove it if you trust the overlay file that is there now") from None


def _write_pin(pin: Path, overlay: Overlay) -> None:
    owner = base64.b64encode(overlay.owner).decode("ascii")
    pinned = {"owner": owner, "overlay": overlay.policy.overlay, "version": overlay.policy.version}
    content = json.dumps(pinned).encode()
    try:
        write_private(pin, content, replace=True)
    except PrivateFileError as error:
        raise TrustError(str(error)) from None
