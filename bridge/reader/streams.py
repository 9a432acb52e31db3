"""What a subscriber remembers of one publisher's publications on one topic: what came, and what waits.

Sequences rise over all of a publisher's topics, so that one topic sees jumps; each jump is a *gap* out of which a
publication that was overtaken can still come, late and once. Not here: keys, time, what is delivered how.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.wire import Admitted

GAPS_MAX = 64  # of one stream; a publication out of an older gap counts as a repetition


@dataclass(slots=True)
class Held:
    """A publication that waits for its content (None until it is whole), its key or its predecessor."""

    admitted: Admitted
    content: bytes | None = field(repr=False)
    topic: str
    arrived: float
    replayed: bool = False
    """It was retained and may be old: whether its predecessor comes is no question."""


@dataclass(slots=True)
class Stream:
    """`generation`: that of the subscription under which something was last delivered."""

    first: int | None = None
    highest: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Ascending; (low, high): nothing between them, both excluded, was delivered."""
    held: dict[int, Held] = field(default_factory=dict)
    generation: int = -1

    def knows(self, sequence: int) -> bool:
        """Whether there is state about this sequence: something at or before it was delivered."""
        return self.first is not None and sequence >= self.first

    def delivered(self, sequence: int) -> bool:
        """Whether it came, or came too long ago to tell."""
        return sequence <= self.highest and not any(low < sequence < high for low, high in self.gaps)

    def deliver(self, sequence: int) -> bool:
        """Mark one that was not delivered; True if it is late: a later one came before."""
        late = sequence <= self.highest
        low, high = next(gap for gap in self.gaps if gap[0] < sequence < gap[1]) if late else (self.highest, sequence)
        if late:
            self.gaps.remove((low, high))
            self.gaps += [gap for gap in ((low, sequence), (sequence, high)) if gap[1] - gap[0] > 1]
            self.gaps.sort()
        else:
            self.highest = sequence
            if high - low > 1:
                self.gaps.append((low, high))
        del self.gaps[: max(0, len(self.gaps) - GAPS_MAX)]
        if self.first is None:
            self.first = sequence
        return late
