"""Links that were recorded (`record`), replayed: what became of the packet that was sent nearest before.

A recording is text: lines that begin with # say where it comes from, `every_s` the distance of its packets, and a line
for each direction their delays in tenths of a millisecond, - for what never came. It is repeated as long as needed,
from a moment that the seed says, so an hour of a recording of ten minutes holds six times the same bad minute.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "data"
UNIT_S = 0.0001
LOST = -1
_WIDTH = 30  # delays in a line of the file


@dataclass(frozen=True)
class Recording:
    """Delays in `UNIT_S`, or `LOST`, of packets sent `every_s` seconds apart, in each direction."""

    name: str
    every_s: float
    there: tuple[int, ...]
    back: tuple[int, ...]

    def text(self, provenance: Sequence[str]) -> str:
        lines = [f"# {line}" for line in provenance]
        lines += [f"name: {self.name}", f"every_s: {self.every_s}"]
        for direction, delays in (("there", self.there), ("back", self.back)):
            words = ["-" if delay == LOST else str(delay) for delay in delays]
            lines += [f"{direction}:", *(" ".join(words[at : at + _WIDTH]) for at in range(0, len(words), _WIDTH))]
        return "\n".join(lines) + "\n"

    drift: float = 0.0

    def ways(self, seed: str, until: float) -> tuple[ReplayedWay, ReplayedWay]:
        """There and back. The entity is at either end, as the seed says: no detector is judged by one direction."""
        there, back = (ReplayedWay(delays, self.every_s, seed) for delays in (self.there, self.back))
        return (there, back) if random.Random(f"end {seed}").random() < 0.5 else (back, there)


class ReplayedWay:
    """One direction, from a moment that the seed says on; the same for both directions of a seed."""

    def __init__(self, delays: Sequence[int], every_s: float, seed: str) -> None:
        self._delays, self._every_s = delays, every_s
        self._from = random.Random(f"moment {seed}").randrange(len(delays))

    def arrival(self, now: float) -> float | None:
        """When a packet that is sent now arrives; None: it is lost."""
        delay = self._delays[(self._from + int(now / self._every_s)) % len(self._delays)]
        return None if delay == LOST else now + delay * UNIT_S


@cache
def load(path: Path) -> Recording:
    fields: dict[str, str] = {}
    delays: dict[str, list[int]] = {"there": [], "back": []}
    direction = ""
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if not colon:
            delays[direction] += [LOST if word == "-" else int(word) for word in line.split()]
        elif name in delays:
            direction = name
        else:
            fields[name] = value.strip()
    return Recording(fields["name"], float(fields["every_s"]), tuple(delays["there"]), tuple(delays["back"]))


def recordings() -> list[Recording]:
    """All that are kept, by name."""
    return [load(path) for path in sorted(DATA.glob("*.txt"))]
