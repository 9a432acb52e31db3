"""An index of many predicates, which finds the predicates holding for a message: each alternative is a bit.

For each attribute and kind of comparison the index keeps the set of alternatives a value fails, as a single long
integer, or builds the set from few parts: for `=` and `!=` a set for each constant, for `<` and `>` the constants in
order with the union of all later ones after every few. An OR for each attribute and kind gives the alternatives that
do not hold. Exact: nothing has to be evaluated afterwards. A change touches the unions of its attributes. Paper item
C10.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Protocol

from bridge.predicates.comparing import Comparison, Name, Op, Predicate, Readable, Value

NAMES_MAX = 256
"""The most attributes of one index. Each attribute costs every match a little: stops clients that invent names. An
owner has at most as many as then are free for others.
"""
SLOTS_MAX = 32_768
"""The most alternatives of one index: bounds its memory, about 150 MB in the worst case. An owner has at most as many
as then are free for others.
"""
CHUNK, UNIONS = 6, 512
"""Constants between two unions: at most twice the larger of `CHUNK` and the part that makes `UNIONS` unions. Bounds
memory and the work of a change. A set of at most `CHUNK` slots is kept as a set, a larger one as bits."""


class _Test(Protocol):
    """An index of an attribute and one kind of comparison. `needed`: the alternatives with such a comparison."""

    needed: int

    def toggle_slot(self, one: Comparison, slot: int) -> None:
        """Enters the comparison of an alternative, or takes it out if it is in."""

    def failing_slots(self, value: Value, few: list[int]) -> int:
        """Returns the alternatives with a comparison of this kind that does not hold; puts some of them into `few`
        instead.
        """


class _Equal:
    __slots__ = ("_by_value", "needed")

    def __init__(self) -> None:
        self.needed = 0
        self._by_value: dict[Value, set[int] | int] = {}  # few slots as a set, many as bits

    def toggle_slot(self, one: Comparison, slot: int) -> None:
        held = self._by_value.get(one.value)
        if isinstance(held, int):
            held ^= 1 << slot
            self._by_value[one.value] = held if held.bit_count() > CHUNK // 2 else set(slots_of(held))
            return
        changed = (held or set()) ^ {slot}
        if len(changed) > CHUNK:
            self._by_value[one.value] = bits_of(changed)
        elif changed:
            self._by_value[one.value] = changed
        else:
            del self._by_value[one.value]

    def _held(self, value: Value) -> int:
        held = self._by_value.get(value, 0)
        return held if isinstance(held, int) else bits_of(held)

    def failing_slots(self, value: Value, few: list[int]) -> int:
        return self.needed ^ self._held(value)


class _Unequal(_Equal):
    __slots__ = ()

    def failing_slots(self, value: Value, few: list[int]) -> int:
        return self._held(value)


class _Above:
    """An index of `>` and `>=`: a value fulfils the comparisons with the smallest constants. `> c` is `>=` the next
    number after c.
    """

    __slots__ = ("_after", "_chunks", "_count", "_first_values", "_firsts", "needed")

    def __init__(self) -> None:
        self.needed = self._count = 0
        # Constants in order, and the slot of each; slots of equal constants are in order too.
        self._chunks: list[tuple[list[float], list[int]]] = [([], [])]
        self._firsts: list[tuple[float, int]] = []  # the first constant and slot of every chunk but the first
        self._first_values: list[float] = []
        self._after = [0]  # the union of all chunks after each

    def toggle_slot(self, one: Comparison, slot: int) -> None:
        assert isinstance(one.value, float)
        self._change(math.nextafter(one.value, math.inf) if one.op is Op.GT else one.value, slot)

    def _change(self, constant: float, slot: int) -> None:
        at, bit = bisect_right(self._firsts, (constant, slot)), 1 << slot
        constants, slots = self._chunks[at]
        low = bisect_left(constants, constant)
        place = bisect_left(slots, slot, low, bisect_right(constants, constant, low))
        if place < len(slots) and (constants[place], slots[place]) == (constant, slot):
            del constants[place], slots[place]
            self._count -= 1
        else:
            constants.insert(place, constant)
            slots.insert(place, slot)
            self._count += 1
        after = self._after
        for earlier in range(at):
            after[earlier] ^= bit
        if len(slots) > 2 * max(CHUNK, self._count // UNIONS):
            self._split(at)
        elif not slots and len(self._chunks) > 1:
            gone = max(0, at - 1)
            del self._chunks[at], self._firsts[gone], self._first_values[gone], after[at]

    def _split(self, at: int) -> None:
        constants, slots = self._chunks[at]
        half = len(slots) // 2
        self._chunks[at : at + 1] = [(constants[:half], slots[:half]), (constants[half:], slots[half:])]
        self._firsts.insert(at, (constants[half], slots[half]))
        self._first_values.insert(at, constants[half])
        self._after.insert(at, self._after[at] | bits_of(slots[half:]))

    def failing_slots(self, value: Value, few: list[int]) -> int:
        return self._beyond(value, few) if isinstance(value, float) else self.needed

    def _beyond(self, value: float, few: list[int]) -> int:
        """Returns the union after the chunk containing the value; puts the failing slots of that chunk into `few`."""
        at = bisect_right(self._first_values, value)
        constants, slots = self._chunks[at]
        few += slots[bisect_right(constants, value) :]
        return self._after[at]


class _Below(_Above):
    """An index of `<` and `<=`, kept as `>` and `>=` of negated numbers."""

    __slots__ = ()

    def toggle_slot(self, one: Comparison, slot: int) -> None:
        assert isinstance(one.value, float)
        self._change(math.nextafter(-one.value, math.inf) if one.op is Op.LT else -one.value, slot)

    def failing_slots(self, value: Value, few: list[int]) -> int:
        return self._beyond(-value, few) if isinstance(value, float) else self.needed


_KINDS: dict[Op, type[_Equal | _Above]] = {
    Op.EQ: _Equal, Op.NE: _Unequal, Op.GT: _Above, Op.GE: _Above, Op.LT: _Below, Op.LE: _Below,
}  # fmt: skip


class PredicateIndex:
    """An index of predicates by slots: each alternative has a slot from its addition to its removal. What an owner
    holds bounds what is added for that owner; the owner "" has no share, and may use all.
    """

    def __init__(self) -> None:
        self._tests: dict[tuple[Name, type[_Equal | _Above]], _Test] = {}
        self._names: dict[Name, int] = {}
        self._held: dict[int, tuple[Comparison, ...]] = {}
        self._free: list[int] = []
        self._owners: dict[int, str] = {}  # by slot, but for slots of ""
        self._owned: Counter[str] = Counter()
        self._named: dict[str, Counter[Name]] = {}  # attributes of an owner, each with its comparisons

    def __len__(self) -> int:
        """Returns the number of alternatives."""
        return len(self._held)

    def add(self, predicate: Predicate, owner: str = "") -> tuple[int, ...]:
        """Adds a predicate of an owner and returns its slots; alternatives that can never hold get none. The caller
        checks `has_room` before.
        """
        needed = (_needed(dict.fromkeys(conjunction)) for conjunction in predicate.conjunctions)
        slots = tuple(self._enter(comparisons) for comparisons in needed if comparisons is not None)
        for slot in slots if owner else ():
            self._owners[slot] = owner
            self._owned[owner] += 1
            self._named.setdefault(owner, Counter()).update(one.name for one in self._held[slot])
        return slots

    def has_room(self, predicates: Sequence[Predicate], owner: str = "") -> bool:
        """Returns True if all these predicates fit beside the present ones, and leave others as much as their owner
        then has.
        """
        names = {one.name for each in predicates for conjunction in each.conjunctions for one in conjunction}
        more = sum(len(each.conjunctions) for each in predicates)
        free = SLOTS_MAX - len(self._held) - more
        free_names = NAMES_MAX - len(self._names) - len(names - self._names.keys())
        if not owner:
            return free >= 0 and free_names >= 0
        known = self._named.get(owner, Counter()).keys()
        brings_names = len(known | names) > len(known) and not names <= self._names.keys()
        return self._owned[owner] + more <= free and (not brings_names or len(known | names) <= free_names)

    def _enter(self, held: tuple[Comparison, ...]) -> int:
        slot = heappop(self._free) if self._free else len(self._held)
        self._held[slot] = held
        for one in held:
            kind = _KINDS[one.op]
            test = self._tests.get((one.name, kind))
            if test is None:
                test = self._tests[one.name, kind] = kind()
            test.needed |= 1 << slot
            test.toggle_slot(one, slot)
            self._names[one.name] = self._names.get(one.name, 0) + 1
        return slot

    def remove(self, slots: Iterable[int]) -> None:
        """Removes a predicate by its slots."""
        for slot in slots:
            held = self._held.pop(slot)
            self._disown(slot, held)
            for one in held:
                self._tests[one.name, _KINDS[one.op]].toggle_slot(one, slot)
            for key in {(one.name, _KINDS[one.op]) for one in held}:
                self._tests[key].needed ^= 1 << slot
                if not self._tests[key].needed:
                    del self._tests[key]
            for one in held:
                self._names[one.name] -= 1
                if not self._names[one.name]:
                    del self._names[one.name]
            heappush(self._free, slot)

    def _disown(self, slot: int, held: tuple[Comparison, ...]) -> None:
        owner = self._owners.pop(slot, "")
        if not owner:
            return
        named = self._named[owner]
        named.subtract(one.name for one in held)
        for name in {one.name for one in held if not named[one.name]}:
            del named[name]
        self._owned[owner] -= 1
        if not self._owned[owner]:
            del self._owned[owner], self._named[owner]

    def match(self, attributes: Readable, among: int) -> int:
        """Returns the slots of `among` whose alternatives hold, as bits."""
        few: list[int] = []
        failing = 0
        for (name, _), test in self._tests.items():
            if not test.needed & among:
                continue  # the attribute is not read either
            value = attributes.get(name)
            failing |= test.needed if value is None else test.failing_slots(value, few)
        return among ^ (among & (failing | bits_of(few)))


def _needed(comparisons: Iterable[Comparison]) -> tuple[Comparison, ...] | None:
    """Reduces comparisons to one of each kind for each attribute, except `!=`: of two bounds the tighter. None if the
    conjunction can never hold.
    """
    found: list[Comparison] = []
    single: dict[tuple[Name, type[_Equal | _Above]], Comparison] = {}
    for one in comparisons:
        if one.op is Op.NE:
            found.append(one)
            continue
        key = one.name, _KINDS[one.op]
        known = single.get(key)
        if known is not None and one.op is Op.EQ:
            return None
        if known is None or _is_tighter(one, known):
            single[key] = one
    return (*found, *single.values())


def _is_tighter(one: Comparison, known: Comparison) -> bool:
    assert isinstance(one.value, float)
    assert isinstance(known.value, float)
    if one.value == known.value:
        return one.op in (Op.GT, Op.LT)
    return one.value > known.value if one.op in (Op.GT, Op.GE) else one.value < known.value


def slots_of(bits: int) -> Iterator[int]:
    """Yields the places of the bits that are set, ascending."""
    text = bin(bits)[:1:-1]
    at = text.find("1")
    while at >= 0:
        yield at
        at = text.find("1", at + 1)


def bits_of(slots: Iterable[int]) -> int:
    """Returns the number with these bits set."""
    places = tuple(slots)
    data = bytearray((max(places, default=0) >> 3) + 1)
    for slot in places:
        data[slot >> 3] |= 1 << (slot & 7)
    return int.from_bytes(data, "little")
