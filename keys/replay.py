"""The window of seen sequences, against duplicates and replays of a publisher.

The window keeps a bitmap for each block of numbers of which some came. When there are too many blocks, the lowest one
goes, and every number that is not above it counts as seen, so that nothing can be replayed by waiting. The window is
this large because a gateway that was cut off sends its backlog beside new publications: dropping the backlog as too
old
would lose publications that were acknowledged to devices. The distance between two blocks costs nothing: numbers leap
at every start of a gateway. Complete blocks cost nothing either. Not here: holes, order and repair
(`bridge.reader.collector`).
"""

from __future__ import annotations

import struct

from keys.errors import OurFault

BLOCKS_MAX = 2048
"""A publisher that marks one sequence in each block costs 1 MiB; an honest one that sends all its numbers 0.2 MiB."""
BLOCK_NUMBERS = 4096
_BLOCK_BITS = 12
_BLOCK_BYTES = 1 << _BLOCK_BITS - 3
_BYTE_MASK = _BLOCK_BYTES - 1
_FULL = b"\xff" * _BLOCK_BYTES
_HEAD = struct.Struct(">qQ")  # highest sequence, floor
_RUN = struct.Struct(">QI")  # first block, number of blocks that are full; 0: one block follows


class SequenceWindow:
    """A window over the highest `blocks` blocks in which sequences came.

    To be fed verified sequences only: a forged high one would make all lower ones look old.
    """

    __slots__ = ("_blocks", "_floor", "_most", "highest")

    def __init__(self, blocks: int = BLOCKS_MAX) -> None:
        if blocks < 1:
            raise OurFault("a window holds at least one block of sequences")
        self._most = blocks
        self.highest = -1
        """The highest sequence seen, -1 for none."""
        self._floor = 0  # the lowest block that can be told about
        self._blocks: dict[int, bytes | bytearray] = {}  # by number of the block, its bits

    def reaches(self, sequence: int) -> bool:
        """Returns True if the window can tell about `sequence`; older ones count as seen."""
        return sequence >> _BLOCK_BITS >= self._floor

    def __contains__(self, sequence: int) -> bool:
        """Returns True if `sequence` came before or is older than the window."""
        number = sequence >> _BLOCK_BITS
        if number < self._floor:
            return True
        bits = self._blocks.get(number)
        return bits is not None and bool(bits[sequence >> 3 & _BYTE_MASK] & 1 << (sequence & 7))

    def seen(self, sequence: int) -> bool:
        """Marks `sequence`; returns True if it came before or is older than the window."""
        number, byte, bit = sequence >> _BLOCK_BITS, sequence >> 3 & _BYTE_MASK, 1 << (sequence & 7)
        bits = self._blocks.get(number)
        if bits is None:
            if number < self._floor:
                return True
            bits = self._blocks[number] = bytearray(_BLOCK_BYTES)
            self._drop_lowest_blocks()
        elif bits[byte] & bit:
            return True
        assert isinstance(bits, bytearray), "a full block has every bit"
        bits[byte] |= bit
        if bits[byte] == 0xFF and bits == _FULL:
            self._blocks[number] = _FULL
        self.highest = max(self.highest, sequence)
        return False

    def _drop_lowest_blocks(self) -> None:
        """Drops the lowest blocks beyond the bound, and counts everything below as seen."""
        while len(self._blocks) > self._most:
            del self._blocks[min(self._blocks)]
        if len(self._blocks) == self._most:
            self._floor = min(self._blocks)

    def to_bytes(self) -> bytes:
        """Returns the window for a file of this party; `from_bytes` is its inverse."""
        parts = [_HEAD.pack(self.highest, self._floor)]
        full: list[int] = []
        for number, bits in sorted(self._blocks.items()):
            if full and (bits is not _FULL or number != full[-1] + 1):
                parts.append(_RUN.pack(full[0], len(full)))
                full.clear()
            if bits is _FULL:
                full.append(number)
            else:
                parts += [_RUN.pack(number, 0), bytes(bits)]
        if full:
            parts.append(_RUN.pack(full[0], len(full)))
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, content: bytes, blocks: int = BLOCKS_MAX) -> SequenceWindow:
        """Returns the window that `to_bytes` wrote. Raises ValueError for other bytes."""
        window = cls(blocks)
        try:
            window.highest, window._floor = _HEAD.unpack_from(content)
            at = _HEAD.size
            while at < len(content):
                first, count = _RUN.unpack_from(content, at)
                at += _RUN.size
                if count:
                    window._blocks |= dict.fromkeys(range(first, first + min(count, blocks)), _FULL)
                else:
                    window._blocks[first] = bytearray(content[at : at + _BLOCK_BYTES])
                    at += _BLOCK_BYTES
        except struct.error:
            raise ValueError("cut short") from None
        if at != len(content):
            raise ValueError("cut short")
        window._drop_lowest_blocks()
        return window
