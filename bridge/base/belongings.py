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

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[O, tuple[T] | OrderedDict[T, None]] = {}

    def __len__(self) -> int:
        """Returns the number of owners that have something."""
        return len(self._held)

    def of(self, owner: O) -> Collection[T]:
        """Returns the things of an owner, the oldest first. The caller must not change the table during iteration."""
        return self._held.get(owner, ())

    def add(self, owner: O, thing: T) -> None:
        """Adds a thing nobody has yet as the owner's newest."""
        held = self._held.get(owner)
        if held is None:
            self._held[owner] = (thing,)
        elif isinstance(held, tuple):
            self._held[owner] = OrderedDict.fromkeys((*held, thing))
        else:
            held[thing] = None

    def drop(self, owner: O, thing: T) -> None:
        """Removes a thing from its owner. Raises KeyError if the owner does not have it."""
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
        """Makes a thing the newest of its owner. Raises KeyError if the owner does not have it."""
        held = self._held[owner]
        if isinstance(held, OrderedDict):
            held.move_to_end(thing)

    def oldest_of_most(self) -> T:
        """Returns the oldest thing of the owner with most things. Raises ValueError if the table is empty."""
        return next(iter(max(self._held.values(), key=len)))

    def oldest_of_more(self, owner: O) -> T | None:
        """Returns the oldest thing of the owner with most things, where `owner` had fewer even with one thing more.

        None: nobody has more than `owner` would have.
        """
        most = max(self._held.values(), key=len, default=())
        return next(iter(most)) if len(most) > len(self.of(owner)) + 1 else None
