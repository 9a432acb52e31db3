"""What a traced entity and the broker that traces it say to each other (B3, B8 and the symmetric optimisation).

    registration   opening(3) advertisement(2 + n) request(16) time_ms(8) signature(64) of the entity
    registered     opening(3) request(16) sealed box to the entity: session(16) key(32)
    in a session   opening(3: flag bit 0 signed) session(16) counter(8) word(1) body, and then
                   signed: 64 bytes of the entity's signature; else AES-256-GCM under the session's key of word and body

A registration proves that its sender holds the entity's key; the answer opens for nobody else. In a session the entity
either signs each message or, cheaper, seals it under the key that both know; the broker always seals. Counters of each
direction rise, so nothing counts twice. Not here: topics, what a word does (`bridge.tracing`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from keys.delegation import Advertisement
from keys.errors import BadContent, BadFrame, Expired, OurFault, Replayed
from keys.frames import Kind, Reader, number, opening, sized
from keys.identity import SIGNATURE_BYTES, Identity, verify
from keys.sealedbox import seal_box

SESSION_BYTES = 16
REQUEST_BYTES = 16
KEY_BYTES = 32
BODY_MAX_BYTES = 16_384
REQUEST_FRESH_MS = 60_000  # an older registration, or one from the future, is a replay
DOMAIN_REGISTRATION = "veilmq/1 registration"
DOMAIN_SESSION = "veilmq/1 trace session"
_SIGNED = 1
_HEAD_BYTES = 3 + SESSION_BYTES + 8


class Word(IntEnum):
    """What a message in a session is about, and its body."""

    PING = 1
    """Broker: number(8), sent_ms(8)."""
    ANSWER = 2
    """Entity: the ping's number(8) and sent_ms(8)."""
    STATE = 3
    """Entity: one byte, a `bridge.traces.TraceKind` of the states."""
    LOAD = 4
    """Entity: a JSON object."""
    TOKEN = 5
    """Entity: a token(2 + n) and the 32 secret bytes of the key that it names."""
    TRACE_KEY = 6
    """Entity: 32 secret bytes; traces are sealed under them from now on."""
    SILENT = 7
    """Entity: no more traces, please."""


@dataclass(frozen=True, slots=True)
class Registration:
    """An entity's wish to be traced. `request`: 16 random bytes that the answer repeats."""

    advertisement: bytes
    request: bytes
    time_ms: int
    signature: bytes = field(default=b"", repr=False)

    def body(self) -> bytes:
        return b"".join((opening(Kind.REGISTRATION), sized(self.advertisement), self.request, number(self.time_ms, 8)))

    def signed(self, entity: Identity) -> Registration:
        if len(self.request) != REQUEST_BYTES:
            raise OurFault(f"a request has {REQUEST_BYTES} bytes")
        return replace(self, signature=entity.sign(DOMAIN_REGISTRATION, self.body()))

    def encode(self) -> bytes:
        return self.body() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> Registration:
        reader = Reader(data)
        reader.opening(Kind.REGISTRATION)
        found = cls(reader.sized(), reader.take(REQUEST_BYTES), reader.number(8), reader.take(SIGNATURE_BYTES))
        reader.end()
        return found

    def verify(self, advertisement: Advertisement, now_ms: int) -> None:
        """Raise unless the advertised entity signed it just now. The advertisement is verified before."""
        verify(advertisement.certificate.public_key, DOMAIN_REGISTRATION, self.body(), self.signature)
        if abs(now_ms - self.time_ms) > REQUEST_FRESH_MS:
            raise Expired("the registration is not of now; set the entity's clock")


def registered(request: bytes, session: bytes, key: bytes, advertisement: Advertisement, random: bytes) -> bytes:
    """The answer to a registration, for its entity only. `random`: 32 fresh bytes. Raises OurFault, BadFrame."""
    if (len(session), len(key)) != (SESSION_BYTES, KEY_BYTES):
        raise OurFault(f"a session has {SESSION_BYTES} bytes, its key {KEY_BYTES}")
    head = opening(Kind.REGISTERED) + request
    return head + seal_box(advertisement.certificate.agreement_key, session + key, head, random)


def open_registered(data: bytes, entity: Identity) -> tuple[bytes, bytes, bytes]:
    """(request, session, key) of an answer. Raises BadFrame, BadContent."""
    reader = Reader(data)
    reader.opening(Kind.REGISTERED)
    request = reader.take(REQUEST_BYTES)
    inside = entity.open_box(reader.rest(), data[: 3 + REQUEST_BYTES])
    if len(inside) != SESSION_BYTES + KEY_BYTES:
        raise BadFrame("an answer to a registration holds a session and its key")
    return request, inside[:SESSION_BYTES], inside[SESSION_BYTES:]


def session_of(data: bytes) -> bytes:
    """The session that a message says it is of; nothing is verified. Raises BadFrame."""
    reader = Reader(data)
    reader.opening(Kind.TRACE_SESSION, _SIGNED)
    return reader.take(SESSION_BYTES)


class TraceSession:
    """One end of a session. `speaks`: 0 for the entity's end, 1 for the broker's: nonces of the two never meet.

    `peer_key`: at the broker's end, the entity's Ed25519 key, whose signatures count too; b"" for none.
    """

    def __init__(self, session: bytes, key: bytes, speaks: int, peer_key: bytes = b"") -> None:
        self.session = session
        self._cipher = AESGCM(key)
        self._speaks = speaks
        self._peer_key = peer_key
        self._counter = 0
        self._heard = 0

    def say(self, word: Word, body: bytes = b"", signer: Identity | None = None) -> bytes:
        """The next message: signed by `signer` and readable, or sealed. What is secret must be sealed (OurFault)."""
        if len(body) > BODY_MAX_BYTES:
            raise OurFault(f"a message of a trace session has a body of at most {BODY_MAX_BYTES} bytes")
        if signer is not None and word in (Word.TOKEN, Word.TRACE_KEY):
            raise OurFault("secrets are sealed, not signed")
        self._counter += 1
        head = opening(Kind.TRACE_SESSION, _SIGNED * (signer is not None)) + self.session + number(self._counter, 8)
        if signer is not None:
            clear = head + number(word, 1) + body
            return clear + signer.sign(DOMAIN_SESSION, clear)
        nonce = number(self._speaks, 4) + number(self._counter, 8)
        return head + self._cipher.encrypt(nonce, number(word, 1) + body, head)

    def hear(self, data: bytes) -> tuple[Word, bytes]:
        """Word and body of the other end's next message. Raises BadFrame, BadSignature, BadContent, Replayed."""
        reader = Reader(data)
        flags = reader.opening(Kind.TRACE_SESSION, _SIGNED)
        if reader.take(SESSION_BYTES) != self.session:
            raise BadContent("a message of another trace session")
        counter, rest = reader.number(8), reader.rest()
        if counter <= self._heard:
            raise Replayed("a message of a trace session came twice or too late")
        if flags:
            clear = self._verified(data, rest)
        else:
            try:
                nonce = number(1 - self._speaks, 4) + number(counter, 8)
                clear = self._cipher.decrypt(nonce, rest, data[:_HEAD_BYTES])
            except InvalidTag:
                raise BadContent("a message does not open under its session's key") from None
        if not clear or clear[0] not in Word.__members__.values() or len(clear) > BODY_MAX_BYTES + 1:
            raise BadFrame("a message of a trace session with an unknown word, or too long")
        self._heard = counter
        return Word(clear[0]), clear[1:]

    def _verified(self, data: bytes, rest: bytes) -> bytes:
        if not self._peer_key or len(rest) <= SIGNATURE_BYTES:
            raise BadFrame("a signed message where none can be verified")
        verify(self._peer_key, DOMAIN_SESSION, data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:])
        if rest[0] in (Word.TOKEN, Word.TRACE_KEY):
            raise BadContent("a secret came signed instead of sealed")
        return rest[:-SIGNATURE_BYTES]
