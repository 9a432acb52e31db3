"""Which scopes a reader has subscribed, how often, and since when it remembers all that it got of each.

What was sealed since then, and is not remembered, did not come: it is late, and no replay, however long it was on its
way. It waited for us while our links were cut, at its publisher while its own were, or between regions. A *generation*
is one subscription of a scope, from when a local client wants it until none does; what came before it is not waited
for. A scope whose tokens change is one all the while, under its first number (`Scope.stream`); so is one that a former
process had subscribed when it ended, for which replicas kept what came, and of which it says since when all is known.
That ends when nobody wants the scope for an hour: replicas send nothing of it any more by then, if they ever did.
Not here: what came (`streams`), what was sealed before or while we were away (`freshness`), statements (`interest`).
"""

from __future__ import annotations

from bridge.document import Overlay
from bridge.reader.freshness import FRESH_S, Away
from bridge.reader.interest import ScopeInterest
from bridge.reader.kept import ALIVE, SCOPE, KeptReader, Rows, of_kind
from bridge.wire.admission import GATEWAY_SESSION_S
from keys.frames import number

FORGOTTEN_MAX = 1_024
"""Authors of one scope of whom something was forgotten; with one more all of them count so."""


class Subscriptions:
    """Of one gateway. `kept`: where rows for a next process go. Scopes are named by their streams."""

    def __init__(self, kept: KeptReader) -> None:
        self._kept = kept
        self.away = Away()
        """Between our former process and this one."""
        self._wanted: frozenset[int] = frozenset()  # by local clients, as `follow` heard last
        self._generations: dict[int, int] = {}  # how often each was subscribed
        self._since: dict[int, float] = {}  # when each was subscribed last, by this process
        self._whole_since: dict[int, float] = {}  # since when all that came is remembered, of those that are subscribed
        self._forgotten: dict[int, dict[bytes, float]] = {}  # by scope and author: the same where that is later
        self._goes_on: dict[int, float] = {}  # what former processes had subscribed -> until when it may go on

    def restore(self, rows: Rows, now: float) -> None:
        """What a former process had subscribed, and since when; and when it was last alive."""
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
        """Local clients want what they want now; of what is wider than before, replicas left something out."""
        before, filters, widened = self._wanted, interest.wanted(), interest.widened()
        self._wanted = frozenset(scope.stream for scope in overlay.policy.scopes if scope.filter in filters)
        overdue = [stream for stream, until in self._goes_on.items() if now > until]
        for stream in (*(before - self._wanted), *overdue):
            self.paused(stream)
        for stream in self._wanted - before:
            self.resumed(stream, now)
        for stream in {scope.stream for scope in overlay.policy.scopes if scope.filter in widened} if widened else ():
            self.widened(stream, now)

    def resumed(self, stream: int, now: float) -> None:
        """It is subscribed (again): what was published meanwhile is not waited for. It goes on where our former
        process had it too, not long ago."""
        if now <= self._goes_on.pop(stream, 0.0):
            self._whole_from(stream, self._whole_since[stream])
            return
        self._generations[stream] = self.generation(stream) + 1
        self._since[stream] = now
        self._whole_from(stream, now)

    def paused(self, stream: int) -> None:
        """It is not subscribed any more."""
        self._goes_on.pop(stream, None)
        self._whole_since.pop(stream, None)
        self._kept.drop(SCOPE + number(stream, 4))
        self._same_for_all(stream)

    def widened(self, stream: int, now: float) -> None:
        """More of it is wanted: replicas left that out until now."""
        if stream in self._whole_since:
            self._whole_from(stream, now)

    def forgot(self, author: bytes, stream: int, now: float) -> None:
        """Something that came of an author is remembered no more. By its clock it may have been sealed a bit later."""
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
        """Which subscription of the scope this is; 0 before the first of this process."""
        return self._generations.get(stream, 0)

    def is_before(self, stream: int, time_ms: int) -> bool:
        """Whether that was before this process subscribed it."""
        return time_ms / 1000 < self._since.get(stream, 0.0)

    def may_be_new(self, author: bytes, stream: int, time_ms: int, now: float) -> bool:
        """Whether what was sealed then may be new where nothing is known of what its author published there."""
        return self.away.is_fresh(time_ms, now) or self.would_know(author, stream, time_ms, now)

    def would_know(self, author: bytes, stream: int, time_ms: int, now: float) -> bool:
        """Whether it would be remembered, had it come: it was sealed after the subscription, and is not to come."""
        since = self._whole_since.get(stream)
        if since is not None and stream in self._forgotten:
            since = max(since, self._forgotten[stream].get(author, 0.0))
        return since is not None and since < time_ms / 1000 <= now

    def _whole_from(self, stream: int, since: float) -> None:
        self._whole_since[stream] = since
        self._kept.put(SCOPE + number(stream, 4), _ms(since))


def _ms(at: float) -> bytes:
    return number(int(at * 1000), 8)
