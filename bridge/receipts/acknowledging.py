"""The reader's side of receipts: batches of each chain, and the times of their receipts.

A batch comes in once its records were handed to local clients, or are in the spool of a job (`had`). Before a receipt
of its chain, the machine asks for a sign that deliveries are on disk (`AskKept`); with the answer the machine signs and
sends. Not here: the numbers of a stream (`reader.streams`), the way of a receipt (`relay`).

Source: docs/protocol-options.md §14.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bridge.contract import Allowance, AskKept, Count, Deferrals, Effect, FairBytes, Numbered, Send, Wire, earliest
from bridge.document import Overlay
from bridge.receipts.hashes import RecordFacts, batch_hash, records_root, root, sha256
from bridge.receipts.receipt import (
    BATCHES_MAX,
    MISSING_MAX,
    RECEIPTS_TOPIC,
    TAG_BYTES,
    ChainId,
    Listed,
    Receipt,
    ReceiptBody,
    Span,
)
from keys.identity import Identity
from keys.message import MessageHeader

EVERY_S = 2.0
"""Seconds between two receipts of a chain."""
AT_ONCE, ONE_EVERY_S = 64, 1 / 64
"""Receipts at once, and seconds to the next one: many chains share the time of a reader."""
WAITING_MAX = 65_536
"""Batches that are had and not told yet: of the publisher with most of them the oldest go."""
AGAIN_BYTES_MAX = 4 << 20
"""Newest receipts that are told again to replicas whose link comes up."""
ENTRY_BYTES = 200
COMEBACKS_BURST, COMEBACKS_EVERY_S = 8, 10.0  # a replica whose link comes up hears all again; beyond that later
AGAIN_S = 3_600.0
"""Age up to which a receipt is told again; replicas take none that is older."""


@dataclass(frozen=True, slots=True)
class StreamNumbers:
    """The numbers of a stream in a receipt: first number, last number, and missing intervals between them."""

    since: int = 0
    through: int = 0
    missing: tuple[Span, ...] = ()

    @classmethod
    def for_receipt(cls, first: int, last: int, missing: Iterable[Span]) -> StreamNumbers:
        """Returns the numbers as a receipt may have them; none if the first one is not known."""
        if not 0 < first <= last:
            return cls()
        inside = [(max(low, first), min(high, last)) for low, high in missing if high >= first and low <= last]
        return cls(first, last, tuple(inside[-MISSING_MAX:]))


@dataclass(frozen=True, slots=True)
class HadBatch:
    """A batch in the next receipt: number, SHA-256 of header and signature, hash, and header and signature unless
    retained.
    """

    number: int
    frame_hash: bytes
    hashed: bytes
    latest: bytes

    @classmethod
    def from_records(
        cls, header: MessageHeader, frame: bytes, records: Sequence[Numbered], blinding: bytes
    ) -> HadBatch:
        """Returns the batch with these records. `frame`: header and signature; `blinding`: of it."""
        found, hashed = records_root(blinding, [RecordFacts.from_record(record) for record in records]), sha256(frame)
        return cls(header.sequence, hashed, batch_hash(hashed, found), b"" if header.retain else frame)


@dataclass(slots=True)
class _ChainState:
    """A chain. `next_at`: when its next receipt may be signed."""

    author: bytes
    waiting: deque[HadBatch] = field(default_factory=deque)
    next_at: float = 0.0


@dataclass(frozen=True, slots=True)
class _Closed:
    """A receipt that waits for the disk."""

    chain: ChainId
    numbers: StreamNumbers
    batches: tuple[HadBatch, ...]


class Acknowledging:
    """The receipts of a reader. `numbers_of`: the stream of an author in a scope of this number, as it is now."""

    def __init__(
        self, overlay: Overlay, identity: Identity, name: str, numbers_of: Callable[[bytes, int], StreamNumbers]
    ) -> None:
        self._overlay, self._identity, self._name, self._numbers_of = overlay, identity, name, numbers_of
        self._chains: dict[ChainId, _ChainState] = {}
        self._waiting = 0
        self._closed: deque[_Closed] = deque()
        self._mark = self._kept = 0
        self._pace = Allowance(AT_ONCE, ONE_EVERY_S, 0.0)
        self._paced_until = 0.0
        self._up: set[str] = set()
        self._again: FairBytes[ChainId, tuple[float, bytes]] = FairBytes(AGAIN_BYTES_MAX, ENTRY_BYTES)
        self._comebacks: Deferrals[str] = Deferrals(COMEBACKS_BURST, COMEBACKS_EVERY_S)
        self._skipped = 0
        self._due_at: float | None = None

    def had(self, chain: ChainId, author: bytes, batch: HadBatch) -> None:
        """Takes a batch with all records handed out. Drops a batch of a chain without receipts."""
        state = self._chains.get(chain)
        if state is None:
            if not self._is_told(chain):
                return
            state = self._chains[chain] = _ChainState(author)
        state.waiting.append(batch)
        self._waiting += 1
        if len(state.waiting) == 1:
            self._due_at = earliest(self._due_at, state.next_at)
        if self._waiting > WAITING_MAX:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forgets the oldest batches of the publisher with most of them."""
        of_publisher: dict[bytes, int] = {}
        for chain, state in self._chains.items():
            of_publisher[chain.publisher] = of_publisher.get(chain.publisher, 0) + len(state.waiting)
        greediest = max(of_publisher, key=of_publisher.__getitem__)
        longest = max((s for c, s in self._chains.items() if c.publisher == greediest), key=lambda s: len(s.waiting))
        gone = (len(longest.waiting) + 1) // 2
        for _ in range(gone):
            longest.waiting.popleft()
        self._waiting -= gone
        self._skipped += gone

    # ---------------------------------------------------------------------------------------------- turns

    def tick(self, now: float) -> list[Effect]:
        """Closes the receipts that are due, and asks for the disk."""
        effects: list[Effect] = []
        if self._skipped:
            effects.append(Count("receipts_skipped", self._skipped))
            self._skipped = 0
        if self._mark == self._kept:  # one question at a time, so that a disk that takes nothing fills no memory
            self._close_due(now)
            if self._closed:
                self._mark += 1
                effects.append(AskKept(self._mark))
        up = [peer for peer in self._comebacks.due_keys(now) if peer in self._up]
        return effects + [effect for peer in up for effect in self.link_up(peer, now)]

    def _close_due(self, now: float) -> None:
        for _, chain in sorted(
            (s.next_at, c) for c, s in self._chains.items() if s.waiting and _is_over(s.next_at, now)
        ):
            if not _is_over(self._paced_until, now) or not self._pace.spend_one(now):
                self._paced_until = max(self._paced_until, now + self._pace.wait_s)
                break
            self._close(chain, now)
        self._due_at = min((state.next_at for state in self._chains.values() if state.waiting), default=None)
        self._due_at = None if self._due_at is None else max(self._due_at, self._paced_until)

    def _close(self, chain: ChainId, now: float) -> None:
        """Takes what the next receipt of a chain lists: of equal numbers, which other keys sealed, the last."""
        state = self._chains[chain]
        taken: dict[int, HadBatch] = {}
        while state.waiting and len(taken) < BATCHES_MAX:
            had = state.waiting.popleft()
            taken[had.number] = had
            self._waiting -= 1
        scope = self._overlay.scope_numbered(chain.scope)
        assert scope is not None, "chains of scopes that end are forgotten"
        state.next_at = now + EVERY_S
        batches = tuple(taken[number] for number in sorted(taken))
        numbers = self._numbers_of(state.author, scope.stream)
        self._closed.append(_Closed(chain, numbers, batches))

    def send_kept(self, mark: int, now: float) -> list[Effect]:
        """Signs and sends what is on disk now."""
        effects: list[Effect] = []
        if mark != self._mark:
            return effects  # of a former process
        self._kept = mark
        while self._closed:
            closed = self._closed.popleft()
            frame = self._signed_receipt(closed, now).encode()
            self._again.put(closed.chain, closed.chain.publisher, (now, frame), len(frame))
            wire = Wire(RECEIPTS_TOPIC, frame)
            effects += [Count("receipts_signed"), *(Send(peer, wire) for peer in sorted(self._up))]
        return effects

    def _signed_receipt(self, closed: _Closed, now: float) -> Receipt:
        latest = next((had.latest for had in reversed(closed.batches) if had.latest), b"")
        draft = ReceiptBody(
            self._name,
            *closed.chain,
            int(now * 1000),
            closed.numbers.since,
            closed.numbers.through,
            closed.numbers.missing,
            latest,
            0,
            b"",
            root([had.hashed for had in closed.batches]),
        )
        listed = [Listed(had.number, had.frame_hash[:TAG_BYTES]) for had in closed.batches]
        return Receipt.sign(self._identity, draft, listed)

    @property
    def next_deadline(self) -> float | None:
        """The time of the next receipt that is due."""
        return earliest(self._due_at if self._mark == self._kept else None, self._comebacks.next_deadline)

    # ------------------------------------------------------------------------------------------- changes

    def link_up(self, peer: str, now: float) -> list[Effect]:
        """Tells a replica of our region the newest receipts again; later, if its link comes up too often."""
        self._up.add(peer)
        if not self._again.count() or not self._comebacks.spend_one(peer, now):
            return []
        young = [frame for _, (at, frame) in self._again.items() if 0 <= now - at <= AGAIN_S]
        return [Send(peer, Wire(RECEIPTS_TOPIC, frame)) for frame in young]

    def link_down(self, peer: str) -> None:
        self._up.discard(peer)

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay, and forgets chains of scopes without receipts and of strangers."""
        self._overlay = overlay
        for chain in [chain for chain in self._chains if not self._is_told(chain)]:
            self._waiting -= len(self._chains.pop(chain).waiting)
        self._closed = deque(closed for closed in self._closed if self._is_told(closed.chain))
        for chain, _ in [each for each in self._again.items() if not self._is_told(each[0])]:
            self._again.pop(chain)
        self._up.intersection_update(overlay.members)
        self._comebacks.forget_unless(overlay.members.__contains__)

    def _is_told(self, chain: ChainId) -> bool:
        scope = self._overlay.scope_numbered(chain.scope)
        return scope is not None and scope.receipts and chain.publisher in self._overlay.by_party

    def rotate_identity(self, identity: Identity) -> None:
        """Signs with another key of ours from now on."""
        self._identity = identity


def _is_over(at: float, now: float) -> bool:
    """Returns True if a short wait until `at` is over, also if the clock was set back meanwhile."""
    return not now < at <= now + EVERY_S
