"""The out-of-band repository of data keys: the place and life of a key sent alone (A9, docs/protocol.md §2.9).

In a scope with `keys_on_topic` no publication carries a key. The publisher sends each key once to each replica of its
region, on a topic with scope and publisher; every replica keeps (key header, its own shares), splits the shares for
the next regions and passes them on to members that want the scope and may read it now. Each replica thus is a single
copy of the repository, of which k are needed: a replica can withhold an entry, or serve an old entry, without effect,
since the header is signed and readers take headers and shares from all replicas. An entry is served while its key may
seal and a little longer, or while a retained publication names the key; then the entry is erased, as with its epoch.

Not here: the shares and their splits (`resplitting`), rights to the shares (`forwarder`), making keys (`data_keys`).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from bridge.document import Refresh
from bridge.wire.statements import CONTROL_ROOT, KEYS_TOPIC
from keys.errors import BadFrame
from keys.frames import to_property
from keys.keyheader import KeyHeader

KEY_TOPIC_PREFIX = f"{CONTROL_ROOT}/key/"
SCOPE_ID_BYTES = 8  # of a name, not of a secret: two scopes with one id share only a topic
KEY_LATE_S = 60.0  # a key's last publication may come so much later, or a newcomer may ask for it
SPENT_LATE_S = 10.0  # after a key's last message went through here; other replicas may be behind us
SWEEP_S = 60.0  # between erasures of ended keys


def key_topic(scope: str, publisher: bytes) -> str:
    """Returns the topic of a publisher's keys in the scope with this wire filter."""
    scope_id = hashlib.sha256(scope.encode()).digest()[:SCOPE_ID_BYTES]
    return f"{KEY_TOPIC_PREFIX}{to_property(scope_id)}/{to_property(publisher)}"


def carries_key_alone(topic: str) -> bool:
    """Returns True if a wire on this topic is a key and no publication."""
    return topic == KEYS_TOPIC or topic.startswith(KEY_TOPIC_PREFIX)


def check_key_topic(topic: str, header: KeyHeader) -> None:
    """Raises BadFrame for an entry of the repository on the topic of another scope or publisher."""
    if topic.startswith(KEY_TOPIC_PREFIX) and topic != key_topic(header.scope, header.publisher):
        raise BadFrame("a key on the topic of another scope or publisher")


@dataclass(slots=True)
class Use:
    """The use of a key here: its arrival, the publications passed on under it, and the time of the last possible
    one.
    """

    since: float
    messages: int = 0
    spent_at: float = math.inf

    def count_use(self, limit: int, now: float) -> None:
        """Counts a publication passed on under the key, which serves at most `limit`."""
        self.messages += 1
        if self.messages == limit:
            self.spent_at = now

    def live(self, refresh: Refresh, now: float) -> bool:
        """Returns True if publications under the key may still come."""
        return now < min(self.since + refresh.age_s + KEY_LATE_S, self.spent_at + SPENT_LATE_S)
