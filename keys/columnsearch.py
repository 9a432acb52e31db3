"""The secret behind shares that come one after the other, some of them false: each choice is tried once (A6).

A *column* is one place of one region after the first; a *choice* is k columns of each such region. Under a choice every
row, one place of the first region, has a value that the publisher committed to, if all its shares are here. So:

* a (row, choice) is worked out once, when it is complete, and what fits its commitment is the row's value for good;
* choices are tried in order of how often their columns contradicted before, so that a liar costs a search once;
* inner values are kept: a choice that differs in one region repeats nothing of those below it.

k rows that fit give the secret. `steps` counts choices worked out: the only measure of work that is the same on every
machine, bounded by the caller. `recombine` of `sharetree` answers the same question for a set that is complete at once,
with everything that blame needs. Not here: budgets and pauses (`bridge`), commitments (`envelope`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, product
from math import prod
from operator import attrgetter
from typing import NamedTuple

from keys import shamir
from keys.errors import OurFault
from keys.sharetree import DEPTH_LIMIT, SHARES_LIMIT, Combination, Hop, Share

Column = tuple[int, int]
"""Depth of a region on the path, from 2, and a place in it."""


_PLACE = attrgetter("place")


class _Choice(NamedTuple):
    subsets: Combination
    mask: int
    """Of one row: which of its shares the choice needs, by their place in the row."""
    columns: tuple[Column, ...]


class _Plan(NamedTuple):
    """Of one kind of path: its choices, and how shares of a row are numbered."""

    choices: tuple[_Choice, ...]
    bits: dict[tuple[int, ...], int]
    """By the places of a share after the first: its bit in the row."""
    row_shares: int
    needed: int
    """Shares of a row that a choice takes."""


class FoundColumns(NamedTuple):
    """`rows`: level-1 places whose value fits its commitment. `combination`: the choice that gave the last of them."""

    secret: bytes
    rows: dict[int, bytes]
    combination: Combination


class ColumnSearch:
    """The shares of one data key along one path, and the search for its secret.

    `accept_row(place, value)` checks a level-1 share, `accept(secret)` the key's own commitment. Raises `OurFault` for
    a path of more than 4 regions or on which there would be more than 1,024 shares."""

    __slots__ = ("_accept", "_accept_row", "_hops", "_plan", "_present", "_tried", "_values", "rows", "shares", "steps")

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
        self._present: dict[int, int] = {}  # by row: which shares are here
        self._tried: set[tuple[int, Combination]] = set()
        self._values: dict[tuple[tuple[int, ...], Combination], tuple[bytes, tuple[bytes, ...]] | None] = {}

    def add(self, shares: Iterable[Share]) -> int:
        """Shares whose labels fit the path; the first value of a label stays. Returns how many are new."""
        known, present, bits = self.shares, self._present, self._plan.bits
        before = len(known)
        for share in shares:
            places = tuple(map(_PLACE, share.label))
            if places not in known:
                known[places] = share
                present[places[0]] = present.get(places[0], 0) | bits[places[1:]]
        return len(known) - before

    @property
    def is_complete(self) -> bool:
        """Whether every share that the whole tree can have is here: waiting for more is pointless."""
        return len(self.shares) == self._plan.row_shares * self._hops[0].count

    def search(self, limit: int, contradicted: Mapping[Column, int]) -> FoundColumns | None:
        """Work out at most `limit` further choices. None: nothing fits yet, or `is_pending` says that work is left."""
        for choice, row in self._complete(contradicted):
            if limit <= 0:
                return None
            limit -= 1
            if self._try(choice, row) and (found := self._secret(choice)) is not None:
                return found
        return None

    def is_pending(self) -> bool:
        """Whether a choice is complete that was not worked out."""
        return next(self._complete({}), None) is not None

    def _complete(self, contradicted: Mapping[Column, int]) -> Iterator[tuple[_Choice, int]]:
        """What can be worked out and was not, the most trusted choice first."""
        threshold, needed = self._hops[0].threshold, self._plan.needed
        rows = [pair for pair in self._present.items() if pair[1].bit_count() >= needed]
        if len(rows) < threshold:
            return
        choices: Iterable[_Choice] = self._plan.choices
        if contradicted:
            choices = sorted(choices, key=lambda choice: sum(map(contradicted.__getitem__, choice.columns)))
        for choice in choices:
            mask = choice.mask
            ready = [row for row, present in rows if present & mask == mask]
            if len(ready) + len(self.rows.keys() - ready) < threshold:
                continue
            for row in ready:
                if row not in self.rows and (row, choice.subsets) not in self._tried:
                    yield choice, row

    def _try(self, choice: _Choice, row: int) -> bool:
        self.steps += 1
        self._tried.add((row, choice.subsets))
        worked = self._value((row,), choice.subsets)
        if worked is None or not self._accept_row(row, worked[0]):
            return False
        self.rows[row] = worked[0]
        return True

    def _value(self, above: tuple[int, ...], subsets: Combination) -> tuple[bytes, tuple[bytes, ...]] | None:
        """The value of a share through the places `above`, and its tags; None where tags contradict."""
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

    def _secret(self, choice: _Choice) -> FoundColumns | None:
        threshold = self._hops[0].threshold
        if len(self.rows) < threshold:
            return None
        places = tuple(sorted(self.rows))[:threshold]
        secret = shamir.interpolate(places, [self.rows[place] for place in places])
        return FoundColumns(secret, dict(self.rows), choice.subsets) if self._accept(secret) else None

    def contradictions(self, found: FoundColumns) -> Counter[Column]:
        """Columns of choices that were worked out in vain and are not in the one that held: to be trusted less. It
        names nobody."""
        good = _columns(found.combination)
        columns: Counter[Column] = Counter()
        for _, subsets in self._tried:
            if subsets != found.combination:
                columns.update(_columns(subsets) - good)
        return columns

    @property
    def choices(self) -> int:
        """How many choices the path has: with `count` rows each, the most that a search can cost."""
        return len(self._plan.choices)


def worst_steps(hops: Sequence[Hop]) -> int:
    """The most choices, of all rows, that a search along these regions can have to work out."""
    return len(_plan(tuple((hop.threshold, hop.count) for hop in hops)).choices) * hops[0].count


def _columns(subsets: Combination) -> set[Column]:
    return {(depth, place) for depth, subset in enumerate(subsets, 2) for place in subset}


@lru_cache(maxsize=64)
def _plan(path: tuple[tuple[int, int], ...]) -> _Plan:
    """`path`: (k, n) of each region."""
    inner = path[1:]
    row_shares = prod(count for _, count in inner)
    if not 1 <= len(path) <= DEPTH_LIMIT or row_shares * path[0][1] > SHARES_LIMIT:
        raise OurFault(f"a path of {len(path)} regions, or of more than {SHARES_LIMIT} shares")
    bits = {places: 1 << i for i, places in enumerate(product(*[range(1, count + 1) for _, count in inner]))}
    choices = []
    for subsets in product(*[combinations(range(1, count + 1), threshold) for threshold, count in inner]):
        mask = sum(map(bits.__getitem__, product(*subsets)))
        choices.append(_Choice(subsets, mask, tuple(sorted(_columns(subsets)))))
    return _Plan(tuple(choices), bits, row_shares, prod(threshold for threshold, _ in inner))
