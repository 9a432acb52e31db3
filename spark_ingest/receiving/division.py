"""What of the publications one of several receivers takes, and how their number changes while everything runs.

Each receiver subscribes to whole scopes, as everybody does: replicas learn nothing finer. What is of another part it
acknowledges unread, but for the key that rides on it: publications of all parts are sealed under it. A publication's
part follows from its number, which is the same for all of its pieces.

When the number changes, the parts change with it. No receiver can know what another one has written, so the change
is tied to what all pieces of a publication say alike: the time at which its publisher sealed it, signed in its header.
What was sealed before the change goes by the parts of before, the rest by the new ones; so each publication has exactly
one receiver, whenever its pieces come and whichever receiver is restarted when. Who forgets a change lets a bad replica
send what is in one part of the spool to the receiver of another one, which knows nothing of it. A time that a replica
altered only sends its copy astray: no signature fits it, at any receiver.

Pure. Not here: what a part is (`sharding`).
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from keys.envelope import SignedHeader, from_property
from spark_ingest.spool import Shard


class Part:
    """`shard` now, and before that what `eras` say: (UNIX time in ms until which it counted, part), oldest first.

    None takes nothing.
    """

    def __init__(self, shard: Shard | None, eras: Sequence[tuple[int, Shard | None]] = ()) -> None:
        self._untils = [until_ms for until_ms, _ in eras]
        self._shards = (*(before for _, before in eras), shard)

    def takes(self, told: str) -> bool:
        """Whether a publication is ours. `told`: property `vmq` as it came. Raises BadFrame."""
        header = SignedHeader.decode(from_property(told)).header
        shard = self._shards[bisect.bisect_right(self._untils, header.time_ms)]
        return shard is not None and shard.owns(header.sequence)
