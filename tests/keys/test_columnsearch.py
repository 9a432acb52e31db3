"""The search for a secret as shares come: each choice once, liars cost their columns, nothing false is found."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from keys.columnsearch import ColumnSearch, FoundColumns, worst_steps
from keys.errors import OurFault
from keys.sharetree import Hop, Share
from tests.keys.helpers import Made, made, path

EVERYTHING = 10**9


def search_of(of: Made) -> ColumnSearch:
    return ColumnSearch(of.hops, of.accept_level1, of.accept_secret)


def spoiled(share: Share) -> Share:
    return replace(share, value=bytes(byte ^ (0x50 + share.places[-1]) for byte in share.value))


@pytest.mark.parametrize("counts", [(3,), (3, 3), (3, 3, 3), (5, 5), (3, 5, 3)])
def test_whatever_the_order_the_secret_is_found_when_k_columns_are_there(counts: tuple[int, ...]) -> None:
    of = made(*counts)
    for seed in range(5):
        shares = [*of.shares]
        random.Random(seed).shuffle(shares)
        search, found = search_of(of), None
        for share in shares:
            search.add([share])
            found = found or search.search(EVERYTHING, {})
        assert found is not None
        assert found.secret == of.secret


@pytest.mark.parametrize("counts", [(3, 3), (3, 3, 3), (5, 5)])
def test_one_liar_in_each_region_hides_nothing_and_the_work_is_bounded(counts: tuple[int, ...]) -> None:
    of = made(*counts)
    for liars in ([1] * len(counts), list(counts), [2] * len(counts)):
        search = search_of(of)
        wrong = [s if not any(p == x for p, x in zip(s.places, liars, strict=True)) else spoiled(s) for s in of.shares]
        search.add(wrong)
        found = search.search(EVERYTHING, {})
        assert found is not None
        assert found.secret == of.secret
        assert search.steps <= worst_steps(of.hops)
        for depth, place in enumerate(liars[1:], 2):
            assert (depth, place) not in {(d, p) for d, subset in enumerate(found.combination, 2) for p in subset}


def test_columns_that_contradicted_are_tried_last() -> None:
    of = made(5, 5)
    liars = {1, 2}
    wrong = [spoiled(s) if s.places[-1] in liars else s for s in of.shares]
    first = search_of(of)
    first.add(wrong)
    found = first.search(EVERYTHING, {})
    assert found is not None
    assert first.steps > 3
    contradicted = first.contradictions(found)
    assert set(contradicted) == {(2, place) for place in liars}
    second = search_of(of)
    second.add(wrong)
    assert second.search(EVERYTHING, Counter(contradicted)) is not None
    assert second.steps == 3  # k rows under one choice


def test_a_commitment_that_nothing_fits_costs_each_choice_once_however_often_it_is_asked() -> None:
    of = made(3, 3, 3)
    search = ColumnSearch(of.hops, lambda place, value: False, of.accept_secret)
    for share in of.shares:
        search.add([share])
        assert search.search(EVERYTHING, {}) is None
    assert search.steps == worst_steps(of.hops) == 27
    assert search.is_complete
    assert not search.is_pending()
    search.add(of.shares)
    assert search.search(EVERYTHING, {}) is None
    assert search.steps == 27


def test_a_spent_budget_delays_and_drops_nothing() -> None:
    of = made(3, 3, 3)
    search = search_of(of)
    search.add([spoiled(s) if s.places[-1] == 1 else s for s in of.shares])
    turns = 0
    found: FoundColumns | None = None
    while found is None:
        turns += 1
        found = search.search(1, {})
        assert found is not None or search.is_pending()
        assert search.steps <= turns
    assert found.secret == of.secret
    assert turns > 3


def test_rows_that_fit_and_a_secret_that_does_not_are_the_members_fault() -> None:
    of = made(3, 3)
    search = ColumnSearch(of.hops, of.accept_level1, lambda secret: False)
    search.add(of.shares)
    assert search.search(EVERYTHING, {}) is None
    assert search.is_refuted
    assert not search.is_pending()
    assert search.steps == 2, "nothing else can mend it"


def test_the_first_value_of_a_label_stays() -> None:
    of = made(3, 3)
    search = search_of(of)
    assert search.add(of.shares) == 9
    assert search.add([spoiled(share) for share in of.shares]) == 0
    found = search.search(EVERYTHING, {})
    assert found is not None
    assert found.secret == of.secret


def test_tags_of_different_splits_are_never_combined() -> None:
    of = made(3, 3)
    search = search_of(of)
    search.add([replace(s, tags=(bytes([s.places[-1]] * 4),)) for s in of.shares])
    assert search.search(EVERYTHING, {}) is None


def test_paths_that_are_too_large_are_refused() -> None:
    for hops in (path(3, 3, 3, 3, 3), path(11, 11, 11)):
        with pytest.raises(OurFault):
            ColumnSearch(hops, lambda place, value: True, lambda secret: True)
    assert isinstance(path(3)[0], Hop)
