"""What of the publications one of several receivers takes, and how their number changes while everything runs.

Each receiver subscribes to whole scopes, as everybody does: replicas learn nothing finer. What is of another part it
acknowledges unread. A publication's part follows from its wire topic, which is the same for all of its pieces.

When the number changes, the parts change with it. No receiver can know what another one has written, so the change
is tied to what all pieces of a publication say alike: the time at which its publisher sealed it, signed in its header.
What was sealed before `since_ms` goes by the parts of before, the rest by the new ones; so each publication has exactly
one receiver at any moment, whenever its pieces come and whichever receiver is restarted when. A time that a replica
altered only sends its copy astray: no signature fits it, at any receiver.

Pure. Not here: which level names the device (`sharding`).
"""

from __future__ import annotations

from keys.envelope import SignedHeader, from_property

from .sharding import Shard

TOPICS_REMEMBERED = 65_536
"""Verdicts on topics that are kept; wire topics are not verified yet, and whoever invents them empties this only."""


class Part:
    """`shard` from `since_ms` (UNIX time) on, `before` until then; None takes nothing."""

    def __init__(self, shard: Shard | None, before: Shard | None = None, since_ms: int = 0) -> None:
        self._shard, self._before, self._since_ms = shard, before, since_ms
        self._known: dict[str, tuple[bool, bool]] = {}

    def takes(self, wire_topic: str, told: str) -> bool:
        """Whether a publication is ours. `told`: property `vmq` as it came. Raises BadFrame."""
        owned = self._known.get(wire_topic)
        if owned is None:
            if len(self._known) >= TOPICS_REMEMBERED:
                self._known.clear()
            now = _owns(self._shard, wire_topic)
            owned = self._known[wire_topic] = now, _owns(self._before, wire_topic) if self._since_ms else now
        now, before = owned
        if now is before:
            return now
        sealed_ms = SignedHeader.decode(from_property(told)).header.time_ms
        return before if sealed_ms < self._since_ms else now


def _owns(shard: Shard | None, wire_topic: str) -> bool:
    return shard is not None and shard.owns(wire_topic)
