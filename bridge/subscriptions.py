"""Who wants what: signed subscription statements and the routing table they make.

A gateway states, per scope, that it wants it: a frame (gateway, wire filter, version, on/off, lease) that it
signs. Statements flood along the region tree; because the author signs, one copy suffices and the highest
version wins, so a lying replica can withhold a statement but neither invent nor undo one. A gateway counts a
subscription as *accepted* once a quorum of its region's replicas acknowledged it (k = threshold: at least one
more than can lie). Not here: unsigned summaries and majority adoption at attach (A14).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from keys.errors import BadFrame, Expired, NotAuthorised
from keys.frames import Kind, Reader, number, opening, text
from keys.identity import Identity, verify

from .views import Overlay, Scope

FLAG_ON = 0x01
DOMAIN = "veilmq/1 subscription"
STATEMENT_LEASE_S = 3600.0
RENEW_AFTER_S = STATEMENT_LEASE_S / 3
STATEMENTS_MAX = 100_000  # stops a flood of filters: gateways x scopes of the policy is far below it

CONTROL_ROOT = "$veil"
SUBSCRIBE_TOPIC = f"{CONTROL_ROOT}/subscribe"
KEYS_TOPIC = f"{CONTROL_ROOT}/keys"


@dataclass(frozen=True, slots=True)
class Statement:
    """`member` wants (`on`) what matches the wire `filter` until `expires_ms`."""

    member: str
    filter: str
    version: int
    on: bool
    expires_ms: int
    signature: bytes = b""

    def body(self) -> bytes:
        names = opening(Kind.STATEMENT, FLAG_ON if self.on else 0) + text(self.member) + text(self.filter)
        return names + number(self.version, 8) + number(self.expires_ms, 8)

    def signed(self, identity: Identity) -> Statement:
        return replace(self, signature=identity.sign(DOMAIN, self.body()))

    def encode(self) -> bytes:
        return self.body() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> Statement:
        if len(data) < 64:
            raise BadFrame("statement is too short")
        body, signature = data[:-64], data[-64:]
        frame = Reader(body)
        flags = frame.opening(Kind.STATEMENT, FLAG_ON)
        statement = cls(
            member=frame.text(),
            filter=frame.text(),
            on=bool(flags & FLAG_ON),
            version=frame.number(8),
            expires_ms=frame.number(8),
            signature=signature,
        )
        frame.end()
        return statement


class RoutingTable:
    """The newest statement of every (filter, member), verified against the overlay."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._statements: dict[str, dict[str, Statement]] = {}
        self._count = 0

    def accept(self, statement: Statement, now: float) -> bool:
        """Take a statement; True if it is news that must be passed on.

        Raises BadSignature, Expired, or NotAuthorised for a stranger, an unknown scope or a right that is missing.
        """
        member = self._overlay.members.get(statement.member)
        scope = self._overlay.scope_named(statement.filter)
        if member is None or scope is None:
            raise NotAuthorised(f"statement of {statement.member!r} for an unknown member or scope")
        of_filter = self._statements.setdefault(statement.filter, {})
        known = of_filter.get(statement.member)
        if known is not None and known.version >= statement.version:
            return False
        verify(member.certificate.public_key, DOMAIN, statement.body(), statement.signature)
        if now * 1000 > member.certificate.not_after_ms:
            raise Expired(f"the certificate of {statement.member} ended")
        if not self._overlay.may_read(statement.member, scope):
            raise NotAuthorised(f"{statement.member} may not read {statement.filter}")
        if statement.expires_ms <= now * 1000 or (known is None and self._count >= STATEMENTS_MAX):
            return False
        self._count += known is None
        of_filter[statement.member] = statement
        return True

    def wanting(self, scope: Scope, now: float) -> list[str]:
        """Members whose live statement covers the scope. A lease ends with its author's certificate."""
        return [
            s.member
            for s in self._statements.get(scope.filter, {}).values()
            if s.on and now * 1000 < min(s.expires_ms, self._overlay.certificate(s.member).not_after_ms)
        ]

    def all(self) -> list[Statement]:
        """Everything known, for a neighbour whose link came up."""
        return [statement for of_filter in self._statements.values() for statement in of_filter.values()]
