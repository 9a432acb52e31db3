"""Trust findings of `veilmq check`: our key in the overlay, our rights and their ends, key service and epochs.

Reads files only: only a running broker learns if a key server answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridge.base import covers
from bridge.document import Issuer, Overlay, ScopeSecret
from gateway.base import PrivateFileError, Settings, read_private
from gateway.overlay import DIRECTORY
from gateway.trust import NEXT, LocalIdentity, TrustError, date_of
from keys.errors import BadFrame
from keys.grants import ENDLESS, Grant, Right
from keys.identity import Role
from keys.material import Material

RIGHTS_WARNING_S = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A finding of `veilmq check`.

    `level`: ok, warning or error. `text`: a line; cause and cure unless ok. `stops`: True if an error of this kind
    keeps a broker from starting.
    """

    level: str
    text: str
    stops: bool = True


def identity_of(local: LocalIdentity, overlay: Overlay) -> LocalIdentity:
    """Returns the identity a start would run as: the next one, if the overlay lists its key. Moves nothing."""
    member = overlay.members.get(local.name)
    if member is None:
        raise TrustError(
            f"{local.name} is no member of overlay {overlay.policy.overlay}; ask the owner to add your card"
        )
    if member.certificate.public_key == local.identity.public_bytes or not (local.directory / NEXT).is_dir():
        return local
    return LocalIdentity.load(local.directory / NEXT)


def check_keys(settings: Settings, local: LocalIdentity, overlay: Overlay, now: float) -> Iterator[CheckFinding]:
    """Yields findings on rotation, key service, epochs and, for a key server, its material."""
    if (before := overlay.members[local.name].before) is not None:
        until = date_of(before.not_after_ms / 1000)
        yield CheckFinding("ok", f"the key of {local.name} was rotated; the former one counts until {until}")
    yield from _check_boxes(overlay)
    policy, calendar = overlay.policy, overlay.policy.calendar
    if policy.issuer is not Issuer.OWNER:
        count, faults = len(policy.key_servers), policy.server_faults
        yield CheckFinding("ok", f"key service: {policy.issuer.name.lower()} of {count}, bears {faults} that lie")
        epoch = calendar.epoch_at(now)
        if now < calendar.start_s(0):
            yield CheckFinding(
                "warning", f"epochs begin at {date_of(calendar.start_s(0))}, after our clock; set the clock"
            )
        ahead = date_of(calendar.fetch_from_s(epoch + 1))
        yield CheckFinding("ok", f"epoch {epoch} until {date_of(calendar.end_s(epoch))}, keys of the next from {ahead}")
    if local.role is Role.KEY_SERVER:
        yield from _check_key_server(settings, local, overlay)
    elif settings.overlay is not None and settings.overlay.key_server is not None:
        yield CheckFinding("error", f"overlay.key_server is for key servers, {local.name} is a {local.role}; remove it")


def _check_boxes(overlay: Overlay) -> Iterator[CheckFinding]:
    """Yields which members' keys could be read later by a breaker of X25519 who records them today."""
    if names := overlay.classical():
        yield CheckFinding(
            "warning",
            f"keys sealed to {', '.join(names)} are safe against classical computers only; renew their cards by "
            "`veilmq trust renew`, and sign with quantum_safe: required",
        )
    elif not overlay.policy.quantum_safe:
        yield CheckFinding(
            "ok", "all members have quantum-safe keys for boxes; quantum_safe: required would keep it so"
        )


def _check_key_server(settings: Settings, local: LocalIdentity, overlay: Overlay) -> Iterator[CheckFinding]:
    section = settings.overlay.key_server if settings.overlay else None
    if local.name not in overlay.policy.key_servers:
        cure = "ask the owner to sign you in as one"
        yield CheckFinding("warning", f"{local.name} is none of the overlay's key servers; {cure}")
    if section is None:
        yield CheckFinding("error", "a key server needs overlay.key_server; add key_server: {material: FILE}")
        return
    kept = settings.data is not None and (settings.data / DIRECTORY / "material").exists()
    if section.material.exists():
        yield _check_material(section.material)
    elif kept:
        yield CheckFinding("ok", "key material is kept in the data directory")
    else:
        yield CheckFinding(
            "error", f"{section.material}: no such file, and none is kept; ask the overlay's owner for it"
        )


def _check_material(path: Path) -> CheckFinding:
    try:
        Material.decode(read_private(path))
    except PrivateFileError as error:
        return CheckFinding("error", str(error))
    except BadFrame as error:
        return CheckFinding("error", f"{path}: is not key material ({error}); ask the overlay's owner for it")
    return CheckFinding("ok", f"key material in {path}; the first start takes it in and erases the file")


def check_rights(
    name: str, overlay: Overlay, secrets: Sequence[ScopeSecret], outgoing: Sequence[ScopeSecret], now: float
) -> Iterator[CheckFinding]:
    """Yields missing rights to publish, rights that end soon or give nothing, and scopes with new tokens."""
    calendar = overlay.policy.calendar
    epoch = calendar.epoch_at(now)
    clear = {secret.scope.filter: secret.clear_filter for secret in secrets}
    for secret in outgoing:
        if not overlay.may_publish_in(name, secret.scope, epoch):
            cure = "ask the owner for the right, or remove it here"
            text = f"{secret.clear_filter}: we have no right to publish there; {cure}"
            yield CheckFinding("error", text, stops=False)  # the owner revoked the right: all else is served
    for grant in overlay.grants_of(name):
        what = clear.get(grant.filter, grant.filter)
        if grant.last_epoch == ENDLESS or _goes_on(grant, overlay):
            pass
        elif grant.last_epoch >= epoch and calendar.end_s(grant.last_epoch) - now < RIGHTS_WARNING_S:
            rights = " and ".join(str(right.name).lower() for right in grant.rights)
            ends = date_of(calendar.end_s(grant.last_epoch))
            yield CheckFinding("warning", f"the right to {rights} {what} ends at {ends}; ask the owner for more")
        if Right.READ in grant.rights and not any(covers(grant.filter, s.filter) for s in overlay.policy.scopes):
            yield CheckFinding(
                "warning", f"the right to read {what} covers no whole scope and gives nothing; ask the owner"
            )
    retiring = sorted({secret.clear_filter for secret in secrets if secret.scope.retiring})
    if retiring:
        yield CheckFinding("ok", f"{', '.join(retiring)}: names are hidden anew; what has the old tokens is still read")


def _goes_on(grant: Grant, overlay: Overlay) -> bool:
    """Returns True if another grant gives these rights without an end."""
    return any(
        other.last_epoch == ENDLESS and grant.rights in other.rights and covers(other.filter, grant.filter)
        for other in overlay.grants_of(grant.member)
    )
