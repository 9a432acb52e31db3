"""The publisher's side of receipts: words of readers, compared with the sealed batches.

A batch counts as acknowledged if the root of the receipt is the root over the batches of this gateway. Each counts once
for each reader, so who repeats itself fills neither disk nor sessions. A receipt stays true, so order does not
matter. Not here: proofs (`delivery_proof`), the disk.

Source: docs/protocol-options.md §14.4.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from bridge.contract import Count, Effect, FairBytes, FairTable, KeepSealed, ReceiptCame, Received
from bridge.document import Overlay
from bridge.receipts.checks import ReceiptChecks
from bridge.receipts.delivery_proof import ReceiptRow
from bridge.receipts.hashes import root
from bridge.receipts.receipt import TAG_BYTES, ChainId, Listed, Receipt, ReceiptBody, Span
from bridge.receipts.sealed import SealedBatch
from bridge.wire import Sealings, refused
from keys.errors import KeysError, NotAuthorised
from keys.message import MessageHeader

SEALED_BYTES_MAX = 32 << 20
"""Batches of ours at hand; of the scope with most of them the oldest go."""
ENTRY_BYTES = 500
CHAINS_MAX = 8_192
"""Newest receipts by reader and chain; of the reader with most of them the oldest goes."""
OWED_MAX = 65_536
"""Numbers of one scope that are looked at for the oldest publication without a receipt."""


@dataclass(frozen=True, slots=True)
class ReceiptState:
    """The state of one reader in one of our scopes. Times in ms. `time_ms`: of the newest receipt, by the reader's
    clock; `came_ms`: of its arrival; `through`: the last number in
    the reader's receipts; `missing`: the count of missing intervals;
    `acknowledged`: batches since this process began; `oldest_ms`: time of sealing of the oldest publication without a
    receipt, 0 if there is none.
    """

    reader: str
    scope: str
    time_ms: int
    came_ms: int
    through: int
    missing: int
    acknowledged: int
    oldest_ms: int


@dataclass(slots=True)
class _Reader:
    """The newest receipt of a reader in a chain. `last`: the highest number in the reader's receipts."""

    body: ReceiptBody
    came_ms: int
    last: int
    acknowledged: int = 0


@dataclass(slots=True)
class _Ours:
    """A batch of ours. `had`: a bit for each reader that acknowledged it (`Acknowledged._bits`)."""

    batch: SealedBatch
    had: int = 0


class Acknowledged:
    """The receipts for one gateway. `name`: its own."""

    def __init__(self, overlay: Overlay, name: str, sealings: Sealings) -> None:
        self._overlay, self._name = overlay, name
        self._checks = ReceiptChecks(overlay, sealings)
        self._sealed: FairBytes[tuple[int, bytes], _Ours] = FairBytes(SEALED_BYTES_MAX, ENTRY_BYTES)
        self._readers: FairTable[tuple[str, ChainId], _Reader] = FairTable(CHAINS_MAX)
        self._bits: dict[str, int] = {}
        self._places = count()  # of bits; a place is never given twice
        self._owed: dict[int, list[tuple[int, int]]] = {}  # by scope: numbers that are not of QoS 0, times of sealing

    def restore(self, rows: Iterable[bytes]) -> None:
        """Takes rows that a former process asked to keep. Raises BadFrame."""
        for row in rows:
            self._put_batch(SealedBatch.decode(row))

    def take_sealed(self, batch: SealedBatch, header: MessageHeader) -> list[Effect]:
        """Takes a batch that was just sealed."""
        self._put_batch(batch)
        if header.qos and not header.retain:
            owed = self._owed.setdefault(batch.scope, [])
            if not owed or owed[-1][0] < batch.number:
                owed.append((batch.number, header.time_ms))
            elif owed[bisect_left(owed, (batch.number,))][0] != batch.number:
                insort(owed, (batch.number, header.time_ms))
            del owed[: max(0, len(owed) - OWED_MAX)]
        return [KeepSealed(batch.number, batch.encode())]

    def _put_batch(self, batch: SealedBatch) -> None:
        name = batch.number, batch.frame_hash[:TAG_BYTES]
        self._sealed.put(name, batch.scope.to_bytes(4), _Ours(batch), batch.size)

    def take_receipt(self, event: Received, now: float) -> list[Effect]:
        """Takes a receipt, the first copy of which counts."""
        frame = event.wire.payload
        if self._checks.has_seen(frame):
            return []
        try:
            receipt, publisher = self._checks.take_receipt(frame, now)
            if publisher.name != self._name:
                raise NotAuthorised(f"a receipt for {publisher.name}, which is somebody else")
        except KeysError as error:
            return refused(event.peer, error)
        body = receipt.body
        name = body.reader, body.chain
        known = self._readers.get(name)
        if known is None or known.body.time_ms < body.time_ms:
            before = (0, 0) if known is None else (known.last, known.acknowledged)
            last = max(before[0], body.through, receipt.batches[-1].number)
            state = _Reader(body, int(now * 1000), last, before[1])
            self._readers.put(name, body.reader.encode(), state)
        found = self._found(receipt)
        if not found:
            return [Count("receipts_unmatched", 1, body.reader)]
        new = self._new(body.reader, found)
        if not new:
            return [Count("receipts_taken")]
        if (state_now := self._readers.get(name)) is not None:
            state_now.acknowledged += len(new)
        batches = tuple((each.batch.number, each.batch.hashed) for each in found)
        row = ReceiptRow(body, receipt.signature, batches).encode()
        records = tuple(record for batch in new for record in batch.had())
        came = ReceiptCame(body.reader, body.time_ms, batches[0][0], batches[-1][0], row, records)
        return [Count("receipts_taken"), came]

    def _new(self, reader: str, found: list[_Ours]) -> list[SealedBatch]:
        """Returns the batches that this reader had not acknowledged, and notes that it has."""
        bit = self._bits.get(reader)
        if bit is None:
            bit = self._bits[reader] = 1 << next(self._places)
        new = [each for each in found if not each.had & bit]
        for each in new:
            each.had |= bit
        return [each.batch for each in new]

    def _found(self, receipt: Receipt) -> list[_Ours]:
        """Returns the batches of a receipt; none unless all are known and the root is that of what was sealed."""
        ours = [self._ours(receipt.body.scope, listed) for listed in receipt.batches]
        found = [each for each in ours if each is not None]
        if len(found) < len(ours) or root([each.batch.hashed for each in found]) != receipt.body.root:
            return []
        return found

    def _ours(self, scope: int, listed: Listed) -> _Ours | None:
        ours = self._sealed.get((listed.number, listed.tag))
        return ours if ours is not None and ours.batch.scope == scope else None

    # ------------------------------------------------------------------------------------------ questions

    def reader_states(self) -> list[ReceiptState]:
        """Returns the state of each reader in each scope, by scope and reader: that of its newest receipt, whichever
        of our keys it names.
        """
        newest: dict[tuple[str, str], _Reader] = {}
        acknowledged: dict[tuple[str, str], int] = {}
        for (reader, chain), state in self._readers.items():
            scope = self._overlay.scope_numbered(chain.scope)
            if scope is None:
                continue
            name = scope.filter, reader
            acknowledged[name] = acknowledged.get(name, 0) + state.acknowledged
            if name not in newest or newest[name].body.time_ms < state.body.time_ms:
                newest[name] = state
        return [
            ReceiptState(
                name[1], name[0], state.body.time_ms, state.came_ms, state.last, len(state.body.missing),
                acknowledged[name], _oldest(self._owed.get(state.body.scope, []), state.body.missing, state.last),
            )
            for name, state in sorted(newest.items(), key=lambda each: each[0])
        ]  # fmt: skip

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay, and forgets readers and scopes that have no receipts any more."""
        self._overlay = overlay
        self._checks.adopt_overlay(overlay)
        scopes = {scope.number for scope in overlay.policy.scopes if scope.receipts}
        for name in [each for each, _ in self._readers.items()]:
            if name[0] not in overlay.members or name[1].scope not in scopes:
                self._readers.pop(name)
        self._bits = {reader: bit for reader, bit in self._bits.items() if reader in overlay.members}
        self._owed = {scope: owed for scope, owed in self._owed.items() if scope in scopes}


def _oldest(owed: list[tuple[int, int]], missing: Sequence[Span], last: int) -> int:
    """Returns the time of sealing of the first publication that a reader lacks, or behind the reader's `last` number; 0
    for none. Publications before the first number of the receipt were before the reader's time.
    """
    times = []
    for low, high in missing:
        at = bisect_left(owed, (low,))
        if at < len(owed) and owed[at][0] <= high:
            times.append(owed[at][1])
    at = bisect_right(owed, (last + 1,))
    if at < len(owed):
        times.append(owed[at][1])
    return min(times, default=0)
