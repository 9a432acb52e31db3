"""The load of a link: messages into its queue and out of it in the last window (C7).

The congestion element is in / out of the last whole window: 1 if nothing moved, infinite if messages came and none
left. A link is free while fewer than `THRESHOLD` messages wait for it. Of several links, the smallest element is
freest, and the shortest queue decides between equals. The caller drives real queues or simulated ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

WINDOW_S = 0.05
THRESHOLD = 10
"""The paper's values. Its rule for a free link, an element of 1 with an empty queue, is the case of none waiting."""


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """The load of a link at one moment."""

    queued: int
    element: float

    @property
    def is_free(self) -> bool:
        return self.queued < THRESHOLD

    @property
    def rank(self) -> tuple[float, int]:
        """The rank of a link among others; smaller is freer."""
        return self.element, self.queued


IDLE = LinkLoad(0, 1.0)


class LinkStatus:
    """The status of a link, a row of the link status table. Times may not run backwards."""

    __slots__ = ("_before", "_in", "_out", "_window", "queued", "window_s")

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.window_s = window_s
        self._window, self._in, self._out = 0, 0, 0
        self._before = (0, 0)
        self.queued = 0

    def count_entered(self, now: float) -> None:
        """Counts a message waiting for the link."""
        self._roll(now)
        self._in += 1
        self.queued += 1

    def count_left(self, now: float) -> None:
        """Counts a message that was sent."""
        self._roll(now)
        self._out += 1
        self.queued -= 1

    def load_at(self, now: float) -> LinkLoad:
        """Returns the load by the last whole window."""
        self._roll(now)
        came, went = self._before
        return LinkLoad(self.queued, came / went if went else math.inf if came else 1.0)

    def _roll(self, now: float) -> None:
        window = int(now / self.window_s)
        if window != self._window:
            self._before = (self._in, self._out) if window == self._window + 1 else (0, 0)
            self._window, self._in, self._out = window, 0, 0
