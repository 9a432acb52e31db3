"""Random numbers for experiments: equal from a seed on every machine, without the module `random`.

A stream is SHAKE-256 of the seed's name, read 8 bytes at a time: pure, better than any simulation could notice, and
quick enough (0.2 µs a number). It offers `kernel.RandomSource` and the few distributions the experiments need. Not for
secrets of anything but a simulation: the seed gives all numbers.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Iterator, MutableSequence, Sequence
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")

_BLOCK_NUMBERS = 512
_BLOCK = struct.Struct(f">{_BLOCK_NUMBERS}Q")
_TO_UNIT = 2.0**-53


class Draws:
    """A stream of its own for every tuple of names, e.g. `Draws("figure 4", seed, run)`."""

    def __init__(self, *names: str | int) -> None:
        self._name = "\0".join(map(str, names)).encode()
        self._numbers = self._stream()

    def _stream(self) -> Iterator[int]:
        block = 0
        while True:
            yield from _BLOCK.unpack(hashlib.shake_256(self._name + b"\0" + block.to_bytes(8)).digest(_BLOCK.size))
            block += 1

    def random(self) -> float:
        """Returns a number uniform in [0, 1)."""
        return (next(self._numbers) >> 11) * _TO_UNIT

    def uniform(self, a: float, b: float, /) -> float:
        return a + (b - a) * self.random()

    def randrange(self, stop: int, /) -> int:
        """Returns 0 to stop - 1, with a bias below stop / 2^64."""
        return next(self._numbers) * stop >> 64

    def randbytes(self, n: int, /) -> bytes:
        words = -(-n // 8)
        return b"".join(next(self._numbers).to_bytes(8) for _ in range(words))[:n]

    def choice(self, items: Sequence[T]) -> T:
        return items[self.randrange(len(items))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        for last in range(len(items) - 1, 0, -1):
            other = self.randrange(last + 1)
            items[last], items[other] = items[other], items[last]

    def beta(self, a: float, b: float) -> float:
        """Draws Beta(a, b) by Jöhnk's rejection; meant for a + b of about 1, where three in four tries hit."""
        while True:
            x: float = self.random() ** (1 / a)
            y: float = self.random() ** (1 / b)
            if 0 < x + y <= 1:
                return x / (x + y)


class Zipf:
    """Ranks 0 to count - 1 with probability proportional to 1 / (rank + 1)^alpha."""

    def __init__(self, count: int, alpha: float) -> None:
        self._cumulative = list(accumulate((rank + 1) ** -alpha for rank in range(count)))

    def draw(self, draws: Draws) -> int:
        return bisect_left(self._cumulative, draws.random() * self._cumulative[-1])

    def distinct(self, draws: Draws, count: int) -> list[int]:
        """Draws `count` different ranks, each by its popularity among the ranks that are left."""
        if count > len(self._cumulative):
            raise ValueError(f"{count} different ranks out of {len(self._cumulative)}")
        chosen: dict[int, None] = {}
        while len(chosen) < count:
            chosen[self.draw(draws)] = None
        return list(chosen)
