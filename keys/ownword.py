"""A traced entity's own word: a statement signed by the entity, so that no witness need be believed about it.

    own word   opening(3) since_ms(8) number(8) time_ms(8) kind(1) body(2 + n) signature(64) of the entity

The witnesses pass the word on unchanged. A single honest witness suffices; a lying majority can only withhold words.
`number` rises, so that the order of words is clear, whichever witness brings them. Not here: the meaning of kinds
(`bridge.traces.kinds`), an entity with a single witness, which is believed without own words.
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
    """A statement of an entity about itself.

    `since_ms`: when the entity named the witnesses passing it on (`delegation.Seat`); `number` rises for these
    witnesses. `kind`: a `bridge.traces.kinds.TraceKind`. `body`: JSON.
    """

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
        """Returns the word signed by `entity`. Raises OurFault for a body that is too long."""
        if len(self.body) > BODY_MAX_BYTES:
            raise OurFault(f"what an entity says of itself has at most {BODY_MAX_BYTES} bytes, not {len(self.body)}")
        return replace(self, signature=entity.sign(DOMAIN, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> OwnWord:
        """Reads a frame; does not check its signature. Raises BadFrame."""
        reader = Reader(data)
        reader.opening(Kind.OWN_WORD)
        since_ms, counter, time_ms, kind = reader.number(8), reader.number(8), reader.number(8), reader.number(1)
        word = cls(since_ms, counter, time_ms, kind, reader.sized(), reader.take_bytes(SIGNATURE_BYTES))
        reader.expect_end()
        return word

    def verify(self, entity_key: bytes) -> None:
        """Raises BadSignature unless the entity signed the word."""
        verify(entity_key, DOMAIN, self.signed_bytes(), self.signature)
