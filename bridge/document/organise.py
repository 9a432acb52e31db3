"""Whether replicas measure, and which other trees the owner allows (paper D; docs/protocol.md §5.6).

Part of the signed policy. `links` are edges that regions may be joined by besides those that they are: nobody makes
another, however much it would spare. Not here: what is measured (`bridge.measuring`), who changes the tree.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from bridge.document.trees import Edge, encode_edges, read_edges
from keys.errors import BadFrame
from keys.frames import Reader, number

INTERVAL_MOST_S = 3600
HOPS_MOST = 16
DWELL_MOST_S = 30 * 86_400
PERCENT = 100


@dataclass(frozen=True, slots=True)
class Organising:
    """`links`: potential edges. `interval_s`: of one summary. `hops`: η, how far interests are told. A change has to
    spare `min_gain_percent` of what the cycle costs, and the tree rests for `dwell_s` after each."""

    links: tuple[Edge, ...] = ()
    interval_s: int = 60
    hops: int = 4
    min_gain_percent: int = 10
    dwell_s: int = 600

    @property
    def min_gain(self) -> float:
        """As a part of one."""
        return self.min_gain_percent / PERCENT

    def strange(self, regions: Container[int]) -> str:
        """A link that joins no two of these regions; empty if there is none."""
        wrong = (f"{a}-{b}" for a, b in self.links if a == b or a not in regions or b not in regions)
        return next(wrong, "")

    def encode(self) -> bytes:
        numbers = number(self.interval_s, 2) + number(self.hops, 1) + number(self.min_gain_percent, 1)
        return encode_edges(self.links) + numbers + number(self.dwell_s, 4)

    @classmethod
    def read(cls, frame: Reader) -> Organising:
        """Raises BadFrame for numbers out of range."""
        made = cls(read_edges(frame), frame.number(2), frame.number(1), frame.number(1), frame.number(4))
        fits = 1 <= made.interval_s <= INTERVAL_MOST_S and 1 <= made.hops <= HOPS_MOST
        if not fits or made.min_gain_percent >= PERCENT or made.dwell_s > DWELL_MOST_S:
            raise BadFrame(
                f"regions are measured every {made.interval_s} s over {made.hops} hops, and change for "
                f"{made.min_gain_percent} % after {made.dwell_s} s"
            )
        return made
