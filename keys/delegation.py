"""Trace topics: their owners, the tokens of their writers, and the signed traces themselves (B1, B7, B8).

An *advertisement* is a discovery node's word that a trace topic (a random UUID) belongs to an entity: credentials,
descriptor, discoverers, lifetime. The entity owns the topic. By a *token* the owner lets the holder of a random key
pair publish traces for a while: a token names no broker, so nobody learns where the entity is connected. A *trace*
carries its token and is signed by the token's key; its body is clear or sealed under the entity's trace key.

An entity with several *witnesses* numbers them in their tokens: the witness's number, their count, and the time of
the choice. So only the entity decides who is a witness, and a witness with two tokens still counts once.

    advertisement   opening(3) topic(16) descriptor(2 + n) certificate(2 + n) discoverers: count(2), texts
                    created_ms(8) not_after_ms(8) node(2 + n) signature(64) of the node
    token           opening(3: flags bit 0 publish, bit 1 subscribe, bit 2 one of several) topic(16) public_key(32)
                    not_before_ms(8) not_after_ms(8), with bit 2 witness(1) witnesses(1) since_ms(8), and
                    signature(64) of the topic's owner
    trace           opening(3: flag bit 0 sealed) token(2 + n) kind(1) number(8) time_ms(8) body(4 + n) signature(64)

Verification raises. Tokens are not revoked, they are short. Not here: topics' names (`bridge.document.constrained`),
the meaning of traces (`bridge.traces.kinds`), storage of advertisements (`bridge.discovery_nodes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntFlag
from fnmatch import fnmatchcase
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from keys.errors import BadContent, BadFrame, BadSignature, Expired, NotAuthorised, OurFault
from keys.frames import Kind, Reader, number, opening, sized, text
from keys.identity import SIGNATURE_BYTES, Certificate, Identity, Role, verify

TOPIC_BYTES = 16
# Clocks that differ by so much agree about a token. B7 counts on 30 to 100 ms; without NTP seconds are usual, and that
# a token counts some seconds early or late gives nobody anything.
SKEW_MS = 10_000
TOKEN_LIFE_MAX_MS = 24 * 3_600_000  # tokens cannot be taken back: a longer one is refused
# Patterns of one trace topic, their characters, those of one, and how many may be more than a name or its beginning:
# each discovery node keeps them for a hundred thousand topics, and looks through them at each question.
DISCOVERERS_MAX, DISCOVERERS_CHARS_MAX, DISCOVERER_CHARS_MAX, GLOBS_MAX = 256, 4_096, 256, 8
BODY_MAX_BYTES = 16_384  # of one trace: stops a token's holder from filling trackers
WITNESSES_MAX = 15  # of one entity
SHARED_KEPT, SHARED_CHARS = 256, 256  # discoverers and nodes that many advertisements name, kept once if they are short
DOMAIN_ADVERTISEMENT = "veilmq/1 trace topic"
DOMAIN_DELEGATION = "veilmq/1 trace token"
DOMAIN_TRACE = "veilmq/1 trace"
_MARKS = frozenset("*?[")
_SEALED = 1
_SEATED = 4


class Delegated(IntFlag):
    """The rights a token gives."""

    PUBLISH = 1
    SUBSCRIBE = 2


@dataclass(frozen=True, slots=True)
class Advertisement:
    """A discovery node's signed word on a trace topic. `topic`: 16 random bytes, its name is their UUID.

    `discoverers`: patterns of names (`control-*`, or `@domain` for a whole trust domain) that may learn the topic;
    nobody else gets an answer. `certificate`: the owning entity's. `decode` raises BadFrame.
    """

    topic: bytes = field(repr=False)
    descriptor: str
    certificate: Certificate
    discoverers: tuple[str, ...]
    created_ms: int
    not_after_ms: int
    node: str
    signature: bytes = field(default=b"", repr=False)

    def signed_bytes(self) -> bytes:
        parts = [opening(Kind.ADVERTISEMENT), self.topic, text(self.descriptor), sized(self.certificate.encode())]
        parts += [number(len(self.discoverers), 2), *map(text, self.discoverers)]
        return b"".join([*parts, number(self.created_ms, 8), number(self.not_after_ms, 8), text(self.node)])

    def signed(self, node: Identity) -> Advertisement:
        wrong = unfit_discoverers(self.discoverers)
        if len(self.topic) != TOPIC_BYTES or wrong:
            raise OurFault(wrong or f"a trace topic has {TOPIC_BYTES} bytes")
        return replace(self, signature=node.sign(DOMAIN_ADVERTISEMENT, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> Advertisement:
        reader = Reader(data)
        reader.opening(Kind.ADVERTISEMENT)
        topic, descriptor = reader.take_bytes(TOPIC_BYTES), reader.text()
        certificate, count = Certificate.decode(reader.sized()), reader.number(2)
        if count > DISCOVERERS_MAX:
            raise BadFrame(f"{count} discoverers of one trace topic")
        found = tuple(reader.text() for _ in range(count))
        if wrong := unfit_discoverers(found):
            raise BadFrame(wrong)
        created_ms, not_after_ms, node = reader.number(8), reader.number(8), reader.text()
        signature = reader.take_bytes(SIGNATURE_BYTES)
        reader.expect_end()
        if len(node) + sum(map(len, found)) <= SHARED_CHARS:
            found, node = _shared(found, node)
        return cls(topic, descriptor, certificate, found, created_ms, not_after_ms, node, signature)

    def verify(self, node_key: bytes, authority: bytes, now_ms: int) -> None:
        """Raises unless the node signed the advertisement, the authority certified its owner, and its lifetime holds
        now.
        """
        verify(node_key, DOMAIN_ADVERTISEMENT, self.signed_bytes(), self.signature)
        if self.certificate.role is not Role.ENTITY:
            raise NotAuthorised(f"{self.certificate.name} is certified as {self.certificate.role}, not as an entity")
        self.certificate.verify(authority, now_ms)
        self.check_time(now_ms)

    def check_time(self, now_ms: int) -> None:
        """Raises `Expired` outside the lifetime. Suffices for an advertisement whose bytes were verified before."""
        self.certificate.check_time(now_ms)
        if not self.created_ms - SKEW_MS <= now_ms <= self.not_after_ms:
            raise Expired(f"the trace topic of {self.certificate.name} does not count now")

    def may_discover(self, who: Certificate) -> bool:
        """Returns True if the restrictions let this certificate's holder learn the topic. The owner always may."""
        return who.party_id == self.certificate.party_id or admits(self.discoverers, who.name, who.domain)


@lru_cache(maxsize=SHARED_KEPT)
def _shared(discoverers: tuple[str, ...], node: str) -> tuple[tuple[str, ...], str]:
    """Returns equal values as a single object: a node signs for tens of thousands of entities, most of them for equal
    trackers.
    """
    return discoverers, node


def topic_of(advertisement: bytes) -> bytes:
    """Returns the trace topic of an encoded advertisement; for other bytes the result has no meaning."""
    return advertisement[3 : 3 + TOPIC_BYTES]


def admits(discoverers: Sequence[str], name: str, domain: str) -> bool:
    """Returns True if one of the patterns admits a party of this name and trust domain."""
    return any(_admits(pattern, name, domain) for pattern in discoverers)


def _admits(pattern: str, name: str, domain: str) -> bool:
    if pattern.startswith("@"):
        return domain == pattern[1:]
    if _is_glob(pattern):
        return fnmatchcase(name, pattern)
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _is_glob(pattern: str) -> bool:
    """Returns True for more than a name, the beginning of names, or a domain: matched by a regular expression."""
    return not pattern.startswith("@") and not _MARKS.isdisjoint(pattern[:-1] + pattern[-1:].replace("*", ""))


def globs(discoverers: Sequence[str]) -> int:
    """Returns how many of the patterns are matched by regular expressions, each of which costs as much as hundreds."""
    return sum(map(_is_glob, discoverers))


def unfit_discoverers(discoverers: Sequence[str]) -> str:
    """Returns what is wrong with the patterns of a trace topic; empty for nothing."""
    if len(discoverers) > DISCOVERERS_MAX:
        return f"{len(discoverers)} discoverers of one trace topic; at most {DISCOVERERS_MAX} may be named"
    if max(map(len, discoverers), default=0) > DISCOVERER_CHARS_MAX:
        return f"a discoverer is longer than {DISCOVERER_CHARS_MAX} characters"
    if sum(map(len, discoverers)) > DISCOVERERS_CHARS_MAX:
        return f"discoverers are longer than {DISCOVERERS_CHARS_MAX} characters together; name a domain, as in @shop"
    if globs(discoverers) > GLOBS_MAX:
        return f"more than {GLOBS_MAX} discoverers have marks other than one * at the end"
    return ""


@dataclass(frozen=True, slots=True)
class Seat:
    """The number of a witness among `witnesses`, an odd number. `since_ms`: when the entity named them; later seats
    replace it.
    """

    witness: int
    witnesses: int
    since_ms: int

    @property
    def is_possible(self) -> bool:
        """True if such a seat can exist: 3 to 15 witnesses, an odd number, and a number below it."""
        return 3 <= self.witnesses <= WITNESSES_MAX and self.witnesses % 2 == 1 and 0 <= self.witness < self.witnesses

    def encode(self) -> bytes:
        return number(self.witness, 1) + number(self.witnesses, 1) + number(self.since_ms, 8)

    @classmethod
    def read(cls, reader: Reader) -> Seat:
        """Raises BadFrame."""
        seat = cls(reader.number(1), reader.number(1), reader.number(8))
        if not seat.is_possible:
            raise BadFrame(f"a token of witness {seat.witness} of {seat.witnesses}")
        return seat


@dataclass(frozen=True, slots=True)
class Token:
    """A right on a trace topic, from its owner to the holder of `public_key`, until `not_after_ms`.

    `seat`: None if the holder is the entity's only witness.
    """

    topic: bytes = field(repr=False)
    public_key: bytes
    rights: Delegated
    not_before_ms: int
    not_after_ms: int
    seat: Seat | None = None
    signature: bytes = field(default=b"", repr=False)

    @property
    def since_ms(self) -> int:
        """The time at which the entity named this holder and its fellow witnesses."""
        return self.not_before_ms if self.seat is None else self.seat.since_ms

    def signed_bytes(self) -> bytes:
        flags = self.rights | _SEATED * (self.seat is not None)
        parts = (opening(Kind.TOKEN, flags), self.topic, self.public_key)
        seat = b"" if self.seat is None else self.seat.encode()
        return b"".join((*parts, number(self.not_before_ms, 8), number(self.not_after_ms, 8), seat))

    def signed(self, owner: Identity) -> Token:
        if self.seat is not None and not (self.seat.is_possible and self.seat.since_ms <= self.not_before_ms):
            raise OurFault(
                f"an entity has 1, 3, 5 ... up to {WITNESSES_MAX} witnesses, named before they are let speak"
            )
        if self.not_after_ms - self.not_before_ms > TOKEN_LIFE_MAX_MS:
            raise OurFault("a token cannot be taken back: let it end within a day, and renew it")
        return replace(self, signature=owner.sign(DOMAIN_DELEGATION, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> Token:
        reader = Reader(data)
        flags = reader.opening(Kind.TOKEN, Delegated.PUBLISH | Delegated.SUBSCRIBE | _SEATED)
        topic, public_key = reader.take_bytes(TOPIC_BYTES), reader.take_bytes(32)
        not_before_ms, not_after_ms = reader.number(8), reader.number(8)
        seat = Seat.read(reader) if flags & _SEATED else None
        rights = Delegated(flags & ~_SEATED)
        token = cls(topic, public_key, rights, not_before_ms, not_after_ms, seat, reader.take_bytes(SIGNATURE_BYTES))
        reader.expect_end()
        return token

    def verify(self, advertisement: Advertisement, right: Delegated, now_ms: int) -> None:
        """Raises unless the topic's owner gave this right and the token counts now, give or take `SKEW_MS`."""
        if self.topic != advertisement.topic:
            raise NotAuthorised("a token of another trace topic")
        verify(advertisement.certificate.public_key, DOMAIN_DELEGATION, self.signed_bytes(), self.signature)
        if right not in self.rights:
            raise NotAuthorised(f"the token does not allow to {str(right.name).lower()}")
        if self.not_after_ms - self.not_before_ms > TOKEN_LIFE_MAX_MS:
            raise NotAuthorised("the token lives longer than a token may")
        if self.since_ms > self.not_before_ms:
            raise NotAuthorised("the token is of witnesses that are not named yet")
        if not self.not_before_ms - SKEW_MS <= now_ms <= self.not_after_ms + SKEW_MS:
            raise Expired("the token does not count now")


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace. `kind`: `bridge.traces.kinds.TraceKind`. `number` rises for each token. `body`: JSON, or sealed."""

    token: Token
    kind: int
    number: int
    time_ms: int
    body: bytes = field(repr=False)
    sealed: bool = False
    signature: bytes = field(default=b"", repr=False)

    def signed_bytes(self) -> bytes:
        parts = (self._head(), number(len(self.body), 4), self.body)
        return b"".join(parts)

    def _head(self) -> bytes:
        parts = (opening(Kind.TRACE, _SEALED * self.sealed), sized(self.token.encode()), number(self.kind, 1))
        return b"".join((*parts, number(self.number, 8), number(self.time_ms, 8)))

    def sealed_under(self, key: bytes, nonce: bytes) -> Trace:
        """Returns the trace with its body sealed under the entity's 32-byte trace key. `nonce`: 12 bytes, never used
        again.
        """
        bare = replace(self, sealed=True)
        return replace(bare, body=nonce + AESGCM(key).encrypt(nonce, self.body, bare._head()))

    def opened_body(self, key: bytes) -> bytes:
        """Returns the body in clear. Raises `BadContent`."""
        if not self.sealed:
            return self.body
        try:
            return AESGCM(key).decrypt(self.body[:12], self.body[12:], self._head())
        except (InvalidTag, ValueError):
            raise BadContent("the trace does not open under this trace key") from None

    def signed(self, holder: Identity) -> Trace:
        """Returns the trace signed by `holder`, whose key pair the token names."""
        if len(self.body) > BODY_MAX_BYTES:
            raise OurFault(f"a trace has a body of at most {BODY_MAX_BYTES} bytes")
        return replace(self, signature=holder.sign(DOMAIN_TRACE, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> Trace:
        reader = Reader(data)
        flags = reader.opening(Kind.TRACE, _SEALED)
        token, kind = Token.decode(reader.sized()), reader.number(1)
        counter, time_ms, size = reader.number(8), reader.number(8), reader.number(4)
        if size > BODY_MAX_BYTES:
            raise BadFrame(f"a trace body of {size} bytes")
        trace = cls(
            token, kind, counter, time_ms, reader.take_bytes(size), bool(flags), reader.take_bytes(SIGNATURE_BYTES)
        )
        reader.expect_end()
        return trace

    def verify(self, advertisement: Advertisement, now_ms: int) -> None:
        """Raises unless the owner's token allows the trace now, and the token's holder signed it within the token's
        time.
        """
        self.token.verify(advertisement, Delegated.PUBLISH, now_ms)
        if not self.token.not_before_ms - SKEW_MS <= self.time_ms <= self.token.not_after_ms + SKEW_MS:
            raise Expired("the trace is not of its token's time")
        try:
            verify(self.token.public_key, DOMAIN_TRACE, self.signed_bytes(), self.signature)
        except BadSignature:
            raise BadSignature("the trace is not signed by its token's key") from None
