"""Wrapped shares: keys that pass more than four regions (A8; docs/protocol.md §3.5).

Shares of shares grow by n a region. So behind the first region a replica draws a *wrap key* for a data key, seals every
value that it holds under the wrap key, and splits the wrap key alone for the next region. A sealed value is a *wrap*.
Wraps go openly to everybody behind their owner. So a replica is sent n values of a key, however long the way is. A
reader recombines the wrap keys of the last region but one, and goes up from there, region by region.

Not here: the search of a reader (`wrapsearch`), splits and frames of shares (`sharetree`), who sends what to whom
(`bridge.replica.resplitting`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from keys import frames
from keys.errors import BadFrame, BadShare, OurFault
from keys.sharetree import DEPTH_LIMIT, SECRET_BYTES, TAG_BYTES, Hop, Place, Share, coordinate, resplit

REGIONS_LIMIT = 16
"""The most regions on the way of a wrapped key: stops searches and frames that grow out of hand."""
WRAPS_LIMIT = 704
"""The most wraps of a key on one way: 14 regions of seven have 686. Stops a peer from filling memory."""
SEALED_BYTES = 16 + TAG_BYTES + SECRET_BYTES
KEY_ID_BYTES = 16
WRAPPED_HOPS = 2
"""The number of places in the longest label under a wrapped key."""


class WrapName(NamedTuple):
    """The name of a wrap under one key: the replica that sealed it, and the place before it whose value it is."""

    owner: Place
    sender: int


class Wrap(NamedTuple):
    """A value that its owner sealed: 52 bytes, public."""

    name: WrapName
    sealed: bytes


Way: TypeAlias = Sequence[Hop]
"""The regions from a publisher's to a receiver's, both included."""


class WrapKey:
    """A wrap key of one replica and data key. It seals and opens that replica's wraps; it shows no bytes.

    `digest`: the 32 bytes of `KeyHeader.digest`. Sealing is AES-SIV (RFC 5297): equal values give equal wraps, and a
    second value of one sender gives away nothing else.
    """

    __slots__ = ("_aead", "owner")

    def __init__(self, key: bytes, digest: bytes, owner: Place) -> None:
        if len(key) != SECRET_BYTES or len(digest) != 32:
            raise OurFault("a wrap key has 32 bytes, and so has the digest of a key header")
        info = b"veilmq/1 wrap" + digest + coordinate(owner)
        self._aead = AESSIV(HKDFExpand(hashes.SHA256(), 64, info).derive(key))
        self.owner = owner

    def seal(self, share: Share) -> Wrap:
        """Returns the wrap of a share that the owner holds. Raises `OurFault` for other shares."""
        if len(share.label) != WRAPPED_HOPS or share.label[-1] != self.owner:
            raise OurFault("a replica wraps the values that it holds")
        (tag,), sender = share.tags, share.label[0]
        return Wrap(WrapName(self.owner, sender.place), self._aead.encrypt(tag + share.value, [coordinate(sender)]))

    def open(self, sender: Place, sealed: bytes) -> Share | None:
        """Returns the share behind a wrap of the owner; None if it was not sealed so under this key."""
        try:
            opened = self._aead.decrypt(sealed, [coordinate(sender)])
        except InvalidTag:
            return None
        return Share((sender, self.owner), (opened[:TAG_BYTES],), opened[TAG_BYTES:])

    def __repr__(self) -> str:
        return f"WrapKey({self.owner})"


def wrap_key(digest: bytes, own: Place, seed: bytes) -> Share:
    """Returns a replica's wrap key for a data key, ready to be split: a share labelled by the replica's place alone.

    The wrap key hangs on seed, header and place only: no value is needed, and a restart changes nothing.
    `seed`: 32 secret bytes of this replica and epoch.
    """
    if len(digest) != 32 or len(seed) != 32:
        raise OurFault("wrapping needs the 32-byte digest of the key header and a 32-byte seed")
    info = b"veilmq/1 wrap key" + digest + coordinate(own)
    return Share((own,), (), HKDFExpand(hashes.SHA256(), SECRET_BYTES, info).derive(seed))


def split_wrap_key(key: Share, digest: bytes, next_hop: Hop, seed: bytes) -> list[Share]:
    """Returns the shares of a wrap key for the next region, a share for each place, in order."""
    return resplit(key, digest, next_hop, seed)


def label_hops(way: Way, *, wrapped: bool) -> Way:
    """Returns the part of a way that labels of shares have at its end: all of it, or the last two regions."""
    return way[-WRAPPED_HOPS:] if wrapped else way


def wrapping_hops(way: Way) -> Way:
    """Returns the regions of a way whose replicas wrap: those behind the first and before the last."""
    return way[1:-1]


# --------------------------------------------------------------------------------------------------- bounds


def is_long(regions: int) -> bool:
    """Returns True if a way of so many regions needs wrapped keys."""
    return regions > DEPTH_LIMIT


def wraps_among(counts: Sequence[int]) -> int:
    """Returns the number of wraps that a receiver holds for a key, by the replicas of each region of its way."""
    return sum(before * here for before, here in pairwise(counts[:-1]))


def wraps_of(way: Way) -> int:
    """Returns the number of wraps that a receiver at the end of a way holds for a key."""
    return wraps_among([hop.count for hop in way])


# --------------------------------------------------------------------------------------------------- frames


def encode_wraps(key_id: bytes, way: Way, wraps: Iterable[Wrap]) -> bytes:
    """Returns the frame of `vmq-wraps`: wraps of a key along a way, which orders their regions.

    Layout: opening, key id(16), regions(1), regions x (region(4) view(4) count(2), count x (owner(1), sender(1),
    sealed(52))). Raises `OurFault` for none, too many, a repeated name, or regions that do not wrap.
    """
    by_region: dict[tuple[int, int], dict[tuple[int, int], bytes]] = {}
    count = 0
    for (owner, sender), sealed in wraps:
        told = by_region.setdefault(owner[:2], {})
        if (owner.place, sender) in told or len(sealed) != SEALED_BYTES:
            raise OurFault("wraps of one frame have distinct names, and 52 bytes each")
        told[owner.place, sender] = sealed
        count += 1
    if not 1 <= count <= WRAPS_LIMIT or len(key_id) != KEY_ID_BYTES:
        raise OurFault(f"{count} wraps; a frame carries 1 to {WRAPS_LIMIT}")
    order = [(hop.region, hop.view) for hop in way if (hop.region, hop.view) in by_region]
    if len(order) != len(by_region):
        raise OurFault("wraps of regions that are not on the way")
    parts = [frames.opening(frames.Kind.WRAPS), key_id, frames.number(len(order), 1)]
    for region, view in order:
        told = by_region[region, view]
        parts += [frames.number(region, 4), frames.number(view, 4), frames.number(len(told), 2)]
        parts += [bytes(places) + told[places] for places in sorted(told)]
    return b"".join(parts)


def decode_wraps(data: bytes) -> tuple[bytes, list[Wrap]]:
    """Returns the key id and the wraps of a frame, in order. Raises `BadFrame`."""
    reader = frames.Reader(data)
    reader.opening(frames.Kind.WRAPS)
    key_id, regions = reader.take_bytes(KEY_ID_BYTES), reader.number(1)
    if not 1 <= regions <= REGIONS_LIMIT - 2:
        raise BadFrame(f"wraps of {regions} regions")
    wraps: list[Wrap] = []
    seen: set[int] = set()
    for _ in range(regions):
        region, view, count = reader.number(4), reader.number(4), reader.number(2)
        if not count or len(wraps) + count > WRAPS_LIMIT or region in seen:
            raise BadFrame("a region without wraps, twice, or with too many of them")
        seen.add(region)
        previous = (0, 0)
        for _ in range(count):
            owner, sender = reader.take_bytes(2)
            if (owner, sender) <= previous or not owner or not sender:
                raise BadFrame("wraps are not strictly ascending, or of place 0")
            previous = owner, sender
            wraps.append(Wrap(WrapName(Place(region, view, owner), sender), reader.take_bytes(SEALED_BYTES)))
    reader.expect_end()
    return key_id, wraps


def carrying(value: str) -> str:
    """Returns the name of the user property for a value with wraps or shares. Raises `BadFrame`."""
    is_wraps = frames.from_property(value)[1:2] == bytes([frames.Kind.WRAPS])
    return frames.PROPERTY_WRAPS if is_wraps else frames.PROPERTY_SHARES


def check_wraps(wraps: Iterable[Wrap], way: Way, sender: Place) -> None:
    """Raises `BadShare` unless wraps may come to the end of `way` from `sender`, whose place is certain.

    Regions lie between the ends of the way, in order and in the views of the way; places exist there. Wraps of the
    sender's region are the sender's own. A reader's sender stands in the last region, where nobody wraps.
    """
    inner = {hop.region: at for at, hop in enumerate(way) if 0 < at < len(way) - 1}
    last = 0
    for (owner, before), _ in wraps:
        at = inner.get(owner.region, 0)
        if at < max(last, 1):
            raise BadShare(f"wraps of region {owner.region}, which wraps nothing here, or in another order")
        last, hop = at, way[at]
        if owner.view != hop.view or owner.place > hop.count or before > way[at - 1].count:
            raise BadShare(f"a wrap of {owner}, which view {hop.view} of region {hop.region} does not have")
        if owner.region == sender.region and owner != sender:
            raise BadShare("a wrap of another replica of the sender's region, which sends its own")


class TakenWraps(NamedTuple):
    """The result of taking wraps.

    `believed`: wraps newly believed. `counted`: wraps that were a vote, or are believed now. `contradicts`: True if the
    voter had said something else.
    """

    believed: list[Wrap]
    counted: list[Wrap]
    contradicts: bool


class Wraps:
    """The believed wraps of a key, and the votes of neighbours on all others.

    The word of an owner that sends its own wraps counts alone. Any other wrap is believed once `needed` neighbours,
    f + 1, said equal bytes: at least one neighbour is honest. Each neighbour has one vote a wrap.
    """

    __slots__ = ("_votes", "believed", "needed")

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.believed: dict[WrapName, bytes] = {}
        """In the order in which they came to be believed."""
        self._votes: dict[WrapName, dict[int, bytes]] = {}  # by the voter's place; at most one a wrap and neighbour

    def take_wraps(self, wraps: Iterable[Wrap], voter: Place) -> TakenWraps:
        """Takes checked wraps. The first bytes of a name that are believed stay."""
        believed: list[Wrap] = []
        counted: list[Wrap] = []
        contradicts = False
        for wrap in wraps:
            name, sealed = wrap
            if name in self.believed:
                contradicts |= name.owner == voter and self.believed[name] != sealed
                continue
            votes = self._votes.setdefault(name, {})
            if voter.place in votes:
                contradicts |= votes[voter.place] != sealed
                continue
            votes[voter.place] = sealed
            counted.append(wrap)
            if name.owner == voter or sum(said == sealed for said in votes.values()) >= self.needed:
                self.believed[name] = sealed
                del self._votes[name]
                believed.append(wrap)
        return TakenWraps(believed, counted, contradicts)

    @property
    def undecided(self) -> Collection[WrapName]:
        """The wraps of which somebody spoke and that are not believed."""
        return self._votes.keys()


def honest_needed(hop: Hop) -> int:
    """Returns f + 1 for a region: among so many replicas is an honest one."""
    return (hop.count - 1) // 2 + 1
