"""Things by owner: as a dict of lists, however many each has."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.base import Belongings

ACTS = st.lists(st.tuples(st.sampled_from(["add", "drop", "renew"]), st.integers(0, 2), st.integers(0, 5)))


@given(ACTS)
def test_it_is_as_a_list_for_each_owner(acts: list[tuple[str, int, int]]) -> None:
    held: Belongings[int, int] = Belongings()
    model: dict[int, list[int]] = {}
    for act, owner, thing in acts:
        has = thing in model.get(owner, [])
        if act == "add":
            if not any(thing in things for things in model.values()):
                held.add(owner, thing)
                model.setdefault(owner, []).append(thing)
        elif act == "drop" and has:
            held.drop_thing(owner, thing)
            model[owner].remove(thing)
            model = {each: things for each, things in model.items() if things}
        elif act == "renew" and has:
            held.renew_thing(owner, thing)
            model[owner].remove(thing)
            model[owner].append(thing)
        elif act == "drop":
            with pytest.raises(KeyError):
                held.drop_thing(owner, thing)
        assert len(held) == len(model)
        assert all(list(held.things_of(each)) == model.get(each, []) for each in range(3))
        if model:
            most = max(len(things) for things in model.values())
            assert held.oldest_of_most() in [things[0] for things in model.values() if len(things) == most]
            for each in range(3):
                loses = most > len(model.get(each, [])) + 1
                assert held.oldest_of_more(each) == (held.oldest_of_most() if loses else None)
    if not model:
        assert held.oldest_of_more(0) is None
        with pytest.raises(ValueError, match="empty"):
            held.oldest_of_most()


def test_who_has_one_thing_costs_little() -> None:
    held: Belongings[int, int] = Belongings()
    held.add(1, 7)
    assert sys.getsizeof(held.things_of(1)) < 64
