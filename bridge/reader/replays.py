"""Detection of possible replays at a reader: publications of a dead epoch, and old first publications of a stream.

Replicas let through only live epochs, so an older publication is honest only if a replica kept it while this reader
was away. A publisher that was shut out could date back a new publication and hand it to a bad replica. So a
publication that is not live counts when f + 1 different replicas of the region brought it: one of them is honest and
took it when it was fresh. This rule also covers a clock of the reader differing by more than the calendar allows.

A publisher with a known stream may have been offline and bring old news. The first publication of an unknown stream
must be young, or sealed within the time of which this reader remembers the whole scope (`subscriptions`), or retained
by the signed header: any broker may set the flag of a packet. A header whose own claims make the publication long past
is dropped unverified: a false claim gains nothing. The state of streams is elsewhere.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable

from bridge.contract import claim_of
from bridge.document import Overlay, is_retained_topic
from bridge.reader.freshness import Away
from bridge.reader.lineages import Lineages
from bridge.reader.streams import Stream, StreamId
from bridge.wire import Admitted
from keys.envelope import MessageHeader

VOUCHED_MAX = 16_384  # publications of dead epochs, of each replica that brought them the last ones


NOT_TAKEN = frozenset(("duplicates_dropped", "vouchers_awaited", "replays_dropped"))
"""Figures of a wire that is not let in: such a wire is not kept over a restart for its waiting publication."""
RECALLED_S = 30.0  # what says that it is older, and came, is not verified again; younger forgeries are charged

NEVER_AWAY = Away()


def is_dated(header: MessageHeader, now: float) -> bool:
    """Returns True if a publication is too old, or too far in the future, to be the first of a stream by its age
    alone.
    """
    return not header.retain and not NEVER_AWAY.is_fresh(header.time_ms, now)


def is_replayed(
    told: str,
    wire_topic: str,
    streams: Callable[[StreamId], Stream | None],
    lineages: Lineages,
    now: float,
    may_be_new: Callable[[bytes, int, int, float], bool],
) -> bool:
    """Returns True if an unverified header claims a publication that was seen long ago, or is dated.

    `told` is property `vmq` as it came. `may_be_new` decides on the first publication of a stream, from author, first
    number of its scope, time in ms and present time. Raises BadFrame for an invalid wire topic.
    """
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
    """The replicas of region `home` that brought each publication of no live epoch."""

    def __init__(self, overlay: Overlay, home: int) -> None:
        self.overlay = overlay
        self._home = home
        self._hosted = overlay.hosted  # while we run
        # Of each replica for itself: whoever brings without end forgets what it vouched for, and nothing of others.
        self._brought: defaultdict[str, OrderedDict[bytes, None]] = defaultdict(OrderedDict)

    def vouched(self, peer: str, admitted: Admitted, wire_topic: str) -> bool:
        """Counts the replica as a voucher and returns True if the publication is believed now."""
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
