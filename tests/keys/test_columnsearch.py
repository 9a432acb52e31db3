"""The search for a secret as shares come: each choice once, liars cost their columns, nothing false is found."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from keys.columnsearch import FEW, ColumnSearch, FoundColumns, worst_steps
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
            search.add_shares([share])
            found = found or search.search(EVERYTHING, {})
        assert found is not None
        assert found.secret == of.secret


@pytest.mark.parametrize("counts", [(3, 3), (3, 3, 3), (5, 5)])
def test_one_liar_in_each_region_hides_nothing_and_the_work_is_bounded(counts: tuple[int, ...]) -> None:
    of = made(*counts)
    for liars in ([1] * len(counts), list(counts), [2] * len(counts)):
        search = search_of(of)
        wrong = [s if not any(p == x for p, x in zip(s.places, liars, strict=True)) else spoiled(s) for s in of.shares]
        search.add_shares(wrong)
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
    first.add_shares(wrong)
    found = first.search(EVERYTHING, {})
    assert found is not None
    assert first.steps > 3
    contradicted = first.contradictions(found)
    assert set(contradicted) == {(2, place) for place in liars}
    second = search_of(of)
    second.add_shares(wrong)
    assert second.search(EVERYTHING, Counter(contradicted)) is not None
    assert second.steps == 3  # k rows under one choice
    third = search_of(of)
    third.add_shares(wrong)
    assert third.search(EVERYTHING, dict.fromkeys(contradicted, 1)) is not None
    assert third.steps == 3, "once is enough"


def test_a_commitment_that_nothing_fits_costs_each_choice_once_however_often_it_is_asked() -> None:
    of = made(3, 3, 3)
    search = ColumnSearch(of.hops, lambda place, value: False, of.accept_secret)
    for share in of.shares:
        search.add_shares([share])
        assert search.search(EVERYTHING, {}) is None
    assert search.steps == worst_steps(of.hops) == 27
    assert search.is_complete
    assert not search.is_pending()
    search.add_shares(of.shares)
    assert search.search(EVERYTHING, {}) is None
    assert search.steps == 27


def test_a_spent_budget_delays_and_drops_nothing() -> None:
    of = made(3, 3, 3)
    search = search_of(of)
    search.add_shares([spoiled(s) if s.places[-1] == 1 else s for s in of.shares])
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
    search.add_shares(of.shares)
    assert search.search(EVERYTHING, {}) is None
    assert search.is_refuted
    assert not search.is_pending()
    assert search.steps == 2, "nothing else can mend it"


def test_the_first_value_of_a_label_stays() -> None:
    of = made(3, 3)
    search = search_of(of)
    assert search.add_shares(of.shares) == 9
    assert search.add_shares([spoiled(share) for share in of.shares]) == 0
    found = search.search(EVERYTHING, {})
    assert found is not None
    assert found.secret == of.secret


def test_tags_of_different_splits_are_never_combined() -> None:
    of = made(3, 3)
    search = search_of(of)
    search.add_shares([replace(s, tags=(bytes([s.places[-1]] * 4),)) for s in of.shares])
    assert search.search(EVERYTHING, {}) is None


def test_paths_that_are_too_large_are_refused() -> None:
    for hops in (path(3, 3, 3, 3, 3), path(11, 11, 11)):
        with pytest.raises(OurFault):
            ColumnSearch(hops, lambda place, value: True, lambda secret: True)
    assert isinstance(path(3)[0], Hop)


def test_a_search_works_out_so_many_choices_and_no_more() -> None:
    of = made(3, 3)
    search = ColumnSearch(of.hops, lambda place, value: False, of.accept_secret)
    assert (search.is_pending(), search.is_complete) == (False, False)
    search.add_shares(of.shares)
    for limit, steps in ((0, 0), (-1, 0), (2, 2), (1, 3), (EVERYTHING, 9), (EVERYTHING, 9)):
        assert search.is_pending() is (search.steps < 9)
        assert search.search(limit, {}) is None
        assert search.steps == steps
    assert worst_steps(of.hops) == 9


def test_a_liars_column_is_tried_last_also_among_few_shares() -> None:
    of = made(3, 3)
    wrong = [spoiled(share) if share.places[-1] == 1 else share for share in of.shares]
    late = [share for share in wrong if share.places in ((1, 2), (2, 2))]
    for contradicted, steps in (({}, 5), ({(2, 1): 1}, 2), ({(1, 1): 1}, 5)):
        search = search_of(of)
        search.add_shares(share for share in wrong if share not in late)
        assert search.search(EVERYTHING, {}) is None
        before = search.steps
        search.add_shares(late)
        found = search.search(EVERYTHING, contradicted)
        assert found is not None
        assert (found.combination, search.steps - before) == (((2, 3),), steps)


def test_a_known_liar_whose_shares_come_first_is_tried_last() -> None:
    of = made(3, 3)
    wrong = [spoiled(share) if share.places[-1] == 1 else share for share in of.shares]
    search = search_of(of)
    search.add_shares(sorted(wrong, key=lambda share: share.places[-1]))
    found = search.search(EVERYTHING, {(2, 1): 1})
    assert found is not None
    assert (found.combination, search.steps) == (((2, 3),), 2)


def test_what_was_found_says_by_which_rows_and_whom_to_trust_less() -> None:
    of = made(3, 3)
    search = search_of(of)
    search.add_shares(spoiled(share) if share.places[-1] == 1 else share for share in of.shares)
    found = search.search(EVERYTHING, {})
    assert found is not None
    assert all(of.accept_level1(place, value) for place, value in found.rows.items())
    assert len(found.rows) == 2
    contradicted = search.contradictions(found)
    assert set(contradicted) == {(2, 1)}
    assert repr(found.secret)[2:-1] not in repr(found)
    assert repr(next(iter(found.rows.values())))[2:-1] not in repr(found)


def test_the_largest_paths_are_searched() -> None:
    for hops, steps in ((path(3), 3), (path(3, 3, 3, 3), 81), (path(4, 16, 16), 4 * 11_440**2)):
        assert worst_steps(hops) == steps
    for hops in ((), path(5, 16, 16), path(1, 1, 1, 1, 1)):
        with pytest.raises(OurFault):
            worst_steps(hops)


def test_shares_that_come_one_by_one_complete_a_choice_with_the_last_that_it_lacks() -> None:
    of = made(3, 3)
    search = search_of(of)
    needed = [share for share in of.shares if share.places[0] < 3 and share.places[1] < 3]
    for share in needed[:-1]:
        assert search.add_shares([share]) == 1
        assert search.search(EVERYTHING, {}) is None
    assert (search.steps, search.is_pending(), search.is_complete) == (0, False, False)
    assert search.add_shares(needed) == 1
    assert search.is_pending()
    found = search.search(EVERYTHING, {})
    assert found is not None
    assert (found.secret, search.steps) == (of.secret, 2)


def test_what_was_refuted_is_never_searched_again() -> None:
    of = made(3, 3)
    search = ColumnSearch(of.hops, of.accept_level1, lambda secret: False)
    search.add_shares(share for share in of.shares if share.places[0] < 3)
    assert search.search(EVERYTHING, {}) is None
    search.add_shares(of.shares)
    assert (search.search(EVERYTHING, {}), search.is_pending(), search.steps) == (None, False, 2)


def some(of: Made, *places: tuple[int, int]) -> list[Share]:
    """Shares of two regions by their places, in this order."""
    by_places = {share.places: share for share in of.shares}
    return [by_places[each] for each in places]


@pytest.mark.parametrize("split", [0, 1])
def test_tags_of_every_split_keep_shares_of_different_splits_apart(split: int) -> None:
    """In the third region or in the second: what has other tags is of another polynomial."""
    of = made(3, 3, 3)

    def other(share: Share) -> Share:
        tags = list(share.tags)
        tags[split] = bytes([share.places[split + 1]] * 4)
        return replace(share, tags=tuple(tags))

    search = ColumnSearch(of.hops, lambda place, value: True, lambda secret: True)
    search.add_shares(map(other, of.shares))
    assert search.search(EVERYTHING, {}) is None
    assert search.steps == worst_steps(of.hops)


def test_a_row_that_fits_is_worked_out_no_more() -> None:
    of = made(3, 3)
    search = search_of(of)
    search.add_shares(spoiled(share) if share.places in ((2, 1), (3, 1)) else share for share in of.shares)
    found = search.search(EVERYTHING, {})
    assert found is not None
    assert (found.secret, search.steps) == (of.secret, 6)


def test_rows_may_fit_under_different_choices() -> None:
    """Row 1 is complete in columns 1 and 2, row 2 in 2 and 3; a false row 3 lets row 1 be worked out at last."""
    of = made(3, 3)
    false = [spoiled(share) for share in some(of, (3, 1), (3, 2))]
    search = search_of(of)
    search.add_shares([*some(of, (1, 1), (1, 2)), *false, *some(of, (2, 2), (2, 3))])
    found = search.search(EVERYTHING, {})
    assert found is not None
    assert (found.secret, set(found.rows), found.combination) == (of.secret, {1, 2}, ((2, 3),))


def test_what_a_row_that_fits_makes_possible_is_tried_in_the_next_search() -> None:
    of = made(3, 3)
    search = search_of(of)
    search.add_shares(some(of, (1, 1), (1, 2), (2, 2), (2, 3)))
    assert search.search(EVERYTHING, {}) is None
    assert not search.is_pending(), "no choice has two rows"
    search.add_shares(spoiled(share) for share in some(of, (3, 1), (3, 2)))
    assert search.search(EVERYTHING, {}) is None
    assert (set(search.rows), search.is_pending()) == ({1}, True)
    found = search.search(EVERYTHING, {})
    assert found is not None
    assert found.secret == of.secret


def test_choices_that_are_not_complete_hide_none_that_is() -> None:
    of = made(7, 5)
    search = search_of(of)
    assert search.add_shares(share for share in of.shares if share.places[1] > 2) > FEW
    found = search.search(EVERYTHING, {})
    assert found is not None
    assert (found.secret, found.combination, search.steps) == (of.secret, ((3, 4, 5),), 4)


def test_a_row_that_lacks_shares_hides_none_that_is_complete() -> None:
    of = made(3, 3)
    search = search_of(of)
    search.add_shares(some(of, (3, 1), (1, 1), (1, 2), (2, 1), (2, 2)))
    found = search.search(EVERYTHING, {})
    assert found is not None
    assert found.secret == of.secret


def test_whatever_a_budget_cuts_a_row_that_fits_makes_others_possible() -> None:
    of = made(3, 3)
    search = search_of(of)
    search.add_shares(some(of, (1, 1), (1, 2), (2, 2), (2, 3)))
    assert search.search(EVERYTHING, {}) is None
    search.add_shares(spoiled(share) for share in some(of, (3, 1), (3, 2)))
    found = [search.search(1, {}) for _ in range(6)]
    assert [each.secret for each in found if each is not None][:1] == [of.secret]


def test_a_search_is_complete_with_every_share_of_its_path() -> None:
    of = made(5, 3)
    search = search_of(of)
    for count, share in enumerate(of.shares, 1):
        search.add_shares([share])
        assert search.is_complete is (count == 15)
