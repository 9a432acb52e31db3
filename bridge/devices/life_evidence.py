"""The standing of an unchanged device: evidence, and the verdict on its life (B5, for devices that nobody pings).

Evidence counts in this order; the first evidence at hand decides:

    1  a word of loss, by any source of the device's, that no later word or new connection of its own took back:
    FAILED.
       So a device's own `offline` outweighs the open connection of its bridge, and a bridge's outweighs the device's
       `online` of before. A word of leaving: GONE
    2  the will of the connection through which it speaks was published, and that connection is gone: FAILED
    3  without a configured heartbeat: that connection ended. With DISCONNECT: GONE, unless the device said before that
       it sleeps; without: GONE, and FAILED when it is not back after `grace_s`. A device with a configured heartbeat
       may come and go between its messages
    4  the device said that it sleeps: ALIVE, whatever its silence, also where that was before a restart
    5  silence, by the configured heartbeat: SUSPECTED after two periods, FAILED after three
    6  else silence, by the habit that was learned of it: SUSPECTED when phi reaches the threshold,
       FAILED when the silence lasts twice as long. Who has no rhythm has none that its silence could break
    7  its Sparkplug node was born again, and the device was not: SUSPECTED until the device is
    8  silence of its own connection beyond its keep-alive: SUSPECTED; the broker then ends the connection (see 3)

Pure and without memory: `judge` is asked whenever something came or `until` is reached. Not here: whose word counts
(`devices`), who is told.

How regularly something speaks, and when its silence is suspicious: phi-accrual over learned intervals.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import erfc, log10, sqrt
from statistics import NormalDist

from bridge.devices.conventions import Said
from bridge.traces import TraceKind

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


SUSPECT_PERIODS, FAIL_PERIODS = 2.0, 3.0  # of a configured heartbeat, without a message
SILENCE_MIN_S = 5.0  # a shorter silence is never held against a habit: networks have such
FAIL_FACTOR = 2.0  # how much longer than a suspicious silence one must be for a failure
KEEP_ALIVE_SLACK_S = 2.0  # packets are reported once a second, and take their time
REJOIN_S = 60.0  # how long at least a device that is remembered from before a restart may take to come back


class DeviceHealth(StrEnum):
    """The gateway's verdict on a device."""

    ALIVE = "alive"
    SUSPECTED = "suspected"
    FAILED = "failed"
    GONE = "gone"


@dataclass(slots=True)
class DeviceLink:
    """A client's connection, the last one if it has none. `level`: its name as a device; `origin`: who answers for it,
    an address."""

    client: str
    level: str
    origin: bytes
    keep_alive_s: int = 0
    up: bool = True
    seen_at: float = 0.0
    left_at: float = 0.0
    clean: bool = False
    reason: str = ""
    willed: bool = False
    """Its will was published: by its own word it is dead."""
    stays: bool = False
    """Its will was published and says that it is there: it sleeps deeply, say."""
    knows: bool = False
    """It speaks VeilMQ itself, and is no unchanged device."""


@dataclass(slots=True)
class LifeEvidence:
    """The evidence about a device.

    `own`: `link` is its own connection, not that of a bridge. `rejoin_s`: the time after a restart in which no
    silence
    counts against it.
    """

    known_at: float
    heard_at: float
    link: DeviceLink | None = None
    own: bool = False
    every_s: float | None = None
    rejoin_s: float = REJOIN_S
    words: dict[str, Said] = field(default_factory=dict)  # by source
    roams: bool = False  # several bridges hear it: that one of them is gone says nothing
    suspect_at: float | None = None
    fail_at: float | None = None  # when what its entities said last counts no more (`entities`)
    stale_at: float | None = None  # when its node's new session counts against a device that was not born in it
    habit: Regularity = field(default_factory=Regularity)

    @property
    def back_by(self) -> float:
        """The time at which a device is missed for which nobody spoke since a restart."""
        return self.known_at + max(self.rejoin_s, FAIL_PERIODS * (self.every_s or 0.0))


@dataclass(frozen=True, slots=True)
class DeviceVerdict:
    """`why`: a few words for people. `until`: when to judge again though nothing came."""

    health: DeviceHealth
    why: str = ""
    clean: bool = False
    until: float | None = None


def judge(known: LifeEvidence, now: float, grace_s: float) -> DeviceVerdict | None:
    """None: nothing may be said yet, of a device that is remembered from before a restart."""
    said = known.words.values()
    if Said.LOST in said:
        return DeviceVerdict(DeviceHealth.FAILED, f"{_source(known, Said.LOST)} says so")
    if Said.GONE in said:
        return DeviceVerdict(DeviceHealth.GONE, f"{_source(known, Said.GONE)} says so", clean=True)
    link = known.link
    if link is not None and not link.up and link.willed and not (known.roams and known.every_s):
        return DeviceVerdict(
            DeviceHealth.FAILED, "its will was published" if known.own else "the will of its bridge was published"
        )
    sleeps = Said.SLEEPING in said
    if link is None and now < known.back_by:
        return None
    if link is None and not sleeps:
        return DeviceVerdict(DeviceHealth.FAILED, "not back after a restart of the gateway")
    if link is not None and not link.up and not _may_be_away(known, link):
        return _left(link, now, grace_s)
    if sleeps:
        return DeviceVerdict(DeviceHealth.ALIVE, "asleep")
    verdict = _silence(known, now)
    if known.stale_at is None or verdict.health is DeviceHealth.FAILED:
        return verdict
    if now >= known.stale_at:
        return DeviceVerdict(DeviceHealth.SUSPECTED, "not born again with its node", until=verdict.until)
    return replace(verdict, until=min(verdict.until or known.stale_at, known.stale_at))


def _may_be_away(known: LifeEvidence, link: DeviceLink) -> bool:
    """Returns True if the end of a connection says nothing of the device."""
    sleeps = link.clean and Said.SLEEPING in known.words.values()
    return known.every_s is not None or known.fail_at is not None or link.stays or sleeps


def _left(link: DeviceLink, now: float, grace_s: float) -> DeviceVerdict:
    if link.clean:
        return DeviceVerdict(DeviceHealth.GONE, link.reason, clean=True)
    failed_at = link.left_at + grace_s
    return (
        DeviceVerdict(DeviceHealth.FAILED, link.reason)
        if now >= failed_at
        else DeviceVerdict(DeviceHealth.GONE, link.reason, until=failed_at)
    )


def _silence(known: LifeEvidence, now: float) -> DeviceVerdict:
    looks: list[float] = []
    suspect_s = fail_s = None
    if known.every_s is not None:
        suspect_s, fail_s, why = known.every_s * SUSPECT_PERIODS, known.every_s * FAIL_PERIODS, "no heartbeat"
    elif known.suspect_at is not None and known.fail_at is not None:
        suspect_s, fail_s = known.suspect_at - known.heard_at, known.fail_at - known.heard_at
        why = "no heartbeat"
    elif known.habit.regular and (at := known.habit.suspicious_at()) is not None:
        suspect_s = max(at - known.heard_at, SILENCE_MIN_S)
        fail_s, why = suspect_s * FAIL_FACTOR, "silent against its habit"
    if suspect_s is not None and fail_s is not None:
        if now >= known.heard_at + fail_s:
            return DeviceVerdict(DeviceHealth.FAILED, why)
        if now >= known.heard_at + suspect_s:
            return DeviceVerdict(DeviceHealth.SUSPECTED, why, until=known.heard_at + fail_s)
        looks.append(known.heard_at + suspect_s)
    link = known.link
    if known.own and link is not None and link.up and link.keep_alive_s:
        due = link.seen_at + link.keep_alive_s + KEEP_ALIVE_SLACK_S
        if now >= due:
            return DeviceVerdict(DeviceHealth.SUSPECTED, "silent beyond its keep-alive", until=min(looks, default=None))
        looks.append(due)
    return DeviceVerdict(DeviceHealth.ALIVE, until=min(looks, default=None))


def state_of(known: LifeEvidence) -> TraceKind | None:
    """The state a device's words come to, in the words of traces: what it lacks first. None: it says none."""
    said = known.words.values()
    for word, kind in (
        (Said.GONE, TraceKind.SHUTDOWN),
        (Said.SLEEPING, TraceKind.SHUTDOWN),
        (Said.STARTING, TraceKind.INITIALIZING),
        (Said.ALERT, TraceKind.RECOVERING),
        (Said.LOST, None),
        (Said.READY, TraceKind.READY),
    ):
        if word in said:
            return kind
    return None


def _source(known: LifeEvidence, said: Said) -> str:
    source = next(source for source, word in known.words.items() if word is said)
    return source.partition("\0")[0]
