"""Swaps: changes of an edge the organiser signs in the owner's place, and their endorsements.

Source: paper D, D5; docs/protocol.md §9.17. A *swap* names the changed tree by digest, and the new tree by number. It
carries its author's certificate, as the owner signed it, so that all members judge alike, also when the policy names
another organiser by then. Endorsers judge three things: the author was the organiser, the link is among the owner's
`links`, and the swap spares cost. A swap counts with endorsements of k replicas of every region on its cycle, of
which one in each is honest. Not here: the swaps in force (`reorganised`), the endorsers
(`bridge.measuring.swap_objection`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from bridge.document.trees import STEPS_MOST, Edge
from keys.errors import BadFrame, BadSignature
from keys.frames import Kind, Reader, number, opening, sized, text
from keys.identity import Certificate, Identity, Role, verify

DOMAIN_SWAP = "veilmq/1 swap"
DOMAIN_SWAP_ENDORSEMENT = "veilmq/1 swap endorsement"
SIGNATURE_BYTES = 64
SWAPS_MOST = 64  # in force since the owner's last version: then the owner signs one
NUMBERS_MOST = 100  # which the organiser may give since then, those that never came into force included
OWNER_STEPS = NUMBERS_MOST + 1  # distance of the owner's next tree number, beyond all that the organiser signed
NEWS_SWAPS_MOST = SWAPS_MOST + 6  # read from one bundle or document: four may wait, two be proof
ENDORSEMENTS_MOST = 16_384  # read from one bundle or document
ORGANISERS = (Role.GATEWAY, Role.INGEST)  # roles of organisers: none whose endorsement counts


@dataclass(frozen=True)
class SignedSwap:
    """A swap of edge `removed` for edge `added`, as tree `number`.

    The tree follows the tree of `steps` numbers before, whose digest is `former` (`Arrangement.digest`). `since_ms`:
    time of signing; `grace_s`: seconds the former tree stays open.
    """

    number: int
    steps: int
    former: bytes
    since_ms: int
    grace_s: int
    added: Edge
    removed: Edge
    certificate: Certificate
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        parts = [opening(Kind.SWAP), number(self.number, 4), number(self.steps, 1), self.former]
        parts += [number(self.since_ms, 8), number(self.grace_s, 4)]
        parts += [number(region, 4) for region in (*self.added, *self.removed)]
        return b"".join([*parts, sized(self.certificate.encode())])

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the body, which endorsements name."""
        return hashlib.sha256(self.signed_bytes()).digest()

    @property
    def author(self) -> str:
        return self.certificate.name

    def signed(self, organiser: Identity) -> SignedSwap:
        return replace(self, signature=organiser.sign(DOMAIN_SWAP, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> SignedSwap:
        """Reads a frame; signatures are not checked yet. Raises BadFrame."""
        frame = Reader(data)
        frame.opening(Kind.SWAP)
        tree, steps, former, since_ms, grace_s = (
            frame.number(4), frame.number(1), frame.take_bytes(32), frame.number(8), frame.number(4),
        )  # fmt: skip
        added, removed = (frame.number(4), frame.number(4)), (frame.number(4), frame.number(4))
        certificate = Certificate.decode(frame.sized())
        signature = frame.take_bytes(SIGNATURE_BYTES)
        frame.expect_end()
        if not 1 <= steps <= min(STEPS_MOST, tree):
            raise BadFrame(f"swap {tree} follows a tree {steps} numbers before")
        return cls(tree, steps, former, since_ms, grace_s, added, removed, certificate, signature)

    def verify(self, owner: bytes) -> None:
        """Raises BadSignature unless its author signed it, whom the owner certified for a role that may organise.

        An expired certificate is no fault of an earlier signature; endorsers check expiry.
        """
        if self.certificate.role not in ORGANISERS:
            raise BadSignature(f"{self.author} is a {self.certificate.role} and organises nothing")
        self.certificate.verify(owner, 0)
        verify(self.certificate.public_key, DOMAIN_SWAP, self.signed_bytes(), self.signature)


@dataclass(frozen=True, slots=True)
class SwapEndorsement:
    """The agreement of `member` to the swap with this digest."""

    digest: bytes
    member: str
    signature: bytes = b""

    @classmethod
    def sign_swap(cls, swap: SignedSwap, member: str, identity: Identity) -> SwapEndorsement:
        made = cls(swap.digest, member)
        return replace(made, signature=identity.sign(DOMAIN_SWAP_ENDORSEMENT, made.signed_bytes()))

    def signed_bytes(self) -> bytes:
        return opening(Kind.SWAP_ENDORSEMENT) + self.digest + text(self.member)

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> SwapEndorsement:
        """Reads a frame; the signature is not checked yet. Raises BadFrame."""
        frame = Reader(data)
        frame.opening(Kind.SWAP_ENDORSEMENT)
        made = cls(frame.take_bytes(32), frame.text(), frame.take_bytes(SIGNATURE_BYTES))
        frame.expect_end()
        return made

    def is_of(self, certificates: Iterable[Certificate]) -> bool:
        """Returns True if the holder of one of these certificates signed it."""
        for certificate in certificates:
            try:
                verify(certificate.public_key, DOMAIN_SWAP_ENDORSEMENT, self.signed_bytes(), self.signature)
            except BadSignature:
                continue
            return True
        return False


@dataclass(frozen=True, slots=True)
class SwapNews:
    """Swaps and endorsements from a member to another; empty news ask for all that the other has."""

    swaps: tuple[SignedSwap, ...] = ()
    endorsements: tuple[SwapEndorsement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.swaps or self.endorsements)

    def encode(self) -> bytes:
        parts = [opening(Kind.SWAP_NEWS), number(len(self.swaps), 1), *(sized(each.encode()) for each in self.swaps)]
        parts += [number(len(self.endorsements), 2), *(sized(each.encode()) for each in self.endorsements)]
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> SwapNews:
        """Reads a frame; nothing is verified yet. Raises BadFrame."""
        frame = Reader(data)
        frame.opening(Kind.SWAP_NEWS)
        count = frame.number(1)
        if count > NEWS_SWAPS_MOST:
            raise BadFrame(f"{count} swaps where {NEWS_SWAPS_MOST} are the most")
        swaps = tuple([SignedSwap.decode(frame.sized()) for _ in range(count)])
        count = frame.number(2)
        if count > ENDORSEMENTS_MOST:
            raise BadFrame(f"{count} endorsements of swaps where {ENDORSEMENTS_MOST} are the most")
        endorsements = tuple([SwapEndorsement.decode(frame.sized()) for _ in range(count)])
        frame.expect_end()
        return cls(swaps, endorsements)
