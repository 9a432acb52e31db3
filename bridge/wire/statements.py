"""Signed subscription statements of gateways, and the routing table that they make.

A gateway states, per scope, that it wants it: a frame (gateway, wire filter, version, on/off, lease) that it signs,
with a cover if it wants only a part of the scope (`covers`). Statements flood along the region tree; because the
author signs, a single copy suffices and the highest version wins, so a lying replica can withhold a statement but
neither invent nor undo one. A gateway counts a subscription as *accepted* once a quorum of its region's replicas
acknowledged it (k = threshold: at least another than can lie). Not here: unsigned summaries and majority adoption at
attach (A14).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from bridge.contract import Allowance
from bridge.document import Member, Overlay, Scope
from bridge.predicates import Predicate
from bridge.wire.admission import AHEAD_S, GATEWAY_SESSION_S
from bridge.wire.covers import ScopeCovers, decode_cover, encode_cover
from bridge.wire.shown_lists import ShownList
from keys.errors import BadSignature, Expired, NotAuthorised, NotFresh, TooOften
from keys.frames import Kind, Reader, number, opening, sized, text
from keys.identity import Identity, Role, verify

FLAG_ON = 0x01
FLAG_COVER = 0x02
FLAG_GOES_ON = 0x04
DOMAIN = "veilmq/1 subscription"
SESSION_S = {Role.GATEWAY: GATEWAY_SESSION_S, Role.INGEST: 7 * 86_400}
"""Seconds that replicas keep the session of an absent member. Its statement has to lead there as long: else
publications
of that time would be acknowledged to their publisher, and be in no queue.
"""
RENEW_AFTER_S = 1200.0
CLOCKS_S = 2400.0  # by so much clocks may differ about how long a statement lives
NEWS_BURST = 4_096  # statements of one member at once: it has 1,024 scopes at most ...
NEWS_EVERY_S = 0.1  # ... and then ten a second: each is verified, remembered and passed on to everybody
STATEMENTS_MAX = 100_000  # stops a flood of filters: gateways x scopes of the policy is far below it

CONTROL_ROOT = "$veil"
SUBSCRIBE_TOPIC = f"{CONTROL_ROOT}/subscribe"
KEYS_TOPIC = f"{CONTROL_ROOT}/keys"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement: `member` wants (`on`) publications on the wire `filter` until `expires_ms`.

    With a `cover`, only matching publications are wanted. `goes_on`: the member wanted the scope before, and has the
    retained publications.
    """

    member: str
    filter: str
    version: int
    on: bool
    expires_ms: int
    signature: bytes = b""
    cover: Predicate | None = None
    goes_on: bool = False

    def signed_bytes(self) -> bytes:
        flags = FLAG_ON * self.on | FLAG_COVER * (self.cover is not None) | FLAG_GOES_ON * self.goes_on
        names = opening(Kind.STATEMENT, flags) + text(self.member) + text(self.filter)
        cover = b"" if self.cover is None else sized(encode_cover(self.cover))
        return names + number(self.version, 8) + number(self.expires_ms, 8) + cover

    def signed(self, identity: Identity) -> Statement:
        return replace(self, signature=identity.sign(DOMAIN, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> Statement:
        body, signature = data[:-64], data[-64:]
        frame = Reader(body)
        flags = frame.opening(Kind.STATEMENT, FLAG_ON | FLAG_COVER | FLAG_GOES_ON)
        statement = cls(
            member=frame.text(),
            filter=frame.text(),
            on=bool(flags & FLAG_ON),
            version=frame.number(8),
            expires_ms=frame.number(8),
            cover=decode_cover(frame.sized()) if flags & FLAG_COVER else None,
            goes_on=bool(flags & FLAG_GOES_ON),
            signature=signature,
        )
        frame.expect_end()
        return statement


class _Known(NamedTuple):
    """A statement, its signer's public key, and its end: with that key's certificate at the latest."""

    statement: Statement
    signer: bytes
    ends_ms: int


_NOTHING = (-1, b"")  # below every version, signed by nobody


def lease_s(role: Role) -> float:
    """Returns the seconds a statement lives: its author may leave just before its next renewal."""
    return SESSION_S.get(role, SESSION_S[Role.GATEWAY]) + RENEW_AFTER_S


class RoutingTable:
    """The newest statement of every (filter, member), verified against the overlay.

    A statement leads nowhere in an epoch in which its author may not read: the right is asked at every use. An ended
    statement, or one by a former key, does not stand in the way of the present key's, whatever its version: else a
    copy of a gateway, or a thief of its key, could mute it for good. A member wanting a scope's retiring tokens wants
    the scope's new tokens too, until it states otherwise: it may hear of the new tokens later, or before we know them.
    There, too, a former key's statement on the new tokens does not outrank the present key's on the retiring ones.
    """

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._statements: dict[str, dict[str, _Known]] = {}
        self._covers: dict[str, ScopeCovers] = {}  # of scopes in which a member has one, as of the last use
        self._count = 0
        self._allowances: dict[str, Allowance] = {}  # by author
        self._rights: dict[tuple[str, str, int], bool] = {}  # (member, filter, epoch); bounded by members x scopes
        self._epoch = 0
        self._formers = _formers(overlay)

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay, and forgets statements of members, keys and scopes that it lacks."""
        self._overlay, self._formers = overlay, _formers(overlay)
        self._rights.clear()
        self._allowances = {name: left for name, left in self._allowances.items() if name in overlay.members}
        for wire_filter in list(self._statements):
            if overlay.scope_named(wire_filter) is None:
                del self._statements[wire_filter]
        for of_filter in self._statements.values():
            for name, known in list(of_filter.items()):
                member = overlay.members.get(name)
                ends_ms = None if member is None else _ends_ms(member, known.signer, known.statement.expires_ms)
                if ends_ms is None:
                    del of_filter[name]
                else:
                    of_filter[name] = known._replace(ends_ms=ends_ms)
        self._count = sum(map(len, self._statements.values()))
        self._covers.clear()

    def may_read(self, member: str, scope: Scope, now: float) -> bool:
        """Returns True if the member may read the whole scope in the present epoch."""
        epoch = self._overlay.policy.calendar.epoch_at(now)
        if epoch != self._epoch:
            self._rights.clear()
            self._epoch = epoch
        asked = (member, scope.filter, epoch)
        allowed = self._rights.get(asked)
        if allowed is None:
            allowed = self._rights[asked] = self._overlay.may_read(member, scope, epoch)
        return allowed

    def accept(self, statement: Statement, now: float) -> bool:
        """Takes a statement; returns True if it is news that must be passed on.

        Raises BadSignature, TooOften, Expired (also for one that would live too long), or NotAuthorised for a
        stranger, an unknown scope or a missing right.
        """
        member = self._overlay.members.get(statement.member)
        scope = self._overlay.scope_named(statement.filter)
        if member is None or scope is None:
            raise NotAuthorised(f"statement of {statement.member!r} for an unknown member or scope")
        of_filter = self._statements.setdefault(statement.filter, {})
        known = of_filter.get(statement.member)
        present = member.certificate.public_key
        version, before = _NOTHING  # an ended statement outranks nothing
        if known is not None and now * 1000 < known.ends_ms:
            version, before = known.statement.version, known.signer
        outranked = version >= statement.version
        if outranked and before == present:
            return False
        signer = verify_author(member, DOMAIN, statement.signed_bytes(), statement.signature, now)
        if signer != present and (outranked or before == present):
            return False
        if statement.expires_ms <= now * 1000:
            return False  # an old one of the author's, replayed: nobody's fault, and it spends nothing of what is left
        if statement.version > (now + AHEAD_S) * 1000:
            # A version is a time: one to come would outrank all that its author says until then.
            raise NotFresh(f"{statement.member} states something with a version that is to come")
        if statement.expires_ms > (now + lease_s(member.certificate.role) + CLOCKS_S) * 1000:
            raise Expired(f"{statement.member} states something for longer than statements live")
        if statement.on and not self.may_read(statement.member, scope, now):
            raise NotAuthorised(f"{statement.member} may not read {statement.filter}")
        allowance = self._allowances.setdefault(statement.member, Allowance(NEWS_BURST, NEWS_EVERY_S, now))
        if not allowance.spend_one(now):
            raise TooOften(f"{statement.member} states more often than it can have news")
        if known is None and self._count >= STATEMENTS_MAX:
            return False
        self._count += known is None
        ends_ms = _ends_ms(member, signer, statement.expires_ms)
        assert ends_ms is not None, "it was verified by a key that is listed"
        of_filter[statement.member] = _Known(statement, signer, ends_ms)
        covers = self._covers.get(statement.filter)
        if covers is not None:
            covers.put_cover(statement.member, self._cover(of_filter[statement.member]))
        return True

    def goes_on(self, statement: Statement, now: float) -> bool:
        """Returns True if its author wants the scope already, as it says, and so has the retained publications.

        Asked before `accept`.
        """
        known = self._statements.get(statement.filter, {}).get(statement.member)
        lives = known is not None and known.statement.on and now * 1000 < known.ends_ms
        return statement.goes_on and lives

    def wanting(self, scope: Scope, now: float) -> list[str]:
        """Returns the members that may read the scope now and whose live statement wants it.

        A lease ends with its author's certificate.
        """
        stated = self._statements.get(scope.filter, {})
        found = [known.statement.member for known in stated.values() if self._leads(known, scope, now)]
        for former in self._formers.get(scope.filter, ()):
            for known in self._statements.get(former, {}).values():
                member, newer = known.statement.member, stated.get(known.statement.member)
                counts = newer is None or now * 1000 >= newer.ends_ms or self._is_outranked(newer, known)
                if counts and member not in found and self._leads(known, scope, now):
                    found.append(member)
        return found

    def stays_until(self, scope: Scope, now: float) -> float:
        """Returns the time until which `wanting` returns the present answer, if nobody states anything and the overlay
        stays.
        """
        filters = (scope.filter, *self._formers.get(scope.filter, ()))
        ends = [k.ends_ms / 1000 for each in filters for k in self._statements.get(each, {}).values()]
        calendar = self._overlay.policy.calendar
        return min([calendar.end_s(calendar.epoch_at(now)), *(at for at in ends if at > now)])

    def _is_outranked(self, newer: _Known, known: _Known) -> bool:
        """Returns True if the member's present key signed the statement on former tokens, and a former key the newer
        one.
        """
        present = self._overlay.certificate(known.statement.member).public_key
        return known.signer == present != newer.signer

    def _leads(self, known: _Known, scope: Scope, now: float) -> bool:
        s = known.statement
        return s.on and now * 1000 < known.ends_ms and self.may_read(s.member, scope, now)

    def left_out(self, scope: Scope, shown: ShownList) -> frozenset[str]:
        """Returns the members whose covers match nothing the publication shows."""
        return self._covers_of(scope).left_out(shown)

    def _covers_of(self, scope: Scope) -> ScopeCovers:
        covers = self._covers.get(scope.filter)
        if covers is None:
            covers = self._covers[scope.filter] = ScopeCovers(scope)
            for known in self._statements.get(scope.filter, {}).values():
                covers.put_cover(known.statement.member, self._cover(known))
        return covers

    def _cover(self, known: _Known) -> Predicate | None:
        """Returns the cover of a statement, if it counts.

        While former tokens retire, on which the present key may have wanted everything, a former key leaves nothing
        out.
        """
        s = known.statement
        if s.filter in self._formers and known.signer != self._overlay.certificate(s.member).public_key:
            return None
        return s.cover if s.on else None

    def live(self, now: float) -> list[Statement]:
        """Returns all live statements, for a neighbour whose link came up."""
        known = (known for of_filter in self._statements.values() for known in of_filter.values())
        return [statement for statement, _, ends_ms in known if now * 1000 < ends_ms]


def _ends_ms(member: Member, signer: bytes, expires_ms: int) -> int | None:
    """Returns the end of a key's statement: with that key's certificate at the latest.

    None: the member does not have that key any more.
    """
    ends = [certificate.not_after_ms for certificate in member.certificates if certificate.public_key == signer]
    return min(expires_ms, ends[0]) if ends else None


def _formers(overlay: Overlay) -> dict[str, tuple[str, ...]]:
    """Returns, by wire filter of a scope, its former filters that retire."""
    of_stream: dict[int, list[str]] = {}
    for scope in overlay.policy.scopes:
        if scope.retiring:
            of_stream.setdefault(scope.stream, []).append(scope.filter)
    present = [scope for scope in overlay.policy.scopes if not scope.retiring and scope.stream in of_stream]
    return {scope.filter: tuple(of_stream[scope.stream]) for scope in present}


def verify_author(member: Member, domain: str, body: bytes, signature: bytes, now: float) -> bytes:
    """Returns the public key of the member's valid certificate, present or former, that fits the signature.

    Raises a keys error if none does.
    """
    for certificate in member.certificates:
        try:
            verify(certificate.public_key, domain, body, signature)
        except BadSignature:
            continue
        if now * 1000 > certificate.not_after_ms:
            raise Expired(f"the certificate of {member.certificate.name} ended")
        return certificate.public_key
    raise BadSignature(f"what names {member.certificate.name} as its author is not signed by it")
