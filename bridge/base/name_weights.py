"""Weights of names in a tree of branches: they decide which name is dropped when a table of names is full.

From the root on the heaviest branch is followed; names that end at one branch are a branch of their own, whose oldest
name is dropped. A branch alone may fill the table, and takes nothing from other branches until these are heavier. The
branches of a topic are its levels, unless the table says otherwise: rights are given below prefixes, and a client that
may publish below a single prefix takes nothing from others. A change costs a few steps a level, however many names
there are: each branch keeps its children in a heap, whose outdated entries are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

_NAMES = "\0"
"""The branch of the names that end at a branch; no topic, client id or user name contains U+0000."""


class _Branch:
    """Branch of names at one level, or one name: then `topic` is set, and `place` is its age. `of_names`: names are
    below.
    """

    __slots__ = ("below", "of_names", "order", "place", "topic", "weight")

    def __init__(self, topic: str | None = None, place: int = 0, of_names: bool = False) -> None:
        self.weight, self.topic, self.place, self.of_names = 0, topic, place, of_names
        self.below: dict[str, _Branch] = {}
        self.order: list[tuple[int, int, str]] = []  # rank and level of children, the first one first

    def rank(self, child: _Branch) -> tuple[int, int]:
        return (0 if self.of_names else -child.weight), child.place

    def reorder(self, level: str) -> None:
        """Enters a child whose weight has changed."""
        child = self.below[level]
        if len(self.order) > 2 * len(self.below) + 8:
            self.order = [(*self.rank(one), key) for key, one in self.below.items()]
            heapify(self.order)
        else:
            heappush(self.order, (*self.rank(child), level))

    def heaviest(self) -> _Branch:
        while True:
            *rank, level = self.order[0]
            child = self.below.get(level)
            if child is not None and self.rank(child) == tuple(rank):
                return child
            heappop(self.order)


def levels_above(topic: str) -> list[str]:
    """Returns all levels of a topic but the last."""
    return topic.split("/")[:-1]


class NameWeights:
    """Names with a weight each. `branches`: gives the branches above a name, from the root on; as long as the name is
    here they must not change.
    """

    def __init__(self, branches: Callable[[str], Sequence[str]] = levels_above) -> None:
        self._branches = branches
        self._root = _Branch()
        self._weights: dict[str, int] = {}
        self._places = 0

    def __len__(self) -> int:
        return len(self._weights)

    def put(self, topic: str, weight: int) -> None:
        """Enters a name, or its new weight, as the newest."""
        self.drop(topic)
        self._weights[topic] = weight
        self._places += 1
        path, node = [], self._root
        for level in (*self._branches(topic), _NAMES, topic):
            path.append((node, level))
            if level not in node.below:
                is_name = node.of_names
                node.below[level] = _Branch(topic if is_name else None, self._places * is_name, level == _NAMES)
            node = node.below[level]
        self._weigh(path, weight)

    def drop(self, topic: str) -> None:
        """Forgets a name, if it is known."""
        weight = self._weights.pop(topic, None)
        if weight is None:
            return
        path, node = [], self._root
        for level in (*self._branches(topic), _NAMES, topic):
            path.append((node, level))
            node = node.below[level]
        self._weigh(path, -weight)

    def _weigh(self, path: list[tuple[_Branch, str]], by: int) -> None:
        for parent, level in path:
            child = parent.below[level]
            child.weight += by
            if child.weight:
                parent.reorder(level)
            else:
                del parent.below[level]

    def heaviest(self) -> str:
        """Returns the name to drop. Raises IndexError if there are no names."""
        node = self._root
        while node.topic is None:
            node = node.heaviest()
        return node.topic
