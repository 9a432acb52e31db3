"""What of the publications one of several receivers takes, and how their number changes while everything runs.

Each receiver subscribes to whole scopes, as everybody does: replicas learn nothing finer. What is of another part it
acknowledges unread, but for the key that rides on it: publications of all parts are sealed under it. A publication's
part follows from its wire topic, which is the same for all of its pieces, a batch's from publisher and number.

When the number changes, the parts change with it. No receiver can know what another one has written, so the change
is tied to what all pieces of a publication say alike: the time at which its publisher sealed it, signed in its header.
What was sealed before the change goes by the parts of before, the rest by the new ones; so each publication has exactly
one receiver, whenever its pieces come and whichever receiver is restarted when. Who forgets a change lets a bad replica
send what is in one part of the spool to the receiver of another one, which knows nothing of it. A time that a replica
altered only sends its copy astray: no signature fits it, at any receiver.

Pure. Not here: which level names the device (`sharding`).
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from bridge.document import is_batch_topic
from keys.envelope import SignedHeader, from_property
from spark_ingest.spool import Shard

TOPICS_REMEMBERED = 65_536
"""Verdicts on topics that are kept; wire topics are not verified yet, and whoever invents them empties this only."""
TOPIC_CHARS_REMEMBERED = 1_024
"""Of longer ones none is kept: a topic may have 64 KiB, and the table 4 GiB."""


class Part:
    """`shard` now, and before that what `eras` say: (UNIX time in ms until which it counted, part), oldest first.

    None takes nothing.
    """

    def __init__(self, shard: Shard | None, eras: Sequence[tuple[int, Shard | None]] = ()) -> None:
        self._untils = [until_ms for until_ms, _ in eras]
        self._shards = (*(before for _, before in eras), shard)
        self._known: dict[str, tuple[bool, ...]] = {}

    def takes(self, wire_topic: str, told: str) -> bool:
        """Whether a publication is ours. `told`: property `vmq` as it came. Raises BadFrame."""
        if is_batch_topic(wire_topic):
            header = SignedHeader.decode(from_property(told)).header
            shard = self._shards[bisect.bisect_right(self._untils, header.time_ms)]
            return shard is not None and shard.owns_batch(header.publisher, header.sequence)
        owned = self._known.get(wire_topic)
        if owned is None:
            if len(self._known) >= TOPICS_REMEMBERED:
                self._known.clear()
            owned = tuple(shard is not None and shard.owns(wire_topic) for shard in self._shards)
            if len(wire_topic) <= TOPIC_CHARS_REMEMBERED:
                self._known[wire_topic] = owned
        if len(owned) == 1 or len(set(owned)) == 1:
            return owned[0]
        sealed_ms = SignedHeader.decode(from_property(told)).header.time_ms
        return owned[bisect.bisect_right(self._untils, sealed_ms)]
