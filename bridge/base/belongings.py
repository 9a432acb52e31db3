"""A table of things by owner, the oldest of each owner first.

With tens of thousands of owners that have a single thing each, an ordered dict for every owner takes more memory than
all the rest; so an owner of a single thing has a tuple. Not here: the limit of an owner (`bridge.contract.budgets`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

O = TypeVar("O", bound=Hashable)  # noqa: E741  an owner
T = TypeVar("T", bound=Hashable)


class Belongings(Generic[O, T]):
    """A table of things by owner; a thing has a single owner at a time."""

    __slots__ = ("_held", "_most", "_of_size")

    def __init__(self) -> None:
        self._held: dict[O, tuple[T] | OrderedDict[T, None]] = {}
        self._of_size: dict[int, dict[O, None]] = {}  # owners of two things and more, by how many each has
        self._most = 1

    def __len__(self) -> int:
        """Returns the number of owners that have something."""
        return len(self._held)

    def things_of(self, owner: O) -> Collection[T]:
        """Returns the things of an owner, the oldest first. The caller must not change the table during iteration."""
        return self._held.get(owner, ())

    def add(self, owner: O, thing: T) -> None:
        """Adds a thing nobody has yet as the owner's newest."""
        held = self._held.get(owner)
        if held is None:
            self._held[owner] = (thing,)
        elif isinstance(held, tuple):
            self._held[owner] = OrderedDict.fromkeys((*held, thing))
            self._resized(owner, 1, 2)
        else:
            held[thing] = None
            self._resized(owner, len(held) - 1, len(held))

    def drop_thing(self, owner: O, thing: T) -> None:
        """Removes a thing from its owner. Raises KeyError if the owner does not have it."""
        held = self._held[owner]
        if isinstance(held, tuple):
            if held[0] != thing:
                raise KeyError(thing)
            del self._held[owner]
            return
        del held[thing]
        self._resized(owner, len(held) + 1, len(held))
        if not held:
            del self._held[owner]

    def _resized(self, owner: O, before: int, size: int) -> None:
        """Notes an owner's number of things, which differs by one: the greatest number does by one at most."""
        if before > 1:
            del self._of_size[before][owner]
            if not self._of_size[before]:
                del self._of_size[before]
        if size > 1:
            self._of_size.setdefault(size, {})[owner] = None
        self._most = max(self._most, size)
        while self._most > 1 and self._most not in self._of_size:
            self._most -= 1

    def renew_thing(self, owner: O, thing: T) -> None:
        """Makes a thing the newest of its owner. Raises KeyError if the owner does not have it."""
        held = self._held[owner]
        if isinstance(held, OrderedDict):
            held.move_to_end(thing)

    def oldest_of_most(self) -> T:
        """Returns the oldest thing of the owner with most things. Raises ValueError if the table is empty."""
        if not self._held:
            raise ValueError("the table is empty")
        owners = self._of_size[self._most] if self._most > 1 else self._held
        return next(iter(self._held[next(iter(owners))]))

    def oldest_of_more(self, owner: O) -> T | None:
        """Returns the oldest thing of the owner with most things, where `owner` had fewer even with one thing more.

        None: nobody has more than `owner` would have.
        """
        return self.oldest_of_most() if self._most > len(self.things_of(owner)) + 1 else None
