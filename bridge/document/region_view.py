"""A view of a region: its replicas, and the members of the view before that agreed to the change (A13, A14).

A view is signed by the overlay's owner and names its predecessor by digest. It counts once k members of the
predecessor signed it too, each with an *endorsement*: no minority of replicas changes a region, nor does the owner's
signature alone (which is no defence against a thief of the owner's key: docs/protocol.md §5.6). From then on the
predecessor stays open for `grace_s`, for publications on their way: keys are split for the views that their header
names, never for a mixture. Not here: which view is in force at a member (`succession`), how endorsements spread
(`endorsing`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from keys.errors import BadFrame
from keys.frames import Kind, Reader, number, opening, text
from keys.identity import Certificate, Identity, verify
from keys.shamir import threshold_of
from keys.sharetree import Hop

FLAG_TRUSTED = 0x01
FLAG_SUCCESSOR = 0x02
VIEW_GRACE_S = 60  # how long a predecessor stays open, unless its successor says otherwise
DOMAIN_VIEW = "veilmq/1 view"
DOMAIN_ENDORSEMENT = "veilmq/1 endorsement"
NO_PREDECESSOR = bytes(32)
SIGNATURE_BYTES = 64


@dataclass(frozen=True)
class RegionView:
    """The members of a region in a single view. `members[i]` holds place i + 1.

    `since_ms`: time of the owner's signature. `grace_s`: seconds for which the predecessor stays open once this view
    is in force; 0: the predecessor ends at once (`remove now`). `predecessor`: the digest of the view before, zeros
    for a region's first. `former`: the view before, while it may be open; no part of the digest, and left out by the
    owner afterwards.
    """

    region: int
    number: int
    name: str
    members: tuple[str, ...]
    trusted: bool = False
    signature: bytes = b""
    since_ms: int = 0
    grace_s: int = 0
    predecessor: bytes = NO_PREDECESSOR
    former: RegionView | None = field(default=None, compare=False)

    @property
    def threshold(self) -> int:
        return threshold_of(len(self.members))

    @property
    def faults(self) -> int:
        """f: replicas that may be bad."""
        return (len(self.members) - 1) // 2

    @property
    def hop(self) -> Hop:
        return Hop(self.region, self.number, self.threshold, len(self.members))

    def place_of(self, member: str) -> int:
        """Returns the place of a member, 1..n; raises ValueError for any other name."""
        return self.members.index(member) + 1

    def members_among(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(self.members).intersection(names)

    def quorum(self, members: Iterable[str]) -> bool:
        """Returns True if k of these are members: at least one of them is honest."""
        return len(self.members_among(members)) >= self.threshold

    def successor(self, members: Iterable[str], since_ms: int, grace_s: int = VIEW_GRACE_S) -> RegionView:
        """Returns the next view, unsigned, with this view as the view before."""
        return RegionView(
            region=self.region,
            number=self.number + 1,
            name=self.name,
            members=tuple(members),
            trusted=self.trusted,
            since_ms=since_ms,
            grace_s=grace_s,
            predecessor=self.digest,
            former=replace(self, former=None),
        )

    def signed_bytes(self) -> bytes:
        flags = (FLAG_TRUSTED if self.trusted else 0) | (FLAG_SUCCESSOR if self.is_successor else 0)
        parts = [opening(Kind.VIEW, flags), number(self.region, 4), number(self.number, 4), text(self.name)]
        parts += [number(len(self.members), 1), *map(text, self.members)]
        if self.is_successor:
            parts += [number(self.since_ms, 8), number(self.grace_s, 4), self.predecessor]
        return b"".join(parts)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the body, which endorsements and the successor name."""
        return hashlib.sha256(self.signed_bytes()).digest()

    @property
    def is_successor(self) -> bool:
        return self.predecessor != NO_PREDECESSOR

    def signed(self, owner: Identity) -> RegionView:
        """Returns the view with the owner's signature, also on the view before."""
        former = None if self.former is None else self.former.signed(owner)
        return replace(self, signature=owner.sign(DOMAIN_VIEW, self.signed_bytes()), former=former)

    @classmethod
    def decode(cls, body: bytes, signature: bytes, former: RegionView | None = None) -> RegionView:
        frame = Reader(body)
        flags = frame.opening(Kind.VIEW, FLAG_TRUSTED | FLAG_SUCCESSOR)
        region, view, name = frame.number(4), frame.number(4), frame.text()
        members = tuple(frame.text() for _ in range(frame.number(1)))
        since_ms, grace_s, predecessor = 0, 0, NO_PREDECESSOR
        if flags & FLAG_SUCCESSOR:
            since_ms, grace_s, predecessor = frame.number(8), frame.number(4), frame.take_bytes(32)
            if predecessor == NO_PREDECESSOR:
                raise BadFrame("a later view names no predecessor")
        frame.expect_end()
        trusted = bool(flags & FLAG_TRUSTED)
        return cls(region, view, name, members, trusted, signature, since_ms, grace_s, predecessor, former)


@dataclass(frozen=True, slots=True)
class Endorsement:
    """The agreement of `member` to the view `number` of `region` with this digest.

    opening(3: version, kind 21, flags 0) region(4) view(4) SHA-256 of the view's body(32) member(2 + n) signature(64)
    over all of it, domain "veilmq/1 endorsement"
    """

    region: int
    number: int
    digest: bytes
    member: str
    signature: bytes = b""

    @classmethod
    def sign_view(cls, view: RegionView, member: str, identity: Identity) -> Endorsement:
        made = cls(view.region, view.number, view.digest, member)
        return replace(made, signature=identity.sign(DOMAIN_ENDORSEMENT, made.signed_bytes()))

    def signed_bytes(self) -> bytes:
        parts = [opening(Kind.ENDORSEMENT), number(self.region, 4), number(self.number, 4), self.digest]
        return b"".join([*parts, text(self.member)])

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> Endorsement:
        """Reads a frame; the signature is not checked yet. Raises BadFrame."""
        frame = Reader(data)
        frame.opening(Kind.ENDORSEMENT)
        region, view, digest, member = frame.number(4), frame.number(4), frame.take_bytes(32), frame.text()
        signature = frame.take_bytes(SIGNATURE_BYTES)
        frame.expect_end()
        return cls(region, view, digest, member, signature)

    def names_view(self, view: RegionView) -> bool:
        """Returns True if the endorsement names this very view."""
        return (self.region, self.number, self.digest) == (view.region, view.number, view.digest)

    def verify(self, public_key: bytes) -> None:
        """Raises BadSignature unless the owner of `public_key` signed it."""
        verify(public_key, DOMAIN_ENDORSEMENT, self.signed_bytes(), self.signature)


@dataclass(frozen=True, slots=True)
class Member:
    """A certificate, its holder's address (replicas, key servers; HOST:PORT), the CA of its trust domain (DER), and
    `box`.

    `box`: the owner's sealed handover to the member (`keys.handover`). `before`: its certificate of before a
    rotation, valid beside it. For a hosted broker the address may be tcp://HOST:PORT, without TLS, and `ca` holds the
    CAs that signed its TLS certificate (one DER after another), empty for the system's CAs.
    """

    certificate: Certificate
    address: str = ""
    ca: bytes = b""
    box: bytes = b""
    before: Certificate | None = None

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificates in force, the present one first."""
        return (self.certificate,) if self.before is None else (self.certificate, self.before)
