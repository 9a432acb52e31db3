"""Wrapped keys along whole ways, by the functions of `keys` alone: what each replica is sent, and what a reader has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import shake_256

from keys.envelope import KeyHeader, check_share, make_key
from keys.epochs import KeyName
from keys.shamir import combine
from keys.sharetree import Hop, Place, Share, resplit
from keys.wrapping import Wrap, WrapKey, wrap_key
from keys.wrapsearch import WrapSearch
from tests.keys.helpers import PUBLISHER, SCOPE_KEY, path, stream

Bad = Mapping[int, Collection[int]]
"""Bad places by the number of their region on the way, from 0."""


@dataclass
class Way:
    """A key really wrapped along regions of `counts`, where `bad` replicas spoil every share and wrap that they make.

    `spoil` gives what is said in place of 32 bytes of a share, or of what a wrap hides; None for nothing.
    """

    counts: Sequence[int]
    bad: Bad = field(default_factory=dict)
    spoil: Callable[[bytes], bytes | None] = field(default=lambda value: None, repr=False)
    seed: str = "way"
    view: int = 7

    def __post_init__(self) -> None:
        random = stream(self.seed)
        self.hops: tuple[Hop, ...] = path(*self.counts, view=self.view)
        made = make_key(PUBLISHER, KeyName("plant/#", 3, 0), self.hops, 1000, 64, SCOPE_KEY, random, wrapped=True)
        self.header: KeyHeader = made[0]
        self.secret = stream(self.seed)(32)  # the first thing that make_key draws
        self.level1 = made[2]
        self.values: list[dict[tuple[int, int], Share]] = [{} for _ in self.counts]
        """What each replica is sent, by its region, and there by the sender's place and its own."""
        self.keys: dict[tuple[int, int], Share] = {}
        self.wraps: list[Wrap] = []
        held: list[Share] = self.level1
        for at, hop in enumerate(self.hops[1:], 1):
            for share in held:
                place = share.label[-1].place
                parts = resplit(share, self.header.digest, hop, self.replica_seed(at - 1, place))
                for part in map(self._says(at - 1, place), parts):
                    if part is not None:
                        self.values[at][place, part.label[-1].place] = part
            held = [self._wrapped(at, place) for place in range(1, hop.count + 1)]

    def _says(self, at: int, place: int) -> Callable[[Share], Share | None]:
        def said(share: Share) -> Share | None:
            if place not in self.bad.get(at, ()):
                return share
            value = self.spoil(share.value)
            return None if value is None else replace(share, value=value)

        return said

    def _wrapped(self, at: int, place: int) -> Share:
        """Seals the values of a replica; returns its wrap key, which it splits next."""
        own = self.place(at, place)
        key = self.keys[at, place] = wrap_key(self.header.digest, own, self.replica_seed(at, place))
        sealing = WrapKey(key.value, self.header.digest, own)
        for (_, owner), share in self.values[at].items():
            said = self._says(at, place)(share)
            if owner == place and said is not None and at < len(self.counts) - 1:
                self.wraps.append(sealing.seal(said))
        return key

    def place(self, at: int, place: int) -> Place:
        return Place(self.hops[at].region, self.hops[at].view, place)

    @staticmethod
    def replica_seed(at: int, place: int) -> bytes:
        return stream(f"replica {at}.{place}")(32)

    @property
    def told(self) -> list[Share]:
        """The shares that a reader of the last region gets of its replicas."""
        last = len(self.counts) - 1
        said = [self._says(last, owner)(share) for (_, owner), share in self.values[-1].items()]
        return [share for share in said if share is not None]

    def fits(self, place: int, value: bytes) -> bool:
        return check_share(self.header, place, value)

    def search(self) -> WrapSearch:
        return WrapSearch(self.hops, self.header.digest, self.fits, lambda secret: secret == self.secret)

    def opened(self) -> WrapSearch:
        """A search that was given all; `opens` is whether it found the secret."""
        search = self.search()
        search.add_wraps(self.wraps)
        search.add_shares(self.told)
        return search

    @property
    def opens(self) -> bool:
        found = self.opened().search(10**9, {})
        return found is not None and found.secret == self.secret


def garbage(value: bytes) -> bytes:
    """Other bytes, as many, that no weights of places cancel out."""
    return shake_256(value).digest(len(value))


def derived(way: Way, bad: Bad) -> bool:
    """Whether bad replicas, with all wraps, hold what gives the secret: the closure of the live functions.

    They know their own wrap keys and all values sent to them. A key opens its owner's wraps, k values of one sender are
    the sender's key, and k first values the secret.
    """
    held = {(at, name): share for at, values in enumerate(way.values)
            for name, share in values.items() if name[1] in bad.get(at, ())}  # fmt: skip
    first = {place: way.level1[place - 1].value for place in bad.get(0, ())}
    known = {(at, place): way.keys[at, place].value for at in bad if at for place in bad[at]}
    fresh = [*known]
    while fresh:
        for at, owner in fresh:
            key = WrapKey(known[at, owner], way.header.digest, way.place(at, owner))
            for name, sealed in way.wraps:
                if name.owner == key.owner:
                    share = key.open(way.place(at - 1, name.sender), sealed)
                    if share is not None:
                        held[at, (name.sender, owner)] = share
        fresh = _recombined(way, held, known, first)
    return len(first) >= way.hops[0].threshold


def _recombined(
    way: Way,
    held: Mapping[tuple[int, tuple[int, int]], Share],
    known: dict[tuple[int, int], bytes],
    first: dict[int, bytes],
) -> list[tuple[int, int]]:
    """Adds every key and first value of which k shares are held; returns the names of new keys."""
    fresh = []
    for at, hop in enumerate(way.hops[1:], 1):
        for sender in range(1, way.hops[at - 1].count + 1):
            parts = {name[1]: share.value for (where, name), share in held.items() if (where, name[0]) == (at, sender)}
            if len(parts) < hop.threshold:
                continue
            value = combine(dict(list(parts.items())[: hop.threshold]))
            if at == 1:
                first.setdefault(sender, value)
            elif (at - 1, sender) not in known:
                known[at - 1, sender] = value
                fresh.append((at - 1, sender))
    return fresh
