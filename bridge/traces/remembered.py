"""The record of an entity a broker needs to speak of it after a restart, even if the entity never comes back.

    record   version(1) advertisement(2 + n) token(2 + n) holder(32) session(16) key(32) trace_key(0 or 32: 1 + n)
             what holds(4 + n)

The token is short-lived, so a broker that was away for longer has no right to tell anything; then the trackers
themselves report that they hear nothing. A record holds secrets: the key the token names, the session's key, and the
key sealing traces. Not here: storage, and its sealing (`gateway.tracing.store`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.traces.kinds import Interest, TraceKind, body_of, fields_of
from keys.delegation import Advertisement, Token
from keys.errors import BadFrame
from keys.frames import Reader, number, sized
from keys.tracesession import KEY_BYTES, SESSION_BYTES

_VERSION = 2

Holding = Mapping[Interest, tuple[TraceKind, Mapping[str, object]]]


@dataclass(frozen=True, slots=True)
class RememberedEntity:
    """A registered entity. `holds`: the last traces told, by interest."""

    advertisement: Advertisement
    token: Token
    holder: bytes = field(repr=False)
    session: bytes = field(repr=False)
    key: bytes = field(repr=False)
    trace_key: bytes = field(repr=False)
    holds: Holding

    def encode(self) -> bytes:
        held = body_of({str(int(i)): [int(kind), dict(fields)] for i, (kind, fields) in self.holds.items()})
        parts = (number(_VERSION, 1), sized(self.advertisement.encode()), sized(self.token.encode()), self.holder)
        secrets = self.session, self.key
        return b"".join((*parts, *secrets, number(len(self.trace_key), 1), self.trace_key, number(len(held), 4), held))

    @classmethod
    def decode(cls, data: bytes) -> RememberedEntity:
        """Decodes a record. Raises BadFrame."""
        reader = Reader(data)
        if reader.number(1) != _VERSION:
            raise BadFrame("a record of another version")
        advertisement, token = Advertisement.decode(reader.sized()), Token.decode(reader.sized())
        holder, session, key = (
            reader.take_bytes(KEY_BYTES),
            reader.take_bytes(SESSION_BYTES),
            reader.take_bytes(KEY_BYTES),
        )
        trace_key = reader.take_bytes(reader.number(1))
        held = fields_of(reader.take_bytes(reader.number(4)))
        reader.expect_end()
        try:
            holds = {Interest(int(i)): (TraceKind(kind), dict(fields)) for i, (kind, fields) in held.items()}
        except (ValueError, TypeError):
            raise BadFrame("a record of what no trace says") from None
        return cls(advertisement, token, holder, session, key, trace_key, holds)
