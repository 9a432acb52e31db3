"""Leases of shared groups, and the choice following from them: which gateway serves a group with a publication.

A shared subscription (MQTT 5.0 §4.8.2) never goes to a replica, since each would pick its own member
(docs/protocol.md §5.5). Gateways subscribe plainly, state in signed leases since when they have members of a group,
and all choose alike:

* a gateway with members serves them with the publications of its own devices, from `own_from_ms` on;
* everything else is served by the gateway with the highest HMAC(group, publisher, sequence, gateway) among gateways
  whose lease covers the moment of sealing and sending, `starts_ms` to `ends_ms`. A publication may have waited in an
  outbox for days.

Both rules look at signed facts only, so all gateways knowing equal leases choose alike, in whatever order leases and
publications came. The author signs: a copy suffices, the highest version wins, so a lying replica can withhold a
lease, but neither invent nor undo one. Not here: when a gateway leases a group (`shared_groups`), how leases travel
(`lease_relay`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from bridge.contract import Allowance, FairTable
from bridge.document import Overlay, Scope, ScopeSecret
from bridge.wire import AHEAD_S, CONTROL_ROOT, verify_author
from keys.errors import BadFrame, NotAuthorised, NotFresh, TooOften
from keys.frames import Kind, Reader, number, opening, sized, text
from keys.identity import Identity, Role

GROUPS_TOPIC = f"{CONTROL_ROOT}/groups"
DOMAIN = "veilmq/1 group lease"
FLAG_ON = 0x01
GROUP_ID_BYTES = 16

LEASE_AHEAD_S = 360.0  # leases that end later are refused: a lease is 60 s, and clocks may differ by 5 minutes
ENDED_S = 3600.0  # ended leases are kept so long, for publications that waited in an outbox
LIVES_MAX = 4  # leases of one gateway for one group: the present one and those before it that still explain something
LEASES_MAX = 50_000  # (scope, group, gateway); a gateway with too many groups loses its own oldest
NEWS_BURST = 4_096  # leases of one gateway at once: it may have 1,024 groups ...
NEWS_EVERY_S = 0.01  # ... each renewed every 20 s in some scopes: each is verified, remembered and passed on
SWEEP_EVERY_S = 60.0
RIGHTS_MAX = 16_384  # memory of (member, scope, epoch)

GroupId: TypeAlias = tuple[str, bytes]
"""Wire filter of the scope, and `group_id` in it."""


def group_id(secret: ScopeSecret, group: str, topic_filter: str) -> bytes:
    """Returns the name of a group in a single scope; an equal name with another filter is another group (MQTT 5.0
    §4.8.2).

    Where the scope hides names, its token key hides the group too; elsewhere anybody can recognise guessed names.
    """
    names = sized(secret.scope.filter.encode()) + sized(group.encode()) + sized(topic_filter.encode())
    return hmac.digest(secret.token_key or b"", b"veilmq/1 group" + names, hashlib.sha256)[:GROUP_ID_BYTES]


@dataclass(frozen=True, slots=True)
class LeaseQuestion:
    """A publication for a group.

    `time_ms`: when the publisher's gateway took the publication, and served its own members; `sealed_ms`: when the
    gateway sent it. `retained`: only gateways with members at `time_ms` may have the publication. To others it is a
    retained message, and a shared subscription gets none (MQTT 5.0 §3.8.4).
    """

    publisher: str
    sequence: int
    time_ms: int
    sealed_ms: int
    retained: bool = False


@dataclass(frozen=True, slots=True)
class Lease:
    """A statement that `member` has clients in the group (`on`). Times in milliseconds, from inclusive, until
    exclusive.

    `own_from_ms`, `own_until_ms`: it serves the group with publications of its own devices. `starts_ms`, `ends_ms`:
    it takes part in the choice for publications of others; `starts_ms` 0: not yet.
    """

    member: str
    scope: str
    group: bytes
    version: int
    on: bool
    own_from_ms: int
    own_until_ms: int
    starts_ms: int
    ends_ms: int
    signature: bytes = b""

    @property
    def id(self) -> GroupId:
        return self.scope, self.group

    def supersedes(self, other: Lease) -> bool:
        """Returns True if this lease says all that `other` says, and later.

        A gateway that was away or restarted begins anew; its lease before still explains the publications of its
        time.
        """
        begun = other.starts_ms != 0  # several that do not take part in the choice yet are told apart by `own_from_ms`
        same = self.starts_ms == other.starts_ms if begun else self.own_from_ms == other.own_from_ms
        return same and self.version >= other.version

    def signed_bytes(self) -> bytes:
        names = opening(Kind.GROUP_LEASE, FLAG_ON if self.on else 0) + text(self.member) + text(self.scope)
        times = (self.version, self.own_from_ms, self.own_until_ms, self.starts_ms, self.ends_ms)
        return names + self.group + b"".join(number(value, 8) for value in times)

    def signed(self, identity: Identity) -> Lease:
        return replace(self, signature=identity.sign(DOMAIN, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> Lease:
        """Reads a frame. Raises BadFrame."""
        if len(data) < 64:
            raise BadFrame("lease is too short")
        body, signature = data[:-64], data[-64:]
        frame = Reader(body)
        flags = frame.opening(Kind.GROUP_LEASE, FLAG_ON)
        lease = cls(
            member=frame.text(),
            scope=frame.text(),
            group=frame.take_bytes(GROUP_ID_BYTES),
            on=bool(flags & FLAG_ON),
            version=frame.number(8),
            own_from_ms=frame.number(8),
            own_until_ms=frame.number(8),
            starts_ms=frame.number(8),
            ends_ms=frame.number(8),
            signature=signature,
        )
        frame.expect_end()
        return lease


class LeaseTable:
    """The newest leases of every gateway, verified against the overlay.

    A lease a former key signed gives way to leases of the present key, whatever its version: else a thief of the key
    could end its member's part in each group.
    """

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._groups: dict[GroupId, dict[str, tuple[Lease, ...]]] = {}  # by group and member: lives, oldest first
        self._order: FairTable[tuple[GroupId, str], bool] = FairTable(LEASES_MAX)
        self._signers: dict[tuple[GroupId, str], bytes] = {}  # the public key that signed the last one
        self._allowances: dict[str, Allowance] = {}  # by author
        self._rights: dict[tuple[str, str, int], bool] = {}
        self._sweep_at = 0.0

    def __iter__(self) -> Iterator[Lease]:
        return (lease for of_group in self._groups.values() for lives in of_group.values() for lease in lives)

    def leases_of(self, group: GroupId) -> Mapping[str, tuple[Lease, ...]]:
        """Returns the leases of a group by member, each member's oldest first."""
        return self._groups.get(group, MappingProxyType({}))

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay, and forgets leases of members and for scopes that it does not list."""
        self._overlay = overlay
        self._rights.clear()
        self._allowances = {name: left for name, left in self._allowances.items() if name in overlay.members}
        for (scope, _), members in list(self._groups.items()):
            for member in list(members):
                if member not in overlay.members or overlay.scope_named(scope) is None:
                    self._forget_leases((scope, _), member)

    def accept(self, lease: Lease, now: float) -> bool:
        """Takes a lease of another party; returns True if it is news that must be passed on.

        Raises BadSignature, Expired, TooOften, NotFresh for a future version, or NotAuthorised for a stranger, an
        unknown scope, a missing right, or a lease into the far future.
        """
        member, scope = self._overlay.members.get(lease.member), self._overlay.scope_named(lease.scope)
        if member is None or scope is None or member.certificate.role is not Role.GATEWAY:
            raise NotAuthorised(f"lease of {lease.member!r} for an unknown gateway or scope")
        name, present = (lease.id, lease.member), member.certificate.public_key
        before = self._signers.get(name)
        if before in (None, present) and not self._is_news(lease):
            return False
        signer = verify_author(member, DOMAIN, lease.signed_bytes(), lease.signature, now)
        if signer != present and (before == present or not self._is_news(lease)):
            return False
        epoch = self._overlay.policy.calendar.epoch_at(now)
        if not (self.may_read(lease.member, scope, now) or self._overlay.may_publish_in(lease.member, scope, epoch)):
            raise NotAuthorised(f"{lease.member} may neither read nor publish in {lease.scope}")
        if lease.version > (now + AHEAD_S) * 1000:
            # A version is a time: one to come would outrank all that its author says until then, and its own process,
            # which goes on from there after a restart, could say nothing more.
            raise NotFresh(f"{lease.member} leases a group with a version that is to come")
        last_ms = max(lease.ends_ms, lease.own_until_ms)
        if last_ms > (now + LEASE_AHEAD_S) * 1000:
            raise NotAuthorised(f"{lease.member} leases a group for longer than anybody may")
        if last_ms <= (now - ENDED_S) * 1000:
            return False  # an old one of the author's, replayed: it may not spend what the author has left
        allowance = self._allowances.setdefault(lease.member, Allowance(NEWS_BURST, NEWS_EVERY_S, now))
        if not allowance.spend_one(now):
            raise TooOften(f"{lease.member} leases more often than it can have news")
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_EVERY_S
            self._sweep(int((now - ENDED_S) * 1000))
        if signer == present and before not in (None, present):
            self._outrank(lease)
        self.enter_lease(lease, signer)
        return True

    def enter_lease(self, lease: Lease, signer: bytes | None = None) -> None:
        """Enters a lease that is our own or was verified. `signer`: its public key; None: the present one."""
        of_group = self._groups.setdefault(lease.id, {})
        lives = [known for known in of_group.get(lease.member, ()) if not lease.supersedes(known)]
        lives = sorted([*lives, lease], key=lambda known: known.version)[-LIVES_MAX:]
        of_group[lease.member] = tuple(lives)
        self._signers[lease.id, lease.member] = signer or self._overlay.certificate(lease.member).public_key
        gone = self._order.put((lease.id, lease.member), lease.member.encode(), True)
        if gone is not None:
            self._forget_leases(*gone[0])

    def may_read(self, member: str, scope: Scope, at: float) -> bool:
        """Returns True if the member may read the whole scope at the moment `at`."""
        epoch = self._overlay.policy.calendar.epoch_at(at)
        asked = (member, scope.filter, epoch)
        allowed = self._rights.get(asked)
        if allowed is None:
            if len(self._rights) >= RIGHTS_MAX:
                self._rights.clear()
            allowed = self._rights[asked] = self._overlay.may_read(member, scope, epoch)
        return allowed

    def server(self, group: GroupId, asked: LeaseQuestion, now: float) -> str | None:
        """Returns the gateway serving the group with a publication; None if no lease says."""
        of_group, scope = self._groups.get(group), self._overlay.scope_named(group[0])
        if of_group is None or scope is None:
            return None
        if _owns(of_group.get(asked.publisher, ()), asked.time_ms):
            return asked.publisher
        at_ms = asked.sealed_ms
        able = {
            member: lives
            for member, lives in of_group.items()
            # A publisher's gateway does not get its own publications back.
            if member != asked.publisher
            and self.may_read(member, scope, at_ms / 1000)
            and (not asked.retained or any(lease.own_from_ms <= asked.time_ms for lease in lives))
        }
        chosen = [m for m, lives in able.items() if _covers(lives, at_ms)]
        if not chosen:
            # The first members' leases begin in a moment, or a clock is far from ours.
            chosen = [m for m, lives in able.items() if _covers(lives, at_ms, early=True)]
            chosen = chosen or [m for m, lives in able.items() if _goes_on(lives, now)]
        if len(chosen) < 2:
            return chosen[0] if chosen else None
        said = sized(asked.publisher.encode()) + number(asked.sequence, 8)
        return max(chosen, key=lambda m: hmac.digest(group[1], said + m.encode(), hashlib.sha256))

    def _is_news(self, lease: Lease) -> bool:
        lives = self.leases_of(lease.id).get(lease.member, ())
        if any(known.supersedes(lease) for known in lives):
            return False
        return len(lives) < LIVES_MAX or lease.version > lives[0].version

    def _outrank(self, lease: Lease) -> None:
        """Forgets leases of a former key with greater versions than this lease of the present key."""
        of_group = self._groups[lease.id]
        of_group[lease.member] = tuple(known for known in of_group[lease.member] if known.version < lease.version)

    def _sweep(self, before_ms: int) -> None:
        for group, of_group in list(self._groups.items()):
            for member, lives in list(of_group.items()):
                if all(max(lease.ends_ms, lease.own_until_ms) <= before_ms for lease in lives):
                    self._forget_leases(group, member)

    def _forget_leases(self, group: GroupId, member: str) -> None:
        self._order.pop((group, member))
        self._signers.pop((group, member), None)
        of_group = self._groups.get(group, {})
        of_group.pop(member, None)
        if not of_group:
            self._groups.pop(group, None)


def _owns(lives: Sequence[Lease], time_ms: int) -> bool:
    """Returns True if the author served its own devices' publications then. No earlier lease prolongs a later end."""
    limit_ms = time_ms + 1
    for lease in reversed(lives):
        if lease.own_from_ms <= time_ms < min(lease.own_until_ms, limit_ms):
            return True
        limit_ms = limit_ms if lease.on else min(limit_ms, lease.own_until_ms)
    return False


def _covers(lives: Sequence[Lease], time_ms: int, early: bool = False) -> bool:
    """Returns True if the author took part in the choice among all then.

    `early`: leases taking part in it count from their first member on.
    """
    limit_ms = time_ms + 1
    for lease in reversed(lives):
        from_ms = lease.own_from_ms if early else lease.starts_ms
        if lease.starts_ms and from_ms <= time_ms < min(lease.ends_ms, limit_ms):
            return True
        limit_ms = limit_ms if lease.on else min(limit_ms, lease.ends_ms)
    return False


def _goes_on(lives: Sequence[Lease], now: float) -> bool:
    """Returns True if the author has members, and takes part in the choice or will in a moment."""
    return lives[-1].on and any(lease.starts_ms and now * 1000 < lease.ends_ms for lease in lives)
