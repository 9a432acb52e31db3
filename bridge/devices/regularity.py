"""How regularly something speaks, and when its silence is suspicious: phi-accrual over learned intervals.

phi(t) = -log10 of the probability the next message is still to come after t seconds of silence, taken from the last
intervals as a normal distribution: at a threshold of 8, a single honest silence in 10^8 is taken for a death. The
moment at which phi reaches the threshold is known in advance, so that nothing has to be polled. Source: N.
Hayashibara, X. Défago, R. Yared, T. Katayama, The phi accrual failure detector (2004). Not here: pings (`pings`),
whose silence.
"""

from __future__ import annotations

from collections import deque
from math import erfc, log10, sqrt
from statistics import NormalDist

WINDOW = 100  # intervals that count
LEARNED_AFTER = 8  # intervals without which nothing is suspicious: two messages are no habit
LEARNED_S = 60.0  # that these must span, to be a habit: a burst is none
DEVIATION_MAX = 0.5  # of the mean: whatever speaks less evenly has no rhythm that its silence could break
DEVIATION_MIN = 0.1  # of the mean: clocks and networks are never more regular than that for long
THRESHOLD = 8.0
PHI_MAX = 300.0  # where a double's tail ends


class Regularity:
    """A source. Times in seconds."""

    __slots__ = ("_deviation_min_s", "_intervals", "_last", "_squares", "_sum")

    def __init__(self, deviation_min_s: float = 0.05) -> None:
        """`deviation_min_s`: no interval is believed to be steadier than that."""
        self._deviation_min_s = deviation_min_s
        self._intervals: deque[float] = deque()
        self._sum = self._squares = 0.0
        self._last: float | None = None

    def note_heard(self, now: float) -> None:
        """It spoke."""
        if self._last is not None and now >= self._last:
            self._learn_interval(now - self._last)
        self._last = now

    def note_resumed(self, now: float) -> None:
        """It spoke after a silence somebody knows the reason of: the interval teaches nothing."""
        self._last = now

    @property
    def learned(self) -> bool:
        return len(self._intervals) >= LEARNED_AFTER

    @property
    def regular(self) -> bool:
        """True if the source speaks so evenly, for so long, that a silence counts against it."""
        if not self.learned or self._sum < LEARNED_S:
            return False
        usual = self._usual()
        return usual.stdev <= max(DEVIATION_MAX * usual.mean, self._deviation_min_s)

    @property
    def mean_s(self) -> float | None:
        """The usual interval; None before there is one."""
        return self._sum / len(self._intervals) if self._intervals else None

    def phi(self, now: float) -> float:
        """Returns the suspicion the silence raises; 0 while nothing is known."""
        if not self.learned:
            return 0.0
        assert self._last is not None
        usual = self._usual()
        later = 0.5 * erfc((now - self._last - usual.mean) / (usual.stdev * sqrt(2)))
        return PHI_MAX if later <= 10.0**-PHI_MAX else -log10(later)

    def suspicious_at(self, threshold: float = THRESHOLD) -> float | None:
        """Returns the time at which phi reaches the threshold if the source stays silent; None while nothing is
        known.
        """
        if not self.learned:
            return None
        assert self._last is not None
        usual = self._usual()
        return self._last + usual.mean - usual.stdev * NormalDist().inv_cdf(10.0**-threshold)

    def _usual(self) -> NormalDist:
        count = len(self._intervals)
        mean = self._sum / count
        variance = max(self._squares / count - mean * mean, 0.0)
        return NormalDist(mean, max(sqrt(variance), DEVIATION_MIN * mean, self._deviation_min_s))

    def _learn_interval(self, interval_s: float) -> None:
        self._intervals.append(interval_s)
        self._sum += interval_s
        self._squares += interval_s * interval_s
        if len(self._intervals) > WINDOW:
            gone = self._intervals.popleft()
            self._sum -= gone
            self._squares -= gone * gone
