"""The window of sequences that were seen, for duplicates and replays of one publisher.

A bitmap in blocks below the highest sequence; whatever is older than the window counts as seen, so that nothing can be
replayed by waiting. It is as long as it is because a gateway that was cut off sends its backlog beside what is new: the
backlog's sequences are far behind, and to drop them as too old would lose what was acknowledged to devices. Blocks of
which everything came cost nothing, those of which nothing came neither. Not here: holes, order and repair, which are
kept for each topic (`bridge.reader.collector`).
"""

from __future__ import annotations

import struct

from keys.errors import OurFault

WINDOW_SIZE = 1 << 23
"""A publisher that marks one sequence in each block costs 1 MiB; an honest one that sends all its numbers 0.2 MiB."""

_BLOCK_BITS = 12
_BLOCK_BYTES = 1 << _BLOCK_BITS - 3
_FULL = b"\xff" * _BLOCK_BYTES
_HIGHEST = struct.Struct(">q")
_RUN = struct.Struct(">QI")  # first block, number of blocks that are full; 0: one block follows


class SequenceWindow:
    """Remembers which of the last `size` sequences came. Feed it verified sequences only: a forged high one
    would make everything below it look old."""

    __slots__ = ("_blocks", "_highest", "_places", "_size")

    def __init__(self, size: int = WINDOW_SIZE) -> None:
        if size < 1:
            raise OurFault("a window holds at least one sequence")
        self._size = size
        self._highest = -1
        self._places = (size >> _BLOCK_BITS) + 2  # no two blocks within the window share a place
        self._blocks: dict[int, tuple[int, bytes | bytearray]] = {}  # by place: block's number, its bits

    @property
    def highest(self) -> int:
        """The highest sequence seen, -1 for none."""
        return self._highest

    def reaches(self, sequence: int) -> bool:
        """Whether it can still tell about `sequence`; older ones count as seen."""
        return sequence > self._highest - self._size

    def __contains__(self, sequence: int) -> bool:
        """Whether `sequence` came before or is older than the window."""
        if not self.reaches(sequence):
            return True
        number = sequence >> _BLOCK_BITS
        known = self._blocks.get(number % self._places)
        return known is not None and known[0] == number and bool(known[1][_byte(sequence)] & _bit(sequence))

    def seen(self, sequence: int) -> bool:
        """Mark `sequence`; True if it came before or is older than the window."""
        if not self.reaches(sequence):
            return True
        number, byte, bit = sequence >> _BLOCK_BITS, _byte(sequence), _bit(sequence)
        place = number % self._places
        known = self._blocks.get(place)
        if known is None or known[0] != number:
            bits: bytes | bytearray = bytearray(_BLOCK_BYTES)
            self._blocks[place] = (number, bits)
        else:
            bits = known[1]
            if bits[byte] & bit:
                return True
        assert isinstance(bits, bytearray), "a full block has every bit"
        bits[byte] |= bit
        if bits[byte] == 0xFF and bits == _FULL:
            self._blocks[place] = (number, _FULL)
        self._highest = max(self._highest, sequence)
        return False

    def to_bytes(self) -> bytes:
        """For a file of the same party: `from_bytes` gives the window back."""
        parts = [_HIGHEST.pack(self._highest)]
        full: list[int] = []
        for number, bits in sorted(self._blocks.values(), key=lambda block: block[0]):
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
    def from_bytes(cls, content: bytes, size: int = WINDOW_SIZE) -> SequenceWindow:
        """Inverse of `to_bytes`. Raises ValueError for anything else."""
        window = cls(size)
        try:
            (window._highest,) = _HIGHEST.unpack_from(content)
            at = _HIGHEST.size
            while at < len(content):
                first, count = _RUN.unpack_from(content, at)
                at += _RUN.size
                full = range(first, first + min(count, window._places))
                blocks: list[tuple[int, bytes | bytearray]] = [(number, _FULL) for number in full]
                if not count:
                    blocks = [(first, bytearray(content[at : at + _BLOCK_BYTES]))]
                    at += _BLOCK_BYTES
                for number, bits in blocks:
                    window._blocks[number % window._places] = (number, bits)
        except struct.error:
            raise ValueError("cut short") from None
        if at != len(content):
            raise ValueError("cut short")
        return window


def _byte(sequence: int) -> int:
    return sequence >> 3 & _BLOCK_BYTES - 1


def _bit(sequence: int) -> int:
    return 1 << (sequence & 7)
