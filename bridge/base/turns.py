"""A queue for a scarce resource, origin by origin in turn: a flood of an origin does not keep another waiting.

Nothing here bounds the queue: the caller adding names drops names no longer count.
"""

from __future__ import annotations

from collections import OrderedDict


class Turns:
    """A queue of names, each once."""

    def __init__(self) -> None:
        self._origins: OrderedDict[bytes, OrderedDict[str, None]] = OrderedDict()  # the next origin first
        self._origin_of: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._origin_of)

    def add(self, name: str, origin: bytes) -> None:
        """Adds a name after its origin's names, unless the name waits already."""
        if name not in self._origin_of:
            self._origin_of[name] = origin
            self._origins.setdefault(origin, OrderedDict())[name] = None

    def take_name(self) -> str:
        """Takes out the next name. Raises KeyError if none waits."""
        origin, names = self._origins.popitem(last=False)
        name, _ = names.popitem(last=False)
        del self._origin_of[name]
        if names:
            self._origins[origin] = names
        return name

    def drop_name(self, name: str) -> None:
        """Removes a name, if it waits."""
        origin = self._origin_of.pop(name, None)
        if origin is not None:
            del self._origins[origin][name]
            if not self._origins[origin]:
                del self._origins[origin]
