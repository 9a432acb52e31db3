"""Entries kept after every replica acknowledged them, for replicas that ask for pieces.

In modes `one` and `blocks` no replica has all of the content: for `REPAIR_S` others may lack pieces that a bad replica
was to carry. `pulling` makes requests, `publisher` has the outbox.
"""

from __future__ import annotations

from bridge.contract import Count, Effect, Received, Send
from bridge.publisher.sealing import Entry
from bridge.wire import Answers, PullRequest
from bridge.wire import pieces as content
from keys.envelope import Mode
from keys.errors import NotAuthorised

REPAIR_S = 10.0  # for so long others may ask for pieces of what every replica acknowledged ...
REPAIR_BYTES_MAX = 64 << 20  # ... unless it is more than this


class Repairable:
    """Entries acknowledged by all replicas: the time at which each may go, ascending, and bytes."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[float, int]] = {}
        self._bytes = 0
        self.answers = Answers()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, entry: Entry, now: float) -> list[int] | None:
        """Keeps an entry for a while. Returns the sequences that go early for it; None if it need not be kept."""
        if entry.header is None or entry.header.mode not in (Mode.ONE, Mode.BLOCKS):
            return None
        if entry.sequence in self._kept:
            return []
        size = sum(map(len, entry.pieces))
        self._kept[entry.sequence] = now + REPAIR_S, size
        self._bytes += size
        gone, left = [], self._bytes
        for sequence, (_, size) in self._kept.items():
            if left <= REPAIR_BYTES_MAX:
                break
            gone.append(sequence)
            left -= size
        return gone

    def forget(self, sequence: int) -> None:
        self._bytes -= self._kept.pop(sequence, (0.0, 0))[1]

    def due(self, now: float) -> list[int]:
        """Returns the sequences that may go."""
        return [sequence for sequence, (until, _) in self._kept.items() if until <= now]

    @property
    def next_deadline(self) -> float | None:
        first = next(iter(self._kept.values()), None)
        return None if first is None else first[0]

    def asked(self, event: Received, request: PullRequest, entry: Entry | None, now: float) -> list[Effect]:
        """Answers a replica of the home region that lacks pieces of an entry."""
        if entry is None or entry.wire is None or entry.header is None:
            return []
        if not content.has_parts(entry.header, request.parts, request.time_ms):
            return [Count("pulls_refused")]
        fits = request.parts and request.parts[-1] < len(entry.pieces)
        parts = content.enough(entry.header, request.parts if fits else range(len(entry.pieces)))
        pieces = {index: entry.pieces[index] for index in parts}
        given = self.answers.give(event.peer, request.name, entry.header.time_ms, pieces, now)
        if given is None:
            return [Count("pulls_refused")]
        return [Send(event.peer, entry.with_pieces(given)), Count("pulls_answered")]


def check_ours(ours: bool) -> None:
    """Raises NotAuthorised."""
    if not ours:
        raise NotAuthorised("a gateway has publications of its own only")
