"""What of what a reader gets may be a replay: sealed in a dead epoch, or old and the first of its stream.

Replicas let through what is of a live epoch only, so an older one is honest only where a replica kept it for us while
we were away; a publisher that was shut out could date back what it makes now and hand it to one bad replica. So what is
not live counts when f + 1 different replicas of our region brought it: one of them is honest and took it when it was
fresh. The same rule covers our own clock, should it differ by more than the calendar allows.

Whose stream is known to us may have been offline and bring old news; the first that we hear of a stream must be young,
or sealed since we remember all that came in its scope (`subscriptions`), or retained, as the signed header says: any
broker may set the flag of a packet. What claims to be over long ago is not verified to find that out: whoever claims it
wins nothing. Not here: what is known of a stream.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable

from bridge.contract import Count, claim_of
from bridge.document import Overlay, is_retained_topic
from bridge.reader.freshness import Away
from bridge.reader.lineages import Lineages
from bridge.reader.streams import Stream, StreamId
from bridge.wire import Admitted
from keys.envelope import MessageHeader

VOUCHED_MAX = 16_384  # publications of dead epochs, of each replica that brought them the last ones


NOT_TAKEN = (Count("duplicates_dropped"), Count("vouchers_awaited"), Count("replays_dropped"))
"""What comes of a wire that is not let in: it is not what a publication of its number waits with, over a restart."""
RECALLED_S = 30.0  # what says that it is older, and came, is not verified again; younger forgeries are charged

NEVER_AWAY = Away()


def is_dated(header: MessageHeader, now: float) -> bool:
    """Whether it is too old, or too young, to be the first that is heard of a stream, for all that its age says."""
    return not header.retain and not NEVER_AWAY.is_fresh(header.time_ms, now)


def is_replayed(
    told: str,
    wire_topic: str,
    streams: Callable[[StreamId], Stream | None],
    lineages: Lineages,
    now: float,
    may_be_new: Callable[[bytes, int, int, float], bool],
) -> bool:
    """Whether a header that nobody verified claims to be of what was seen long ago, or is dated. `told`: property `vmq`
    as it came; `may_be_new`: whether that may be the first of its stream, by author, first number of its scope, time in
    ms and our time. Raises BadFrame for what is no wire topic."""
    claim = claim_of(told)
    if not claim.publisher or claim.order or now - claim.sealed_ms / 1000 < RECALLED_S:
        return False
    stream_id = lineages.scope_stream(claim.publisher, claim.sequence, wire_topic)
    stream = streams(stream_id)
    if stream is not None:
        return stream.delivered(claim.sequence)
    number = lineages.stream_of(wire_topic)
    if is_retained_topic(wire_topic) or may_be_new(stream_id[0], number, claim.sealed_ms, now):
        return False
    return not lineages.is_to_come(wire_topic)  # that is judged when its scope is known


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
    return hashlib.sha256(header.encode() + wire_topic.encode()).digest()
