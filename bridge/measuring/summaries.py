"""What a replica says of the last interval: what it measured, what failed, and what its gateways wanted
(paper D, D2 and D3; docs/protocol.md §9.16).

Two frames, each signed by its author. A *summary* has numbers: how long links took, what a publication cost, what the
author's neighbours failed, and how much came from where. An *interest* has the filter from which others count the
publications that concern several regions. `hops` (the paper's TTL) is signed, and the way is that of the tree, so that
nobody on it can say how far a summary came, or over whom.

A region speaks by the median of its replicas (`region_costs`): nothing here is believed of one alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias, TypeVar

from bridge.document import Overlay
from bridge.organising import FILTER_BITS
from bridge.wire import CONTROL_ROOT
from keys.errors import BadFrame, BadSignature, NotAuthorised
from keys.frames import Kind, Reader, number, opening, sized, text
from keys.identity import Identity, Role, verify

SUMMARY_TOPIC = f"{CONTROL_ROOT}/summaries"
DOMAIN_SUMMARY = "veilmq/1 summary"
DOMAIN_INTEREST_FILTER = "veilmq/1 interest filter"
SIGNATURE_BYTES = 64
HOPS_MAX = 16  # how far a summary goes at most
LINKS_MAX = 64  # regions to which one summary knows a link
FAILED_MAX = 64  # failures that one summary tells
REGIONS_MAX = 1024  # from which publications came
INTERESTS_KEPT = 3  # of each replica, the newest: links differ by so many intervals at most, or nothing is known
UNKNOWN_US = 0xFFFFFFFF
ByRegion: TypeAlias = tuple[tuple[int, int], ...]
"""(region, number), regions ascending, each once."""
Said = TypeVar("Said", "ReplicaSummary", "InterestSummary")


@dataclass(frozen=True, slots=True)
class ReplicaSummary:
    """Of one replica and one interval.

    `interval`: its number, the time at which it ended divided by its length. `processing_us`: processor time and wait
    of one forwarded publication. `queued`: publications that waited for links at its end. `forwarded`: publications
    that were passed on in it. `links`: to regions, joined or not, the middle of the time to an acknowledgement, in
    microseconds. `rates`: publications that came for local gateways, by their publisher's region. `failed`:
    replicas whose link ended and did not come back for `away_s`, with the second (UNIX) at which it ended.
    """

    member: str
    region: int
    interval: int
    interval_s: int
    tree: int
    hops: int
    processing_us: int = UNKNOWN_US
    queued: int = 0
    forwarded: int = 0
    links: ByRegion = ()
    rates: ByRegion = ()
    failed: tuple[tuple[str, int], ...] = ()
    signature: bytes = b""

    def body(self) -> bytes:
        parts = [_head(Kind.SUMMARY, self.member, self.region, self.interval, self.interval_s, self.hops)]
        parts += [number(value, 4) for value in (self.tree, self.processing_us, self.queued, self.forwarded)]
        parts += [_by_region(each) for each in (self.links, (), self.rates)]
        parts += [number(len(self.failed), 2), *(text(name) + number(at, 8) for name, at in self.failed)]
        return b"".join(parts)

    def signed(self, identity: Identity) -> ReplicaSummary:
        return replace(self, signature=identity.sign(DOMAIN_SUMMARY, self.body()))

    def encode(self) -> bytes:
        return self.body() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> ReplicaSummary:
        """Read a frame; the signature is not checked yet. Raises BadFrame."""
        frame = Reader(data)
        head = _read_head(frame, Kind.SUMMARY)
        tree, processing_us, queued, forwarded = (frame.number(4) for _ in range(4))
        links, _, rates = _read(frame, LINKS_MAX), _read(frame, REGIONS_MAX), _read(frame, REGIONS_MAX)
        failed = tuple((frame.text(), frame.number(8)) for _ in range(_bounded(frame.number(2), FAILED_MAX)))
        if any(a >= b for a, b in pairwise(failed)):
            raise BadFrame("failures of a summary are not in order")
        signature = frame.take(SIGNATURE_BYTES)
        frame.end()
        member, region, interval, interval_s, hops = head
        return cls(
            member, region, interval, interval_s, tree, hops,
            processing_us, queued, forwarded, links, rates, failed, signature,
        )  # fmt: skip

    def link_us(self, region: int) -> int | None:
        """How long the link to a region took; None if that is not known."""
        return dict(self.links).get(region)


@dataclass(frozen=True, slots=True)
class InterestSummary:
    """What the author's gateways sent or got in one interval, as a Bloom filter (`organising.InterestFilter`)."""

    member: str
    region: int
    interval: int
    interval_s: int
    hops: int
    filter: bytes
    signature: bytes = b""

    def body(self) -> bytes:
        head = _head(Kind.INTEREST_FILTER, self.member, self.region, self.interval, self.interval_s, self.hops)
        return head + sized(self.filter)

    def signed(self, identity: Identity) -> InterestSummary:
        return replace(self, signature=identity.sign(DOMAIN_INTEREST_FILTER, self.body()))

    def encode(self) -> bytes:
        return self.body() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> InterestSummary:
        """Read a frame; the signature is not checked yet. Raises BadFrame, also for a filter of another size."""
        frame = Reader(data)
        head = _read_head(frame, Kind.INTEREST_FILTER)
        made = cls(*head, frame.sized(), frame.take(SIGNATURE_BYTES))
        frame.end()
        if len(made.filter) != FILTER_BITS // 8:
            raise BadFrame("interests of another size than all have")
        return made


def check_author(said: ReplicaSummary | InterestSummary, overlay: Overlay) -> None:
    """Raise NotAuthorised unless its author is a replica of that region, BadSignature unless it signed this."""
    member = overlay.members.get(said.member)
    if member is None or (member.certificate.role, member.certificate.region) != (Role.REPLICA, said.region):
        raise NotAuthorised(f"{said.member} is no replica of region {said.region}")
    domain = DOMAIN_SUMMARY if isinstance(said, ReplicaSummary) else DOMAIN_INTEREST_FILTER
    for certificate in member.certificates:
        try:
            verify(certificate.public_key, domain, said.body(), said.signature)
        except BadSignature:
            continue
        return
    raise BadSignature(f"signature of a summary of {said.member} does not fit")


def decode_said(data: bytes) -> ReplicaSummary | InterestSummary:
    """Whichever of the two it is. Raises BadFrame."""
    return (InterestSummary if data[1:2] == bytes((Kind.INTEREST_FILTER,)) else ReplicaSummary).decode(data)


def _head(kind: Kind, member: str, region: int, interval: int, interval_s: int, hops: int) -> bytes:
    numbers = number(region, 4) + number(interval, 8) + number(interval_s, 4) + number(hops, 1)
    return opening(kind) + text(member) + numbers


def _read_head(frame: Reader, kind: Kind) -> tuple[str, int, int, int, int]:
    frame.opening(kind)
    head = frame.text(), frame.number(4), frame.number(8), frame.number(4), frame.number(1)
    if not head[3] or not 1 <= head[4] <= HOPS_MAX:
        raise BadFrame(f"a summary of {head[3]} seconds that goes {head[4]} regions far")
    return head


def _by_region(pairs: ByRegion) -> bytes:
    return number(len(pairs), 2) + b"".join(number(region, 4) + number(value, 4) for region, value in pairs)


def _read(frame: Reader, most: int) -> ByRegion:
    pairs = tuple((frame.number(4), frame.number(4)) for _ in range(_bounded(frame.number(2), most)))
    if any(a[0] >= b[0] for a, b in pairwise(pairs)):
        raise BadFrame("regions of a summary are not in order")
    return pairs


def _bounded(count: int, most: int) -> int:
    if count > most:
        raise BadFrame(f"a summary with {count} entries where {most} are the most")
    return count
