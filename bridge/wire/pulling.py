"""Pulling: requests for missing publications, in the frame of `$veil/pull` (docs/protocol.md §4).

A mechanism for three wants: a replica that lacks content that it must pass on, a reader that lacks content or blocks,
and a reader whose stream has a hole. Sources are asked one at a time, each once before any again, responsive ones
first; a source lacking it too asks the sources before it, so that a request goes back as far as the publisher. An
answer is an ordinary publication wire and is verified as one: a request can give away nothing but sealed content.

Requests are not signed, as docs/protocol.md §4 says: they travel over a single mutually authenticated link, whose
other end is the asker. Not here: held content (`content_relay`, `publisher`), missing content of readers
(`assembling`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.contract import Budget, FairBudget, FairTable, Send, Wire
from bridge.wire.pieces import Pieces
from bridge.wire.statements import CONTROL_ROOT
from keys.errors import BadFrame
from keys.frames import Kind, Reader, number, opening
from keys.values import value

PULL_TOPIC = f"{CONTROL_ROOT}/pull"
PULL_S = 0.02  # content may come so much later than its header, a region; then it is asked for
PATIENCE_MAX_S = 0.5  # where content is usually late, we wait for as long as usual, up to this: a busy host is no liar
RETRY_S = 0.1  # for an answer, before the next is asked; doubled after each four requests, up to
RETRY_MAX_S = 1.6
GIVE_UP_S = 10.0
PULLS_MAX = 8_192  # publications that are asked for at once; who wants most loses its own oldest
# Of one neighbour, fair over the publishers it asks for: a publisher that signs holes leaves others their part.
REQUESTS_PER_S, REQUESTS_BURST = 2_000.0, 8_000.0  # honest ones ask once or twice a publication
ANSWER_BYTES_PER_S, ANSWER_BYTES_BURST = 64e6, 256e6  # to one neighbour
UNKNOWN_PER_S, UNKNOWN_BURST = 50.0, 1_000.0  # requests for unknown publications: each makes us ask
ANSWERS_MAX = 3  # of one piece to one asker
CHAIN_MAX = 64  # publications of one answer to a request with `above`
_HEADER, _HEADER_BYTES = -1, 512  # an announcement counts as a piece of its own
ANSWERED_MAX = 16_384  # (asker, publication) whose answers are counted; who asks most is forgotten first

Name: TypeAlias = tuple[bytes, int]
"""Publisher and sequence."""


@value
class PullRequest:
    """A request. Frame: opening(3) publisher(16) sequence(8) time_ms(8) above(8) count(1) indexes(1 each).

    `time_ms`: the wanted sealing, or a later one; 0 for any. `parts`: indexes of pieces, ascending; none: all pieces
    at the source, or the header if it has no piece. `above`: its predecessors in the chain are wanted too, down to
    this number; 0: no predecessors.
    """

    publisher: bytes
    sequence: int
    time_ms: int = 0
    parts: tuple[int, ...] = ()
    above: int = 0

    def encode(self) -> bytes:
        head = opening(Kind.PULL) + self.publisher + number(self.sequence, 8) + number(self.time_ms, 8)
        return head + number(self.above, 8) + number(len(self.parts), 1) + bytes(self.parts)

    @classmethod
    def decode(cls, data: bytes) -> PullRequest:
        """Reads a frame. Raises BadFrame."""
        frame = Reader(data)
        frame.opening(Kind.PULL)
        publisher, sequence, time_ms, above = frame.take_bytes(16), frame.number(8), frame.number(8), frame.number(8)
        parts = tuple(frame.take_bytes(frame.number(1)))
        frame.expect_end()
        if list(parts) != sorted(set(parts)):
            raise BadFrame("a request for pieces that are not in order")
        return cls(publisher, sequence, time_ms, parts, above)

    @property
    def name(self) -> Name:
        return self.publisher, self.sequence


def request_of(peer: str, request: PullRequest) -> Send:
    """Returns a request as it goes to `peer`."""
    return Send(peer, Wire(PULL_TOPIC, request.encode()))


@dataclass(slots=True)
class Pull:
    """A publication of which we lack something.

    `askers`: members that asked us, with the pieces wanted by each. `above`: its predecessors lack as well, down to
    this number; 0: no predecessors.
    """

    name: Name
    time_ms: int
    at: float
    until: float
    above: int = 0
    asked: list[str] = field(default_factory=list)
    askers: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def anything(self) -> bool:
        """True if the next request asks for all pieces of any sealing: every fourth one.

        Maybe nobody has the wanted pieces, or the sealing an asker made us ask for.
        """
        return len(self.asked) % 4 == 3


class Pulls:
    """The publications we lack, and the sources to ask next."""

    def __init__(self) -> None:
        self._pulls: FairTable[Name, Pull] = FairTable(PULLS_MAX)
        self.get = self._pulls.get
        self.wakeups: list[tuple[float, Name]] = []  # a heap; those that no pull confirms are stale
        self._unanswered: Counter[str] = Counter()  # requests since a neighbour last answered
        self._late_s = self._spread_s = 0.0  # by how much content comes after its header, where it does, and its spread

    def __len__(self) -> int:
        return len(self._pulls)

    def begin_pull(self, name: Name, time_ms: int, owner: bytes, now: float, wait_s: float, above: int = 0) -> Pull:
        """Starts asking for a publication from `now + wait_s` on, or later where content usually is; at once if 0.

        A publication that is asked for already stays as it is, for the latest sealing.
        """
        pull = self._pulls.get(name)
        if pull is not None:
            pull.time_ms = max(pull.time_ms, time_ms)
            return pull
        wait_s = max(wait_s, self.patience_s) if wait_s else 0.0
        pull = Pull(name, time_ms, now + wait_s, now + wait_s + GIVE_UP_S, above)
        self._pulls.put(name, owner, pull)
        heapq.heappush(self.wakeups, (pull.at, name))
        return pull

    def end_pull(self, name: Name) -> Pull | None:
        return self._pulls.pop(name)

    def content_came(self, pull: Pull | None, peer: str, after_s: float) -> None:
        """Notes that a neighbour brought fitting content, `after_s` after we heard of its header.

        If we had asked that neighbour, the content may be an answer, and does not count for the usual delay.
        """
        self._unanswered.pop(peer, None)
        if pull is None or peer not in pull.asked:
            after_s = min(after_s, PATIENCE_MAX_S)
            self._spread_s += (abs(after_s - self._late_s) - self._spread_s) / 4
            self._late_s += (after_s - self._late_s) / 8

    @property
    def patience_s(self) -> float:
        """Seconds that announced content usually takes, with a margin (as RFC 6298 §2 has it for TCP)."""
        return min(PATIENCE_MAX_S, self._late_s + 4 * self._spread_s)

    def due_pulls(self, now: float) -> tuple[list[Pull], list[Pull]]:
        """Returns the publications to ask for now, and the ones that are given up and forgotten."""
        asking, gone = [], []
        while (at := self.next_deadline) is not None and at <= now:
            name = heapq.heappop(self.wakeups)[1]
            pull = self._pulls.get(name)
            assert pull is not None
            if now >= pull.until:
                self._pulls.pop(name)
                gone.append(pull)
                continue
            retry_s = min(RETRY_MAX_S, RETRY_S * 2 ** (len(pull.asked) // 4))
            pull.at = min(pull.until, now + max(retry_s, self.patience_s))
            heapq.heappush(self.wakeups, (pull.at, name))
            asking.append(pull)
        return asking, gone

    def ask_next(self, pull: Pull, sources: Iterable[str], parts: Sequence[int]) -> list[Send]:
        """Returns the request to the next source: each once before any again, responsive ones first."""
        candidates = [(pull.asked.count(peer), self._unanswered[peer], at, peer) for at, peer in enumerate(sources)]
        if not candidates:
            return []
        peer = min(candidates)[-1]
        time_ms, wanted = (0, ()) if pull.anything else (pull.time_ms, tuple(parts))
        pull.asked.append(peer)
        self._unanswered[peer] += 1
        return [request_of(peer, PullRequest(*pull.name, time_ms, wanted, pull.above))]

    def forget_all_but(self, peers: Collection[str]) -> None:
        """Forgets requests of former neighbours."""
        for pull in self._pulls.values():
            pull.askers = {peer: parts for peer, parts in pull.askers.items() if peer in peers}

    @property
    def next_deadline(self) -> float | None:
        while self.wakeups:
            at, name = self.wakeups[0]
            pull = self._pulls.get(name)
            if pull is not None and pull.at == at:
                return at
            heapq.heappop(self.wakeups)
        return None


class Answers:
    """Budgets of neighbours for requests: requests and bytes a second, each piece a few times."""

    def __init__(self) -> None:
        self._requests: dict[str, FairBudget] = {}  # by neighbour
        self._unknown: dict[str, FairBudget] = {}
        self._bytes: dict[str, Budget] = {}
        self._given: FairTable[tuple[str, Name, int], Counter[int]] = FairTable(ANSWERED_MAX)

    def may_ask(self, peer: str, publisher: bytes, now: float) -> bool:
        """Returns True if a request for something of this publisher is looked at."""
        budget = self._requests.setdefault(peer, FairBudget(REQUESTS_PER_S, REQUESTS_BURST, now))
        return budget.spend_one(publisher, now)

    def may_ask_unknown(self, peer: str, publisher: bytes, now: float) -> bool:
        """Returns True if a request for a publication unknown to us makes us ask others."""
        budget = self._unknown.setdefault(peer, FairBudget(UNKNOWN_PER_S, UNKNOWN_BURST, now))
        return budget.spend_one(publisher, now)

    def give(self, peer: str, name: Name, time_ms: int, pieces: Pieces, now: float) -> dict[int, bytes] | None:
        """Returns the pieces the neighbour may have; None if it had all of them often enough, or too much."""
        given = self._given.get((peer, name, time_ms))
        if given is None:
            given = Counter()
            self._given.put((peer, name, time_ms), peer.encode(), given)
        left = [index for index in (list(pieces) or [_HEADER]) if given[index] < ANSWERS_MAX]
        allowed = {index: pieces[index] for index in left if index != _HEADER}
        budget = self._bytes.setdefault(peer, Budget(ANSWER_BYTES_PER_S, ANSWER_BYTES_BURST, now))
        if not left or not _pay(budget, _HEADER_BYTES + sum(map(len, allowed.values())), now):
            return None
        given.update(left)
        return allowed

    def forget_all_but(self, peers: Iterable[str]) -> None:
        """Forgets former neighbours."""
        kept = set(peers)
        self._requests = {peer: budget for peer, budget in self._requests.items() if peer in kept}
        self._unknown = {peer: budget for peer, budget in self._unknown.items() if peer in kept}
        self._bytes = {peer: budget for peer, budget in self._bytes.items() if peer in kept}


def _pay(budget: Budget, cost: float, now: float) -> bool:
    """Spends if something was left, if need be into debt; returns True then."""
    if not budget.has_tokens(now):
        return False
    budget.spend(cost, now)
    return True
