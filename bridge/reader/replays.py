"""What of what a reader gets may be a replay: sealed in a dead epoch, or old and the first of its stream.

Replicas let through what is of a live epoch only, so an older one is honest only where a replica kept it for us while
we were away; a publisher that was shut out could date back what it makes now and hand it to one bad replica. So what is
not live counts when f + 1 different replicas of our region brought it: one of them is honest and took it when it was
fresh. The same rule covers our own clock, should it differ by more than the calendar allows.

Whose stream is known to us may have been offline and bring old news; the first that we hear of a stream must be young,
or retained, as the signed header says: any broker may set the flag of a packet. Not here: what is known of a stream.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, defaultdict

from bridge.document import Overlay
from bridge.reader.freshness import Away
from bridge.wire import Admitted
from keys.envelope import MessageHeader
from keys.frames import number

VOUCHED_MAX = 16_384  # publications of dead epochs, of each replica that brought them the last ones


NEVER_AWAY = Away()


def is_dated(header: MessageHeader, now: float, away: Away = NEVER_AWAY) -> bool:
    """Whether it is too old, or too young, to be the first that is heard of a stream. `away`: when we were not."""
    return not header.retain and not away.is_fresh(header.time_ms, now)


class Vouchers:
    """Which replicas of region `home` brought what is of no live epoch."""

    def __init__(self, overlay: Overlay, home: int) -> None:
        self.overlay = overlay
        self._home = home
        self._hosted = overlay.hosted  # while we run
        # Of each replica for itself: whoever brings without end forgets what it vouched for, and nothing of others.
        self._brought: defaultdict[str, OrderedDict[bytes, None]] = defaultdict(OrderedDict)

    def vouched(self, peer: str, admitted: Admitted, wire_topic: str) -> bool:
        """A replica brings it: whether it is believed now."""
        if admitted.live:
            return True
        name = _name(admitted.header, wire_topic)
        if peer not in self._hosted:  # a stock broker lets in whatever it is given, however old
            brought = self._brought[peer]
            brought[name] = None
            if len(brought) > VOUCHED_MAX:
                brought.popitem(last=False)
        return self.overlay.honest_among(self._home, [peer for peer, what in self._brought.items() if name in what])


def _name(header: MessageHeader, wire_topic: str) -> bytes:
    numbers = number(header.sequence, 8) + number(header.time_ms, 8)
    return hashlib.sha256(header.publisher + numbers + header.digests[0] + wire_topic.encode()).digest()
