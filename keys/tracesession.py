"""The trace session between a traced entity and the broker that traces it (B3, B8 and the symmetric optimisation).

    registration   opening(3) advertisement(2 + n) request(16) time_ms(8) signature(64) of the entity
    registered     opening(3) request(16) sealed box to the entity: session(16) key(32)
    in a session   opening(3: flag bit 0 signed) session(16) counter(8) word(1) body, and then
                   signed: 64 bytes of the entity's signature of it and HMAC-SHA256(session's key, `DOMAIN_SESSION`);
                   else AES-256-GCM under the session's key of word and body
    through another broker the same, sealed only, with counters of its own and nonces that no direct message has

A registration proves that its sender holds the entity's key; the answer opens for nobody else. In a session the
entity
either signs each message or, cheaper, seals it under the shared key; the broker always seals. Counters of each
direction rise, so that no message counts twice. Not here: topics, the effect of a word (`bridge.traces.tracer`).
"""

from __future__ import annotations

import hmac
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
_ASIDE = 2
_OPENING_BYTES = 3 + SESSION_BYTES
_HEAD_BYTES = _OPENING_BYTES + 8
_NONCES = tuple(number(speaks, 4) for speaks in range(4))  # what nonces of each end begin with


class Word(IntEnum):
    """The subject of a message in a session, which decides its body."""

    PING = 1
    """Broker: number(8), sent_ms(8), every_ms(4): the period in which to say ALIVE, 0 or absent for none."""
    ANSWER = 2
    """Entity: the ping's body."""
    STATE = 3
    """Entity: one byte, a `bridge.traces.kinds.TraceKind` of the states."""
    LOAD = 4
    """Entity: a JSON object."""
    TOKEN = 5
    """Entity: a token(2 + n) and the 32 secret bytes of the key that it names."""
    TRACE_KEY = 6
    """Entity: 32 secret bytes, under which traces are sealed from now on."""
    SILENT = 7
    """Entity: asks for no more traces."""
    CLOCK = 8
    """Broker: its UNIX time in ms(8), to an entity whose token does not count by it."""
    ALIVE = 9
    """Entity, unasked: lived_ms(8), the sent_ms of the last ping plus the time since that ping came."""


_WORDS = {int(word): word for word in Word}


@dataclass(frozen=True, slots=True)
class Registration:
    """An entity's request to be traced. `request`: 16 random bytes the answer repeats."""

    advertisement: bytes
    request: bytes
    time_ms: int
    signature: bytes = field(default=b"", repr=False)

    def signed_bytes(self) -> bytes:
        return b"".join((opening(Kind.REGISTRATION), sized(self.advertisement), self.request, number(self.time_ms, 8)))

    def signed(self, entity: Identity) -> Registration:
        if len(self.request) != REQUEST_BYTES:
            raise OurFault(f"a request has {REQUEST_BYTES} bytes")
        return replace(self, signature=entity.sign(DOMAIN_REGISTRATION, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> Registration:
        reader = Reader(data)
        reader.opening(Kind.REGISTRATION)
        found = cls(
            reader.sized(), reader.take_bytes(REQUEST_BYTES), reader.number(8), reader.take_bytes(SIGNATURE_BYTES)
        )
        reader.expect_end()
        return found

    def verify(self, advertisement: Advertisement, now_ms: int) -> None:
        """Raises unless the advertised entity signed the registration just now. The caller has verified the
        advertisement.
        """
        verify(advertisement.certificate.public_key, DOMAIN_REGISTRATION, self.signed_bytes(), self.signature)
        if abs(now_ms - self.time_ms) > REQUEST_FRESH_MS:
            raise Expired("the registration is not of now; set the entity's clock")


def registered(request: bytes, session: bytes, key: bytes, advertisement: Advertisement, random: bytes) -> bytes:
    """Returns the answer to a registration, for its entity only. `random`: 32 fresh bytes. Raises OurFault,
    BadFrame.
    """
    if (len(session), len(key)) != (SESSION_BYTES, KEY_BYTES):
        raise OurFault(f"a session has {SESSION_BYTES} bytes, its key {KEY_BYTES}")
    head = opening(Kind.REGISTERED) + request
    return head + seal_box(advertisement.certificate.agreement_key, session + key, head, random)


def open_registered(data: bytes, entity: Identity) -> tuple[bytes, bytes, bytes]:
    """Returns (request, session, key) of an answer. Raises BadFrame, BadContent."""
    reader = Reader(data)
    reader.opening(Kind.REGISTERED)
    request = reader.take_bytes(REQUEST_BYTES)
    inside = entity.open_box(reader.take_rest(), data[: 3 + REQUEST_BYTES])
    if len(inside) != SESSION_BYTES + KEY_BYTES:
        raise BadFrame("an answer to a registration holds a session and its key")
    return request, inside[:SESSION_BYTES], inside[SESSION_BYTES:]


class TraceSession:
    """An end of a session.

    `speaks`: 0 for the entity's end, 1 for the broker's, and 2 more for messages through another broker: nonces of
    the
    four never meet. `peer_key`: at the broker's end, the entity's Ed25519 key, whose signatures count too; b"" for
    none.
    """

    # A broker says and hears as many messages a second as it pings entities: what each of them needs is kept ready.
    __slots__ = ("_counter", "_heard", "_hears", "_key", "_opening", "_peer_key", "_says", "_speaks", "session")

    def __init__(self, session: bytes, key: bytes, speaks: int, peer_key: bytes = b"") -> None:
        self.session = session
        # The bytes, and no cipher: that would take 2.5 kB for each entity, and is made in a microsecond.
        self._key = key
        self._opening = opening(Kind.TRACE_SESSION) + session  # of what is sealed
        self._speaks = speaks
        self._says, self._hears = _NONCES[speaks], _NONCES[speaks ^ 1]
        self._peer_key = peer_key
        self._counter = 0
        self._heard = 0

    @property
    def session_and_key(self) -> tuple[bytes, bytes]:
        """Session and key, both needed to resume the session."""
        return self.session, self._key

    def aside(self) -> TraceSession:
        """Returns this party's end for messages through another broker, in no order with direct messages.

        That end has counters and nonces of its own, and signs nothing. Raises OurFault for an end of this kind.
        """
        if self._speaks > 1:
            raise OurFault("a session has one end beside it")
        made = TraceSession.__new__(TraceSession)
        made.session, made._key, made._opening = self.session, self._key, self._opening
        made._speaks = self._speaks + _ASIDE
        made._says, made._hears = _NONCES[made._speaks], _NONCES[made._speaks ^ 1]
        made._peer_key, made._counter, made._heard = b"", 0, 0
        return made

    def say_word(self, word: Word, body: bytes = b"", signer: Identity | None = None) -> bytes:
        """Returns the next message: signed by `signer` and readable, or sealed. Raises OurFault for a secret that is
        not
        sealed.
        """
        if len(body) > BODY_MAX_BYTES:
            raise OurFault(f"a message of a trace session has a body of at most {BODY_MAX_BYTES} bytes")
        if signer is not None and word in (Word.TOKEN, Word.TRACE_KEY):
            raise OurFault("secrets are sealed, not signed")
        self._counter += 1
        counter, clear = number(self._counter, 8), number(word, 1) + body
        if signer is not None:
            readable = opening(Kind.TRACE_SESSION, _SIGNED) + self.session + counter + clear
            return readable + signer.sign(DOMAIN_SESSION, readable + self._session_binding())
        head = self._opening + counter
        return head + AESGCM(self._key).encrypt(self._says + counter, clear, head)

    def hear(self, data: bytes) -> tuple[Word, bytes]:
        """Returns word and body of the other end's next message. Raises BadFrame, BadSignature, BadContent,
        Replayed.
        """
        head = data[:_HEAD_BYTES]
        is_signed = not (head.startswith(self._opening) and len(head) == _HEAD_BYTES) and _is_signed(data, self.session)
        counter = int.from_bytes(head[_OPENING_BYTES:])
        if counter <= self._heard:
            raise Replayed("a message of a trace session came twice or too late")
        if is_signed:
            clear = self._verified(data, data[_HEAD_BYTES:])
        else:
            try:
                clear = AESGCM(self._key).decrypt(self._hears + head[_OPENING_BYTES:], data[_HEAD_BYTES:], head)
            except InvalidTag:
                raise BadContent("a message does not open under its session's key") from None
        word = _WORDS.get(clear[0]) if clear else None
        if word is None or len(clear) > BODY_MAX_BYTES + 1:
            raise BadFrame("a message of a trace session with an unknown word, or too long")
        self._heard = counter
        return word, clear[1:]

    def _verified(self, data: bytes, rest: bytes) -> bytes:
        if not self._peer_key or len(rest) <= SIGNATURE_BYTES:
            raise BadFrame("a signed message where none can be verified")
        verify(
            self._peer_key, DOMAIN_SESSION, data[:-SIGNATURE_BYTES] + self._session_binding(), data[-SIGNATURE_BYTES:]
        )
        if rest[0] in (Word.TOKEN, Word.TRACE_KEY):
            raise BadContent("a secret came signed instead of sealed")
        return rest[:-SIGNATURE_BYTES]

    def _session_binding(self) -> bytes:
        """Returns bytes binding a signature to this session's key: a resumed session counts anew under its old
        name.
        """
        return hmac.digest(self._key, DOMAIN_SESSION.encode(), "sha256")


def _is_signed(data: bytes, session: bytes) -> bool:
    """Returns True if a message of this session is signed instead of sealed. Raises BadFrame, BadContent for any
    other.
    """
    reader = Reader(data)
    flags = reader.opening(Kind.TRACE_SESSION, _SIGNED)
    if reader.take_bytes(SESSION_BYTES) != session:
        raise BadContent("a message of another trace session")
    reader.number(8)
    return bool(flags)
