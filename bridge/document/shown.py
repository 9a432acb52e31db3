"""Attributes of a scope's content the owner lets replicas see: clear or as tokens, exact or in buckets.

The name is a name of predicates (`bridge.predicates`): a user property, or a field of a JSON payload. Borders turn a
number into the count of borders that it has reached, so that it is seen no finer. Not here: showing of values and
predicates (`bridge.wire`). Paper item C10.
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass
from itertools import pairwise

from bridge.predicates import Name
from keys.errors import BadFrame
from keys.frames import Reader, number, text

SHOWN_MAX = 16
"""Attributes of one scope: each makes every header longer and every match slower."""
BORDERS_MAX = 255
PARTS_MAX = 8
"""Parts of one name: fields within fields."""
FLAG_TOKEN = 0x01


@dataclass(frozen=True, slots=True)
class ShownAttribute:
    """A shown attribute. `is_token`: replicas see equality only. `borders`: ascending, of its buckets."""

    name: Name
    is_token: bool = False
    borders: tuple[float, ...] = ()

    @property
    def shown_name(self) -> Name:
        """The name in lists and covers: another name for each way of showing.

        So no list is compared with a cover that was made for another declaration.
        """
        if not self.is_token and not self.borders:
            return self.name
        return *self.name, hashlib.sha256(self.encode()).hexdigest()[:8]

    def encode(self) -> bytes:
        parts = [number(FLAG_TOKEN if self.is_token else 0, 1), number(len(self.name), 1), *map(text, self.name)]
        return b"".join([*parts, number(len(self.borders), 1), struct.pack(f">{len(self.borders)}d", *self.borders)])

    @classmethod
    def read(cls, frame: Reader) -> ShownAttribute:
        """Reads an attribute. Raises BadFrame."""
        flags = frame.number(1)
        name = tuple(frame.text() for _ in range(frame.number(1)))
        count = frame.number(1)
        borders = struct.unpack(f">{count}d", frame.take_bytes(8 * count))
        if flags & ~FLAG_TOKEN or not 1 <= len(name) <= PARTS_MAX or not are_borders(borders):
            raise BadFrame("an attribute that is shown has an unknown flag, no name, or borders that do not rise")
        return cls(name, bool(flags & FLAG_TOKEN), borders)


def are_borders(borders: tuple[float, ...]) -> bool:
    """Returns True if the borders are finite, ascending and distinct, and not too many."""
    rises = all(low < high for low, high in pairwise(borders))
    return rises and len(borders) <= BORDERS_MAX and all(map(math.isfinite, borders))
