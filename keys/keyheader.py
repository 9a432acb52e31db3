"""The key header (`vmq-key`): the public part of a data key, signed by its publisher (docs/protocol.md §2.8).

    opening(3: version, kind 2, flags: bit 0 wrapped) publisher(16) scope(2 + n) epoch(4) bump(2) hops: count(1), each
    region(4) view(4) k(1) n(1) tree(4) generation(8) counter(4) first_sequence(8) message_limit(4)
                                                            SHA-256 up to here is H, bound into every derivation
    kcv(16) commitment(32) share commitments(16 each, n of the first hop)
                                                            SHA-256 up to here is the digest, its first 16
                                                            the key id
    signature(64) over all of it, domain "veilmq/1 key"

Not here: how keys are derived or checked against these commitments (`envelope`), or who may publish.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from keys import frames
from keys.epochs import KeyName
from keys.errors import BadFrame, BadShare, BadSignature, KeysError, OurFault
from keys.identity import PARTY_ID_BYTES, party_id_of, verify
from keys.sharetree import Hop

FIXED_BYTES = 168  # of a frame without the scope's text, hops and share commitments
HOP_BYTES = 10
HOPS_LIMIT = 64  # stops headers that make every receiver plan for thousands of regions
KCV_BYTES = 16
NO_KCV = bytes(KCV_BYTES)  # of a shares-only scope, which has no epoch key
COMMITMENT_BYTES = 32
SHARE_COMMITMENT_BYTES = 16
SIGNATURE_BYTES = 64
PUBLISHER_AT, SCOPE_AT = 3, 19  # of these fields in the frame
LIMIT_BYTES = 4  # the message limit, last before the check value
KEY_DOMAIN = "veilmq/1 key"
WRAPPED = 1  # flag of the opening


class Order(NamedTuple):
    """The order of a member's keys. `generation`: the member's life; `counter`: the number of the key in that life."""

    generation: int
    counter: int


@dataclass(frozen=True)
class KeyHeader:
    """A data key in public.

    `hops`: the publisher's region, then every other region the scope may enter, ascending by id. `tree`: the number of
    the tree of regions along which its shares travel. `order`: the publisher's life in which the key was made, and the
    key's number in that life. `first_sequence`: the publisher's next sequence when it made the key. `message_limit`:
    messages under this key. `kcv`: check value of the scope's epoch key, zeros if the scope has none.
    `share_commitments`: one for each place of hops[0], in order. `wrapped`: True if replicas behind the first region
    wrap its shares (`wrapping`). `encode` raises `OurFault` and `decode` `BadFrame` for a header with impossible
    fields.
    """

    publisher: bytes
    scope: str
    epoch: int
    bump: int
    hops: tuple[Hop, ...]
    order: Order
    first_sequence: int
    message_limit: int
    kcv: bytes
    commitment: bytes
    share_commitments: tuple[bytes, ...]
    signature: bytes = field(repr=False)
    tree: int = 0
    wrapped: bool = False

    @cached_property
    def preamble(self) -> bytes:
        """The frame up to the commitments, fixed before the key is derived."""
        opening = frames.opening(frames.Kind.KEY_HEADER, WRAPPED if self.wrapped else 0)
        parts = [opening, self.publisher, frames.text(self.scope)]
        parts += [frames.number(self.epoch, 4), frames.number(self.bump, 2), frames.number(len(self.hops), 1)]
        for hop in self.hops:
            parts += [hop.region.to_bytes(4), hop.view.to_bytes(4), bytes([hop.threshold, hop.count])]
        parts += [frames.number(self.tree, 4)]
        parts += [frames.number(self.order.generation, 8), frames.number(self.order.counter, 4)]
        parts += [frames.number(self.first_sequence, 8), frames.number(self.message_limit, 4)]
        return b"".join(parts)

    @cached_property
    def binding(self) -> bytes:
        """H: SHA-256 of the frame up to the commitments, 32 bytes."""
        return hashlib.sha256(self.preamble).digest()

    @cached_property
    def signed_bytes(self) -> bytes:
        """Returns the frame without its signature."""
        self._check(OurFault)
        return b"".join((self.preamble, self.kcv, self.commitment, *self.share_commitments))

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the frame without its signature, 32 bytes; replicas bind their re-splits to it."""
        return hashlib.sha256(self.signed_bytes).digest()

    def along(self, path: Sequence[int]) -> tuple[Hop, ...]:
        """Returns the views of these regions for which the key was split. Raises `BadShare` for a region that it may
        not
        enter.
        """
        hops = {hop.region: hop for hop in self.hops}
        if not hops.keys() >= set(path):
            raise BadShare("a key that was not split for every region on its way")
        return tuple(hops[region] for region in path)

    @property
    def epoch_key(self) -> KeyName:
        """The name of the epoch key opening this data key; without meaning in a shares-only scope."""
        return KeyName(self.scope, self.epoch, self.bump)

    @property
    def key_id(self) -> bytes:
        """The first 16 bytes of `digest`."""
        return self.digest[:16]

    def encode(self) -> bytes:
        """Returns the frame of `vmq-key`."""
        if len(self.signature) != SIGNATURE_BYTES:
            raise OurFault("a key header is signed before it is sent")
        return self.signed_bytes + self.signature

    @classmethod
    def decode(cls, data: bytes) -> KeyHeader:
        """Reads a frame; does not check its signature. Raises `BadFrame`."""
        reader = frames.Reader(data)
        flags = reader.opening(frames.Kind.KEY_HEADER, WRAPPED)
        publisher = reader.take_bytes(PARTY_ID_BYTES)
        scope = reader.text()
        epoch, bump = reader.number(4), reader.number(2)
        hops = tuple(_read_hop(reader) for _ in range(reader.number(1)))
        if not hops:
            raise BadFrame("a key header without a region")
        tree = reader.number(4)
        header = cls(
            publisher=publisher,
            scope=scope,
            epoch=epoch,
            bump=bump,
            hops=hops,
            order=Order(reader.number(8), reader.number(4)),
            first_sequence=reader.number(8),
            message_limit=reader.number(4),
            kcv=reader.take_bytes(KCV_BYTES),
            commitment=reader.take_bytes(COMMITMENT_BYTES),
            share_commitments=tuple(reader.take_bytes(SHARE_COMMITMENT_BYTES) for _ in range(hops[0].count)),
            signature=reader.take_bytes(SIGNATURE_BYTES),
            tree=tree,
            wrapped=bool(flags & WRAPPED),
        )
        reader.expect_end()
        header._check(BadFrame)
        return header

    def verify(self, public_key: bytes) -> None:
        """Raises `BadSignature` unless the owner of `public_key` is the publisher and signed this header."""
        if party_id_of(public_key) != self.publisher:
            raise BadSignature("the key header names another publisher than this key's owner")
        verify(public_key, KEY_DOMAIN, self.signed_bytes, self.signature)

    def _check(self, error: type[KeysError]) -> None:
        others = [hop.region for hop in self.hops[1:]]
        if not 1 <= len(self.hops) <= HOPS_LIMIT:
            raise error(f"a key header of {len(self.hops)} regions; 1 to {HOPS_LIMIT} are allowed")
        if others != sorted(set(others)) or self.hops[0].region in others:
            raise error("regions after the publisher's are distinct and ascending")
        if self.message_limit < 1:
            raise error("a data key serves at least one message")
        if not self.scope:
            raise error("a key header without a scope")
        if len(self.share_commitments) != self.hops[0].count:
            raise error("one share commitment for each replica of the first region")
        sizes = {len(commitment) for commitment in self.share_commitments}
        fixed = (len(self.publisher), len(self.kcv), len(self.commitment))
        if sizes != {SHARE_COMMITMENT_BYTES} or fixed != (PARTY_ID_BYTES, KCV_BYTES, COMMITMENT_BYTES):
            raise error("a field of the key header has the wrong size")


def frame_bytes(scope: str, hops: int, places: int) -> int:
    """Returns the size of the frame for a scope's filter, `hops` regions and `places` replicas of the first."""
    return FIXED_BYTES + len(scope.encode()) + HOP_BYTES * hops + SHARE_COMMITMENT_BYTES * places


def _read_hop(reader: frames.Reader) -> Hop:
    region, view = reader.number(4), reader.number(4)
    threshold, count = reader.take_bytes(2)
    try:
        return Hop(region, view, threshold, count)
    except OurFault as error:
        raise BadFrame(str(error)) from None
