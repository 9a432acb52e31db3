"""The division of publications among several receivers, and a change of their number while everything runs.

Each receiver subscribes to whole scopes, as everybody does: replicas learn nothing finer. A piece of another part is
acknowledged unread, but for its key: publications of all parts are sealed under it. A publication's
part follows from its number, which all of its pieces have.

When the number of receivers changes, the parts change with it. No receiver can know the rows of another, so the change
is tied to a fact that all pieces of a publication carry: the time at which its publisher sealed it, signed in its
header. Publications sealed before the change go by the former parts, the rest by the new ones; so each publication has
exactly one receiver, whenever its pieces come and whichever receiver is restarted when. A receiver forgetting a change
lets a bad replica send rows of a part to the receiver of another part, which does not know them. A replica that alters
the time only sends its copy astray: no signature fits it, at any receiver.

Pure. Not here: the meaning of a part (`sharding`).
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from keys.envelope import SignedHeader, from_property
from spark_ingest.spool import Shard


class Part:
    """`shard` now; before that `eras`, as (UNIX time in ms until which it counted, part), oldest first. None takes
    nothing.
    """

    def __init__(self, shard: Shard | None, eras: Sequence[tuple[int, Shard | None]] = ()) -> None:
        self._untils = [until_ms for until_ms, _ in eras]
        self._shards = (*(before for _, before in eras), shard)

    def takes(self, told: str) -> bool:
        """Returns True if a publication is in this part. `told`: the received property `vmq`. Raises BadFrame."""
        header = SignedHeader.decode(from_property(told)).header
        shard = self._shards[bisect.bisect_right(self._untils, header.time_ms)]
        return shard is not None and shard.owns(header.sequence)
