"""Requests for scope keys: the request, the answer, and the outputs sealed inside it (docs/protocol.md §9.13).

    request   opening(3: version, kind 13, flags 0)  asker(16)  server: text  nonce(16)  time_ms(8)
              count(2: 1 to 64), each: scope: text  epoch(4)  bump(2)
              signature(64), domain "veilmq/1 key request"
    answer    opening(3: kind 14)  server(16)  SHA-256 of the request(32)  policy version(8)
              refused: count(2), each: index(2) reason(1), ascending
              sealed: length(4) and box; archived: count(1), each: epoch(4)  length(4) and box, ascending
              signature(64), domain "veilmq/1 key answer"
    outputs   opening(3: kind 16)  count(2), each: scope: text  epoch(4)  bump(2)  deal(12)
              count(2), each: set(2) output(32), ascending

Boxes hold outputs. The box of an answer is sealed to the agreement key of the asker's certificate and bound to
the request's digest and the server's name; an archived box was sealed when its epoch ended and is bound to server,
reader and epoch. A request names its server, so that no server can spend the asker's requests at another.

Not here: who gets an answer (`issuing`), which answers are believed (`fetching`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import pairwise

from keys import frames
from keys.epochs import KEY_BYTES, KeyName
from keys.errors import BadFrame, KeyGone, KeysError, NotAuthorised, NotReady, OurFault, TooEarly, UnknownKey
from keys.identity import PARTY_ID_BYTES, SIGNATURE_BYTES, Certificate, Identity, verify
from keys.material import DEAL_BYTES

NAMES_MAX = 64  # of one request; bounds what one signature makes a server do
NONCE_BYTES = 16
DIGEST_BYTES = 32
ANSWER_BYTES_MAX = 4 << 20  # 64 names of ten servers take 180 kB, archived boxes of 1,000 scopes some more
ARCHIVED_MAX = NAMES_MAX  # boxes of ended epochs in one answer: each name may be of another epoch
REQUEST_DOMAIN = "veilmq/1 key request"
ANSWER_DOMAIN = "veilmq/1 key answer"


class Refusal(IntEnum):
    """A reason for which a server gives no output for a name."""

    NOT_AUTHORISED = 1
    TOO_EARLY = 2
    GONE = 3
    UNKNOWN = 4
    NOT_READY = 5

    @classmethod
    def from_error(cls, error: KeysError) -> Refusal:
        return next(reason for reason, kind in REFUSALS.items() if isinstance(error, kind))


REFUSALS: dict[Refusal, type[KeysError]] = {
    Refusal.NOT_AUTHORISED: NotAuthorised,
    Refusal.TOO_EARLY: TooEarly,
    Refusal.GONE: KeyGone,
    Refusal.UNKNOWN: UnknownKey,
    Refusal.NOT_READY: NotReady,
}


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """A request for keys. `asker`: 16-byte party id. `server`: overlay name of the key server. `names`: 1 to 64, each
    once.
    """

    asker: bytes
    server: str
    nonce: bytes
    time_ms: int
    names: tuple[KeyName, ...]
    signature: bytes = field(default=b"", repr=False)

    @classmethod
    def signed(
        cls, identity: Identity, server: str, nonce: bytes, time_ms: int, names: Sequence[KeyName]
    ) -> KeyRequest:
        """Returns a signed request. `nonce`: 16 random bytes. Raises `OurFault` for impossible fields."""
        bare = cls(identity.party_id, server, nonce, time_ms, tuple(names))
        return replace(bare, signature=identity.sign(REQUEST_DOMAIN, bare.signed_bytes()))

    def signed_bytes(self) -> bytes:
        self._check(OurFault)
        parts = [frames.opening(frames.Kind.KEY_REQUEST), self.asker, frames.text(self.server), self.nonce]
        parts += [frames.number(self.time_ms, 8), frames.number(len(self.names), 2), *map(_name, self.names)]
        return b"".join(parts)

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> KeyRequest:
        """Reads a frame; does not check its signature. Raises `BadFrame`."""
        reader = frames.Reader(data)
        reader.opening(frames.Kind.KEY_REQUEST)
        asker, server, nonce = reader.take_bytes(PARTY_ID_BYTES), reader.text(), reader.take_bytes(NONCE_BYTES)
        time_ms, count = reader.number(8), reader.number(2)
        if count > NAMES_MAX:
            raise BadFrame(f"a request of {count} keys; at most {NAMES_MAX} are answered")
        names = tuple(_read_name(reader) for _ in range(count))
        request = cls(asker, server, nonce, time_ms, names, reader.take_bytes(SIGNATURE_BYTES))
        reader.expect_end()
        request._check(BadFrame)
        return request

    def verify(self, certificate: Certificate) -> None:
        """Raises `BadSignature` unless the certificate's holder signed the request."""
        verify(certificate.public_key, REQUEST_DOMAIN, self.signed_bytes(), self.signature)

    def _check(self, error: type[KeysError]) -> None:
        if not 1 <= len(self.names) <= NAMES_MAX or len(set(self.names)) < len(self.names):
            raise error(f"a request names 1 to {NAMES_MAX} keys, each once")
        if len(self.nonce) != NONCE_BYTES:
            raise error(f"a nonce has {NONCE_BYTES} bytes")


@dataclass(frozen=True, slots=True)
class Outputs:
    """A server's outputs for a key. `deal`: the material's 12-byte name. `outputs`: (set, 32 bytes), ascending."""

    name: KeyName
    deal: bytes
    outputs: tuple[tuple[int, bytes], ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """An answer to a request for keys.

    `server`: 16-byte party id. `request`: SHA-256 of the whole request. `version`: of the policy that decided.
    `refused`: (index of the name, reason). `box`, `archived`: (epoch, box): sealed outputs.
    """

    server: bytes
    request: bytes
    version: int
    refused: tuple[tuple[int, Refusal], ...]
    box: bytes = field(repr=False)
    archived: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    signature: bytes = field(default=b"", repr=False)

    def signed_bytes(self) -> bytes:
        parts = [frames.opening(frames.Kind.KEY_ANSWER), self.server, self.request, frames.number(self.version, 8)]
        parts += [frames.number(len(self.refused), 2)]
        parts += [frames.number(index, 2) + frames.number(reason, 1) for index, reason in self.refused]
        parts += [frames.number(len(self.box), 4), self.box, frames.number(len(self.archived), 1)]
        for epoch, box in self.archived:
            parts += [frames.number(epoch, 4), frames.number(len(box), 4), box]
        return b"".join(parts)

    def signed_by(self, identity: Identity) -> KeyAnswer:
        """Returns this answer with the server's signature."""
        return replace(self, signature=identity.sign(ANSWER_DOMAIN, self.signed_bytes()))

    def encode(self) -> bytes:
        """Returns the frame. Raises `OurFault` above `ANSWER_BYTES_MAX`."""
        data = self.signed_bytes() + self.signature
        if len(data) > ANSWER_BYTES_MAX:
            raise OurFault(f"an answer of {len(data)} bytes; ask for fewer keys at once")
        return data

    @classmethod
    def decode(cls, data: bytes) -> KeyAnswer:
        """Reads a frame; does not check its signature. Raises `BadFrame`."""
        if len(data) > ANSWER_BYTES_MAX:
            raise BadFrame(f"an answer of {len(data)} bytes")
        reader = frames.Reader(data)
        reader.opening(frames.Kind.KEY_ANSWER)
        server, request, version = reader.take_bytes(PARTY_ID_BYTES), reader.take_bytes(DIGEST_BYTES), reader.number(8)
        refused = tuple(_read_refusal(reader) for _ in range(_bounded(reader.number(2), NAMES_MAX)))
        box = reader.take_bytes(reader.number(4))
        archived = tuple(
            (reader.number(4), reader.take_bytes(reader.number(4)))
            for _ in range(_bounded(reader.number(1), ARCHIVED_MAX))
        )
        answer = cls(server, request, version, refused, box, archived, reader.take_bytes(SIGNATURE_BYTES))
        reader.expect_end()
        _require_ascending([index for index, _ in refused])
        _require_ascending([epoch for epoch, _ in archived])
        return answer

    def verify(self, certificate: Certificate) -> None:
        """Raises `BadSignature` unless the certificate's holder signed the answer."""
        verify(certificate.public_key, ANSWER_DOMAIN, self.signed_bytes(), self.signature)


def digest_of(request: bytes) -> bytes:
    """Returns SHA-256 of a whole request, by which an answer names it."""
    return hashlib.sha256(request).digest()


def answer_info(server: str, request: bytes) -> bytes:
    """Returns the context the box of an answer is bound to. `request`: digest."""
    return b"veilmq/1 key answer" + frames.text(server) + request


def encode_outputs(entries: Sequence[Outputs]) -> bytes:
    """Returns outputs of a key server as bytes, to be sealed in the box of its answer to a request for scope keys."""
    parts = [frames.opening(frames.Kind.KEY_OUTPUTS), frames.number(len(entries), 2)]
    for entry in entries:
        parts += [_name(entry.name), entry.deal, frames.number(len(entry.outputs), 2)]
        parts += [frames.number(index, 2) + output for index, output in entry.outputs]
    return b"".join(parts)


def decode_outputs(data: bytes) -> list[Outputs]:
    """Reads the outputs of a key server from its opened box. Raises `BadFrame`. The size of `data` bounds the
    allocation, whatever its counts claim.
    """
    reader = frames.Reader(data)
    reader.opening(frames.Kind.KEY_OUTPUTS)
    entries = [_read_outputs(reader) for _ in range(reader.number(2))]
    reader.expect_end()
    if len({entry.name for entry in entries}) < len(entries):
        raise BadFrame("a key twice in one box")
    return entries


def _read_outputs(reader: frames.Reader) -> Outputs:
    name, deal = _read_name(reader), reader.take_bytes(DEAL_BYTES)
    outputs = tuple((reader.number(2), reader.take_bytes(KEY_BYTES)) for _ in range(reader.number(2)))
    _require_ascending([index for index, _ in outputs])
    return Outputs(name, deal, outputs)


def _name(name: KeyName) -> bytes:
    return frames.text(name.scope) + frames.number(name.epoch, 4) + frames.number(name.bump, 2)


def _read_name(reader: frames.Reader) -> KeyName:
    return KeyName(reader.text(), reader.number(4), reader.number(2))


def _read_refusal(reader: frames.Reader) -> tuple[int, Refusal]:
    index, reason = reader.number(2), reader.number(1)
    if reason not in Refusal.__members__.values():
        raise BadFrame(f"unknown reason {reason} of a refusal")
    return index, Refusal(reason)


def _bounded(count: int, limit: int) -> int:
    if count > limit:
        raise BadFrame(f"{count} entries where {limit} are the most")
    return count


def _require_ascending(numbers: Sequence[int]) -> None:
    if any(a >= b for a, b in pairwise(numbers)):
        raise BadFrame("entries are not ascending, each once")
