"""The search for the secret of a wrapped key, from the last region up, and the audit of who contradicted it
(docs/protocol.md §3.5).

A reader of region h has shares of the wrap keys of region h - 1, one of each replica of its own region, and the wraps
of regions 2 to h - 1. A k-subset of shares gives a wrap key; the wraps that it opens say whether it is the right one,
and hold the shares of the wrap keys before. So the search goes up region by region, to the values that the publisher
committed to. Its work grows by the regions of a way, and not by their power.

Not here: keys of short ways (`columnsearch`), whom to name (`bridge.reader.blame`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import TypeAlias

from keys import shamir
from keys.columnsearch import Column, FoundColumns
from keys.errors import OurFault
from keys.sharetree import Place, Share
from keys.wrapping import REGIONS_LIMIT, WRAPS_LIMIT, Way, Wrap, WrapKey, wraps_of

Subset: TypeAlias = tuple[int, ...]
Split: TypeAlias = tuple[int, int]
"""A split to undo: the region's number on the way, from 0, and the place of the replica that made it."""


class _Values:
    """The knowledge of each region: values by sender and owner, wraps, and wrap keys that open some."""

    __slots__ = ("digest", "hops", "keys", "values", "wraps")

    def __init__(self, hops: Way, digest: bytes) -> None:
        if not 3 <= len(hops) <= REGIONS_LIMIT or wraps_of(hops) > WRAPS_LIMIT:
            raise OurFault(f"a way of {len(hops)} regions, or of more than {WRAPS_LIMIT} wraps")
        self.hops, self.digest = tuple(hops), digest
        self.values: list[dict[Split, Share]] = [{} for _ in hops]  # by sender's place and owner's, in each region
        self.wraps: list[dict[int, dict[int, bytes]]] = [{} for _ in hops]  # by owner and sender
        self.keys: dict[Split, WrapKey] = {}

    def place(self, at: int, place: int) -> Place:
        return Place(self.hops[at].region, self.hops[at].view, place)

    def known_shares(self, split: Split) -> dict[int, Share]:
        """Returns the known shares of what a replica split, by the place that holds each."""
        at, place = split
        values = self.values[at + 1]
        owners = range(1, self.hops[at + 1].count + 1)
        return {owner: values[place, owner] for owner in owners if (place, owner) in values}

    def open_wraps(self, split: Split, key: WrapKey) -> list[Split]:
        """Opens the owner's wraps with a key. Returns the splits of which there are more shares now."""
        at, owner = split
        news: list[Split] = []
        for sender, sealed in self.wraps[at].get(owner, {}).items():
            if (sender, owner) not in self.values[at]:
                share = key.open(self.place(at - 1, sender), sealed)
                if share is not None:
                    self.values[at][sender, owner] = share
                    news.append((at - 1, sender))
        return news


class WrapSearch:
    """A search for the secret of a wrapped key at the end of a way of three regions or more.

    Its methods are those of `columnsearch.ColumnSearch`. `digest`: the 32 bytes of `KeyHeader.digest`. Raises
    `OurFault` for a way beyond the limits.
    """

    __slots__ = ("_accept", "_accept_row", "_known", "_tasks", "_tried", "_won", "is_refuted", "rows", "steps")

    def __init__(
        self,
        hops: Way,
        digest: bytes,
        accept_row: Callable[[int, bytes], bool],
        accept: Callable[[bytes], bool],
    ) -> None:
        self._known = _Values(hops, digest)
        self._accept_row, self._accept = accept_row, accept
        self.rows: dict[int, bytes] = {}
        """The values of the first region that fit the publisher's commitments, by place."""
        self.steps = 0
        self.is_refuted = False
        """k rows fit what the publisher committed to, and their secret does not: nothing that comes can mend it."""
        self._tasks: set[Split] = set()  # splits of which something new is known
        self._tried: dict[Split, set[Subset]] = {}
        self._won: dict[Split, Subset] = {}

    def add_shares(self, shares: Iterable[Share]) -> int:
        """Adds shares of the last region, whose labels fit the way; returns the number of new ones."""
        known = self._known
        last, before = known.values[-1], len(known.values[-1])
        for share in shares:
            sender, owner = share.label
            if (sender.place, owner.place) not in last:
                last[sender.place, owner.place] = share
                self._tasks.add((len(known.hops) - 2, sender.place))
        return len(last) - before

    def add_wraps(self, wraps: Iterable[Wrap]) -> None:
        """Adds wraps that fit the way. The first of a name stays."""
        known = self._known
        where = {hop.region: at for at, hop in enumerate(known.hops)}
        for (owner, sender), sealed in wraps:
            at = where[owner.region]
            known.wraps[at].setdefault(owner.place, {}).setdefault(sender, sealed)
            key = known.keys.get((at, owner.place))
            if key is None:
                self._tasks.add((at, owner.place))
            else:
                self._tasks |= set(known.open_wraps((at, owner.place), key))

    @property
    def is_complete(self) -> bool:
        """True if every share and every wrap is here, so that waiting for more is pointless."""
        known = self._known
        all_shares = known.hops[-1].count * known.hops[-2].count
        wraps = sum(len(told) for of_region in known.wraps for told in of_region.values())
        return len(known.values[-1]) == all_shares and wraps == wraps_of(known.hops)

    def search(self, limit: int, contradicted: Mapping[Column, int]) -> FoundColumns | None:
        """Works out at most `limit` further subsets. Returns None if nothing fits yet; `is_pending` tells if work is
        left.
        """
        while self._tasks and not self.is_refuted:
            split = max(self._tasks)  # the last region first
            for subset, parts in self._untried(split, contradicted):
                if limit <= 0:
                    return None
                limit -= 1
                self.steps += 1
                self._tried.setdefault(split, set()).add(subset)
                if self._subset_fits(split, subset, parts):
                    self._won[split] = subset
                    break
            self._tasks.discard(split)
            if len(self.rows) >= self._known.hops[0].threshold:
                return self._secret()
        return None

    def is_pending(self) -> bool:
        """Returns True if a complete subset was not worked out yet."""
        return not self.is_refuted and any(True for split in self._tasks for _ in self._untried(split, {}))

    def _untried(self, split: Split, contradicted: Mapping[Column, int]) -> Iterator[tuple[Subset, dict[int, Share]]]:
        """Yields the k-subsets of the shares of a split that were not worked out, the most trusted first."""
        at, place = split
        if split in self._won or (at and not self._known.wraps[at].get(place)):
            return
        parts = self._known.known_shares(split)
        threshold = self._known.hops[at + 1].threshold
        if len(parts) < threshold:
            return
        order = sorted(parts, key=lambda owner: contradicted.get((at + 2, owner), 0))
        tried = self._tried.get(split, set())
        for chosen in combinations(order, threshold):
            subset = tuple(sorted(chosen))
            if subset not in tried:
                yield subset, parts

    def _subset_fits(self, split: Split, subset: Subset, parts: Mapping[int, Share]) -> bool:
        at, place = split
        value = _interpolated(subset, parts)
        if value is None:
            return False
        if not at:
            fits = self._accept_row(place, value[1])
            if fits:
                self.rows[place] = value[1]
            return fits
        key = WrapKey(value[1], self._known.digest, self._known.place(at, place))
        news = self._known.open_wraps(split, key)
        if news:
            self._known.keys[split] = key
            self._tasks |= set(news)
        return bool(news)

    def _secret(self) -> FoundColumns | None:
        places = tuple(sorted(self.rows))[: self._known.hops[0].threshold]
        secret = shamir.interpolate(places, [self.rows[place] for place in places])
        if self._accept(secret):
            return FoundColumns(secret, dict(self.rows), ())
        self.is_refuted = True
        return None

    def contradictions(self, found: FoundColumns) -> Counter[Column]:
        """Counts places of subsets that did not fit where another subset did. Names nobody."""
        columns: Counter[Column] = Counter()
        for split, won in self._won.items():
            for subset in self._tried[split] - {won}:
                columns.update((split[0] + 2, owner) for owner in set(subset) - set(won))
        return columns


def wrap_steps(counts: Sequence[int], choices: Sequence[int]) -> int:
    """Returns the most subsets that a search along a way may have to work out. `counts`: replicas of each region;
    `choices`: k-subsets of these.
    """
    return sum(before * subsets for before, subsets in zip(counts, choices[1:], strict=False))


def worst_wrap_steps(hops: Way) -> int:
    """Returns the most subsets that a search along a way may have to work out."""
    return wrap_steps([hop.count for hop in hops], [comb(hop.count, hop.threshold) for hop in hops])


def _interpolated(subset: Subset, parts: Mapping[int, Share]) -> tuple[bytes, bytes] | None:
    """Returns tag and value of what was split; None where shares of different splits met."""
    (tag,) = parts[subset[0]].tags
    if any(parts[owner].tags != (tag,) for owner in subset):
        return None
    return tag, shamir.interpolate(subset, [parts[owner].value for owner in subset])


# ---------------------------------------------------------------------------------------------------- audit


@dataclass(frozen=True, slots=True)
class WrapAudit:
    """The statements of an opened key's shares and wraps about replicas, each as (region's number on the way, place).

    `alone`: replicas contradicting themselves. `refuted`: a replica and a k-subset of the next region, not all honest.
    `suspects`: replicas whose values do not fit where others' values do.
    """

    alone: set[Split] = field(default_factory=set)
    refuted: set[tuple[Split, Subset]] = field(default_factory=set)
    suspects: set[Split] = field(default_factory=set)


def audited(
    hops: Way,
    digest: bytes,
    shares: Iterable[Share],
    wraps: Iterable[Wrap],
    accept_row: Callable[[int, bytes], bool],
) -> WrapAudit:
    """Returns the audit of all shares and wraps of a key at the end of `hops`.

    If a replica and k replicas of the next region are honest, then k shares of the wrap key give the wrap key, and the
    wrap key opens all wraps of the replica. In the first region k shares give a value that fits the commitment.
    """
    known, found = _Values(hops, digest), WrapAudit()
    known.values[-1] = {(share.label[0].place, share.label[1].place): share for share in shares}
    where = {hop.region: at for at, hop in enumerate(known.hops)}
    for (owner, sender), sealed in wraps:
        known.wraps[where[owner.region]].setdefault(owner.place, {})[sender] = sealed
    for at in range(len(hops) - 2, -1, -1):
        for place in range(1, hops[at].count + 1):
            if not at or known.wraps[at].get(place):
                _audit_split(known, (at, place), found, accept_row)
    return found


def _audit_split(known: _Values, split: Split, found: WrapAudit, accept_row: Callable[[int, bytes], bool]) -> None:
    at, place = split
    parts = known.known_shares(split)
    order = sorted(parts, key=lambda owner: (at + 1, owner) in found.suspects)  # so that liars cost one search a region
    subsets = [tuple(sorted(chosen)) for chosen in combinations(order, known.hops[at + 1].threshold)]
    values = {subset: _interpolated(subset, parts) for subset in subsets}
    right = None
    for value in dict.fromkeys(value for value in values.values() if value is not None):
        if at:
            key = WrapKey(value[1], known.digest, known.place(at, place))
            is_right = bool(known.open_wraps(split, key))
        else:
            is_right = accept_row(place, value[1])
        if is_right:
            right = value
            break
    wrong = {subset for subset, value in values.items() if value != right or right is None}
    found.refuted.update((split, subset) for subset in wrong)
    if right is None:
        found.suspects.update({split} if wrong else ())
        return
    fitting = {owner for subset in values.keys() - wrong for owner in subset}
    found.suspects.update((at + 1, owner) for owner in parts.keys() - fitting)
    if at and any((sender, place) not in known.values[at] for sender in known.wraps[at][place]):
        found.alone.add(split)
