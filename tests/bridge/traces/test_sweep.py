"""One array of times: what is due comes in order, whatever was put off, given back or given out anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.traces.sweep import FIRST_PLACES, NEVER, Sweep


def test_what_is_due_comes_earliest_first_and_no_more_than_asked_for() -> None:
    sweep = Sweep()
    places = [sweep.take_place() for _ in range(5)]
    for place, at in zip(places, (3.0, 1.0, 2.0, 9.0, 1.0), strict=True):
        sweep.set_time(place, at)
    assert sweep.first_due == 1.0
    assert sweep.due_places(0.5, 10) == (0.5, [])
    assert sweep.due_places(3.0, 10) == (1.0, [1, 4, 2, 0])
    assert sweep.due_places(3.0, 2) == (1.0, [1, 4])


def test_who_was_put_off_is_due_then_and_not_before() -> None:
    sweep = Sweep()
    place = sweep.take_place()
    sweep.set_time(place, 1.0)
    sweep.set_time(place, 5.0)
    assert sweep.first_due <= 5.0
    assert sweep.due_places(1.0, 10) == (1.0, [])
    assert sweep.first_due == 5.0, "behind a look it is exact: no deadline spins"


def test_a_place_that_was_given_back_wants_nothing_and_is_given_out_again() -> None:
    sweep = Sweep()
    first, second = sweep.take_place(), sweep.take_place()
    sweep.set_time(first, 1.0)
    sweep.set_time(second, 2.0)
    sweep.give_back(first)
    assert sweep.first_due == 2.0, "nobody waits for who is gone"
    assert sweep.due_places(10.0, 10) == (2.0, [second])
    again = sweep.take_place()
    assert again == first
    assert sweep.due_places(10.0, 10) == (2.0, [second])


def test_without_anybody_nothing_is_due() -> None:
    sweep = Sweep()
    assert (sweep.first_due, sweep.due_places(1e9, 10), sweep.first_due) == (NEVER, (1e9, []), NEVER)


@given(st.lists(st.tuples(st.integers(0, 3 * FIRST_PLACES), st.floats(0, 100)), max_size=400), st.floats(0, 100))
def test_it_is_as_a_table_of_times_however_many_there_are(puts: list[tuple[int, float]], now: float) -> None:
    sweep, table = Sweep(), dict[int, float]()
    for _ in range(3 * FIRST_PLACES + 1):
        sweep.take_place()
    for place, at in puts:
        sweep.set_time(place, at)
        table[place] = at
        assert sweep.first_due <= min(table.values())
    due = sorted((at, place) for place, at in table.items() if at <= now)
    first, places = sweep.due_places(now, 10_000)
    assert places == [place for _, place in due]
    assert first == (due[0][0] if due else now)
    assert sweep.first_due == min(table.values(), default=NEVER)
