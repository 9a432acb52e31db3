"""What a traced entity says of itself, signed by itself, so that no witness need be believed about it.

    own word   opening(3) since_ms(8) number(8) time_ms(8) kind(1) body(2 + n) signature(64) of the entity

Its witnesses pass it on as it is; one that does is enough, and a majority that does not can only withhold it.
`number` rises, so what came later stays later, whoever brings it. Not here: what the kinds mean
(`bridge.traces.kinds`), an entity with one witness, which is believed as it always was.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from keys.errors import OurFault
from keys.frames import Kind, Reader, number, opening, sized
from keys.identity import SIGNATURE_BYTES, Identity, verify

BODY_MAX_BYTES = 8_192  # base64 of it fits the body of a trace
DOMAIN = "veilmq/1 own word"


@dataclass(frozen=True, slots=True)
class OwnWord:
    """One word. `since_ms`: when the entity named the witnesses that pass it on (`delegation.Seat`); `number` rises for
    these. `kind`: a `bridge.traces.kinds.TraceKind`. `body`: JSON."""

    since_ms: int
    number: int
    time_ms: int
    kind: int
    body: bytes = field(repr=False)
    signature: bytes = field(default=b"", repr=False)

    def signed_bytes(self) -> bytes:
        parts = (opening(Kind.OWN_WORD), number(self.since_ms, 8), number(self.number, 8), number(self.time_ms, 8))
        return b"".join((*parts, number(self.kind, 1), sized(self.body)))

    def signed(self, entity: Identity) -> OwnWord:
        """Raises OurFault for a body that is too long."""
        if len(self.body) > BODY_MAX_BYTES:
            raise OurFault(f"what an entity says of itself has at most {BODY_MAX_BYTES} bytes, not {len(self.body)}")
        return replace(self, signature=entity.sign(DOMAIN, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> OwnWord:
        """Raises BadFrame."""
        reader = Reader(data)
        reader.opening(Kind.OWN_WORD)
        since_ms, counter, time_ms, kind = reader.number(8), reader.number(8), reader.number(8), reader.number(1)
        word = cls(since_ms, counter, time_ms, kind, reader.sized(), reader.take(SIGNATURE_BYTES))
        reader.end()
        return word

    def verify(self, entity_key: bytes) -> None:
        """Raise BadSignature unless the entity signed it."""
        verify(entity_key, DOMAIN, self.signed_bytes(), self.signature)
