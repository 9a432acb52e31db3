"""The index says of every message what evaluating each predicate says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bridge.predicates import Comparison, Name, Op, Predicate, PredicateIndex, Value, slots_of
from bridge.predicates.matching import CHUNK, NAMES_MAX, SLOTS_MAX, bits_of
from tests.bridge.predicates.drawn import attributes, predicates

bits = bits_of


class Histories(RuleBasedStateMachine):
    """Predicates come and go; after each change a message is matched both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.index, self.held = PredicateIndex(), list[tuple[Predicate, tuple[int, ...]]]()
        self.message: dict[Name, Value] = {}

    @rule(one=predicates)
    def add(self, one: Predicate) -> None:
        self.held.append((one, self.index.add(one)))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.held:
            _, slots = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
            self.index.remove(slots)

    @rule(message=attributes)
    def look_at(self, message: dict[Name, Value]) -> None:
        self.message = message

    @invariant()
    def equals_the_naive_answer(self) -> None:
        everything = sum(bits(slots) for _, slots in self.held)
        found = self.index.match(self.message, everything)
        for one, slots in self.held:
            assert bool(found & bits(slots)) == one.holds_for(self.message)
        assert len(self.index) == everything.bit_count()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.tuples(st.sampled_from([Op.GT, Op.GE, Op.LT, Op.LE]), st.integers(0, 40)), max_size=300), st.data())
@settings(max_examples=30, deadline=None)
def test_many_bounds_of_one_attribute(bounds: list[tuple[Op, int]], data: st.DataObject) -> None:
    """Enough for several chunks; half of them go again."""
    index, name = PredicateIndex(), ("a",)
    held = {at: (op, index.add(Predicate(((Comparison(name, op, float(c)),),)))) for at, (op, c) in enumerate(bounds)}
    for at in range(0, len(bounds), 2):
        index.remove(held.pop(at)[1])
    everything = sum(bits(slots) for _, slots in held.values())
    value = float(data.draw(st.integers(-1, 41)))
    found = index.match({name: value}, everything)
    for at, (op, slots) in held.items():
        assert bool(found & bits(slots)) == Comparison(name, op, float(bounds[at][1])).holds_for(value)


def test_constants_in_rising_order_are_split_into_chunks_that_vanish_again() -> None:
    index = PredicateIndex()
    slots = [index.add(Predicate(((Comparison(("a",), Op.GE, float(at)),),))) for at in range(30 * CHUNK)]
    assert index.match({("a",): 99.0}, (1 << len(slots)) - 1).bit_count() == 100
    for each in slots[:100]:
        index.remove(each)
    assert index.match({("a",): 110.0}, sum(map(bits, slots[100:]))).bit_count() == 11
    for each in slots[100:]:
        index.remove(each)
    assert (len(index), index.match({("a",): 99.0}, 0)) == (0, 0)


def test_only_what_is_asked_for_is_found() -> None:
    index = PredicateIndex()
    first, second = (index.add(Predicate(((Comparison(("a",), Op.EQ, 1.0),),))) for _ in range(2))
    assert index.match({("a",): 1.0}, bits(second)) == bits(second)
    assert index.match({("a",): 1.0}, bits(first) | bits(second)) == bits(first) | bits(second)


def test_names_and_alternatives_are_bounded() -> None:
    index = PredicateIndex()
    held = [index.add(Predicate(((Comparison((f"n{at}",), Op.EQ, 1.0),),))) for at in range(NAMES_MAX)]
    known, new = (Comparison((name,), Op.EQ, 1.0) for name in ("n0", "new"))
    assert index.has_room([Predicate(((known,),))])
    assert not index.has_room([Predicate(((known, new),))])
    index.remove(held[1])
    assert index.has_room([Predicate(((known, new),))] * 2)
    assert not index.has_room([Predicate(((known,),) * 2)] * (SLOTS_MAX // 2))


@pytest.mark.long
@pytest.mark.attack(152)
def test_one_owner_leaves_others_as_much_as_it_has() -> None:
    """Attack: one client holds all alternatives, or names all attributes: nobody else could subscribe by content."""
    index = PredicateIndex()

    def filled(owner: str, name: str) -> list[tuple[int, ...]]:
        held = []
        while index.has_room([one := Predicate(((Comparison((name.format(len(held)),), Op.EQ, 1.0),),))], owner):
            held.append(index.add(one, owner))
        return held

    names = filled("evil", "n{}")
    assert len(names) == NAMES_MAX // 2
    known, new = (Predicate(((Comparison((name,), Op.EQ, 1.0),),)) for name in ("n0", "own"))
    assert index.has_room([known], "evil")
    assert not index.has_room([new], "evil")
    assert index.has_room([new], "good")
    slots = filled("evil", "n0")
    assert len(names) + len(slots) == SLOTS_MAX // 2
    assert index.has_room([new] * 100, "good")
    kept = index.add(new, "good")
    for one in (*names, *slots):
        index.remove(one)
    assert index.has_room([new] * (SLOTS_MAX // 2 - 1), "evil")
    index.remove(kept)
    assert (index._owners, dict(index._owned), index._named) == ({}, {}, {})


def test_a_constant_of_many_is_one_of_few_again() -> None:
    index, name = PredicateIndex(), ("a",)
    held = [index.add(Predicate(((Comparison(name, op, "x"),),))) for op in (Op.EQ, Op.NE) for _ in range(3 * CHUNK)]
    for count in range(len(held), 0, -1):
        everything = bits(slot for slots in held[:count] for slot in slots)
        equal = min(count, 3 * CHUNK)
        assert index.match({name: "x"}, everything).bit_count() == equal
        assert index.match({name: "y"}, everything).bit_count() == count - equal
        index.remove(held[count - 1])


@given(st.integers(0, 1 << 80))
def test_slots_of_bits(found: int) -> None:
    assert sum(1 << slot for slot in slots_of(found)) == found
