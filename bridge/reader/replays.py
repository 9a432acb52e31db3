"""What of what a reader gets may be a replay: sealed in a dead epoch, or old and the first of its stream.

Replicas let through what is of a live epoch only, so an older one is honest only where a replica kept it for us while
we were away; a publisher that was shut out could date back what it makes now and hand it to one bad replica. So what is
not live counts when f + 1 different replicas of our region brought it: one of them is honest and took it when it was
fresh. The same rule covers our own clock, should it differ by more than the calendar allows.

Whose stream is known to us may have been offline and bring old news; the first that we hear of a stream must be young,
or retained, as the signed header says: any broker may set the flag of a packet. Not here: what is known of a stream.
"""

from __future__ import annotations

from bridge.contract import FairTable
from bridge.document import Overlay
from bridge.reader.freshness import Away
from bridge.wire import Admitted
from keys.envelope import MessageHeader

VOUCHED_MAX = 16_384  # publications of dead epochs whose bringers are known; who brought most first loses its own


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
        self._brought: FairTable[tuple[bytes, int, int, bytes, str], set[str]] = FairTable(VOUCHED_MAX)

    def vouched(self, peer: str, admitted: Admitted, wire_topic: str) -> bool:
        """A replica brings it: whether it is believed now."""
        if admitted.live:
            return True
        header = admitted.header
        what = (header.publisher, header.sequence, header.time_ms, header.digests[0], wire_topic)
        peers = self._brought.get(what)
        if peers is None:
            peers = set()
            self._brought.put(what, peer.encode(), peers)
        if peer not in self._hosted:  # a stock broker lets in whatever it is given, however old
            peers.add(peer)
        return self.overlay.honest_among(self._home, peers)
