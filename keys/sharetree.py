"""Shares of shares: labels, deterministic re-splits, frames, and level-1 values (A5, A6; docs/protocol.md §3).

The publisher splits the secret S of a data key for its own region (level 1). Every replica splits each share that it
holds again for the next region, so a share below level 1 is the value of a polynomial whose constant is another share.
A label is the path of places a value went through. A subscriber who holds enough shares of the last region works
upwards: level d to level d - 1, and so on to level 1, whose values the publisher committed to, and from k of those to
S.

Not here: which share goes to whom (`bridge.replica.forwarder`), the search for the honest places (`columnsearch`), the
commitments (`envelope`), names of liars.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple, TypeAlias

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from keys import frames, shamir
from keys.errors import BadFrame, BadShare, OurFault

SECRET_BYTES = 32
TAG_BYTES = 4
DEPTH_LIMIT = 4  # stops trees whose number of shares grows out of hand: n^depth
SHARES_LIMIT = 1024  # stops a peer from filling memory with shares of one key
CELLS_LIMIT = 1 << 18  # stops a grid that scattered places would blow up; four regions of nine need 6,561
CUTS_KEPT = 4096  # bounds memory: as many ways to choose places are remembered
LEVELS_KEPT = 4096  # bounds memory of an audit; four regions of seven need 1,261
_U32 = 1 << 32


class Place(NamedTuple):
    """The place of a replica in its region: number `place` (1..n) of `region` in the view number `view`."""

    region: int
    view: int
    place: int


Label: TypeAlias = tuple[Place, ...]
Combination: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Hop:
    """A region as a single step of a path: its id, the number of its view, and k of n. Raises `OurFault`."""

    region: int
    view: int
    threshold: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= self.count <= shamir.MAX_PLACE:
            raise OurFault(f"region {self.region}: cannot share {self.threshold} of {self.count}")
        if not (0 <= self.region < _U32 and 0 <= self.view < _U32):
            raise OurFault("ids of regions and numbers of views are unsigned 32-bit integers")


@dataclass(frozen=True, slots=True)
class Share:
    """A share with its path.

    `label`: 1 to 4 places of distinct regions. `tags`: 4 bytes for each re-split, so one fewer than
    places. `value`: 32 secret bytes. Raises `BadShare` if it breaks one of these rules.
    """

    label: Label
    tags: tuple[bytes, ...]
    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        depth = len(self.label)
        if not 1 <= depth <= DEPTH_LIMIT:
            raise BadShare(f"a label of {depth} places; 1 to {DEPTH_LIMIT} are allowed")
        if len(self.tags) != depth - 1 or any(len(tag) != TAG_BYTES for tag in self.tags):
            raise BadShare(f"a label of {depth} places needs {depth - 1} tags of {TAG_BYTES} bytes")
        if len(self.value) != SECRET_BYTES:
            raise BadShare(f"a share of {len(self.value)} bytes; {SECRET_BYTES} are needed")
        if not all(1 <= place.place <= shamir.MAX_PLACE for place in self.label):
            raise BadShare(f"a coordinate outside 1..{shamir.MAX_PLACE}")
        if depth > 1 and len({place.region for place in self.label}) != depth:
            raise BadShare("a label that visits one region twice")

    @property
    def places(self) -> tuple[int, ...]:
        """The places alone, outermost (level 1) first."""
        return tuple(place.place for place in self.label)


def check_label(share: Share, hops: Sequence[Hop]) -> None:
    """Raises `BadShare` unless regions, views and places of the label fit `hops`, taken from our own views."""
    if len(share.label) != len(hops):
        raise BadShare(f"a share of depth {len(share.label)} on a path of {len(hops)} regions")
    for place, hop in zip(share.label, hops, strict=True):
        if place.region != hop.region:
            raise BadShare(f"a share through region {place.region} where the path has {hop.region}")
        if place.view != hop.view:
            raise BadShare(f"a share of view {place.view} of region {hop.region}, whose view is {hop.view}")
        if not 1 <= place.place <= hop.count:
            raise BadShare(f"place {place.place} in region {hop.region} of {hop.count} replicas")


# ---------------------------------------------------------------------------------------------- splitting


def first_split(secret: bytes, hop: Hop, random: bytes) -> list[Share]:
    """Returns the publisher's split of a 32-byte secret: a share for each place of `hop`, in order.

    `random`: (k - 1) * 32 uniformly random bytes, used once. Raises `OurFault` for other sizes.
    """
    if len(secret) != SECRET_BYTES:
        raise OurFault(f"a secret of {len(secret)} bytes; {SECRET_BYTES} are needed")
    values = shamir.split(secret, hop.threshold, hop.count, random)
    return [Share((Place(hop.region, hop.view, x),), (), value) for x, value in enumerate(values, 1)]


def resplit(share: Share, header_digest: bytes, next_hop: Hop, seed: bytes) -> list[Share]:
    """Returns a replica's split of a share for the next region: a sub-share for each of its places, in order.

    The split is deterministic, so that a retransmission repeats its sub-shares. The coefficients depend on everything
    that could otherwise yield two related polynomials: key header, label, next region with view and (k, n), and the
    value itself. `header_digest`: the 32 bytes of `KeyHeader.digest`. `seed`: 32 secret bytes of this replica and
    epoch. Raises `BadShare` for a path of too many regions, or with a region twice.
    """
    if len(header_digest) != 32 or len(seed) != 32:
        raise OurFault("re-splitting needs the 32-byte digest of the key header and a 32-byte seed")
    if len(share.label) >= DEPTH_LIMIT:
        raise BadShare(f"a path has at most {DEPTH_LIMIT} regions")
    label = b"".join(coordinate(place) for place in share.label)
    info = b"veilmq/1 split" + header_digest + bytes([len(share.label)]) + label + _hop_bytes(next_hop) + share.value
    size = TAG_BYTES + (next_hop.threshold - 1) * SECRET_BYTES
    stream = HKDFExpand(hashes.SHA256(), size, info).derive(seed)
    values = shamir.split(share.value, next_hop.threshold, next_hop.count, stream[TAG_BYTES:])
    tags = (*share.tags, stream[:TAG_BYTES])
    return [
        Share((*share.label, Place(next_hop.region, next_hop.view, x)), tags, value)
        for x, value in enumerate(values, 1)
    ]


def coordinate(place: Place) -> bytes:
    """Returns region(4), view(4), place(1)."""
    return place.region.to_bytes(4) + place.view.to_bytes(4) + bytes([place.place])


def _hop_bytes(hop: Hop) -> bytes:
    return hop.region.to_bytes(4) + hop.view.to_bytes(4) + bytes([hop.threshold, hop.count])


# ------------------------------------------------------------------------------------------------- frames


def encode_shares(shares: Iterable[Share]) -> bytes:
    """Returns the frame of `vmq-shares`: shares of a key along a path, sorted by place.

    Layout: opening, depth(1), depth x (region(4) view(4)), count(2), count x (depth places(1 each), depth - 1
    tags(4 each), value(32)). Raises `OurFault` for none, too many, a repeated label or different paths.
    """
    ordered = sorted(shares, key=lambda share: share.places)
    if not 1 <= len(ordered) <= SHARES_LIMIT:
        raise OurFault(f"{len(ordered)} shares; a frame carries 1 to {SHARES_LIMIT}")
    path = [(place.region, place.view) for place in ordered[0].label]
    parts = [frames.opening(frames.Kind.SHARES), bytes([len(path)])]
    parts += [frames.number(region, 4) + frames.number(view, 4) for region, view in path]
    parts.append(len(ordered).to_bytes(2))
    previous: tuple[int, ...] = ()
    for share in ordered:
        places = share.places
        if [(place.region, place.view) for place in share.label] != path or places == previous:
            raise OurFault("shares of one frame have distinct labels along one path")
        previous = places
        parts += [bytes(places), *share.tags, share.value]
    return b"".join(parts)


def decode_shares(data: bytes) -> list[Share]:
    """Returns the shares of a frame, sorted by place. Raises `BadFrame`, or `BadShare` for a bad coordinate."""
    reader = frames.Reader(data)
    reader.opening(frames.Kind.SHARES)
    depth = reader.number(1)
    if not 1 <= depth <= DEPTH_LIMIT:
        raise BadFrame(f"shares of depth {depth}")
    path = [(reader.number(4), reader.number(4)) for _ in range(depth)]
    count = reader.number(2)
    if not 1 <= count <= SHARES_LIMIT:
        raise BadFrame(f"a frame of {count} shares")
    shares = []
    previous: tuple[int, ...] = ()
    for _ in range(count):
        places = tuple(reader.take_bytes(depth))
        if places <= previous:
            raise BadFrame("labels of shares are not strictly ascending")
        previous = places
        tags = tuple(reader.take_bytes(TAG_BYTES) for _ in range(depth - 1))
        label = tuple(Place(*step, place) for step, place in zip(path, places, strict=True))
        shares.append(Share(label, tags, reader.take_bytes(SECRET_BYTES)))
    reader.expect_end()
    return shares


# ------------------------------------------------------------------------------------------ recombination

_CLASH, _MISSING = 1, 3  # faults of a cell; OR-ed over places, a missing share outweighs a clash of tags


class _Level(NamedTuple):
    """All labels of one length, side by side, with the values recombined from the places below them.

    Cells are sorted by their deepest place first: the cells of each place of the deepest region are a single slice.
    `values`: 32 bytes a cell. `tags`: for every re-split on the way to these labels, 4 bytes a cell. `faults`: a byte
    a cell, 0 if the value is good.
    """

    values: bytes
    tags: tuple[bytes, ...]
    faults: bytes


class _Tree:
    """The shares of a key in a grid of their places, and every level that was recombined from them so far.

    A place holds shares of many polynomials, and all are interpolated with equal weights: a level takes k translations
    of joined values instead of k for each label.
    """

    def __init__(self, shares: Iterable[Share], hops: Sequence[Hop]) -> None:
        kept = list(shares)
        by_hop = _places_by_hop(kept, hops)
        if by_hop is None:  # some are of another view or path: one liar's share must not stop the search
            kept = [share for share in kept if _places_by_hop([share], hops)]
            by_hop = _places_by_hop(kept, hops) or [[] for _ in hops]
        # for every hop (0 is the publisher's) the places that any share went through, ascending
        self.present = [tuple(sorted({*places})) for places in by_hop]
        # reversed: the first value for a label wins
        cells = dict(zip(zip(*map(reversed, reversed(by_hop)), strict=True), reversed(kept), strict=True))
        size = math.prod(map(len, self.present))
        if size > CELLS_LIMIT:
            raise OurFault(f"a tree of {size} shares; at most {CELLS_LIMIT} are recombined: use smaller regions")
        self._memo: dict[Combination, _Level] = {(): self._leaves(cells, size)}

    def _leaves(self, cells: dict[tuple[int, ...], Share], size: int) -> _Level:
        labels = product(*reversed(self.present))
        if len(cells) == size:
            ordered, faults = [*map(cells.__getitem__, labels)], bytes(size)
        else:
            some = next(iter(cells.values()))
            hole = replace(some, tags=(bytes(TAG_BYTES),) * len(some.tags), value=bytes(SECRET_BYTES))
            ordered = [cells.get(label, hole) for label in labels]
            faults = bytes(_MISSING if share is hole else 0 for share in ordered)
        tags = tuple(map(b"".join, zip(*[share.tags for share in ordered], strict=True)))
        return _Level(b"".join([share.value for share in ordered]), tags, faults)

    def level1_rows(self, combination: Combination) -> dict[int, bytes | None]:
        """Returns the level-1 values by the places `combination` of the regions below, which are present there.

        A row with a missing share is left out; its value is None where shares of different tags met.
        """
        level = self._level(combination)
        values = [level.values[start : start + SECRET_BYTES] for start in range(0, len(level.values), SECRET_BYTES)]
        cells = zip(self.present[0], values, level.faults, strict=True)
        return {place: None if fault else value for place, value, fault in cells if fault != _MISSING}

    def _level(self, subsets: Combination) -> _Level:
        known = self._memo.get(subsets)
        if known is None:
            known = self._combined(self._level(subsets[1:]), subsets[0], self.present[-len(subsets)])
            if len(subsets) < len(self.present) - 1:  # all rows at level 1 never come again within one search
                if len(self._memo) >= LEVELS_KEPT:
                    self._memo = {(): self._memo[()]}
                self._memo[subsets] = known
        return known

    @staticmethod
    def _combined(below: _Level, subset: tuple[int, ...], present: tuple[int, ...]) -> _Level:
        width = len(below.faults) // len(present)
        values = [*map(below.values.__getitem__, _cuts(present, subset, SECRET_BYTES * width))]
        tag_cuts = _cuts(present, subset, TAG_BYTES * width)
        tags = [[*map(plane.__getitem__, tag_cuts)] for plane in below.tags]
        faults = 0
        if below.faults.strip(b"\0"):
            for cut in _cuts(present, subset, width):
                faults |= int.from_bytes(below.faults[cut])
        for first, *others in tags:
            for other in others:
                if other != first:
                    faults |= int.from_bytes(_differing(first, other))
        above = tuple([plane[0] for plane in tags[:-1]])
        return _Level(shamir.interpolate(subset, values), above, faults.to_bytes(width))


@lru_cache(maxsize=CUTS_KEPT)
def _cuts(present: tuple[int, ...], subset: tuple[int, ...], size: int) -> tuple[slice, ...]:
    """Returns the slices of `subset` if every place of `present` has `size` bytes, in order."""
    return tuple(slice(size * at, size * (at + 1)) for at in map(present.index, subset))


def _differing(tags: bytes, others: bytes) -> bytes:
    """Returns a byte for each cell: `_CLASH` where the tags differ, else 0."""
    cells = range(0, len(tags), TAG_BYTES)
    return bytes(_CLASH if tags[at : at + TAG_BYTES] != others[at : at + TAG_BYTES] else 0 for at in cells)


def _places_by_hop(shares: Sequence[Share], hops: Sequence[Hop]) -> list[list[int]] | None:
    """Returns for every hop the places of all shares, in order; None unless every label passes `check_label`.

    The labels are checked as columns, each place once. Label by label, the check would cost more than the arithmetic.
    """
    labels = [share.label for share in shares]
    if {*map(len, labels)} != {len(hops)}:
        return None
    by_hop = []
    for column, hop in zip(zip(*labels, strict=True), hops, strict=True):
        for place in {*column}:
            if (place.region, place.view) != (hop.region, hop.view) or place.place > hop.count:
                return None
        by_hop.append([place.place for place in column])
    return by_hop


def level1_values(shares: Iterable[Share], hops: Sequence[Hop], combination: Combination) -> dict[int, bytes | None]:
    """Returns the level-1 value of every row that is complete under `combination`; None where tags contradict.

    `combination`: k places of every region after the first. For audits of opened keys (`bridge.reader.blame`).
    """
    tree = _Tree(shares, hops)
    inner = [{*tree.present[level]} for level in range(1, len(hops))]
    if len(combination) != len(inner) or not all(map(set.issuperset, inner, combination)):
        return {}
    return tree.level1_rows(combination)
