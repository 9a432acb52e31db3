"""A trace session goes on over a lost connection or a restart of its broker, for a few hashes (B3).

    knock      opening(3) session(16) nonce(16) time_ms(8) name(2 + n) mac(16)    by the entity
    resumed    opening(3) session(16) nonce(16) mac(16)                           by the broker
    unknown    opening(3: flag bit 0) session(16)                                 by the broker, or by anybody

Both know the session's key; a broker keeps it over a restart. Both nonces make the key with which the session goes on,
so counters begin anew and nothing that was said before can be said again. Codes are HMAC-SHA256 of a key of their own,
cut to 16 bytes. A knock counts once, by its time, and the answer opens for nobody who has not just knocked. `unknown`
proves nothing: an entity registers then, as it would a little later by itself. Who loses the session's key to an enemy
loses what follows as well, until it registers anew. Not here: what a broker still knows of the entity
(`bridge.traces.remembered`), when somebody knocks (`bridge.tracking.entity`).
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
    """An entity's wish that its session go on. `nonce`: 16 random bytes; `time_ms`: its clock."""

    session: bytes = field(repr=False)
    nonce: bytes = field(repr=False)
    time_ms: int
    name: str
    code: bytes = field(default=b"", repr=False)

    def body(self) -> bytes:
        return b"".join((KNOCK, self.session, self.nonce, number(self.time_ms, 8), text(self.name)))

    def coded(self, key: bytes) -> Knock:
        """Under a session's key. Raises OurFault."""
        if (len(self.session), len(self.nonce), len(key)) != (SESSION_BYTES, NONCE_BYTES, KEY_BYTES):
            raise OurFault(f"a session and a nonce have {SESSION_BYTES} bytes, a key {KEY_BYTES}")
        return replace(self, code=_code(key, self.body()))

    def encode(self) -> bytes:
        return self.body() + self.code

    @classmethod
    def decode(cls, data: bytes) -> Knock:
        """Raises BadFrame."""
        reader = Reader(data)
        reader.opening(Kind.KNOCK)
        session, nonce = reader.take(SESSION_BYTES), reader.take(NONCE_BYTES)
        found = cls(session, nonce, reader.number(8), reader.text(), reader.take(CODE_BYTES))
        reader.end()
        if not is_name(found.name):
            raise BadFrame("a name that no entity has")
        return found

    def verify(self, key: bytes, after_ms: int, now_ms: int) -> None:
        """Raise BadContent, Replayed or Expired unless who knows the key knocked just now, and for the first time.
        `after_ms`: the time of the last knock that counted."""
        if not hmac.compare_digest(self.code, _code(key, self.body())):
            raise BadContent("a knock under another key than the session's")
        if self.time_ms <= after_ms:
            raise Replayed("a knock came twice or too late")
        if abs(now_ms - self.time_ms) > REQUEST_FRESH_MS:
            raise Expired("the knock is not of now; set the entity's clock")

    def resumed(self, key: bytes, nonce: bytes) -> tuple[bytes, bytes]:
        """The broker's answer, and the key with which the session goes on. `nonce`: 16 random bytes."""
        if len(nonce) != NONCE_BYTES:
            raise OurFault(f"a nonce has {NONCE_BYTES} bytes")
        answer = opening(Kind.RESUMED) + self.session + nonce
        return answer + _code(key, answer + self.nonce), _next_key(key, self.session, self.nonce, nonce)


def open_resumed(data: bytes, key: bytes, knocked: Knock) -> bytes | None:
    """At the entity that knocked: the key with which the session goes on, None if the broker says that it does not
    know it. Raises BadFrame, BadContent."""
    reader = Reader(data)
    flags = reader.opening(Kind.RESUMED, _UNKNOWN)
    if reader.take(SESSION_BYTES) != knocked.session:
        raise BadContent("an answer to somebody else's knock")
    if flags & _UNKNOWN:
        reader.end()
        return None
    nonce, code = reader.take(NONCE_BYTES), reader.take(CODE_BYTES)
    reader.end()
    if not hmac.compare_digest(code, _code(key, data[:-CODE_BYTES] + knocked.nonce)):
        raise BadContent("an answer to another knock, or under another key")
    return _next_key(key, knocked.session, knocked.nonce, nonce)


def unknown(session: bytes) -> bytes:
    """The broker's answer to a knock for a session that it does not know."""
    return opening(Kind.RESUMED, _UNKNOWN) + session


def is_resumed(data: bytes) -> bool:
    """Whether it looks like an answer to a knock."""
    return data[:2] == opening(Kind.RESUMED)[:2]


def _code(key: bytes, what: bytes) -> bytes:
    """Frames of the two directions differ in their kind, and the key is none that anything is sealed under."""
    return hmac.digest(hmac.digest(key, DOMAIN_RESUMPTION + b"\1", "sha256"), what, "sha256")[:CODE_BYTES]


def _next_key(key: bytes, session: bytes, knocked: bytes, answered: bytes) -> bytes:
    return hmac.digest(hmac.digest(key, DOMAIN_RESUMPTION + b"\2", "sha256"), session + knocked + answered, "sha256")
