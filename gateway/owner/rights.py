"""Changes of rights in an owner's record: granting, revoking, comparison with the description. No files, no
signatures.

Epochs follow the policy's calendar. A revoked right ends with the present epoch, or with the next epoch if keys of
that may be issued already. Revoked at once, the right ends with the previous epoch, and scopes the member lost get a
new bump, which outdates the keys held. Without a key service there is a single endless epoch: rights end at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bridge.base import TopicError, check_filter, covers, overlaps
from bridge.document import Issuer, Overlay, Policy, Scope
from gateway.owner.record import GrantedRight, OwnerRecord
from gateway.trust import TrustError
from keys.epochs import Calendar
from keys.grants import ENDLESS, Grant, Right

SESSION_MAX_S = 7 * 86_400
"""Seconds for which a member authorised in an ended epoch may still fetch its keys (docs/protocol.md §6.5), and needs
its grant.
"""
Wanted = Sequence[tuple[str, Right]]


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of a revocation.

    `ends_s`: UNIX time in seconds at which the last right ends. `bumped`: clear filters of scopes with a new bump.
    """

    ends_s: float
    bumped: tuple[str, ...] = ()


def first_unissued(calendar: Calendar, now: float) -> int:
    """Returns the first epoch for which no member can have keys yet, even with skewed clocks."""
    following = calendar.epoch_at(now) + 1
    return following + 1 if now >= calendar.fetch_from_s(following) - calendar.skew_s else following


def check_wanted(wanted: Iterable[tuple[str, Right]], where: str) -> None:
    """Raises TrustError for an invalid filter."""
    for clear, right in wanted:
        try:
            check_filter(clear)
        except TopicError as error:
            raise TrustError(f"{where}: {word(right)}: {clear}: {error}") from None


def give(record: OwnerRecord, policy: Policy, member: str, wanted: Wanted, history: bool, now: float) -> None:
    """Adds rights from the present epoch on, with `history` from the oldest kept epoch on. Raises TrustError."""
    check_wanted(wanted, member)
    clears = sorted({scope.clear for scope in record.scopes.values()})
    for clear, right in wanted:
        _check_use(clear, right, clears)
    present = policy.calendar.epoch_at(now)
    kept = policy.calendar.history_epochs
    if history and policy.issuer is not Issuer.OWNER and not kept:
        raise TrustError(
            "the key service keeps no ended epochs; set epochs.history_epochs and sign, or leave --history out"
        )
    first = max(0, present - kept) if history else present
    since = {} if history else dict(record.bumps)
    asked = [GrantedRight(member, clear, right, first, ENDLESS, since) for clear, right in dict.fromkeys(wanted)]
    fresh = [each for each in asked if not any(_has(granted, each) for granted in record.granted)]
    if not fresh:
        raise TrustError(f"{member} has these rights already; nothing to change")
    record.granted += fresh


def take(
    record: OwnerRecord, policy: Policy, root: bytes, member: str, wanted: Wanted | None, at_once: bool, now: float
) -> Taken:
    """Ends the wanted rights of a member, or all if `wanted` is None. Raises TrustError."""
    calendar, present = policy.calendar, policy.calendar.epoch_at(now)
    endless = policy.issuer is Issuer.OWNER
    last = -1 if endless else present - 1 if at_once else first_unissued(calendar, now) - 1
    held = [g for g in record.granted if g.member == member and g.last_epoch > last]
    for clear, right in wanted or ():
        if not any((g.filter, g.right) == (clear, right) for g in held):
            has = ", ".join(sorted(f"{word(g.right)} {g.filter}" for g in held)) or "nothing"
            raise TrustError(f"{member} has no right to {word(right)} {clear}; it has {has}")
    ending = [g for g in held if wanted is None or (g.filter, g.right) in wanted]
    if not ending:
        raise TrustError(f"{member} has no rights that could end; nothing to change")
    before = record.grants(root)
    kept: list[GrantedRight] = []
    for granted in record.granted:
        if not any(granted is each for each in ending):
            kept.append(granted)
        elif granted.first_epoch <= last:
            kept.append(replace(granted, last_epoch=last))
    record.granted = kept
    if not (at_once or endless):
        return Taken(calendar.end_s(last))
    lost = scopes_lost(policy.scopes, member, before, record.grants(root), present)
    return Taken(now, tuple(record.raise_bumps(lost)))


def scopes_lost(
    scopes: Iterable[Scope], member: str, before: Sequence[Grant], after: Sequence[Grant], epoch: int
) -> list[Scope]:
    """Returns the scopes whose keys the member could have before and may not have after."""
    return [s for s in scopes if holds_key(s, member, before, epoch) and not holds_key(s, member, after, epoch)]


def holds_key(scope: Scope, member: str, grants: Iterable[Grant], epoch: int) -> bool:
    """Returns True if the member gets the scope's key, as a reader or as a publisher of a part of the scope."""
    return any(
        grant.member == member
        and grant.live(epoch)
        and (
            (Right.PUBLISH in grant.rights and overlaps(grant.filter, scope.filter))
            or grant.may_read_all(scope.filter, epoch)
        )
        for grant in grants
    )


def differences(held: Iterable[GrantedRight], wanted: Wanted) -> list[str]:
    """Returns the differences between the description and a member's signed rights as text; empty if they agree."""
    signed = {(g.filter, g.right) for g in held if g.last_epoch == ENDLESS}
    found = [f"{word(right)} {clear} is new" for clear, right in wanted if (clear, right) not in signed]
    return found + [f"{word(right)} {clear} is gone" for clear, right in sorted(signed - set(wanted))]


def forget_ended(record: OwnerRecord, calendar: Calendar, members: Mapping[str, object], now: float) -> None:
    """Drops rights of former members, and rights whose last epoch ended more than SESSION_MAX_S ago.

    No message sealed then is left to open.
    """
    record.granted = [
        granted
        for granted in record.granted
        if granted.member in members
        and (granted.last_epoch == ENDLESS or calendar.end_s(granted.last_epoch) + SESSION_MAX_S > now)
    ]


def word(right: Right) -> str:
    """Returns "publish" or "read"."""
    return str(right.name).lower()


def _has(granted: GrantedRight, wanted: GrantedRight) -> bool:
    """Returns True if `granted` covers the wanted right, which has no end."""
    same = (granted.member, granted.filter, granted.right) == (wanted.member, wanted.filter, wanted.right)
    older = all(bump <= wanted.since.get(scope, 0) for scope, bump in granted.since.items())
    return same and granted.last_epoch == ENDLESS and granted.first_epoch <= wanted.first_epoch and older


def _check_use(clear: str, right: Right, scopes: Sequence[str]) -> None:
    """Raises TrustError for a right fitting no scope, which is an error of the operator."""
    known = ", ".join(scopes) or "none"
    if right is Right.PUBLISH and not any(overlaps(clear, scope) for scope in scopes):
        raise TrustError(f"no scope has topics of {clear}; known are {known}")
    if right is Right.READ and not any(covers(clear, scope) for scope in scopes):
        raise TrustError(f"reading is by whole scopes, and {clear} covers none; known are {known}")


def refreshed(scopes: Sequence[Scope], previous: Overlay | None) -> list[Scope]:
    """Returns scopes whose data keys serve another number of messages than before.

    Members refuse data keys for more messages than the policy says, so keys made under the old number end with their
    bump.
    """
    before = {scope.filter: scope.refresh.messages for scope in previous.policy.scopes} if previous else {}
    return [scope for scope in scopes if before.get(scope.filter, scope.refresh.messages) != scope.refresh.messages]
