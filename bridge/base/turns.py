"""Who waits for something scarce, origin by origin in turn: a flood of one origin does not keep another waiting.

Nothing here bounds how many wait: whoever adds drops what is no more.
"""

from __future__ import annotations

from collections import OrderedDict


class Turns:
    """Names that wait, each once."""

    def __init__(self) -> None:
        self._origins: OrderedDict[bytes, OrderedDict[str, None]] = OrderedDict()  # the next one first
        self._origin_of: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._origin_of)

    def add(self, name: str, origin: bytes) -> None:
        """At the end of its origin's names, unless it waits already."""
        if name not in self._origin_of:
            self._origin_of[name] = origin
            self._origins.setdefault(origin, OrderedDict())[name] = None

    def take(self) -> str:
        """The next one. Raises KeyError when none waits."""
        origin, names = self._origins.popitem(last=False)
        name, _ = names.popitem(last=False)
        del self._origin_of[name]
        if names:
            self._origins[origin] = names
        return name

    def drop(self, name: str) -> None:
        """It waits no longer, if it did."""
        origin = self._origin_of.pop(name, None)
        if origin is not None:
            del self._origins[origin][name]
            if not self._origins[origin]:
                del self._origins[origin]
