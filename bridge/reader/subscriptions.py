"""Subscribed scopes of a reader, with the number of the subscription and the time since the reader remembers all
arrivals of each scope.

A publication sealed after that time and not remembered did not come: such a publication is late and no replay, after
however long a way. Cut links of this reader, of the publisher or between regions may have delayed the publication. A
*generation* is a single subscription of a scope, from the first interest of a local client to the end of all interest;
earlier publications are not waited for. A scope keeps its generation while its tokens change, under its first number
(`Scope.stream`). So does a scope a former process had subscribed at its end: replicas kept its publications, and a row
holds the time since which all is known. That state ends an hour after the last interest: by then replicas send nothing
of the scope any more. `streams` records arrivals, `freshness` judges publications sealed before or during an absence,
`interest` makes statements.
"""

from __future__ import annotations

from bridge.document import Overlay
from bridge.reader.freshness import FRESH_S, Away
from bridge.reader.interest import ScopeInterest
from bridge.reader.kept import ALIVE, SCOPE, KeptReader, Rows, of_kind
from bridge.wire.admission import GATEWAY_SESSION_S
from keys.frames import number

FORGOTTEN_MAX = 1_024
"""Authors of one scope with forgotten publications; with one more, all authors count as such."""


class Subscriptions:
    """The subscriptions of a gateway. `kept` takes the rows for a next process. Scopes are named by their streams."""

    def __init__(self, kept: KeptReader) -> None:
        self._kept = kept
        self.away = Away()
        """The time between the former process and this one."""
        self._wanted: frozenset[int] = frozenset()  # by local clients, as `follow` heard last
        self._generations: dict[int, int] = {}  # how often each was subscribed
        self._since: dict[int, float] = {}  # when each was subscribed last, by this process
        self._whole_since: dict[int, float] = {}  # since when all that came is remembered, of those that are subscribed
        self._forgotten: dict[int, dict[bytes, float]] = {}  # by scope and author: the same where that is later
        self._goes_on: dict[int, float] = {}  # what former processes had subscribed -> until when it may go on

    def restore(self, rows: Rows, now: float) -> None:
        """Restores a former process's subscriptions with their times, and its last life sign."""
        for key, row in of_kind(rows, SCOPE):
            stream, author, until = int.from_bytes(key[:4]), key[4:], row[8:]
            since = int.from_bytes(row[:8]) / 1000 if row else now
            if author:
                self._forgotten.setdefault(stream, {})[author] = since
                continue
            self._whole_since[stream] = since
            self._goes_on[stream] = int.from_bytes(until) / 1000 if until else now + GATEWAY_SESSION_S
            self._kept.put(SCOPE + number(stream, 4), _ms(since) + _ms(self._goes_on[stream]))
        for _, row in of_kind(rows, ALIVE):
            self.away = Away(int.from_bytes(row) / 1000, now)

    def follow(self, interest: ScopeInterest, overlay: Overlay, now: float) -> None:
        """Follows the present interest of local clients; replicas left out publications of scopes that have become
        wider.
        """
        before, filters, widened = self._wanted, interest.wanted(), interest.widened()
        self._wanted = frozenset(scope.stream for scope in overlay.policy.scopes if scope.filter in filters)
        overdue = [stream for stream, until in self._goes_on.items() if now > until]
        for stream in (*(before - self._wanted), *overdue):
            self.paused(stream)
        for stream in self._wanted - before:
            self.resumed(stream, now)
        for stream in {scope.stream for scope in overlay.policy.scopes if scope.filter in widened} if widened else ():
            self.widened(stream, now)

    @property
    def wanted(self) -> frozenset[int]:
        """The scopes wanted by local clients."""
        return self._wanted

    def resumed(self, stream: int, now: float) -> None:
        """Starts a subscription of the scope; publications of the time before are not waited for. Continues the former
        process's subscription if that ended not long ago.
        """
        if now <= self._goes_on.pop(stream, 0.0):
            self._whole_from(stream, self._whole_since[stream])
            return
        self._generations[stream] = self.generation(stream) + 1
        self._since[stream] = now
        self._whole_from(stream, now)

    def paused(self, stream: int) -> None:
        """Ends the subscription of the scope."""
        self._goes_on.pop(stream, None)
        self._whole_since.pop(stream, None)
        self._kept.drop(SCOPE + number(stream, 4))
        self._same_for_all(stream)

    def widened(self, stream: int, now: float) -> None:
        """Starts the remembered time of the scope anew: replicas left out newly wanted publications until now."""
        if stream in self._whole_since:
            self._whole_from(stream, now)

    def forgot(self, author: bytes, stream: int, now: float) -> None:
        """Notes that an author's arrivals were forgotten. By the author's clock they may have been sealed a bit
        later.
        """
        if stream not in self._whole_since:
            return
        forgotten = self._forgotten.setdefault(stream, {})
        forgotten[author] = now + FRESH_S
        self._kept.put(SCOPE + number(stream, 4) + author, _ms(now + FRESH_S))
        if len(forgotten) > FORGOTTEN_MAX:
            self._whole_from(stream, max(forgotten.values()))
            self._same_for_all(stream)

    def _same_for_all(self, stream: int) -> None:
        for author in self._forgotten.pop(stream, ()):
            self._kept.drop(SCOPE + number(stream, 4) + author)

    def generation(self, stream: int) -> int:
        """Returns the number of the scope's present subscription; 0 before the first one of this process."""
        return self._generations.get(stream, 0)

    def is_before(self, stream: int, time_ms: int) -> bool:
        """Returns True if that time was before this process subscribed the scope."""
        return time_ms / 1000 < self._since.get(stream, 0.0)

    def may_be_new(self, author: bytes, stream: int, time_ms: int, now: float) -> bool:
        """Returns True if a publication sealed then may be new, where nothing else is known of its author in the
        scope.
        """
        return self.away.is_fresh(time_ms, now) or self.would_know(author, stream, time_ms, now)

    def would_know(self, author: bytes, stream: int, time_ms: int, now: float) -> bool:
        """Returns True if an arrival of a publication sealed then would be remembered: sealed after the subscription
        and not in the future.
        """
        since = self._whole_since.get(stream)
        if since is not None and stream in self._forgotten:
            since = max(since, self._forgotten[stream].get(author, 0.0))
        return since is not None and since < time_ms / 1000 <= now

    def _whole_from(self, stream: int, since: float) -> None:
        self._whole_since[stream] = since
        self._kept.put(SCOPE + number(stream, 4), _ms(since))


def _ms(at: float) -> bytes:
    return number(int(at * 1000), 8)
