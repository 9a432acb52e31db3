"""Weights of names in a tree of branches: they decide which name is dropped when a table of names is full.

From the root on the heaviest branch is followed; names that end at one branch are a branch of their own, whose oldest
name is dropped. A branch alone may fill the table, and takes nothing from other branches until these are heavier. The
branches of a topic are its levels, unless the table says otherwise: rights are given below prefixes, and a client that
may publish below a single prefix takes nothing from others. A change costs a few steps a level, however many names
there are: each branch keeps its children in a heap, whose outdated entries are skipped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

_NAMES = "\0"
"""The branch of the names that end at a branch; no topic, client id or user name contains U+0000."""


class _Names:
    """Names that end at one branch, with the weight of each, oldest first."""

    __slots__ = ("each", "weight")

    def __init__(self) -> None:
        self.weight = 0
        self.each: OrderedDict[str, int] = OrderedDict()


class _Branch:
    """Branch of names at one level. `below`: longer branches, and the names that end here."""

    __slots__ = ("below", "order", "weight")

    def __init__(self) -> None:
        self.weight = 0
        self.below: dict[str, _Branch | _Names] = {}
        self.order: list[tuple[int, str]] = []  # weight below zero and level of children, the heaviest first

    def reorder(self, level: str) -> None:
        """Enters a child whose weight has changed."""
        if len(self.order) > 2 * len(self.below) + 8:
            self.order = [(-child.weight, key) for key, child in self.below.items()]
            heapify(self.order)
        else:
            heappush(self.order, (-self.below[level].weight, level))

    def heaviest(self) -> _Branch | _Names:
        while True:
            weight, level = self.order[0]
            child = self.below.get(level)
            if child is not None and child.weight == -weight:
                return child
            heappop(self.order)


def levels_above(topic: str) -> list[str]:
    """Returns all levels of a topic but the last."""
    return topic.split("/")[:-1]


class NameWeights:
    """Names with a weight above zero each. `branches`: gives the branches above a name, from the root on; as long as
    the name is here they must not change.
    """

    def __init__(self, branches: Callable[[str], Sequence[str]] = levels_above) -> None:
        self._branches = branches
        self._root = _Branch()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def set_weight(self, topic: str, weight: int) -> None:
        """Enters a name, or its new weight, as the newest."""
        branches, node = self._branches(topic), self._root
        for level in branches:
            below = node.below.get(level)
            if below is None:
                below = node.below[level] = _Branch()
            assert isinstance(below, _Branch)
            node = below
        names = node.below.get(_NAMES)
        if names is None:
            names = node.below[_NAMES] = _Names()
        assert isinstance(names, _Names)
        old = names.each.pop(topic, None)
        names.each[topic] = weight
        self._count += old is None
        self._weigh(branches, weight - (old or 0))

    def drop_name(self, topic: str) -> None:
        """Forgets a name, if it is known."""
        branches, node = self._branches(topic), self._root
        for level in branches:
            below = node.below.get(level)
            if not isinstance(below, _Branch):
                return
            node = below
        names = node.below.get(_NAMES)
        if isinstance(names, _Names) and (weight := names.each.pop(topic, None)) is not None:
            self._count -= 1
            self._weigh(branches, -weight)

    def _weigh(self, branches: Sequence[str], by: int) -> None:
        """Adds to the weight of each of the branches, and of the names at their end."""
        node = self._root
        for level in (*branches, _NAMES):
            child = node.below[level]
            child.weight += by
            if not child.weight:
                del node.below[level]
            elif by:
                node.reorder(level)
            if isinstance(child, _Branch):
                node = child

    def heaviest(self) -> str:
        """Returns the name to drop. Raises IndexError if there are no names."""
        node: _Branch | _Names = self._root
        while isinstance(node, _Branch):
            node = node.heaviest()
        return next(iter(node.each))
