"""The search along a long way: whatever the order, whoever lies, at a cost that grows by the regions; and the audit."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, product

import pytest

from keys.errors import OurFault
from keys.wrapping import Wrap, WrapName
from keys.wrapsearch import WrapAudit, WrapSearch, audited, worst_wrap_steps
from tests.keys.helpers import path
from tests.keys.wrapped import Bad, Way, garbage

pytestmark = pytest.mark.invariant(2)

EVERYTHING = 10**9
FIVE = Way((3, 3, 3, 3, 3))
SIXTEEN = Way((3,) * 16)


@pytest.mark.parametrize(
    "way",
    [FIVE, SIXTEEN, Way((3, 3, 3)), Way((5, 3, 5, 7, 3)), Way((3, 1, 3, 4, 3))],
    ids=lambda way: "-".join(map(str, way.counts)),
)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_order_the_secret_is_found(way: Way, seed: int) -> None:
    rng = random.Random(seed)
    came = [*way.told, *way.wraps]
    rng.shuffle(came)
    search, found = way.search(), None
    for one in came:
        if isinstance(one, Wrap):
            search.add_wraps([one])
        else:
            assert search.add_shares([one]) == 1
            assert search.add_shares([one]) == 0
        found = found or search.search(EVERYTHING, {})
    assert found is not None
    assert found.secret == way.secret
    assert search.is_complete
    assert search.steps <= worst_wrap_steps(way.hops)
    assert {place: way.level1[place - 1].value for place in found.rows} == found.rows


def test_honest_replicas_cost_one_step_for_each_that_wraps_and_each_first_value() -> None:
    search = SIXTEEN.opened()
    assert search.search(EVERYTHING, {}) is not None
    assert search.steps == 3 * 14 + 2, "k values of the first region are enough"
    assert worst_wrap_steps(SIXTEEN.hops) == 15 * 3 * 3


@pytest.mark.long
@pytest.mark.parametrize("spoil", [garbage, lambda value: None], ids=["garbage", "silent"])
def test_every_placement_of_one_liar_a_region_hides_nothing(spoil: object) -> None:
    """243 placements on five regions of three."""
    for places in product((1, 2, 3), repeat=5):
        way = Way((3,) * 5, {at: (place,) for at, place in enumerate(places)}, spoil)  # type: ignore[arg-type]
        search = way.opened()
        assert search.search(EVERYTHING, {}) is not None, places
        assert search.steps <= worst_wrap_steps(way.hops) == 36


def test_places_that_contradicted_are_tried_last() -> None:
    way = Way((5, 5, 5, 5, 5), dict.fromkeys(range(5), (1, 2)), garbage)
    first = way.opened()
    found = first.search(EVERYTHING, {})
    assert found is not None
    contradicted = first.contradictions(found)
    assert set(contradicted) <= set(product(range(2, 6), (1, 2)))
    assert {(5, 1), (5, 2)} <= set(contradicted)
    second = way.opened()
    assert second.search(EVERYTHING, contradicted) is not None
    assert second.steps < first.steps


def test_a_spent_budget_delays_and_drops_nothing() -> None:
    search, turns = FIVE.opened(), 0
    while search.search(1, {}) is None:
        turns += 1
        assert search.steps == turns
        assert search.is_pending()
    assert turns == 3 * 3 + 1


def test_a_commitment_that_nothing_fits_costs_each_subset_once() -> None:
    search = WrapSearch(FIVE.hops, FIVE.header.digest, lambda place, value: False, lambda secret: True)
    search.add_shares(FIVE.told)
    search.add_wraps(FIVE.wraps)
    assert search.search(EVERYTHING, {}) is None
    assert search.steps == 9 + 3 * 3
    assert search.is_complete
    assert not search.is_pending()
    search.add_shares(FIVE.told)
    search.add_wraps(FIVE.wraps)
    assert search.search(EVERYTHING, {}) is None
    assert search.steps == 9 + 3 * 3


def test_rows_that_fit_and_a_secret_that_does_not_are_the_publishers_fault() -> None:
    search = WrapSearch(FIVE.hops, FIVE.header.digest, FIVE.fits, lambda secret: False)
    search.add_shares(FIVE.told)
    search.add_wraps(FIVE.wraps)
    assert search.search(EVERYTHING, {}) is None
    assert search.is_refuted
    assert not search.is_pending()


def test_wraps_of_another_key_open_nothing() -> None:
    """A replay of what the same replicas sealed under an earlier key, with the shares of the present one."""
    other = Way((3,) * 5, seed="earlier")
    search = FIVE.search()
    search.add_wraps(other.wraps)
    search.add_shares(FIVE.told)
    assert search.search(EVERYTHING, {}) is None
    assert not search.rows


def test_the_first_wrap_of_a_name_stays() -> None:
    search = FIVE.search()
    search.add_wraps(FIVE.wraps)
    search.add_wraps([wrap._replace(sealed=garbage(wrap.sealed)) for wrap in FIVE.wraps])
    search.add_shares(FIVE.told)
    assert search.search(EVERYTHING, {}) is not None


def test_a_wrap_that_comes_behind_its_key_is_opened_at_once() -> None:
    late = [wrap for wrap in FIVE.wraps if wrap.name.owner.region == 2]
    one = next(wrap for wrap in FIVE.wraps if wrap.name == WrapName(FIVE.place(3, 2), 1))
    search = FIVE.search()
    search.add_wraps(wrap for wrap in FIVE.wraps if wrap not in (*late, one))
    search.add_shares(FIVE.told)
    assert search.search(EVERYTHING, {}) is None
    search.add_wraps([one, *late])
    assert search.search(EVERYTHING, {}) is not None


@pytest.mark.parametrize("counts", [(3, 3), (3,) * 17, (9,) * 11])
def test_ways_beyond_the_limits_are_refused(counts: tuple[int, ...]) -> None:
    with pytest.raises(OurFault):
        WrapSearch(path(*counts), bytes(32), lambda place, value: True, lambda secret: True)


# ---------------------------------------------------------------------------------------------------- audit


def audit(way: Way) -> tuple[set[tuple[int, int]], set[tuple[int, int]], Counter[tuple[int, int]]]:
    """Who contradicts himself, who is suspected, and how many subsets of the next region each is refuted beside."""
    found = audited(way.hops, way.header.digest, way.told, way.wraps, way.fits)
    return found.alone, found.suspects, Counter(split for split, _ in found.refuted)


def test_honest_replicas_contradict_nothing() -> None:
    for way in (FIVE, SIXTEEN, Way((5, 3, 7, 3, 3))):
        assert audit(way) == (set(), set(), Counter())


@pytest.mark.parametrize("at", range(5))
def test_one_liar_is_suspected_where_its_values_or_its_wraps_do_not_fit(at: int) -> None:
    alone, suspects, refuted = audit(Way((3,) * 5, {at: (2,)}, garbage))
    assert (at, 2) in suspects | alone
    assert all(split[0] in (at - 1, at) for split in suspects | alone | set(refuted))


def test_a_replica_that_seals_one_wrap_under_another_key_contradicts_itself() -> None:
    spoiled = [w._replace(sealed=garbage(w.sealed)) if w.name == (FIVE.place(2, 3), 1) else w for w in FIVE.wraps]
    found = audited(FIVE.hops, FIVE.header.digest, FIVE.told, spoiled, FIVE.fits)
    assert found.alone == {(2, 3)}
    assert not found.refuted


def test_absent_shares_and_wraps_say_nothing() -> None:
    kept = [wrap for wrap in FIVE.wraps if wrap.name.owner.place != 2 and wrap.name.sender != 3]
    told = [share for share in FIVE.told if share.label[1].place != 1]
    found = audited(FIVE.hops, FIVE.header.digest, told, kept, FIVE.fits)
    assert found == WrapAudit()


@pytest.mark.parametrize("seed", range(30))
def test_what_is_refuted_was_not_all_honest(seed: int) -> None:
    """The soundness of names: whatever f liars a region do, no refuted pair and no lone contradiction is honest."""
    rng = random.Random(seed)
    counts = rng.choice([(3,) * 5, (3, 5, 3, 5), (5, 5, 5), (3,) * 7])
    bad: Bad = {at: tuple(rng.sample(range(1, n + 1), (n - 1) // 2)) for at, n in enumerate(counts)}

    def spoil(value: bytes) -> bytes | None:
        return rng.choice([value, value, None, garbage(value), rng.randbytes(32)])

    way = Way(counts, bad, spoil, seed=f"{seed}")
    honest = {(at, place) for at, n in enumerate(counts) for place in range(1, n + 1) if place not in bad[at]}
    found = audited(way.hops, way.header.digest, way.told, way.wraps, way.fits)
    assert found.alone.isdisjoint(honest)
    for (at, place), subset in found.refuted:
        assert not {(at, place), *((at + 1, owner) for owner in subset)} <= honest
    for at, n in enumerate(counts[1:], 1):
        assert any(set(c) <= {p for a, p in honest if a == at} for c in combinations(range(1, n + 1), n // 2 + 1))
