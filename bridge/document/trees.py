"""Trees of regions over time: the tree in force, the tree before, and the tree a number names.

Routing has versions of its own, inside the versions of the policy: a *tree* is numbered, and the owner counts on
whenever edges, regions or the regions of a scope change (`TreeChange`, a part of the signed policy). Views have their
own numbers: a key names a single view of each region *and* a single tree, and any pair of open ones may come together:
places and thresholds follow the views, ways follow the tree.

Of the two newest trees an `Overlay` knows which are *open*, hence may be named by keys and publications. From when a
member adopts the version with a change:

    settling    `settle_s` long: both are open, and the former is in force
    in force    the new one; the former stays open for `grace_s`
    alone       the former is closed

`TREE` says what each step does. A tree that is to come here is `UnknownView`, a closed one `Expired`: no member is
blamed for being early or late. Of the former tree only present regions count; hence a region lying between others is
not removed in a single step. None of this changes a value, as in `succession`, which drives it. Not here: the next hop
of a member (`topology`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import TypeAlias

from bridge.base import Row, Transitions
from keys.errors import BadFrame, Expired, UnknownView
from keys.frames import Reader, number

Edge: TypeAlias = tuple[int, int]

TREE_SETTLE_S = 2  # for the links of new edges; after that who is not up counts as one that is away
TREE_GRACE_S = 60  # how long the tree before stays open
STEPS_MOST = 127  # between the numbers of two open trees: more could not be told apart by `NUMBERS`
NUMBERS = 256  # publications name a tree by its number modulo this


@dataclass(frozen=True, slots=True)
class TreeChange:
    """The number of a tree, and the tree before.

    `since_ms`: when it was signed first. `settle_s`: seconds that members wait with it after they learned of it; 0
    where regions change, since nothing can then be sealed for the former. `former`: the edges before, until the owner
    leaves them out. `steps`: difference of the two numbers; a tree that never came into force leaves a gap.
    """

    number: int = 0
    since_ms: int = 0
    settle_s: int = 0
    grace_s: int = 0
    former: tuple[Edge, ...] | None = None
    steps: int = 1

    def followed_by(
        self, edges: tuple[Edge, ...], since_ms: int, settle_s: int, grace_s: int, steps: int = 1
    ) -> TreeChange:
        """Returns the next change; `edges` are the edges that it replaces."""
        return TreeChange(self.number + steps, since_ms, settle_s, grace_s, edges, steps)

    @property
    def settled(self) -> TreeChange:
        """Returns the change without the closed tree before."""
        return TreeChange(self.number, self.since_ms)

    @property
    def closes_ms(self) -> int:
        """UNIX time in ms when the former tree is closed at a member that learned of the change at once."""
        return self.since_ms + 1000 * (self.settle_s + self.grace_s)

    def encode(self) -> bytes:
        parts = [number(self.number, 4), number(self.since_ms, 8), number(self.settle_s, 4), number(self.grace_s, 4)]
        return b"".join([*parts, number(0 if self.former is None else self.steps, 1), encode_edges(self.former or ())])

    @classmethod
    def read(cls, frame: Reader) -> TreeChange:
        """Reads a change. Raises BadFrame."""
        numbers = frame.number(4), frame.number(8), frame.number(4), frame.number(4)
        steps, former = frame.number(1), read_edges(frame)
        if steps > min(STEPS_MOST, numbers[0]):
            raise BadFrame(f"tree {numbers[0]} of regions follows one {steps} numbers before")
        return cls(*numbers, former, steps) if steps else cls(*numbers)


FIRST_TREE = TreeChange()


def encode_edges(edges: Collection[Edge]) -> bytes:
    """Encodes count(2), and each edge region(4) region(4)."""
    return number(len(edges), 2) + b"".join(number(a, 4) + number(b, 4) for a, b in edges)


def read_edges(frame: Reader) -> tuple[Edge, ...]:
    """Reads edges. Raises BadFrame."""
    return tuple([(frame.number(4), frame.number(4)) for _ in range(frame.number(2))])


class Tree:
    """Regions and their edges. `joined`: they are a single tree, without cycles."""

    def __init__(self, tree_number: int, edges: Iterable[Edge], regions: Collection[int]) -> None:
        self.number = tree_number
        self.regions = frozenset(regions)
        self.edges = frozenset(frozenset(e) for e in edges if self.regions.issuperset(e) and len(set(e)) == 2)
        beside: dict[int, set[int]] = {region: set() for region in self.regions}
        for a, b in map(tuple, self.edges):
            beside[a].add(b)
            beside[b].add(a)
        self._neighbours = {region: tuple(sorted(others)) for region, others in beside.items()}
        self._paths = {start: self._paths_from(start) for start in self.regions}
        whole = all(len(paths) == len(self.regions) for paths in self._paths.values())
        self.joined = whole and len(self.edges) == max(0, len(self.regions) - 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return (self.number, self.edges, self.regions) == (other.number, other.edges, other.regions)

    def __hash__(self) -> int:
        return hash((self.number, self.edges))

    def neighbours(self, region: int) -> tuple[int, ...]:
        """Returns the regions a single edge away."""
        return self._neighbours.get(region, ())

    def path(self, start: int, end: int) -> tuple[int, ...]:
        """Returns the regions from `start` to `end`, both included; none if one of them is not in this tree."""
        return self._paths.get(start, {}).get(end, ())

    def longest(self, start: int, ends: Iterable[int]) -> int:
        """Returns the number of regions on the longest way from `start` to one of `ends`, both included."""
        return max((len(self.path(start, end)) for end in ends), default=0)

    def _paths_from(self, start: int) -> dict[int, tuple[int, ...]]:
        paths: dict[int, tuple[int, ...]] = {start: (start,)}
        queue = deque([start])
        while queue:
            region = queue.popleft()
            for following in self._neighbours[region]:
                if following not in paths:
                    paths[following] = (*paths[region], following)
                    queue.append(following)
        return paths


class Phase(IntEnum):
    """The phase of a change, as the module's head lists them."""

    SETTLING = 0
    IN_FORCE = 1
    ALONE = 2


class Due(StrEnum):
    """An event in the life of a change of the tree."""

    SETTLED = "settled"
    CLOSED = "closed"


TREE = Transitions(
    "A change of the tree",
    (Phase.SETTLING, Phase.IN_FORCE, Phase.ALONE),
    (
        Row(Due.SETTLED, (Phase.SETTLING,), Phase.IN_FORCE,
            "publishers seal for the newer tree, and seal again what too few replicas acknowledged"),
        Row(Due.CLOSED, tuple(Phase), Phase.ALONE,
            "wires that name the former tree have expired, its keys and shares are erased, its links end"),
    ),
    "the next change; it begins settled where no region can seal for the former, and closed without a former",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trees:
    """The newest tree, the tree before while it may be open, and the phase of the change here.

    `known_ms`: when we learned of it.
    """

    newest: Tree
    former: Tree | None
    change: TreeChange
    known_ms: int
    phase: Phase

    @classmethod
    def at_start(cls, change: TreeChange, edges: Collection[Edge], regions: Collection[int]) -> Trees:
        """Returns the trees of a member that starts and knows nothing else: the change counts from its signature."""
        former = None
        if change.former is not None:
            before = {region for edge in change.former for region in edge} or set(regions)  # there was one region only
            former = Tree(change.number - change.steps, change.former, before.intersection(regions))
        phase = Phase.ALONE if former is None else Phase.IN_FORCE if not change.settle_s else Phase.SETTLING
        return cls(Tree(change.number, edges, regions), former, change, change.since_ms, phase)

    @property
    def in_force(self) -> Tree:
        """The tree for which publications are sealed now."""
        return self.former if self.phase is Phase.SETTLING and self.former is not None else self.newest

    @property
    def open(self) -> tuple[Tree, ...]:
        """Trees that keys and publications may name, the newest first."""
        return (self.newest,) if self.phase is Phase.ALONE or self.former is None else (self.newest, self.former)

    @property
    def sealed_for(self) -> tuple[Tree, ...]:
        """Open trees without a settling one."""
        return (self.in_force,) if self.phase is Phase.SETTLING else self.open

    def tree_numbered(self, tree_number: int) -> Tree:
        """Returns the open tree of a number. Raises UnknownView for a future tree, Expired for a closed one."""
        for tree in self.open:
            if tree.number == tree_number:
                return tree
        if tree_number > self.newest.number:
            raise UnknownView(f"tree {tree_number} of regions is to come here")
        raise Expired(f"tree {tree_number} of regions is closed")

    def number_of(self, low: int) -> int:
        """Returns the tree number nearest to the newest that equals `low` modulo `NUMBERS`."""
        half, newest = NUMBERS // 2, self.newest.number
        return newest + (low - newest + half) % NUMBERS - half

    def next_change(self) -> float | None:
        """Returns when `phase_at` changes next, in UNIX seconds; None if never."""
        steps = {Phase.SETTLING: self._settles_s, Phase.IN_FORCE: self._closes_s}
        return steps.get(self.phase)

    def phase_at(self, now: float) -> Phase:
        """Returns the phase at a time; no phase comes back."""
        if self.former is None or now >= self._closes_s:
            return TREE.after((Due.CLOSED, self.phase))
        if self.phase is Phase.SETTLING and now >= self._settles_s:
            return TREE.after((Due.SETTLED, self.phase))
        return self.phase

    def follows(self, old: Trees) -> bool:
        """Returns True if a member that has `old` may take these: numbers count on, and a single number is a single
        tree.
        """
        same = self.newest.number == old.newest.number and self.newest.edges == old.newest.edges
        return same or self.newest.number > old.newest.number

    def beside(self, old: Trees, now: float) -> Trees:
        """Returns these trees for a member that has `old` and learns of them now.

        The tree in force in `old` stays open, though the signer of these did not know of it.
        """
        trees, present = replace(self, known_ms=int(now * 1000)), old.in_force
        edges = [(min(edge), max(edge)) for edge in present.edges]
        left = Tree(present.number, edges, present.regions & self.newest.regions)
        if not left.joined or present.number == self.newest.number:
            return trees
        if self.newest.number < present.number:  # the owner took up others than were in force there
            change = replace(self.change, settle_s=TREE_SETTLE_S, grace_s=max(self.change.grace_s, old.change.grace_s))
            return replace(trees, former=left, change=change, phase=Phase.SETTLING)
        return trees if self.former is None or self.former.number >= present.number else replace(trees, former=left)

    @property
    def _settles_s(self) -> float:
        return self.known_ms / 1000 + self.change.settle_s

    @property
    def _closes_s(self) -> float:
        return self._settles_s + self.change.grace_s
