"""A replica's report on the last interval: its measurements, failures, and its gateways' interests
(paper D, D2 and D3; docs/protocol.md §9.16).

Two frames, each signed by its author. A *summary* has numbers: times of links, the cost of a publication, failures of
the author's neighbours, and rates by origin. An *interest* has the filter from which others count the publications
concerning several regions. `hops` (the paper's TTL) is signed, and the way follows the tree, so that no replica on it
can falsify the distance or the way of a summary.

A region speaks by the median of its replicas (`region_costs`): no report of a single replica is believed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias, TypeVar

from bridge.document import Overlay
from bridge.organising import FILTER_BITS
from bridge.wire import CONTROL_ROOT
from keys.errors import BadFrame, BadSignature, NotAuthorised, NotFresh
from keys.frames import Kind, Reader, number, opening, sized, text
from keys.identity import Identity, Role, verify

SUMMARY_TOPIC = f"{CONTROL_ROOT}/summaries"
DOMAIN_SUMMARY = "veilmq/1 summary"
DOMAIN_INTEREST_FILTER = "veilmq/1 interest filter"
SIGNATURE_BYTES = 64
HOPS_MAX = 16  # the longest way of a summary
LINKS_MAX = 64  # regions with a link in one summary
FAILED_MAX = 64  # failures in one summary
REGIONS_MAX = 1024  # regions with rates in one summary
EARLY_S = 300.0  # the largest difference of clocks (docs/protocol.md §5.2)
INTERESTS_KEPT = 3  # newest interests of each replica: links may differ by so many intervals, or nothing is known
UNKNOWN_US = 0xFFFFFFFF
ByRegion: TypeAlias = tuple[tuple[int, int], ...]
"""(region, number), regions ascending, each once."""
Said = TypeVar("Said", "ReplicaSummary", "InterestSummary")


class OfInterval:
    """Statement on an interval: its number, which is its end divided by its length, and its length in seconds."""

    __slots__ = ()
    interval: int
    interval_s: int

    @property
    def ended_s(self) -> int:
        """The UNIX time at which the interval ended; it orders summaries whatever length their intervals have."""
        return self.interval * self.interval_s


@dataclass(frozen=True, slots=True)
class ReplicaSummary(OfInterval):
    """The measurements of a replica in a single interval.

    `processing_us`: processor time and wait of
    a forwarded publication. `queued`: publications in the queues of links at the end. `forwarded`: publications passed
    on in the interval. `links`: the median time to an acknowledgement from each region, joined or not, in
    microseconds. `rates`: publications for local gateways, by the publisher's region. `failed`: replicas whose link
    ended and stayed down for `away_s`, with the second (UNIX) of the end.
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

    def signed_bytes(self) -> bytes:
        parts = [_head(Kind.SUMMARY, self.member, self.region, self.interval, self.interval_s, self.hops)]
        parts += [number(value, 4) for value in (self.tree, self.processing_us, self.queued, self.forwarded)]
        parts += [_by_region(each) for each in (self.links, (), self.rates)]
        parts += [number(len(self.failed), 2), *(text(name) + number(at, 8) for name, at in self.failed)]
        return b"".join(parts)

    def signed(self, identity: Identity) -> ReplicaSummary:
        return replace(self, signature=identity.sign(DOMAIN_SUMMARY, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> ReplicaSummary:
        """Decodes a frame; the signature is not checked yet. Raises BadFrame."""
        frame = Reader(data)
        head = _read_head(frame, Kind.SUMMARY)
        tree, processing_us, queued, forwarded = (frame.number(4) for _ in range(4))
        links, _, rates = _read(frame, LINKS_MAX), _read(frame, REGIONS_MAX), _read(frame, REGIONS_MAX)
        failed = tuple((frame.text(), frame.number(8)) for _ in range(_bounded(frame.number(2), FAILED_MAX)))
        if any(a >= b for a, b in pairwise(failed)):
            raise BadFrame("failures of a summary are not in order")
        signature = frame.take_bytes(SIGNATURE_BYTES)
        frame.expect_end()
        member, region, interval, interval_s, hops = head
        return cls(
            member, region, interval, interval_s, tree, hops,
            processing_us, queued, forwarded, links, rates, failed, signature,
        )  # fmt: skip

    def link_us(self, region: int) -> int | None:
        """Returns the time of the link to a region in microseconds; None if unknown."""
        return dict(self.links).get(region)


@dataclass(frozen=True, slots=True)
class InterestSummary(OfInterval):
    """The publications the author's gateways sent or got in a single interval, as a Bloom filter
    (`organising.InterestFilter`).
    """

    member: str
    region: int
    interval: int
    interval_s: int
    hops: int
    filter: bytes
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        head = _head(Kind.INTEREST_FILTER, self.member, self.region, self.interval, self.interval_s, self.hops)
        return head + sized(self.filter)

    def signed(self, identity: Identity) -> InterestSummary:
        return replace(self, signature=identity.sign(DOMAIN_INTEREST_FILTER, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> InterestSummary:
        """Decodes a frame; the signature is not checked yet. Raises BadFrame, also for a filter of another size."""
        frame = Reader(data)
        head = _read_head(frame, Kind.INTEREST_FILTER)
        made = cls(*head, frame.sized(), frame.take_bytes(SIGNATURE_BYTES))
        frame.expect_end()
        if len(made.filter) != FILTER_BITS // 8:
            raise BadFrame("interests of another size than all have")
        return made


def check_said(said: ReplicaSummary | InterestSummary, overlay: Overlay, now: float) -> None:
    """Raises NotFresh for an interval that is long over or to come, and what `check_author` raises."""
    if not said.ended_s - EARLY_S <= now <= said.ended_s + EARLY_S + said.interval_s:
        raise NotFresh(f"a summary of an interval that ended {now - said.ended_s:.0f} s ago")
    check_author(said, overlay)


def check_author(said: ReplicaSummary | InterestSummary, overlay: Overlay) -> None:
    """Raises NotAuthorised unless the author is a replica of the stated region, BadSignature unless the author
    signed.
    """
    member = overlay.members.get(said.member)
    if member is None or (member.certificate.role, member.certificate.region) != (Role.REPLICA, said.region):
        raise NotAuthorised(f"{said.member} is no replica of region {said.region}")
    domain = DOMAIN_SUMMARY if isinstance(said, ReplicaSummary) else DOMAIN_INTEREST_FILTER
    for certificate in member.certificates:
        try:
            verify(certificate.public_key, domain, said.signed_bytes(), said.signature)
        except BadSignature:
            continue
        return
    raise BadSignature(f"signature of a summary of {said.member} does not fit")


def decode_said(data: bytes) -> ReplicaSummary | InterestSummary:
    """Decodes a summary or an interest. Raises BadFrame."""
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
