"""The numbers of one member's records: scopes draw blocks from one counter, and no number is ever drawn twice.

A block is 4,096 numbers of one scope, and begins at a multiple of that. Blocks begin at or after milliseconds of the
start times 2^16, and again after the clock was set on by more than a minute: a data directory that was lost, or came
back from a copy, uses no number again. Numbers burn when they are drawn. `durable` must be on disk before anything that
was drawn leaves; it is always at most `RESERVE` ahead, so that the disk hears of it seldom.
Not here: the disk (`gateway`), what the numbers are for.
"""

from __future__ import annotations

from keys.batchheader import BLOCK_NUMBERS, NUMBER_LIMIT
from keys.errors import OurFault

RESERVE = 1 << 16
MS_NUMBERS = 1 << 16  # numbers a millisecond: nobody draws more
CLOCK_STEP_MS = 60_000


class Numbers:
    """`stored`: `durable` as it was on disk, 0 if there is none. `now_ms`: of the start."""

    def __init__(self, stored: int, now_ms: int) -> None:
        self._next = _block_at(max(stored, now_ms * MS_NUMBERS, 1))
        self.durable = self._next
        """Everything drawn lies below; what is drawn from a restart on begins here."""
        self._last_ms = now_ms
        self._blocks: dict[int, tuple[int, int]] = {}  # by scope: next number of its block, its end

    def draw(self, scope: int, count: int, now_ms: int) -> list[tuple[int, int]]:
        """Consecutive numbers for `count` records as runs (first, how many), of which none crosses a block."""
        if now_ms - self._last_ms > CLOCK_STEP_MS:
            self._next = _block_at(max(self._next, now_ms * MS_NUMBERS))
            self._blocks.clear()
        self._last_ms = now_ms
        runs = []
        while count > 0:
            first, end = self._blocks.get(scope) or self._block()
            taken = min(count, end - first)
            runs.append((first, taken))
            count -= taken
            if first + taken < end:
                self._blocks[scope] = first + taken, end
            else:
                self._blocks.pop(scope, None)
        return runs

    def new_block(self, scope: int) -> None:
        """What the scope draws next begins a block: after a floor."""
        self._blocks.pop(scope, None)

    def _block(self) -> tuple[int, int]:
        first = self._next
        if first > NUMBER_LIMIT - BLOCK_NUMBERS:
            raise OurFault("no numbers are left: the clock is wrong")
        self._next = first + BLOCK_NUMBERS
        if self._next > self.durable:
            self.durable = self._next + RESERVE
        return first, self._next


def _block_at(number: int) -> int:
    return -(-number // BLOCK_NUMBERS) * BLOCK_NUMBERS
