"""What a coalition sees of a secret, as rows over GF(2^8), and whether that says anything of the secret.

Written from the definition of Algorithm 2 (A5, docs/protocol.md §3) with arithmetic of its own: nothing here comes from
`keys`, so that the two can be checked against each other. A region of n splits k = floor(n/2) + 1 of n:
the value at place x of a split of v is v + c1 x + c2 x^2 + ... + c(k-1) x^(k-1), where v is the secret for the
publisher's split and a share for every other. The secret and all coefficients are the unknowns; every value of the tree
of shares is a row of factors, one for each unknown. Regions form a tree: a replica splits each share once for every
next region.

A coalition sees the shares sent to its members and the coefficients of its members' own splits. That is *all* that it
has to learn from: a value that it invents and has honest replicas split is known to it, and the parts say no more of
it. The coefficients of honest replicas are HKDF outputs under seeds of their own and count as independent and uniform.
Not here: commitments, which are hashes of 32 uniform bytes and hide them computationally only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import TypeAlias

Path: TypeAlias = tuple[tuple[int, int], ...]  # (region, place) of every replica that a value went through
Split: TypeAlias = tuple[Path, int]  # the split of the value behind a path, for a region
Bad: TypeAlias = Mapping[int, Collection[int]]  # region -> bad places


def multiply(a: int, b: int) -> int:
    """The product of two polynomials over GF(2) modulo x^8 + x^4 + x^3 + x + 1 (FIPS 197 section 4.2)."""
    total = 0
    for bit in range(8):
        total ^= (a << bit) * (b >> bit & 1)
    for bit in range(15, 7, -1):
        total ^= (0x11B << bit - 8) * (total >> bit & 1)
    return total


TIMES = tuple(bytes(multiply(a, b) for b in range(256)) for a in range(256))
INVERSE = (0, *(row.index(1) for row in TIMES[1:]))


def plus(a: bytes, b: bytes) -> bytes:
    return (int.from_bytes(a) ^ int.from_bytes(b)).to_bytes(len(a))


def power(x: int, exponent: int) -> int:
    return multiply(x, power(x, exponent - 1)) if exponent else 1


def faulty(n: int) -> int:
    """f, the most replicas of a region of n that may be bad."""
    return (n - 1) // 2


def threshold(n: int) -> int:
    """k, how many values of a split give back what was split."""
    return n // 2 + 1


@dataclass(frozen=True)
class Overlay:
    """The regions below the publisher's: `counts` of replicas, and the edges from each region to the next ones."""

    counts: Mapping[int, int]
    after: Mapping[int, tuple[int, ...]]
    home: int = 1

    @classmethod
    def line(cls, counts: Sequence[int]) -> Overlay:
        """One path of regions 1, 2, ..."""
        return cls(dict(enumerate(counts, 1)), {region: (region + 1,) for region in range(1, len(counts))})

    def splits(self) -> Iterator[Split]:
        """Every split that is made, those of a region before those of the ones after it."""
        level: list[Split] = [((), self.home)]
        while level:
            yield from level
            level = [
                ((*path, (region, place)), following)
                for path, region in level
                for place in range(1, self.counts[region] + 1)
                for following in self.after.get(region, ())
            ]

    def placements(self) -> Iterator[dict[int, tuple[int, ...]]]:
        """Every choice of exactly f bad replicas in each region. Fewer see a part of what these see."""
        choices = [combinations(range(1, n + 1), faulty(n)) for n in self.counts.values()]
        for chosen in product(*choices):
            yield dict(zip(self.counts, chosen, strict=True))


class Rows:
    """Every value of an overlay's tree of shares as a row of factors.

    `column`: of each coefficient (path, region, exponent), deepest splits first, so that elimination stays
    local; the secret's is the last. `related`: whether a replica uses one polynomial for all next regions, which is
    what the next region in the derivation of coefficients prevents.
    """

    def __init__(self, overlay: Overlay, related: bool = False) -> None:
        self.overlay = overlay
        self.column: dict[tuple[Path, int, int], int] = {}
        splits = list(overlay.splits())
        width = 0
        seen: dict[tuple[Path, int], int] = {}
        for path, region in reversed(splits):
            for exponent in range(1, threshold(overlay.counts[region])):
                if related and (path, exponent) in seen:
                    self.column[path, region, exponent] = seen[path, exponent]
                    continue
                seen[path, exponent] = self.column[path, region, exponent] = width
                width += 1
        self.secret = width
        self.of: dict[Path, bytes] = {(): self.unit(width)}
        for path, region in splits:
            for place in range(1, overlay.counts[region] + 1):
                row = bytearray(self.of[path])
                for exponent in range(1, threshold(overlay.counts[region])):
                    row[self.column[path, region, exponent]] ^= power(place, exponent)
                self.of[*path, (region, place)] = bytes(row)

    def unit(self, column: int) -> bytes:
        row = bytearray(self.secret + 1)
        row[column] = 1
        return bytes(row)

    def received(self, bad: Bad) -> list[Path]:
        """The paths of all shares that are sent to bad replicas."""
        return [path for path in self.of if path and path[-1][1] in bad.get(path[-1][0], ())]

    def view(self, bad: Bad) -> list[bytes]:
        """All that the coalition knows: shares received, and coefficients that its members chose themselves."""
        rows = [self.of[path] for path in self.received(bad)]
        for (path, _, _), column in self.column.items():
            if path and path[-1][1] in bad.get(path[-1][0], ()):
                rows.append(self.unit(column))
        return rows


class Span:
    """The row space of some rows, by elimination from the left; rank is the number of its pivots."""

    def __init__(self, rows: Iterable[bytes]) -> None:
        self.pivots: dict[int, bytes] = {}
        for row in rows:
            reduced = self.reduced(row)
            at = _first(reduced)
            if at is not None:
                self.pivots[at] = reduced.translate(TIMES[INVERSE[reduced[at]]])

    def reduced(self, row: bytes) -> bytes:
        """`row` less what the pivots account for; all zero exactly if it is in the space."""
        at = _first(row)
        while at is not None and at in self.pivots:
            row = plus(row, self.pivots[at].translate(TIMES[row[at]]))
            at = _first(row)
        return row

    def __contains__(self, row: bytes) -> bool:
        return not any(self.reduced(row))

    def direction(self, column: int) -> bytes | None:
        """A vector that is 1 at `column`, the last, and orthogonal to every row; None if there is none.

        Along it all unknowns can be moved, the one of `column` to any value, without any row's value changing.
        """
        if column in self.pivots:
            return None
        found = bytearray(column + 1)
        found[column] = 1
        for at in sorted(self.pivots, reverse=True):
            found[at] = _dot(self.pivots[at], found)  # the pivot itself is 1, and minus is plus
        return bytes(found)


def _first(row: bytes) -> int | None:
    rest = row.lstrip(b"\0")
    return len(row) - len(rest) if rest else None


def _dot(row: bytes, vector: bytes | bytearray) -> int:
    total = 0
    for a, b in zip(row, vector, strict=True):
        if a and b:
            total ^= TIMES[a][b]
    return total


def orthogonal(row: bytes, vector: bytes) -> bool:
    return _dot(row, vector) == 0


def value(row: bytes, unknowns: Sequence[bytes]) -> bytes:
    """What a row stands for: the sum of factor times unknown, each unknown a string of bytes."""
    total = bytes(len(unknowns[0]))
    for factor, unknown in zip(row, unknowns, strict=True):
        if factor:
            total = plus(total, unknown.translate(TIMES[factor]))
    return total


def coefficients(n: int, split: bytes, values: Sequence[bytes]) -> list[bytes]:
    """c1, c2, ... of the polynomial with value `split` at 0 and `values` at 1, 2, ..., k - 1: by elimination."""
    size = threshold(n) - 1
    rows = []
    for place in range(1, size + 1):
        factors = bytes(power(place, exponent) for exponent in range(1, size + 1))
        rows.append(factors + plus(split, values[place - 1]))
    found: dict[int, bytes] = {}
    for at in range(size):
        chosen = next(row for row in rows if row[at])
        rows.remove(chosen)
        chosen = chosen.translate(TIMES[INVERSE[chosen[at]]])
        rows = [plus(row, chosen.translate(TIMES[row[at]])) for row in rows]
        found = {before: plus(row, chosen.translate(TIMES[row[at]])) for before, row in found.items()}
        found[at] = chosen
    return [found[at][size:] for at in range(size)]
