"""Resumption of a trace session after a lost connection or a restart of its broker, for a few hashes (B3).

    knock      opening(3) session(16) nonce(16) time_ms(8) name(2 + n) mac(16)    by the entity
    resumed    opening(3) session(16) nonce(16) mac(16)                           by the broker
    unknown    opening(3: flag bit 0) session(16)                                 by the broker, or by anybody

Both ends know the session's key; a broker keeps it over a restart. Both nonces make the key of the resumed session,
so
that counters begin anew and no earlier message can be replayed. Codes are HMAC-SHA256 of a key of their own,
cut to 16 bytes. A knock counts once, by its time, and the answer opens only for the end that has just knocked.
`unknown`
proves nothing: the entity registers then, as it would a little later anyway. An enemy who steals the session's key
can
also read later messages, until the entity registers anew. Not here: the broker's memory of the entity
(`bridge.traces.remembered`), when an entity knocks (`bridge.tracking.entity`).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field, replace

from keys.errors import BadContent, BadFrame, Expired, OurFault, Replayed
from keys.frames import Kind, Reader, number, opening, text
from keys.identity import is_name
from keys.tracesession import KEY_BYTES, REQUEST_FRESH_MS, SESSION_BYTES

NONCE_BYTES = 16
CODE_BYTES = 16
KNOCK = opening(Kind.KNOCK)
DOMAIN_RESUMPTION = b"veilmq/1 trace session resumed"
_UNKNOWN = 1


@dataclass(frozen=True, slots=True)
class Knock:
    """An entity's request to resume its session. `nonce`: 16 random bytes; `time_ms`: its clock."""

    session: bytes = field(repr=False)
    nonce: bytes = field(repr=False)
    time_ms: int
    name: str
    code: bytes = field(default=b"", repr=False)

    def signed_bytes(self) -> bytes:
        return b"".join((KNOCK, self.session, self.nonce, number(self.time_ms, 8), text(self.name)))

    def coded(self, key: bytes) -> Knock:
        """Returns the knock with its code under the session's key. Raises OurFault."""
        if (len(self.session), len(self.nonce), len(key)) != (SESSION_BYTES, NONCE_BYTES, KEY_BYTES):
            raise OurFault(f"a session and a nonce have {SESSION_BYTES} bytes, a key {KEY_BYTES}")
        return replace(self, code=_code(key, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.code

    @classmethod
    def decode(cls, data: bytes) -> Knock:
        """Reads a frame; does not check its code. Raises BadFrame."""
        reader = Reader(data)
        reader.opening(Kind.KNOCK)
        session, nonce = reader.take_bytes(SESSION_BYTES), reader.take_bytes(NONCE_BYTES)
        found = cls(session, nonce, reader.number(8), reader.text(), reader.take_bytes(CODE_BYTES))
        reader.expect_end()
        if not is_name(found.name):
            raise BadFrame("a name that no entity has")
        return found

    def verify(self, key: bytes, after_ms: int, now_ms: int) -> None:
        """Raises BadContent, Replayed or Expired unless a holder of the key knocked just now, and for the first time.

        `after_ms`: the time of the last knock that counted.
        """
        if not hmac.compare_digest(self.code, _code(key, self.signed_bytes())):
            raise BadContent("a knock under another key than the session's")
        if self.time_ms <= after_ms:
            raise Replayed("a knock came twice or too late")
        if abs(now_ms - self.time_ms) > REQUEST_FRESH_MS:
            raise Expired("the knock is not of now; set the entity's clock")

    def resumed_session(self, key: bytes, nonce: bytes) -> tuple[bytes, bytes]:
        """Returns the broker's answer, and the key of the resumed session. `nonce`: 16 random bytes."""
        if len(nonce) != NONCE_BYTES:
            raise OurFault(f"a nonce has {NONCE_BYTES} bytes")
        answer = opening(Kind.RESUMED) + self.session + nonce
        return answer + _code(key, answer + self.nonce), _next_key(key, self.session, self.nonce, nonce)


def open_resumed(data: bytes, key: bytes, knocked: Knock) -> bytes | None:
    """Returns the key of the resumed session at the entity that knocked; None if the broker does not know the session.

    Raises BadFrame, BadContent.
    """
    reader = Reader(data)
    flags = reader.opening(Kind.RESUMED, _UNKNOWN)
    if reader.take_bytes(SESSION_BYTES) != knocked.session:
        raise BadContent("an answer to somebody else's knock")
    if flags & _UNKNOWN:
        reader.expect_end()
        return None
    nonce, code = reader.take_bytes(NONCE_BYTES), reader.take_bytes(CODE_BYTES)
    reader.expect_end()
    if not hmac.compare_digest(code, _code(key, data[:-CODE_BYTES] + knocked.nonce)):
        raise BadContent("an answer to another knock, or under another key")
    return _next_key(key, knocked.session, knocked.nonce, nonce)


def unknown(session: bytes) -> bytes:
    """Returns the broker's answer to a knock for a session that it does not know."""
    return opening(Kind.RESUMED, _UNKNOWN) + session


def is_resumed(data: bytes) -> bool:
    """Returns True if the bytes look like an answer to a knock."""
    return data[:2] == opening(Kind.RESUMED)[:2]


def _code(key: bytes, what: bytes) -> bytes:
    """Returns the code of a frame under a key sealing nothing. The kinds of frames tell the two directions apart."""
    return hmac.digest(hmac.digest(key, DOMAIN_RESUMPTION + b"\1", "sha256"), what, "sha256")[:CODE_BYTES]


def _next_key(key: bytes, session: bytes, knocked: bytes, answered: bytes) -> bytes:
    return hmac.digest(hmac.digest(key, DOMAIN_RESUMPTION + b"\2", "sha256"), session + knocked + answered, "sha256")
