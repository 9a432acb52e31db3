"""The search for a secret among shares, some of them false, in the order of their arrival (A6).

A *column* is a place of a region after the first; a *choice* is k columns of each such region. Under a choice every
row (a place of the first region) has a value, which the publisher committed to, as soon as all its shares are here.
Hence:

* a pair (row, choice) is worked out once, when it is complete; a value that fits its commitment stays the row's
value;
* choices are tried in the order of past contradictions of their columns, so that a liar costs a single search;
* inner values are kept: a choice that differs in a single region repeats no work of the regions below.

k fitting rows give the secret. `steps` counts the choices worked out: a measure of work that is equal on every
machine, and is bounded by the caller. Not here: budgets and pauses (`bridge.reader.key_opening`), commitments
(`envelope`), who lied (`bridge.reader.blame`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import combinations, product
from math import prod
from operator import attrgetter

from keys import shamir
from keys.errors import OurFault
from keys.sharetree import DEPTH_LIMIT, SHARES_LIMIT, Combination, Hop, Share

Column = tuple[int, int]
"""Depth of a region on the path, from 2, and a place in it."""


_PLACE = attrgetter("place")
CHOICES_LIMIT = 42_875
"""The most choices on a path that an overlay may have: C(7,4)^3, for three regions of seven behind the first."""
FEW = 16
"""Up to so many new shares are looked at one by one; with more, all choices are gone through once."""


class _Plan:
    """A plan for one kind of path: the k-subsets of each region after the first, and the numbers of a row's shares."""

    __slots__ = ("_masks", "_through", "bits", "choices", "needed", "row_shares", "subsets")

    def __init__(self, inner: Sequence[tuple[int, int]]) -> None:
        """`inner`: (k, n) of each region after the first."""
        self.row_shares = prod(count for _, count in inner)
        self.needed = prod(threshold for threshold, _ in inner)
        """Shares of a row that a choice takes."""
        self.bits = {places: 1 << i for i, places in enumerate(product(*[range(1, count + 1) for _, count in inner]))}
        """By the places of a share after the first: its bit in the row."""
        self.subsets = tuple(tuple(combinations(range(1, count + 1), threshold)) for threshold, count in inner)
        self.choices = prod(map(len, self.subsets))
        self._masks: dict[Combination, int] = {}
        self._through: dict[tuple[int, ...], list[tuple[int, Combination]]] = {}

    def mask(self, choice: Combination) -> int:
        """Returns the shares of a row a choice needs, as a bit mask."""
        known = self._masks.get(choice)
        if known is None:
            known = self._masks[choice] = sum(map(self.bits.__getitem__, product(*choice)))
        return known

    def through(self, inner: tuple[int, ...]) -> list[tuple[int, Combination]]:
        """Returns the choices needing the share with these places after the first, with their masks."""
        known = self._through.get(inner)
        if known is None:
            with_it = [[s for s in subsets if place in s] for subsets, place in zip(self.subsets, inner, strict=True)]
            known = self._through[inner] = [(self.mask(choice), choice) for choice in product(*with_it)]
        return known


@dataclass(frozen=True, slots=True)
class FoundColumns:
    """A found secret. `rows`: level-1 places whose value fits its commitment; `combination`: the choice of the last of
    them.
    """

    secret: bytes = field(repr=False)
    rows: dict[int, bytes] = field(repr=False)
    combination: Combination


class ColumnSearch:
    """A search for the secret of a data key among its shares along a path.

    `accept_row(place, value)` checks a level-1 share, `accept(secret)` the key's own commitment. Raises `OurFault`
    for a
    path of more than 4 regions or of more than 1,024 shares.
    """

    __slots__ = (
        "_accept", "_accept_row", "_all_again", "_fresh", "_hops", "_plan", "_present", "_tried", "_values",
        "is_refuted", "rows", "shares", "steps",
    )  # fmt: skip

    def __init__(
        self, hops: Sequence[Hop], accept_row: Callable[[int, bytes], bool], accept: Callable[[bytes], bool]
    ) -> None:
        self._hops = tuple(hops)
        self._plan = _plan(tuple((hop.threshold, hop.count) for hop in hops))
        self._accept_row, self._accept = accept_row, accept
        self.shares: dict[tuple[int, ...], Share] = {}
        """By their places, outermost first."""
        self.rows: dict[int, bytes] = {}
        self.steps = 0
        self.is_refuted = False
        """k rows fit what the sender committed to, and their secret does not: nothing that comes can mend it."""
        self._present: dict[int, int] = {}  # by row: which shares are here
        self._tried: set[tuple[int, Combination]] = set()
        self._values: dict[tuple[tuple[int, ...], Combination], tuple[bytes, tuple[bytes, ...]] | None] = {}
        self._fresh: list[tuple[int, ...]] = []  # places of shares that no search has seen
        self._all_again = False  # whether choices may be complete that need none of those

    def add_shares(self, shares: Iterable[Share]) -> int:
        """Adds shares whose labels fit the path; returns the number of new ones. The first value of a label stays."""
        known, present, bits = self.shares, self._present, self._plan.bits
        before = len(known)
        for share in shares:
            places = tuple(map(_PLACE, share.label))
            if places not in known:
                known[places] = share
                present[places[0]] = present.get(places[0], 0) | bits[places[1:]]
                self._fresh.append(places)
        return len(known) - before

    @property
    def is_complete(self) -> bool:
        """True if every share of the whole tree is here, so that waiting for more is pointless."""
        return len(self.shares) == self._plan.row_shares * self._hops[0].count

    def search(self, limit: int, contradicted: Mapping[Column, int]) -> FoundColumns | None:
        """Works out at most `limit` further choices. Returns None if nothing fits yet; `is_pending` tells if work is
        left.
        """
        if self.is_refuted:
            return None
        fits = len(self.rows)
        for choice, row in self._complete(contradicted):
            if limit <= 0:
                self._all_again = True
                return None
            limit -= 1
            self._try(choice, row)
            if len(self.rows) >= self._hops[0].threshold:
                return self._secret(choice)
        # A row that fits now may be what another choice lacked.
        self._all_again = len(self.rows) > fits
        self._fresh.clear()
        return None

    def is_pending(self) -> bool:
        """Returns True if a complete choice was not worked out yet."""
        return not self.is_refuted and next(self._complete({}), None) is not None

    def _complete(self, contradicted: Mapping[Column, int]) -> Iterator[tuple[Combination, int]]:
        """Yields the complete choices that were not worked out, the most trusted first."""
        needed = self._plan.needed
        rows = [pair for pair in self._present.items() if pair[1].bit_count() >= needed]
        if len(rows) < self._hops[0].threshold:
            return
        if self._all_again or len(self._fresh) > FEW:
            subsets = self._plan.subsets
            if contradicted:
                subsets = tuple(
                    tuple(sorted(of_one, key=lambda places: sum(contradicted.get((depth, p), 0) for p in places)))
                    for depth, of_one in enumerate(subsets, 2)
                )
            yield from self._ready(product(*subsets), rows)
            return
        if not contradicted:
            for fresh in self._fresh:
                yield from self._ready(self._through(fresh), rows)
            return
        # Of all new shares together: else whoever sends first is tried first, liar or not.
        choices = dict.fromkeys(choice for fresh in self._fresh for choice in self._through(fresh))
        yield from self._ready(sorted(choices, key=partial(_distrust, contradicted)), rows)

    def _through(self, fresh: tuple[int, ...]) -> list[Combination]:
        """Returns the choices a new share completed: those that need the share and whose row has all other shares."""
        row, *inner = fresh
        if self._present[row].bit_count() < self._plan.needed:
            return []
        missing = ~self._present[row]
        return [choice for mask, choice in self._plan.through(tuple(inner)) if not mask & missing]

    def _ready(
        self, choices: Iterable[Combination], rows: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[Combination, int]]:
        """Yields each choice with its complete rows, if their rows and the rows that fit already are at least k."""
        threshold, mask_of = self._hops[0].threshold, self._plan.mask
        for choice in choices:
            mask = mask_of(choice)
            ready = [row for row, present in rows if present & mask == mask]
            if len(ready) + len(self.rows.keys() - ready) < threshold:
                continue
            for row in ready:
                if row not in self.rows and (row, choice) not in self._tried:
                    yield choice, row

    def _try(self, choice: Combination, row: int) -> None:
        self.steps += 1
        self._tried.add((row, choice))
        worked = self._value((row,), choice)
        if worked is not None and self._accept_row(row, worked[0]):
            self.rows[row] = worked[0]

    def _value(self, above: tuple[int, ...], subsets: Combination) -> tuple[bytes, tuple[bytes, ...]] | None:
        """Returns the value of the share through the places `above`, and its tags; None if tags contradict."""
        if not subsets:
            share = self.shares[above]
            return share.value, share.tags
        name = (above, subsets)
        if name not in self._values:
            self._values[name] = self._worked_out(above, subsets)
        return self._values[name]

    def _worked_out(self, above: tuple[int, ...], subsets: Combination) -> tuple[bytes, tuple[bytes, ...]] | None:
        values, tags = [], None
        for place in subsets[0]:
            part = self._value((*above, place), subsets[1:])
            if part is None or (tags is not None and part[1] != tags):
                return None
            values.append(part[0])
            tags = part[1]
        assert tags is not None
        return shamir.interpolate(subsets[0], values), tags[:-1]

    def _secret(self, choice: Combination) -> FoundColumns | None:
        places = tuple(sorted(self.rows))[: self._hops[0].threshold]
        secret = shamir.interpolate(places, [self.rows[place] for place in places])
        if self._accept(secret):
            return FoundColumns(secret, dict(self.rows), choice)
        self.is_refuted = True
        return None

    def contradictions(self, found: FoundColumns) -> Counter[Column]:
        """Counts columns of choices that did not fit and are not in the choice that did: they deserve less trust. Names
        nobody.
        """
        good = _columns(found.combination)
        columns: Counter[Column] = Counter()
        for _, subsets in self._tried:
            columns.update(_columns(subsets) - good)
        return columns


def worst_steps(hops: Sequence[Hop]) -> int:
    """Returns the most choices, over all rows, that a search along these regions may have to work out."""
    return _plan(tuple((hop.threshold, hop.count) for hop in hops)).choices * hops[0].count


def _distrust(contradicted: Mapping[Column, int], choice: Combination) -> int:
    return sum(contradicted.get(column, 0) for column in _columns(choice))


def _columns(subsets: Combination) -> set[Column]:
    return {(depth, place) for depth, subset in enumerate(subsets, 2) for place in subset}


@lru_cache(maxsize=64)
def _plan(path: tuple[tuple[int, int], ...]) -> _Plan:
    """Returns the plan of a path, given as (k, n) of each region. Raises `OurFault` for a path beyond the limits."""
    plan = _Plan(path[1:])
    if not 1 <= len(path) <= DEPTH_LIMIT or plan.row_shares * path[0][1] > SHARES_LIMIT:
        raise OurFault(f"a path of {len(path)} regions, or of more than {SHARES_LIMIT} shares")
    return plan
