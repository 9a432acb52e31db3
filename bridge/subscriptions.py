"""Who wants what: signed subscription statements and the routing table they make.

A gateway states, per scope, that it wants it: a frame (gateway, wire filter, version, on/off, lease) that it
signs. Statements flood along the region tree; because the author signs, one copy suffices and the highest
version wins, so a lying replica can withhold a statement but neither invent nor undo one. A gateway counts a
subscription as *accepted* once a quorum of its region's replicas acknowledged it (k = threshold: at least one
more than can lie). Not here: unsigned summaries and majority adoption at attach (A14).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from keys.errors import BadFrame, NotAuthorised
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
    """The newest statement of every (member, filter), verified against the overlay."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._statements: dict[tuple[str, str], Statement] = {}

    def accept(self, statement: Statement, now: float) -> bool:
        """Take a statement; True if it is news that must be passed on.

        Raises BadSignature, or NotAuthorised for a stranger, an unknown scope or a right that is missing.
        """
        member = self._overlay.members.get(statement.member)
        scope = self._overlay.scope_named(statement.filter)
        if member is None or scope is None:
            raise NotAuthorised(f"statement of {statement.member!r} for an unknown member or scope")
        known = self._statements.get((statement.member, statement.filter))
        if known is not None and known.version >= statement.version:
            return False
        verify(member.certificate.public_key, DOMAIN, statement.body(), statement.signature)
        if not self._overlay.may_read(statement.member, scope):
            raise NotAuthorised(f"{statement.member} may not read {statement.filter}")
        if statement.expires_ms <= now * 1000 or len(self._statements) >= STATEMENTS_MAX:
            return False
        self._statements[statement.member, statement.filter] = statement
        return True

    def wanting(self, scope: Scope, now: float) -> list[str]:
        """Members whose live statement covers the scope."""
        return [
            s.member
            for s in self._statements.values()
            if s.filter == scope.filter and s.on and s.expires_ms > now * 1000
        ]

    def all(self) -> list[Statement]:
        """Everything known, for a neighbour whose link came up."""
        return list(self._statements.values())
