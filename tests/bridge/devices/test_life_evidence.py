"""What is held of a device, by each kind of evidence and by evidence against evidence.

Phi-accrual: learned intervals, the moment of suspicion, and that it is the right one.
"""

from __future__ import annotations

import random
from math import log10

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.devices.conventions import Said
from bridge.devices.life_evidence import (
    DEVIATION_MIN,
    FAIL_FACTOR,
    KEEP_ALIVE_SLACK_S,
    LEARNED_AFTER,
    PHI_MAX,
    REJOIN_S,
    SILENCE_MIN_S,
    THRESHOLD,
    WINDOW,
    DeviceHealth,
    DeviceLink,
    DeviceVerdict,
    LifeEvidence,
    Regularity,
    judge,
    state_of,
)
from bridge.traces.kinds import TraceKind

NOW = 1_800_000_000.0


def spoken(intervals: list[float]) -> tuple[Regularity, float]:
    source, now = Regularity(), NOW
    source.note_heard(now)
    for interval in intervals:
        now += interval
        source.note_heard(now)
    return source, now


def test_nothing_is_suspicious_before_a_habit_is_known() -> None:
    source, now = spoken([1.0] * (LEARNED_AFTER - 1))
    assert source.suspicious_at() is None
    assert source.phi(now + 1_000) == 0
    source, now = spoken([1.0] * LEARNED_AFTER)
    assert source.suspicious_at() is not None
    assert source.phi(now + 1_000) == PHI_MAX


@pytest.mark.parametrize("interval", [0.1, 1.0, 60.0])
def test_a_steady_source_is_missed_soon_after_its_time(interval: float) -> None:
    source, now = spoken([interval] * 50)
    at = source.suspicious_at()
    assert at is not None
    assert now + interval < at < now + interval * 2 + 0.5
    assert source.mean_s == pytest.approx(interval)


def test_an_unsteady_source_is_given_more_time() -> None:
    rng = random.Random(1)
    steady, now = spoken([1.0] * 50)
    unsteady, later = spoken([rng.uniform(0.2, 1.8) for _ in range(50)])
    first, second = steady.suspicious_at(), unsteady.suspicious_at()
    assert first is not None
    assert second is not None
    assert first - now < second - later


@settings(max_examples=50)
@given(st.lists(st.floats(0.01, 100), min_size=LEARNED_AFTER, max_size=150), st.floats(0.5, 12))
def test_phi_reaches_the_threshold_at_the_foretold_moment(intervals: list[float], threshold: float) -> None:
    source, now = spoken(intervals)
    at = source.suspicious_at(threshold)
    assert at is not None
    assert source.phi(at) == pytest.approx(threshold, rel=1e-3)
    assert source.phi(now) <= source.phi((now + at) / 2) <= source.phi(at)


def test_habits_change_within_a_window() -> None:
    source, _ = spoken([1.0] * 50 + [10.0] * WINDOW)
    assert source.mean_s == pytest.approx(10.0)


def test_a_silence_with_a_reason_teaches_nothing() -> None:
    source, now = spoken([1.0] * 20)
    source.note_resumed(now + 3_600)
    assert source.mean_s == pytest.approx(1.0)
    assert source.phi(now + 3_600) < 1


def test_honest_sources_are_rarely_suspected() -> None:
    rng = random.Random(7)
    source, now, suspected = Regularity(), NOW, 0
    for _ in range(20_000):
        now += rng.gauss(1.0, DEVIATION_MIN)
        suspected += source.phi(now) >= THRESHOLD
        source.note_heard(now)
    assert suspected <= 1


QUANTILE = 5.612001244  # of the normal distribution: one in 10^8 is beyond


@pytest.mark.parametrize(
    ("intervals", "mean_s", "deviation_s"),
    [
        ([10.0] * 8, 10.0, 1.0),  # a tenth of the mean at least
        ([0.1] * 8, 0.1, 0.05),  # and never less than a twentieth of a second
        ([5.0, 15.0] * 4, 10.0, 5.0),
        ([1_000.0, *[10.0] * WINDOW], 10.0, 1.0),  # the oldest is forgotten whole
        ([110.0, *[10.0] * (WINDOW - 1)], 11.0, 9.9498744),  # and not before its time
    ],
)
def test_the_moment_of_suspicion_is_that_of_the_distribution(
    intervals: list[float], mean_s: float, deviation_s: float
) -> None:
    source, now = spoken(intervals)
    at = source.suspicious_at()
    assert at is not None
    assert at - now == pytest.approx(mean_s + QUANTILE * deviation_s, rel=1e-5)
    assert source.mean_s == pytest.approx(mean_s)
    assert source.phi(now + mean_s) == pytest.approx(-log10(0.5), rel=1e-4)


def test_who_is_believed_to_be_unsteadier_is_given_as_much() -> None:
    source = Regularity(deviation_min_s=30.0)
    for place in range(LEARNED_AFTER + 1):
        source.note_heard(NOW + 10.0 * place)
    at = source.suspicious_at()
    assert at is not None
    assert at - (NOW + 10.0 * LEARNED_AFTER) == pytest.approx(10 + QUANTILE * 30, rel=1e-5)
    assert source.regular, "it is no less even than it was believed to be"


@pytest.mark.parametrize(
    ("intervals", "regular"),
    [
        ([10.0] * 7, False),  # two messages are no habit
        ([10.0] * 8, True),
        ([7.5] * 8, True),  # a minute
        ([7.0] * 8, False),  # a burst
        ([5.0, 15.0] * 4, True),  # half of the mean
        ([4.0, 16.0] * 4, False),
    ],
)
def test_what_is_a_habit(intervals: list[float], regular: bool) -> None:
    assert spoken(intervals)[0].regular is regular


def test_times_that_go_back_teach_nothing_and_two_at_once_are_none_apart() -> None:
    source = Regularity()
    assert source.mean_s is None
    source.note_heard(NOW)
    source.note_heard(NOW - 5)
    assert source.mean_s is None
    source.note_heard(NOW + 5)
    assert source.mean_s == 10.0
    source.note_heard(NOW + 5)
    assert source.mean_s == 5.0


NOW, GRACE_S = 1_000.0, 10.0


def link(**changes: object) -> DeviceLink:
    return DeviceLink("client", "client", b"10.0.0.1", seen_at=NOW, **changes)  # type: ignore[arg-type]


def known(**changes: object) -> LifeEvidence:
    return LifeEvidence(NOW, NOW, **{"link": link(), "own": True, **changes})  # type: ignore[arg-type]


def health(evidence: LifeEvidence, now: float = NOW) -> DeviceHealth | None:
    verdict = judge(evidence, now, GRACE_S)
    return None if verdict is None else verdict.health


def left(at: float = NOW, clean: bool = False, willed: bool = False) -> DeviceLink:
    return link(up=False, left_at=at, clean=clean, willed=willed, reason="went")


def test_words_outweigh_connections_and_wills() -> None:
    for other in ({}, {"link": left(willed=True)}, {"every_s": 1.0}, {"link": None}):
        assert health(known(words={"own": Said.READY, "bridge": Said.LOST}, **other)) is DeviceHealth.FAILED
        gone = judge(known(words={"own": Said.GONE}, **other), NOW, GRACE_S)
        assert gone == DeviceVerdict(DeviceHealth.GONE, "own says so", clean=True)
    assert health(known(words={"own": Said.GONE, "bridge": Said.LOST})) is DeviceHealth.FAILED, "loss before leaving"


def test_a_will_that_was_published_counts_while_its_connection_is_gone() -> None:
    assert judge(known(link=left(willed=True)), NOW, GRACE_S) == DeviceVerdict(
        DeviceHealth.FAILED, "its will was published"
    )
    bridged = judge(known(link=left(willed=True), own=False, every_s=60.0), NOW, GRACE_S)
    assert bridged == DeviceVerdict(DeviceHealth.FAILED, "the will of its bridge was published")
    assert health(known(link=link(willed=True))) is DeviceHealth.ALIVE


def test_a_lost_connection_may_come_back_within_the_grace() -> None:
    lost = known(link=left())
    assert judge(lost, NOW, GRACE_S) == DeviceVerdict(DeviceHealth.GONE, "went", until=NOW + GRACE_S)
    assert health(lost, NOW + GRACE_S - 0.1) is DeviceHealth.GONE
    assert judge(lost, NOW + GRACE_S, GRACE_S) == DeviceVerdict(DeviceHealth.FAILED, "went")
    assert judge(known(link=left(clean=True)), NOW + 99, GRACE_S) == DeviceVerdict(
        DeviceHealth.GONE, "went", clean=True
    )


def test_with_a_configured_heartbeat_the_connection_may_end_between_two() -> None:
    beats = known(link=left(), every_s=60.0)
    assert judge(beats, NOW + 119, GRACE_S) == DeviceVerdict(DeviceHealth.ALIVE, until=NOW + 120)
    assert judge(beats, NOW + 120, GRACE_S) == DeviceVerdict(DeviceHealth.SUSPECTED, "no heartbeat", until=NOW + 180)
    assert judge(beats, NOW + 180, GRACE_S) == DeviceVerdict(DeviceHealth.FAILED, "no heartbeat")


def test_nothing_is_said_of_a_remembered_device_before_it_could_be_back() -> None:
    remembered = known(link=None)
    assert judge(remembered, NOW + REJOIN_S - 1, GRACE_S) is None
    assert health(remembered, NOW + REJOIN_S) is DeviceHealth.FAILED
    slow = known(link=None, every_s=60.0)
    assert judge(slow, NOW + 179, GRACE_S) is None, "as long as its silence may last"
    assert health(slow, NOW + 180) is DeviceHealth.FAILED


def test_who_sleeps_is_not_held_to_its_rhythm_but_to_its_connection() -> None:
    asleep = {"own": Said.SLEEPING}
    assert judge(known(words=asleep, every_s=1.0), NOW + 9_999, GRACE_S) == DeviceVerdict(DeviceHealth.ALIVE, "asleep")
    assert health(known(words=asleep, link=left()), NOW + GRACE_S) is DeviceHealth.FAILED


def test_who_says_that_it_sleeps_may_disconnect() -> None:
    """The Homie Convention 5.0, "Device Lifecycle": `sleeping` is the last word, and no `disconnected` follows."""
    asleep = {"own": Said.SLEEPING}
    for link_ in (left(clean=True), None):
        assert judge(known(words=asleep, link=link_), NOW + 9_999, GRACE_S) == DeviceVerdict(
            DeviceHealth.ALIVE, "asleep"
        )
    assert judge(known(words=asleep, link=None), NOW, GRACE_S) is None, "it may say another word"
    gone = {"own": Said.GONE}
    assert health(known(words=gone, link=left(clean=True)), NOW) is DeviceHealth.GONE


def habit(evidence: LifeEvidence, every_s: float = 10.0, count: int = 12) -> float:
    """It spoke regularly; returns when last."""
    for number in range(count):
        evidence.habit.note_heard(NOW + number * every_s)
    evidence.heard_at = NOW + (count - 1) * every_s
    return evidence.heard_at


def test_silence_against_a_habit_is_suspicious_and_twice_as_long_a_failure() -> None:
    speaks = known()
    last = habit(speaks)
    verdict = judge(speaks, last, GRACE_S)
    assert verdict is not None
    assert verdict.health is DeviceHealth.ALIVE
    assert verdict.until is not None
    suspect_s = verdict.until - last
    assert suspect_s > 10.0
    assert health(speaks, verdict.until) is DeviceHealth.SUSPECTED
    assert health(speaks, last + FAIL_FACTOR * suspect_s - 0.01) is DeviceHealth.SUSPECTED
    assert health(speaks, last + FAIL_FACTOR * suspect_s) is DeviceHealth.FAILED


def test_short_silences_are_never_held_against_a_habit() -> None:
    speaks = known()
    last = habit(speaks, every_s=1.0, count=90)
    assert health(speaks, last + SILENCE_MIN_S - 0.01) is DeviceHealth.ALIVE
    assert health(speaks, last + SILENCE_MIN_S) is DeviceHealth.SUSPECTED


def test_who_has_no_rhythm_has_none_to_break() -> None:
    speaks = known()
    habit(speaks, count=3)
    assert judge(speaks, NOW + 99_999, GRACE_S) == DeviceVerdict(DeviceHealth.ALIVE)


def test_an_own_connection_that_is_silent_beyond_its_keep_alive_is_suspicious() -> None:
    due = NOW + 30 + KEEP_ALIVE_SLACK_S
    speaks = known(link=link(keep_alive_s=30))
    assert judge(speaks, NOW, GRACE_S) == DeviceVerdict(DeviceHealth.ALIVE, until=due)
    assert judge(speaks, due, GRACE_S) == DeviceVerdict(DeviceHealth.SUSPECTED, "silent beyond its keep-alive")
    assert judge(known(link=link(keep_alive_s=30), own=False), due, GRACE_S) == DeviceVerdict(DeviceHealth.ALIVE)
    beats = known(link=link(keep_alive_s=30), every_s=100.0)
    assert judge(beats, NOW, GRACE_S) == DeviceVerdict(DeviceHealth.ALIVE, until=due), "whichever comes first"
    assert judge(beats, due, GRACE_S) == DeviceVerdict(
        DeviceHealth.SUSPECTED, "silent beyond its keep-alive", until=NOW + 200
    )


@pytest.mark.parametrize(("words", "state"), [
    ([], None),
    ([Said.READY], TraceKind.READY),
    ([Said.READY, Said.ALERT], TraceKind.RECOVERING),
    ([Said.ALERT, Said.STARTING], TraceKind.INITIALIZING),
    ([Said.STARTING, Said.SLEEPING], TraceKind.SHUTDOWN),
    ([Said.READY, Said.GONE], TraceKind.SHUTDOWN),
    ([Said.LOST, Said.READY], None),
    ([Said.LOST, Said.ALERT], TraceKind.RECOVERING),
])  # fmt: skip
def test_the_state_is_what_a_device_lacks_first(words: list[Said], state: TraceKind | None) -> None:
    assert state_of(known(words={str(place): word for place, word in enumerate(words)})) is state


def test_a_connection_is_open_and_promises_nothing_until_more_is_known() -> None:
    assert DeviceLink("c", "c", b"") == DeviceLink("c", "c", b"", 0, True, 0.0, 0.0, False, "", False, False)
    nothing = LifeEvidence(1.0, 2.0)
    assert (nothing.link, nothing.own, nothing.every_s, nothing.rejoin_s) == (None, False, None, REJOIN_S)
    assert DeviceVerdict(DeviceHealth.ALIVE) == DeviceVerdict(DeviceHealth.ALIVE, "", False, None)


def test_why_a_device_is_missed() -> None:
    remembered = known(link=None, rejoin_s=5.0)
    assert judge(remembered, NOW + 4.9, GRACE_S) is None
    missed = DeviceVerdict(DeviceHealth.FAILED, "not back after a restart of the gateway")
    assert judge(remembered, NOW + 5.0, GRACE_S) == missed
    speaks = known()
    last = habit(speaks)
    at = judge(speaks, last, GRACE_S)
    assert at is not None
    assert at.until is not None
    failed_at = last + FAIL_FACTOR * (at.until - last)
    suspected = judge(speaks, at.until, GRACE_S)
    assert suspected == DeviceVerdict(
        DeviceHealth.SUSPECTED,
        "silent against its habit",
        until=pytest.approx(failed_at),  # type: ignore[arg-type]
    )
    assert judge(speaks, failed_at + 1, GRACE_S) == DeviceVerdict(DeviceHealth.FAILED, "silent against its habit")


def test_a_keep_alive_says_nothing_of_a_connection_that_ended_or_promised_none() -> None:
    beats = known(link=left(), every_s=600.0)
    assert beats.link is not None
    beats.link.keep_alive_s = 30
    assert judge(beats, NOW + 500, GRACE_S) == DeviceVerdict(DeviceHealth.ALIVE, until=NOW + 1_200)
    assert judge(known(link=link(keep_alive_s=0)), NOW + 500, GRACE_S) == DeviceVerdict(DeviceHealth.ALIVE)


def test_a_will_counts_for_nothing_where_nobody_speaks_for_the_device() -> None:
    assert judge(known(link=None, every_s=60.0), NOW, GRACE_S) is None


def test_of_several_that_say_so_the_first_is_named() -> None:
    words = {"a": Said.READY, "b": Said.LOST, "c": Said.LOST}
    assert judge(known(words=words), NOW, GRACE_S) == DeviceVerdict(DeviceHealth.FAILED, "b says so")
