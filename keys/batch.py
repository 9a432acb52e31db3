"""Merkle batches: one Ed25519 signature for up to 16 message headers, each provable alone (docs/protocol.md §2.6).

    leaf = SHA-256(0x00 ‖ header ‖ length(2) ‖ wire topic)      node = SHA-256(0x01 ‖ left ‖ right)

Missing leaves up to the next power of two are 32 zero bytes. The root is signed in the domain "veilmq/1
headers". The wire topic is part of the leaf: otherwise a replica could publish a valid header on another
topic first, and the true one would then count as a duplicate. The proof, behind the header in `vmq`:

    opening(3: version, kind 4, flags 0)  index(1)  depth(1)  path(32 each, leaf upwards)  signature(64)

Not here: whether the publisher may publish at all (`identity.Certificate`), duplicates and sequences.
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from keys import frames
from keys.errors import BadFrame, BadSignature, OurFault
from keys.identity import SIGNATURE_BYTES, Identity, party_id_of, verify
from keys.message import (
    DIGEST_BYTES,
    HEADER_FLAGS,
    NO_KEY,
    ONE_DIGEST,
    PREFIX_BYTES,
    RETAIN,
    TOMBSTONE,
    MessageHeader,
    Mode,
)

BATCH_LIMIT = 16
PATH_LIMIT = 4  # log2 of BATCH_LIMIT: bounds the hashing that a stranger can cause
NODE_BYTES = 32
ROOTS_KEPT = 1024  # verified batches, up to 12 KB each; bounds memory, not safety: a forgotten one is verified again
HEADERS_DOMAIN = "veilmq/1 headers"
_NO_LEAF = bytes(NODE_BYTES)


@dataclass(frozen=True, slots=True)
class Proof:
    """A leaf's place in its batch: index, siblings from the leaf upwards (<= 4), the root's signature."""

    index: int
    path: tuple[bytes, ...]
    signature: bytes = field(repr=False)

    def root(self, leaf_hash: bytes) -> bytes:
        """The root that follows from a leaf and this path."""
        node, index, sha256 = leaf_hash, self.index, hashlib.sha256
        for sibling in self.path:
            node = sha256(b"\1" + sibling + node if index & 1 else b"\1" + node + sibling).digest()
            index >>= 1
        return node


@dataclass(frozen=True, slots=True)
class SignedHeader:
    """A message header with its proof: the frame of `vmq`."""

    header: MessageHeader
    proof: Proof
    _frame: bytes = field(default=b"", init=False, repr=False, compare=False)
    """Of the header, if this was decoded: not to be made again for its leaf."""

    def encode(self) -> bytes:
        """The frame. Raises `OurFault` for a header or proof that cannot be."""
        proof = self.proof
        if len(proof.path) > PATH_LIMIT or not 0 <= proof.index < 1 << len(proof.path):
            raise OurFault("the proof is of no batch: make it with sign_batch")
        if len(proof.signature) != SIGNATURE_BYTES or any(len(node) != NODE_BYTES for node in proof.path):
            raise OurFault("the proof has fields of the wrong size: make it with sign_batch")
        place = bytes([proof.index, len(proof.path)])
        opening = frames.opening(frames.Kind.PROOF)
        return b"".join((self.header.encode(), opening, place, *proof.path, proof.signature))

    @classmethod
    def decode(cls, data: bytes) -> SignedHeader:
        """Read a frame; nothing is verified yet. Raises `BadFrame`."""
        signed = _decode_usual(data) or cls._decode(data)
        object.__setattr__(signed, "_frame", data[: _header_bytes(signed.header)])
        return signed

    @property
    def leaf_bytes(self) -> bytes:
        """The header's frame, of which its leaf is made."""
        return self._frame or self.header.encode()

    @classmethod
    def _decode(cls, data: bytes) -> SignedHeader:
        reader = frames.Reader(data)
        header = MessageHeader.read(reader)
        reader.opening(frames.Kind.PROOF)
        index, depth = reader.take(2)
        if depth > PATH_LIMIT or index >= 1 << depth:
            raise BadFrame(f"leaf {index} of a batch of depth {depth}")
        path = tuple(reader.take(NODE_BYTES) for _ in range(depth))
        signature = reader.take(SIGNATURE_BYTES)
        reader.end()
        return cls(header, Proof(index, path, signature))


def _decode_usual(data: bytes) -> SignedHeader | None:
    """What `SignedHeader._decode` makes of a header with one digest, in a third of the time; None leaves it to that."""
    header = _usual_header(data)
    if header is None:
        return None
    path = data[_USUAL_BYTES:-SIGNATURE_BYTES]
    nodes = tuple([path[at : at + NODE_BYTES] for at in range(0, len(path), NODE_BYTES)])
    return SignedHeader(header, Proof(data[_USUAL_BYTES - 2], nodes, data[-SIGNATURE_BYTES:]))


def _usual_header(data: bytes) -> MessageHeader | None:
    """The header, if it has one digest and its proof's fields have their sizes."""
    if len(data) < _USUAL_BYTES:
        return None
    (version, kind, flags, mode, publisher, key_id, sequence, previous, time_ms, deadline_ms, count, digest, opening,
     index, depth) = _USUAL.unpack_from(data)  # fmt: skip
    known = ONE_DIGEST.get(mode)
    if (
        version != frames.PROTOCOL_VERSION
        or kind != _HEADER_KIND
        or count != 1
        or opening != _PROOF
        or known is None
        or (key_id == NO_KEY) is not (known is Mode.PLAIN)
        or flags > HEADER_FLAGS
        or flags & 3 == 3
        or depth > PATH_LIMIT
        or index >= 1 << depth
        or len(data) != _USUAL_BYTES + depth * NODE_BYTES + SIGNATURE_BYTES
    ):
        return None
    return MessageHeader(
        publisher, key_id, sequence, previous, time_ms, deadline_ms, flags & 3, flags & RETAIN != 0,
        flags & TOMBSTONE != 0, known, (digest,),
    )  # fmt: skip


def header_of(frame: bytes) -> MessageHeader:
    """The header of a frame of `SignedHeader`, of which the rest is read and found well-formed. Raises `BadFrame`."""
    return _usual_header(frame) or SignedHeader._decode(frame).header


def _header_bytes(header: MessageHeader) -> int:
    return PREFIX_BYTES + 1 + DIGEST_BYTES * len(header.digests)


_HEADER_KIND = int(frames.Kind.MESSAGE_HEADER)
_PROOF = frames.opening(frames.Kind.PROOF)
_USUAL = struct.Struct(">BBBB16s16sQQQQB32s3sBB")
_USUAL_BYTES = _USUAL.size


def leaf(header: bytes, wire_topic: str) -> bytes:
    """The leaf of an encoded header on its wire topic."""
    return hashlib.sha256(b"\0" + header + frames.text(wire_topic)).digest()


def sign_batch(identity: Identity, leaves: Sequence[bytes]) -> list[Proof]:
    """One proof for each of 1 to 16 leaves (32 bytes, from `leaf`), in order, with one signature for all."""
    if not 1 <= len(leaves) <= BATCH_LIMIT or any(len(each) != NODE_BYTES for each in leaves):
        raise OurFault(f"a batch has 1 to {BATCH_LIMIT} leaves of {NODE_BYTES} bytes, not {len(leaves)}")
    depth = (len(leaves) - 1).bit_length()
    level = [*leaves, *[_NO_LEAF] * ((1 << depth) - len(leaves))]
    levels = []
    while len(level) > 1:
        levels.append(level)
        level = [_node(level[at], level[at + 1]) for at in range(0, len(level), 2)]
    signature = identity.sign(HEADERS_DOMAIN, level[0])
    return [
        Proof(index, tuple(nodes[index >> height ^ 1] for height, nodes in enumerate(levels)), signature)
        for index in range(len(leaves))
    ]


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


class HeaderVerifier:
    """Verifies signed headers; a batch costs one Ed25519 verification, its other headers a few hashes.

    Of a batch whose signature held, the nodes that its proofs showed are kept, each with all that a proof says above
    it. A proof that reaches such a node, at its place and with that very rest, holds: what is above was hashed before.
    """

    def __init__(self, roots_kept: int = ROOTS_KEPT) -> None:
        self._roots_kept = roots_kept
        # The signature is part of what is remembered: a good root with another signature must not pass, or we would
        # hand on headers that the next party refuses.
        self._trees: OrderedDict[tuple[bytes, bytes], _Tree] = OrderedDict()  # by public key and signature

    def verify(self, signed: SignedHeader, wire_topic: str, public_key: bytes) -> None:
        """Raise `BadSignature` unless the owner of `public_key` signed this header for this wire topic."""
        proof = signed.proof
        path = b"".join(proof.path)
        self._check(signed.header, signed.leaf_bytes, wire_topic, proof.index, path, proof.signature, public_key)

    def verify_frame(self, header: MessageHeader, frame: bytes, wire_topic: str, public_key: bytes) -> None:
        """The same for the frame of which `header_of` gave this header."""
        end = _header_bytes(header)
        path = frame[end + _PLACE_BYTES : -SIGNATURE_BYTES]
        index, signature = frame[end + _PLACE_BYTES - 2], frame[-SIGNATURE_BYTES:]
        self._check(header, frame[:end], wire_topic, index, path, signature, public_key)

    def _check(
        self,
        header: MessageHeader,
        header_bytes: bytes,
        wire_topic: str,
        index: int,
        path: bytes,
        signature: bytes,
        public_key: bytes,
    ) -> None:
        if party_id_of(public_key) != header.publisher:
            raise BadSignature("the header names another publisher than this key's owner")
        signed_by = (public_key, signature)
        tree = self._trees.get(signed_by, _NOTHING)
        node, sha256 = leaf(header_bytes, wire_topic), hashlib.sha256
        shown: _Tree = {}
        while tree.get(node) != (index, path):
            if not path:
                verify(public_key, HEADERS_DOMAIN, node, signature)
                shown[node] = (index, path)
                break
            sibling, path = path[:NODE_BYTES], path[NODE_BYTES:]
            shown[sibling] = (index ^ 1, node + path)
            node = sha256(b"\1" + sibling + node if index & 1 else b"\1" + node + sibling).digest()
            index >>= 1
        if tree is _NOTHING:
            self._trees[signed_by] = shown
            if len(self._trees) > self._roots_kept:
                self._trees.popitem(last=False)
        else:
            tree.update(shown)
            self._trees.move_to_end(signed_by)


_Tree: TypeAlias = dict[bytes, tuple[int, bytes]]
"""Node: its index on its level, and what a proof says above it (path, 32 bytes a level). Of one batch: 31 at most."""
_NOTHING: _Tree = {}
_PLACE_BYTES = len(_PROOF) + 2
