"""What f bad replicas of each region see under wrapped keys is independent of the secret (docs/protocol.md §3.5).

A model beside `tests.keys.wrapped`, which tries live functions until nothing new opens. Here every value is a row of
factors over GF(2^8), one for each unknown: the secret, all coefficients, and all wrap keys. A coalition has the shares
sent to its members, their wrap keys and the coefficients of their splits, and the value in every wrap whose key is a
combination of what it has. If the secret is no combination of that, it takes each value equally often. So more is shown
than that no way to recombine is known; that wraps hide their values without the key is AES-SIV's part.

Regions form a tree, so a wrap key is split once for each next region, and bad replicas of all branches work together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations

import pytest

from keys import shamir
from tests.keys.wrapped import Way
from tests.sim.linearview import TIMES, Overlay, Span, faulty, plus, power, threshold

Replica = tuple[int, int]
"""Region and place."""
Bad = Mapping[int, Collection[int]]

ROW = Overlay.line((3,) * 5)
TREES = {
    "a row of five": ROW,
    "a row of six": Overlay.line((3,) * 6),
    "a fork in the middle": Overlay(dict.fromkeys(range(1, 7), 3), {1: (2,), 2: (3,), 3: (4, 6), 4: (5,)}),
    "a fork at once": Overlay(dict.fromkeys(range(1, 7), 3), {1: (2, 6), 2: (3,), 3: (4,), 4: (5,)}),
    "other sizes": Overlay({1: 3, 2: 5, 3: 3, 4: 4, 5: 3}, {1: (2,), 2: (3,), 3: (4,), 4: (5,)}),
    "one of three next regions": Overlay(dict.fromkeys(range(1, 8), 3), {1: (2,), 2: (3, 6, 7), 3: (4,), 4: (5,)}),
}


class Wrapped:
    """All values of a key over a tree of regions, as rows. `related`: one polynomial serves all next regions."""

    def __init__(self, overlay: Overlay, *, related: bool = False) -> None:
        self.overlay = overlay
        self.before = {after: region for region, all_after in overlay.after.items() for after in all_after}
        self._unknowns: dict[object, int] = {}
        self._related = related
        home = overlay.home
        names = [(home, *overlay.after.get(home, ()))] + [(r, *overlay.after.get(r, ())) for r in self.before]
        for region, *following in names:
            for place in self.places(region):
                if region != home:
                    self._number(("key", (region, place)))
                for after in following:
                    for exponent in range(1, threshold(overlay.counts[after])):
                        self._number(self._coefficient((region, place), after, exponent))
        for exponent in range(1, threshold(overlay.counts[home])):
            self._number(self._coefficient((0, 0), home, exponent))
        self._number("secret")

    def _number(self, unknown: object) -> None:
        self._unknowns.setdefault(unknown, len(self._unknowns))

    def _coefficient(self, splitter: Replica, after: int, exponent: int) -> object:
        return "coefficient", splitter, 0 if self._related else after, exponent

    def places(self, region: int) -> range:
        return range(1, self.overlay.counts[region] + 1)

    def unit(self, unknown: object) -> bytes:
        row = bytearray(len(self._unknowns))
        row[self._unknowns[unknown]] = 1
        return bytes(row)

    @property
    def secret(self) -> bytes:
        return self.unit("secret")

    def split(self, splitter: Replica) -> bytes:
        """What a replica splits: its share of the secret, or behind the publisher's region its wrap key."""
        region, place = splitter
        return self.value((0, 0), splitter) if region == self.overlay.home else self.unit(("key", (region, place)))

    def value(self, sender: Replica, owner: Replica) -> bytes:
        """What a replica is sent; the sender (0, 0) is the publisher."""
        region, place = owner
        row = self.secret if sender == (0, 0) else self.split(sender)
        for exponent in range(1, threshold(self.overlay.counts[region])):
            unit = self.unit(self._coefficient(sender, region, exponent))
            row = plus(row, unit.translate(TIMES[power(place, exponent)]))
        return row

    def senders(self, owner: Replica) -> list[Replica]:
        before = self.before.get(owner[0])
        return [(0, 0)] if before is None else [(before, place) for place in self.places(before)]

    def reaches_secret(self, bad: Bad) -> bool:
        """Whether a coalition has the secret: all that opens is opened, to a fixed point."""
        members = [(region, place) for region, places in bad.items() for place in places]
        rows = [self.value(sender, member) for member in members for sender in self.senders(member)]
        rows += [self.unit(unknown) for unknown in self._unknowns if self._is_own(unknown, members)]
        inner = [region for region in self.before if self.overlay.after.get(region)]
        closed = {(region, place) for region in inner for place in self.places(region)}
        while True:
            span = Span(rows)
            opened = {owner for owner in closed if self.split(owner) in span}
            if not opened:
                return self.secret in span
            closed -= opened
            rows += [self.value(sender, owner) for owner in opened for sender in self.senders(owner)]

    @staticmethod
    def _is_own(unknown: object, members: Collection[Replica]) -> bool:
        return isinstance(unknown, tuple) and unknown[1] in members


@pytest.mark.parametrize("name", TREES)
def test_no_placement_of_f_in_each_region_sees_anything_of_the_secret(name: str) -> None:
    """All 729 placements of six regions of three, and all 2,187 of seven."""
    model = Wrapped(TREES[name])
    assert not any(map(model.reaches_secret, TREES[name].placements()))


@pytest.mark.parametrize("name", TREES)
def test_one_more_in_a_region_sees_it_and_in_a_leaf_too(name: str) -> None:
    """So the model can tell: k of any region have everything."""
    overlay = TREES[name]
    model = Wrapped(overlay)
    for region, count in overlay.counts.items():
        for extra in combinations(range(1, count + 1), threshold(count)):
            assert model.reaches_secret({region: extra}), (region, extra)
            assert not model.reaches_secret({region: extra[: faulty(count)]})


def test_one_polynomial_for_two_next_regions_would_give_the_secret_away() -> None:
    """So coefficients hang on the next region (docs/protocol.md §10): f of each branch would be k of one polynomial."""
    overlay = TREES["a fork in the middle"]
    bad = {4: (1,), 6: (2,)}
    assert Wrapped(overlay, related=True).reaches_secret(bad)
    assert not Wrapped(overlay).reaches_secret(bad)


def test_the_model_has_the_values_that_replicas_really_send() -> None:
    """Of each split: from k values the model's rows give all others, and so do the bytes on the way."""
    way = Way((3, 5, 3, 4, 3))
    model = Wrapped(Overlay.line(way.counts))
    for at in range(1, 5):
        for sender in range(1, way.counts[at - 1] + 1):
            held = {owner: share.value for (from_, owner), share in way.values[at].items() if from_ == sender}
            rows = {owner: model.value((at, sender), (at + 1, owner)) for owner in held}
            whole = way.level1[sender - 1].value if at == 1 else way.keys[at - 1, sender].value
            for chosen in combinations(held, way.hops[at].threshold):
                assert shamir.combine({place: held[place] for place in chosen}) == whole
                assert model.split((at, sender)) in Span(rows[place] for place in chosen)
            few = list(rows.values())[: way.hops[at].threshold - 1]
            assert model.split((at, sender)) not in Span(few)
