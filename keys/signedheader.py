"""The signed header: a message header with its publisher's signature, the frame of property `vmq` (docs/protocol.md
§2.6).

    header  signature(64) over header ‖ length(2) ‖ wire topic, in the domain "veilmq/1 header"

The signature covers the wire topic: otherwise a replica could publish a valid header on another topic first, and the
true one would then count as a duplicate. Not here: whether the publisher may publish at all (`identity.Certificate`),
duplicates and sequences.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from keys import frames
from keys.errors import BadFrame, BadSignature, OurFault
from keys.identity import SIGNATURE_BYTES, Identity, party_id_of, verify
from keys.message import HEADER_FLAGS, NO_KEY, ONE_DIGEST, RETAIN, TOMBSTONE, MessageHeader, Mode

HEADER_DOMAIN = "veilmq/1 header"


@dataclass(frozen=True, slots=True)
class SignedHeader:
    """A message header with its signature: the frame of `vmq`."""

    header: MessageHeader
    signature: bytes = field(repr=False)

    def encode(self) -> bytes:
        """Returns the frame. Raises `OurFault` for an impossible header or signature."""
        if len(self.signature) != SIGNATURE_BYTES:
            raise OurFault("the signature has the wrong size: make it with sign_header")
        return self.header.encode() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> SignedHeader:
        """Reads a frame; verifies nothing. Raises `BadFrame`."""
        return cls(header_of(data), data[-SIGNATURE_BYTES:])


def sign_header(identity: Identity, header: MessageHeader, wire_topic: str) -> SignedHeader:
    """Returns a header for this wire topic, under its publisher's signature."""
    return SignedHeader(header, identity.sign(HEADER_DOMAIN, header.encode() + frames.text(wire_topic)))


def signed_frame(identity: Identity, header: MessageHeader, wire_topic: str) -> bytes:
    """Returns the frame of the header that `sign_header` returns, encoded once."""
    frame = header.encode()
    return frame + identity.sign(HEADER_DOMAIN, frame + frames.text(wire_topic))


def header_of(frame: bytes) -> MessageHeader:
    """Returns the header of a frame of `SignedHeader`. Raises `BadFrame`."""
    header = _usual_header(frame)
    if header is not None:
        return header
    if len(frame) < SIGNATURE_BYTES:
        raise BadFrame("a header without a signature")
    return MessageHeader.decode(frame[:-SIGNATURE_BYTES])


def verify_header(header: MessageHeader, frame: bytes, wire_topic: str, public_key: bytes) -> None:
    """Raises `BadSignature` unless the owner of `public_key` signed this frame for this wire topic.

    `header`: the header that `header_of` returned for the frame.
    """
    if party_id_of(public_key) != header.publisher:
        raise BadSignature("the header names another publisher than this key's owner")
    signed = frame[:-SIGNATURE_BYTES] + frames.text(wire_topic)
    verify(public_key, HEADER_DOMAIN, signed, frame[-SIGNATURE_BYTES:])


def _usual_header(data: bytes) -> MessageHeader | None:
    """Returns a header with a single digest as `MessageHeader.decode` would, in a third of the time; None for any other
    header.
    """
    if len(data) != _USUAL_BYTES + SIGNATURE_BYTES:
        return None
    (version, kind, flags, mode, publisher, key_id, sequence, previous, time_ms, deadline_ms, generation,
     counter, tree, count, digest) = _USUAL.unpack_from(data)  # fmt: skip
    known = ONE_DIGEST.get(mode)
    if (
        version != frames.PROTOCOL_VERSION
        or kind != _HEADER_KIND
        or count != 1
        or known is None
        or (key_id == NO_KEY) is not (known is Mode.PLAIN)
        or flags > HEADER_FLAGS
        or flags & 3 == 3
    ):
        return None
    return MessageHeader(
        publisher, key_id, sequence, previous, time_ms, deadline_ms, flags & 3, flags & RETAIN != 0,
        flags & TOMBSTONE != 0, known, (digest,), b"", generation, counter, False, tree,
    )  # fmt: skip


_HEADER_KIND = int(frames.Kind.MESSAGE_HEADER)
_USUAL = struct.Struct(">BBBB16s16sQQQQQIBB32s")
_USUAL_BYTES = _USUAL.size
