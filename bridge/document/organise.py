"""The owner's rules for measuring replicas and for other trees of regions (paper D; docs/protocol.md §5.6).

Part of the signed policy. `links` are the potential edges besides the present tree: no member makes any other edge,
however much it would spare. An `organiser`, if there is one, is the member that may number and sign such changes in
the owner's place (`swaps`). An edge that made the tree worse is barred for a while, twice as long each time. Not
here: measurements (`bridge.measuring`), who changes the tree.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from bridge.document.trees import TREE_GRACE_S, Edge, encode_edges, read_edges
from keys.errors import BadFrame
from keys.frames import Reader, number, text

INTERVAL_MOST_S = 3600
HOPS_MOST = 16  # regions on a cycle that a swap may close
DWELL_MOST_S = 30 * 86_400
PERCENT = 100
EVEN_PERCENT = 50
TIMES_MOST = 16  # how often the bar of an edge is doubled that was taken back
BAR_MOST_S = 30 * 86_400
ORGANISER_GRACE_MOST_S = 3600


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a potential edge that made the tree worse and was taken back, `times` so far.

    The edge does not come again before `until_ms`, UNIX time.
    """

    link: Edge
    times: int
    until_ms: int

    def encode(self) -> bytes:
        return number(self.link[0], 4) + number(self.link[1], 4) + number(self.times, 1) + number(self.until_ms, 8)

    @classmethod
    def read(cls, frame: Reader) -> Bar:
        """Reads a bar. Raises BadFrame."""
        made = cls((frame.number(4), frame.number(4)), frame.number(1), frame.number(8))
        if not 1 <= made.times <= TIMES_MOST:
            raise BadFrame(f"a link was taken back {made.times} times")
        return made


@dataclass(frozen=True, slots=True)
class Organising:
    """The owner's rules for measuring and changing the tree.

    `links`: potential edges. `interval_s`: of a summary. `hops`: η, how far interests are told. A change has to spare
    `min_gain_percent` of the cost of all publications, and the tree rests for `dwell_s` after each. `bars`: of links.
    `organiser`: a member, or empty; the tree before each of its changes stays open for `grace_s`.
    `processing_percent`: α of paper D, the weight of processing; links have the rest of 100.
    """

    links: tuple[Edge, ...] = ()
    interval_s: int = 60
    hops: int = 4
    min_gain_percent: int = 2
    dwell_s: int = 600
    bars: tuple[Bar, ...] = ()
    organiser: str = ""
    grace_s: int = TREE_GRACE_S
    processing_percent: int = EVEN_PERCENT

    @property
    def processing_weight(self) -> float:
        """Factor of processing, from 0 to 2; that of links is the rest to 2 (paper D, Fig 6)."""
        return self.processing_percent / EVEN_PERCENT

    @property
    def min_gain(self) -> float:
        """The least gain of a change, as a part of one."""
        return self.min_gain_percent / PERCENT

    def strange(self, regions: Container[int]) -> str:
        """Returns a link that does not join two of these regions; empty if there is none."""
        named = (*self.links, *(bar.link for bar in self.bars))
        wrong = (f"{a}-{b}" for a, b in named if a == b or a not in regions or b not in regions)
        return next(wrong, "")

    def barred(self, now: float) -> tuple[Edge, ...]:
        """Returns the links that are barred now."""
        return tuple(bar.link for bar in self.bars if now * 1000 < bar.until_ms)

    def with_bar(self, link: Edge, now: float) -> Organising:
        """Returns the rules with a bar of `link`, which made the tree worse.

        The bar lasts twice as long as the link's last bar, unless that ended as long ago again.
        """
        kept = {frozenset(bar.link): bar for bar in self.bars if now < bar.until_ms / 1000 + self._bar_s(bar.times)}
        before = kept.pop(frozenset(link), None)
        times = min(before.times + 1, TIMES_MOST) if before else 1
        bar = Bar(link, times, int(1000 * (now + self._bar_s(times))))
        return replace(self, bars=(*kept.values(), bar))

    def _bar_s(self, times: int) -> int:
        return min(self.dwell_s << times, BAR_MOST_S)

    def encode_bars(self) -> bytes:
        """Encodes count(2), and each link region(4) region(4), times(1), until in ms(8)."""
        return number(len(self.bars), 2) + b"".join(bar.encode() for bar in self.bars)

    def read_bars(self, frame: Reader) -> Organising:
        """Returns the rules with the bars following in the frame. Raises BadFrame."""
        return replace(self, bars=tuple([Bar.read(frame) for _ in range(frame.number(2))]))

    def encode_organiser(self) -> bytes:
        """Encodes name(2 + n), grace in s(4)."""
        return text(self.organiser) + number(self.grace_s, 4)

    def read_organiser(self, frame: Reader) -> Organising:
        """Returns the rules with the organiser that follows. Raises BadFrame for no name, or a grace out of range."""
        organiser, grace_s = frame.text(), frame.number(4)
        if not organiser or not 1 <= grace_s <= ORGANISER_GRACE_MOST_S:
            raise BadFrame(f"organiser {organiser!r}, with trees that stay open for {grace_s} s")
        return replace(self, organiser=organiser, grace_s=grace_s)

    def read_weight(self, frame: Reader) -> Organising:
        """Returns the rules with the weight of processing that follows.

        Raises BadFrame for no percentage, and for the default, which is not written.
        """
        percent = frame.number(1)
        if percent > PERCENT or percent == EVEN_PERCENT:
            raise BadFrame(f"processing counts for {percent} percent")
        return replace(self, processing_percent=percent)

    def encode_weight(self) -> bytes:
        """Encodes percent(1)."""
        return number(self.processing_percent, 1)

    @property
    def is_weighed(self) -> bool:
        """True if processing and links have different weights."""
        return self.processing_percent != EVEN_PERCENT

    def encode(self) -> bytes:
        """Encodes the rules without bars, organiser and weight, which follow if the policy says so."""
        numbers = number(self.interval_s, 2) + number(self.hops, 1) + number(self.min_gain_percent, 1)
        return encode_edges(self.links) + numbers + number(self.dwell_s, 4)

    @classmethod
    def read(cls, frame: Reader) -> Organising:
        """Reads the rules. Raises BadFrame for numbers out of range."""
        made = cls(read_edges(frame), frame.number(2), frame.number(1), frame.number(1), frame.number(4))
        fits = 1 <= made.interval_s <= INTERVAL_MOST_S and 1 <= made.hops <= HOPS_MOST
        if not fits or made.min_gain_percent >= PERCENT or made.dwell_s > DWELL_MOST_S:
            raise BadFrame(
                f"regions are measured every {made.interval_s} s over {made.hops} hops, and change for "
                f"{made.min_gain_percent} % after {made.dwell_s} s"
            )
        return made
