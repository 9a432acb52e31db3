"""What belongs to whom, the oldest of each owner first.

Where tens of thousands of owners have one thing each, an ordered dict for every one of them takes more memory than all
the rest; so who has a single thing has a tuple. Not here: how much somebody may have (`bridge.contract.budgets`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

O = TypeVar("O", bound=Hashable)  # noqa: E741  an owner
T = TypeVar("T", bound=Hashable)


class Belongings(Generic[O, T]):
    """Things by owner; a thing has one owner at a time."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[O, tuple[T] | OrderedDict[T, None]] = {}

    def __len__(self) -> int:
        """Owners that have something."""
        return len(self._held)

    def of(self, owner: O) -> Collection[T]:
        """What somebody has, the oldest first. It must not change while this is looked through."""
        return self._held.get(owner, ())

    def add(self, owner: O, thing: T) -> None:
        """As the owner's newest; nobody has it yet."""
        held = self._held.get(owner)
        if held is None:
            self._held[owner] = (thing,)
        elif isinstance(held, tuple):
            self._held[owner] = OrderedDict.fromkeys((*held, thing))
        else:
            held[thing] = None

    def drop(self, owner: O, thing: T) -> None:
        """The owner has it no longer. Raises KeyError for what it has not."""
        held = self._held[owner]
        if isinstance(held, tuple):
            if held[0] != thing:
                raise KeyError(thing)
            del self._held[owner]
            return
        del held[thing]
        if not held:
            del self._held[owner]

    def renew(self, owner: O, thing: T) -> None:
        """Of what its owner has it is now the newest. Raises KeyError for what it has not."""
        held = self._held[owner]
        if isinstance(held, OrderedDict):
            held.move_to_end(thing)

    def oldest_of_most(self) -> T:
        """The oldest thing of whoever has most. Raises ValueError where nobody has anything."""
        return next(iter(max(self._held.values(), key=len)))
