"""Pings of one entity: what is missed, suspected, failed and comes back; metrics; every timeout by its formula."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.traces.pings import (
    AFTER_FAILURE_S,
    ALIVE_PART,
    EXPERIENCE,
    HISTORY,
    LONGER,
    LONGEST_LIFE_S,
    OUTSTANDING_MAX,
    REPEAT,
    STEADY,
    SURVIVED_MAX_S,
    TOLD_WITHIN_S,
    Health,
    Ping,
    PingMetrics,
    Pulse,
)
from bridge.traces.presets import CELLULAR, LAN, PRESETS, WAN, Preset, within
from bridge.traces.self_health import SelfHealth
from tests.bridge.traces.detection import detection_s

NOW = 1_800_000_000.0
QUICK = replace(LAN, floor_s=0.0)  # what a link says by itself


def run(pulse: Pulse, until: float, round_trip_s: float | None) -> list[tuple[float, Ping | Health]]:
    """Drive a pulse to the moment `until`; every ping is answered after `round_trip_s`, or none is."""
    seen: list[tuple[float, Ping | Health]] = []
    answers: list[tuple[float, Ping]] = []
    while True:
        answer_at = answers[0][0] if answers else float("inf")
        now = min(pulse.next_deadline, answer_at)
        if now > until:
            return seen
        if answer_at <= pulse.next_deadline:
            at, ping = answers.pop(0)
            health = pulse.take_echo(ping.number, ping.sent_ms, at)
            seen += [(at, health)] if health else []
            continue
        sent, health = pulse.tick(now)
        if sent is not None:
            seen.append((now, sent))
            answers += [(now + round_trip_s, sent)] if round_trip_s is not None else []
        seen += [(now, health)] if health else []


def pings(seen: list[tuple[float, Ping | Health]]) -> list[float]:
    return [at for at, what in seen if isinstance(what, Ping)]


def healths(seen: list[tuple[float, Ping | Health]]) -> list[Health]:
    return [what for _, what in seen if isinstance(what, Health)]


def steady(preset: Preset = LAN, round_trip_s: float = 0.01) -> tuple[Pulse, float]:
    """A pulse that has been answered for a minute, half an interval after a ping."""
    pulse = Pulse(preset, NOW)
    run(pulse, NOW + 60, round_trip_s)
    quiet = pulse.next_deadline - preset.interval_s / 2  # the last ping is answered by then
    run(pulse, quiet, round_trip_s)
    return pulse, quiet


def test_an_entity_that_answers_is_pinged_at_the_interval_and_stays_alive() -> None:
    pulse, now = steady()
    seen = run(pulse, now + 10, 0.01)
    assert healths(seen) == []
    assert len(pings(seen)) == 10
    numbers = [what.number for _, what in seen if isinstance(what, Ping)]
    assert numbers == list(range(numbers[0], numbers[0] + 10))


def test_a_newcomer_is_pinged_twice_as_often_until_ten_pings_went() -> None:
    seen = run(Pulse(LAN, NOW), NOW + 8, 0.01)
    times = pings(seen)
    gaps = [round(later - earlier, 6) for earlier, later in pairwise(times)]
    assert gaps[: HISTORY - 1] == [0.5] * (HISTORY - 1)
    assert set(gaps[HISTORY - 1 :]) == {1.0}


def test_silence_is_suspected_after_half_of_the_patience_and_failed_after_all_of_it() -> None:
    pulse, now = steady()
    seen = run(pulse, now + 10, None)
    assert healths(seen) == [Health.SUSPECTED, Health.FAILED]
    suspected = next(at for at, what in seen if what is Health.SUSPECTED)
    failed = next(at for at, what in seen if what is Health.FAILED)
    patience_s = 2 * LAN.patience_s + pulse.timeout_s
    assert suspected - pings(seen)[0] == pytest.approx(patience_s / 2)
    assert failed - pings(seen)[0] == pytest.approx(patience_s)
    assert failed - now <= detection_s(LAN, 0.01) + 1e-6


@pytest.mark.parametrize(("preset", "floor_s"), [
    (LAN, 2.0), (WAN, 3.0), (CELLULAR, 6.0), (within(10), 2.0), (within(3), 1.0), (replace(LAN, floor_s=4.5), 4.5),
])  # fmt: skip
def test_on_the_best_of_links_nobody_fails_before_the_floor(preset: Preset, floor_s: float) -> None:
    assert preset.floor_s == floor_s
    pulse = Pulse(replace(preset, caution=0.1), NOW)
    now = NOW
    for _ in range(EXPERIENCE + 100):
        now = pulse.next_deadline
        ping, _ = pulse.tick(now)
        if ping is not None:
            assert pulse.take_echo(ping.number, ping.sent_ms, now + 0.001) is None
    seen = run(pulse, now + 60, None)
    first, failed = pings(seen)[0], next(at for at, what in seen if what is Health.FAILED)
    assert failed - first == pytest.approx(floor_s, abs=0.05)
    assert next(at for at, what in seen if what is Health.SUSPECTED) - first < floor_s  # told earlier


def test_after_a_miss_pings_follow_fast_and_then_by_a_part_of_the_wait() -> None:
    pulse, now = steady()
    seen = run(pulse, now + 10, None)
    failed = next(at for at, what in seen if what is Health.FAILED)
    times = [at for at in pings(seen) if at < failed]
    assert times[1] - times[0] == pytest.approx(LAN.interval_min_s), "missed sooner, but no faster than that"
    for earlier, later in pairwise(times[1:]):
        part_s = (earlier - times[0]) / REPEAT
        assert later - earlier == pytest.approx(max(LAN.interval_min_s, part_s), abs=1e-6)
    assert len(times) < 30


def test_once_it_answers_again_pings_are_as_rare_as_before() -> None:
    pulse, now = steady()
    run(pulse, now + 1.5, None)
    times = pings(run(pulse, now + 10, 0.01))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == pytest.approx([LAN.interval_s] * len(gaps))


def test_pings_that_are_late_together_prove_no_more_than_one() -> None:
    """Behind a retransmission of TCP they come at once, in order."""
    pulse, now = steady()
    seen = run(pulse, now + 4.2, None)
    assert healths(seen) == [Health.SUSPECTED]
    sent = [what for _, what in seen if isinstance(what, Ping)]
    assert len(sent) > 10
    told = [pulse.take_echo(ping.number, ping.sent_ms, now + 4.2) for ping in sent]
    assert told == [Health.ALIVE] + [None] * (len(sent) - 1)
    assert healths(run(pulse, now + 30, 0.01)) == []


def test_after_a_failure_pings_become_rare_and_one_answer_brings_it_back() -> None:
    pulse, now = steady()
    times = pings(run(pulse, now + 1000, None))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert max(gaps) == pytest.approx(AFTER_FAILURE_S)
    assert len(times) < 50
    back = run(pulse, now + 1100, 0.01)
    assert healths(back) == [Health.ALIVE]
    times = pings(back)
    assert times[-1] - times[-2] == pytest.approx(1.0)


def test_a_late_answer_is_one() -> None:
    pulse, now = steady()
    seen = run(pulse, now + 0.58, None)
    (at, ping) = next((at, what) for at, what in seen if isinstance(what, Ping))
    assert pulse.metrics.loss_rate > 0
    assert pulse.take_echo(ping.number, ping.sent_ms, at + 0.9) is None
    assert pulse.metrics.loss_rate == 0
    assert pulse.timeout_s > 5 * LAN.margin_s, "such a round trip is possible"


@pytest.mark.parametrize("forged", [(10_000, 0), (1, 5), (-1, 0)])
def test_an_echo_of_what_was_never_sent_changes_nothing(forged: tuple[int, int]) -> None:
    pulse, now = steady()
    seen = run(pulse, now + 4.0, None)
    assert healths(seen) == [Health.SUSPECTED]
    assert pulse.take_echo(*forged, now + 4.0) is None
    assert pulse.health is Health.SUSPECTED


def test_an_answer_counts_once() -> None:
    pulse = Pulse(LAN, NOW)
    ping, _ = pulse.tick(NOW)
    assert ping is not None
    pulse.take_echo(ping.number, ping.sent_ms, NOW + 0.1)
    before = pulse.metrics
    assert pulse.take_echo(ping.number, ping.sent_ms, NOW + 5) is None
    assert pulse.metrics == before


def test_loss_latency_jitter_and_reordering_of_the_last_ten() -> None:
    pulse = Pulse(LAN, NOW)
    sent = list[Ping]()
    now = NOW
    while len(sent) < 10:
        now = pulse.next_deadline
        ping, _ = pulse.tick(now)
        sent += [ping] if ping else []
        if ping and ping.number not in (3, 4, 5):
            pulse.take_echo(ping.number, ping.sent_ms, now + (0.1 if ping.number % 2 else 0.15))
    five = sent[4]
    pulse.take_echo(five.number, five.sent_ms, now + 0.01)
    metrics = pulse.metrics
    assert metrics.loss_rate == pytest.approx(0.2)
    assert metrics.reordered_rate == pytest.approx(1 / 8)
    assert metrics.latency_s is not None
    assert metrics.latency_s > 0.1
    assert metrics.jitter_s is not None


def test_the_timeout_follows_round_trips_within_its_bounds() -> None:
    fast, _ = steady(LAN, 0.001)
    slow, _ = steady(WAN, 0.8)
    assert fast.timeout_s == pytest.approx(LAN.margin_s, abs=0.01)
    assert slow.timeout_s == pytest.approx(0.8 + WAN.margin_s)
    crawling, _ = steady(LAN, 4.9)
    assert crawling.timeout_s <= LAN.timeout_max_s


@pytest.mark.parametrize("preset", PRESETS.values(), ids=str)
def test_detection_times_of_the_presets(preset: Preset) -> None:
    longest = detection_s(preset, 0.01)
    assert longest == pytest.approx(preset.interval_s + 2 * preset.patience_s + preset.margin_s, rel=0.01)


@pytest.mark.parametrize("goal_s", [1.0, 2.0, 5.0, 10.0, 60.0])
@pytest.mark.parametrize("answers", [3, 100, EXPERIENCE + 60])
def test_a_death_is_told_within_what_was_asked_for(goal_s: float, answers: int) -> None:
    pace = within(goal_s)
    assert detection_s(pace, 0.01, answers) <= goal_s
    assert detection_s(pace, 0.01, answers) >= goal_s / 2, "with no more pings than that needs"


def test_the_better_a_link_is_known_the_fewer_pings_a_goal_needs() -> None:
    pace = within(10)
    gaps = [later - earlier for earlier, later in pairwise(pings(run(Pulse(pace, NOW), NOW + 3_600, 0.01)))]
    newcomers, known = gaps[1], gaps[-1]
    assert newcomers == pytest.approx(0.95 * 10 - 2 * pace.patience_s - pace.margin_s, abs=0.1)
    assert known == pytest.approx(0.95 * 10 - pace.floor_s)
    slow, now = Pulse(pace, NOW), NOW + 60
    run(slow, now, 0.01)
    run(slow, now + 9, None)
    late = [later - earlier for earlier, later in pairwise(pings(run(slow, now + 60, 0.01))[-3:])]
    assert late == pytest.approx([2.5, 2.5]), "it was silent for so long that nothing is left: a quarter of the goal"


@pytest.mark.parametrize("spread", [0.0, 0.5, 0.99])
def test_who_spoke_need_not_be_asked_before_the_goal_says_so_and_herds_are_spread(spread: float) -> None:
    pace = within(10)
    pulse = Pulse(pace, NOW + 5, spread)
    pulse.ask_at_once(NOW)
    for _ in range(3):  # the words with which it begins
        pulse.lives(NOW)
    first = pulse.next_deadline
    interval_s = 0.95 * 10 - 2 * pace.patience_s - pace.timeout_initial_s
    assert first - NOW == pytest.approx((1 - spread) * interval_s, abs=1e-6)
    times = pings(run(pulse, NOW + 30, 0.01))
    assert all(later - earlier >= interval_s - 0.1 for earlier, later in pairwise(times)), "it is spread once"


def test_who_says_something_else_need_not_be_asked() -> None:
    def asked(speaks: bool) -> int:
        pulse = Pulse(LAN, NOW)
        run(pulse, NOW + EXPERIENCE + 60, 0.01)
        now, count = pulse.next_deadline, 0
        for _ in range(100):
            now += 0.2
            if speaks:
                assert pulse.lives(now) is None
            count += len(pings(run(pulse, now, 0.01)))
        return count

    assert asked(speaks=False) > 15
    assert asked(speaks=True) <= 1


def test_after_a_lost_ping_and_a_word_the_next_wait_begins_with_its_ping() -> None:
    for speaks in ("lives", "announced"):
        pulse = Pulse(within(10), NOW)
        run(pulse, NOW + 60, 0.01)
        lost = pulse.next_deadline
        run(pulse, lost + pulse.timeout_s + 0.01, None)  # it, and one that follows
        now = lost + 1
        for _ in range(3):
            assert (pulse.lives(now) if speaks == "lives" else pulse.announced(now, now, 300)) is None
            now += 3
        seen = run(pulse, now + 30, None)
        suspected, failed = (at - pings(seen)[0] for at, what in seen if isinstance(what, Health))
        assert suspected == pytest.approx(2, abs=0.3), "after half of the patience, not with the first miss"
        assert failed == pytest.approx(4, abs=0.5)


def test_who_says_by_itself_that_it_lives_gathers_experience() -> None:
    pulse = Pulse(within(10), NOW)
    run(pulse, NOW + 1, 0.01)
    now, newcomer_s, asked = NOW + 1, pulse.every_s, list[float]()
    for _ in range(EXPERIENCE):
        asked += pings(run(pulse, now, 0.01))
        assert pulse.announced(now, now, 1e9) is None
        now += pulse.every_s
    assert len(asked) == 2, "told that it may say so more rarely: its link is known, and later known well"
    run(pulse, now - 0.1, 0.01)
    assert pulse.announced(now, now, 1e9) is None
    now += pulse.every_s
    assert pulse.every_s == pytest.approx(ALIVE_PART * (9.5 - 2))
    assert pulse.every_s > newcomer_s
    assert pings(run(pulse, now + 0.4, None)) == [], "its word is on the way"
    assert pulse.announced(now + 0.5, now + 0.4, 1e9) is None, "nothing was said later than now"
    assert pulse.next_deadline - (now + 0.4) == pytest.approx(7.5, abs=1e-6)
    assert Pulse(LAN, NOW).every_s == 0, "whose link is not known is asked"


def test_who_answers_late_says_so_earlier() -> None:
    pulse = Pulse(within(10), NOW)
    run(pulse, NOW + 60, 0.8)
    interval_s = pulse.every_s + pulse.timeout_s
    assert pulse.timeout_s > 0.8
    assert pulse.announced(NOW + 60, NOW + 60, 1e9) is None
    assert pulse._next_ping - (NOW + 60) == pytest.approx(interval_s, abs=1e-3), "so that it comes in time"
    run(pulse, NOW + 300, 1.9)
    assert pulse.every_s >= (pulse.next_deadline - NOW - 300) / 2 > 0


def test_one_quick_answer_tells_a_rush_of_before_from_a_slow_link() -> None:
    rushed, slow = Pulse(within(10), NOW), Pulse(within(10), NOW)
    for pulse, then_s in ((rushed, 0.01), (slow, 0.8)):
        run(pulse, NOW + 20, 1.5)
        run(pulse, pulse.next_deadline + 2, then_s)
    assert rushed.timeout_s < 0.1
    assert slow.timeout_s > 1
    assert rushed.every_s > slow.every_s


def test_who_seems_slow_is_asked_again_soon_and_whoever_is_not_seldom() -> None:
    for round_trip_s, within_s in ((0.01, 300.0), (0.8, TOLD_WITHIN_S)):
        pulse = Pulse(within(10), NOW)
        now = NOW + 60
        run(pulse, now, round_trip_s)
        asked = pulse._last_ping
        while pulse.next_deadline - now < within_s / 3 and now < asked + 400:
            assert pulse.announced(now, now, 300.0) is None
            now += 1.0
        assert pulse.next_deadline == pytest.approx(asked + within_s)


def test_a_word_that_was_waited_for_says_how_long_waits_are() -> None:
    pulse, now = Pulse(within(10), NOW), NOW + 60
    run(pulse, now, 0.01)
    before = pulse.every_s
    run(pulse, pulse.next_deadline + 3, None)
    late = pulse.next_deadline
    assert pulse.announced(late, late, 300) is Health.ALIVE
    assert pulse.every_s < before, "more of the goal goes to patience"


def test_the_slower_the_network_the_later_a_failure_is_told() -> None:
    assert detection_s(LAN, 0.01) < detection_s(WAN, 0.05) < detection_s(CELLULAR, 0.5)


def patience_of(pulse: Pulse, now: float) -> float:
    """From the first ping without an answer to the failure."""
    run(pulse, now, 0.01)
    quiet = pulse.next_deadline - LAN.interval_s / 2
    run(pulse, quiet, 0.01)
    seen = run(pulse, quiet + 30, None)
    return next(at for at, what in seen if what is Health.FAILED) - pings(seen)[0]


def test_a_silence_that_it_survived_before_is_no_death() -> None:
    pulse, now = steady()
    first = pings(run(pulse, now + 7, None))[0]
    assert pulse.health is Health.FAILED
    back = run(pulse, now + 9.5, 0.01)
    assert healths(back) == [Health.ALIVE]
    came_s = next(at for at, what in back if what is Health.ALIVE) - first
    assert patience_of(pulse, now + 10.25) == pytest.approx(LONGER * came_s, rel=0.01)


def test_who_comes_back_after_very_long_was_dead_and_is_a_newcomer() -> None:
    pulse = Pulse(LAN, NOW)
    run(pulse, NOW + EXPERIENCE + 60, 0.01)
    run(pulse, NOW + EXPERIENCE + 65 + SURVIVED_MAX_S, None)
    patience_s = patience_of(pulse, NOW + EXPERIENCE + 200)
    assert patience_s == pytest.approx(2 * LAN.patience_s + LAN.margin_s, rel=0.01), "it teaches nothing of the link"


@pytest.mark.long
def test_what_was_survived_long_ago_is_forgotten() -> None:
    pulse, now = steady(QUICK)
    run(pulse, now + 7, None)
    assert patience_of(pulse, now + 8 * 3600) < 0.2


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.floats(0, 0.9), st.sampled_from(list(PRESETS.values())))
def test_whatever_the_network_does_memory_is_bounded_and_time_goes_on(seed: int, loss: float, preset: Preset) -> None:
    rng = random.Random(seed)
    pulse, answers = Pulse(preset, NOW), list[tuple[float, Ping]]()
    now, steps = NOW, 0
    while now < NOW + 120:
        answers.sort(key=lambda answer: answer[0])
        if answers and answers[0][0] <= pulse.next_deadline:
            now, ping = answers.pop(0)
            pulse.take_echo(ping.number, ping.sent_ms, now)
            assert pulse.health is Health.ALIVE
        else:
            assert pulse.next_deadline >= now or steps == 0
            now = pulse.next_deadline
            sent, _ = pulse.tick(now)
            if sent and rng.random() >= loss:
                answers.append((now + rng.expovariate(3), sent))
        steps += 1
        assert steps < 5_000
        assert len(pulse._waiting) + len(pulse._missed or ()) <= OUTSTANDING_MAX
        assert 0 <= pulse.metrics.loss_rate <= 1


def test_where_no_answer_was_ever_late_two_missed_pings_are_a_failure() -> None:
    pulse = Pulse(QUICK, NOW)
    run(pulse, NOW + 300, 0.01)
    quiet = pulse.next_deadline - LAN.interval_s / 2
    run(pulse, quiet, 0.01)
    seen = run(pulse, quiet + 10, None)
    assert healths(seen) == [Health.SUSPECTED, Health.FAILED]
    told = next(at for at, what in seen if what is Health.FAILED)
    assert told - pings(seen)[0] == pytest.approx(STEADY * LAN.margin_s), "no wait was longer than 10 ms"
    assert sum(at < told for at in pings(seen)) == 2


@pytest.mark.parametrize("waited_s", [0.15, 0.4, 0.9])
def test_one_late_answer_within_the_hour_and_the_patience_is_some_times_that(waited_s: float) -> None:
    pulse = Pulse(QUICK, NOW)
    run(pulse, NOW + 300, 0.01)
    run(pulse, NOW + 301.5, waited_s)
    assert patience_of(pulse, NOW + 330.25) == pytest.approx(min(STEADY * waited_s, LAN.patience_s), rel=0.01)


def test_a_wait_as_long_as_one_before_is_not_even_suspicious() -> None:
    pulse, now = steady()
    run(pulse, now + 4.8, None)
    run(pulse, now + 7, 0.01)
    quiet = pulse.next_deadline - LAN.interval_s / 2
    seen = run(pulse, quiet + 30, None)
    suspected, failed = (at - pings(seen)[0] for at, what in seen if isinstance(what, Health))
    assert suspected == pytest.approx(failed / LONGER)


def test_caution_scales_the_patience() -> None:
    pulse = Pulse(replace(QUICK, caution=0.5), NOW)
    run(pulse, NOW + 60, 0.01)
    assert patience_of(pulse, NOW + 61) == pytest.approx((2 * LAN.patience_s + LAN.margin_s) / 2, rel=0.01)


def test_an_answer_out_of_order_is_a_sign_of_life() -> None:
    """The older of two pings is answered, the newer is not: we wait for it anew, and no wait is learned from before."""
    pulse, now = steady()
    sent = [what for _, what in run(pulse, now + 1.2, None) if isinstance(what, Ping)]
    assert pulse.take_echo(sent[1].number, sent[1].sent_ms, now + 1.2) is None
    assert pulse.take_echo(sent[0].number, sent[0].sent_ms, now + 1.3) is None
    assert pulse.metrics.reordered_rate == pytest.approx(1 / HISTORY)
    told = next(at for at, what in run(pulse, now + 30, None) if what is Health.FAILED)
    assert told - (now + 1.3) == pytest.approx(2 * LAN.patience_s + pulse.timeout_s)


def test_while_we_come_late_ourselves_nobody_is_held_for_dead() -> None:
    pulse, now = steady()
    waiting = list[Ping]()
    for _ in range(20):  # each turn comes half a second after its time, and then we read what lay there
        now = pulse.next_deadline + 0.5
        ping, health = pulse.tick(now)
        assert health is None
        for each in waiting:
            pulse.take_echo(each.number, each.sent_ms, now + 0.001)
        waiting = [ping] if ping else []


def test_being_late_hides_no_death_for_ever() -> None:
    pulse, now = steady()
    begins = now
    while pulse.health is not Health.FAILED:
        now = pulse.next_deadline + LAN.margin_s / 2
        pulse.tick(now)
        assert now < begins + 3 * LAN.timeout_max_s + 6, "each ping waits at most for its longest timeout"


# ------------------------------------------------------------------------------------- figures and exact edges

T = 1_000.0  # small, so that a thousandth of a second is told apart from none
NEVER_HEARD = PingMetrics(0.0, None, None, 0.0)


def asked(pulse: Pulse, now: float) -> Ping:
    """The ping that goes at this moment."""
    ping, _ = pulse.tick(now)
    assert ping is not None
    return ping


def answer(pulse: Pulse, ping: Ping, now: float) -> Health | None:
    return pulse.take_echo(ping.number, ping.sent_ms, now)


def trips(pulse: Pulse, *round_trips_s: float) -> float:
    """Pings at their times, each answered after its round trip. The time of the last answer."""
    now = T
    for round_trip_s in round_trips_s:
        now = pulse.next_deadline
        ping = asked(pulse, now)
        now += round_trip_s
        answer(pulse, ping, now)
    return now


def silence(pulse: Pulse, seconds: float) -> float:
    """From its next ping on nothing is answered, then all of it at once. When that is."""
    at = pulse.next_deadline + seconds
    for ping in [what for _, what in run(pulse, at, None) if isinstance(what, Ping)]:
        answer(pulse, ping, at)
    return at


def verdicts(pulse: Pulse, since: float) -> tuple[float, float]:
    """Seconds behind `since` after which it is suspected and failed if nothing comes any more."""
    told = {what: at - since for at, what in run(pulse, since + 100, None) if isinstance(what, Health)}
    return told[Health.SUSPECTED], told[Health.FAILED]


def about(seconds: float) -> object:
    return pytest.approx(seconds, abs=1e-6)


def test_the_times_of_each_network_are_those_of_the_documentation() -> None:
    assert Preset("lan", 1.0, 0.1, 1.0, 0.04, 5.0, 2.4, 1.0, 2.0, 0.0) == LAN
    assert Preset("wan", 1.0, 0.1, 2.0, 0.1, 5.0, 3.2, 1.0, 3.0, 0.0) == WAN
    assert Preset("cellular", 5.0, 0.5, 5.0, 0.4, 15.0, 8.0, 1.0, 6.0, 0.0) == CELLULAR
    assert Preset("within 10 s", 5.0, 0.1, 1.0, 0.04, 5.0, 2.0, 1.0, 2.0, 10.0) == within(10)
    assert Preset("within 3 s", 1.5, 0.05, 0.3, 0.04, 1.5, 0.6, 1.0, 1.0, 3.0) == within(3)
    assert (within(100).interval_min_s, within(100).floor_s) == (0.5, 2.0)
    assert within(1).goal_s == 1
    assert [health.value for health in Health] == ["alive", "suspected", "failed"], "a trace says so"


def test_who_never_answers_is_given_the_first_timeout_and_asked_ever_more_rarely() -> None:
    pulse = Pulse(LAN, T)
    assert pulse.next_deadline == T
    assert (pulse.health, pulse.timeout_s, pulse.sent, pulse.is_overdue) == (Health.ALIVE, 1.0, 0, False)
    assert pulse.metrics == NEVER_HEARD
    seen = run(pulse, T + 0.999, None)
    assert pings(seen) == [T, T + 0.5]
    assert not pulse.is_overdue
    assert pulse.metrics == NEVER_HEARD, "it may still come"
    seen += run(pulse, T + 1.0, None)
    assert pulse.is_overdue
    assert pulse.metrics == replace(NEVER_HEARD, loss_rate=1.0)
    seen += run(pulse, T + 300, None)
    assert [(at, what) for at, what in seen if isinstance(what, Health)] == [
        (about(T + 2.9), Health.SUSPECTED), (about(T + 5.8), Health.FAILED),
    ]  # fmt: skip
    assert not pulse.is_overdue
    before = [at for at in pings(seen) if at < T + 5.8]
    for earlier, later in pairwise(before[2:]):  # of what is known of nobody, an eighth of the wait, a quarter at least
        assert later - earlier == about(max(0.25, (earlier - T) / REPEAT))
    after = pings(seen)[len(before) :]
    assert [later - earlier for earlier, later in pairwise(after)][:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    numbers = [what.number for _, what in seen if isinstance(what, Ping)]
    assert numbers == list(range(1, pulse.sent + 1))


def test_the_timeout_is_that_of_rfc_6298_from_the_first_answer_on() -> None:
    pulse = Pulse(LAN, T)
    expected = []
    smoothed, deviation = 0.1, 0.05
    for round_trip_s in (0.1, 0.2, 0.01):
        if expected:
            deviation = 0.75 * deviation + 0.25 * abs(smoothed - round_trip_s)
            smoothed = 0.875 * smoothed + 0.125 * round_trip_s
        expected.append(smoothed + 4 * deviation)
        trips(pulse, round_trip_s)
        assert pulse.timeout_s == about(expected[-1])
    assert expected == pytest.approx([0.3, 0.3625, 0.3896875])
    lazy = Pulse(LAN, T)
    trips(lazy, 0.0)
    assert lazy.timeout_s == about(LAN.margin_s)
    trips(lazy, 0.0)
    assert lazy.timeout_s == about(LAN.margin_s), "a round trip of no time is one"


def test_a_timeout_is_at_most_its_bound_and_half_of_the_patience() -> None:
    slow = Pulse(replace(LAN, timeout_max_s=3.0), T)
    trips(slow, 2.9, 2.9)
    assert slow.timeout_s == 3.0
    hasty = Pulse(replace(LAN, timeout_max_s=3.0, caution=0.25), T)
    trips(hasty, 2.9, 2.9)
    assert hasty.timeout_s == about((2 * LAN.patience_s + 3.0) * 0.25 / 2)


def test_an_answer_that_a_clock_dates_before_its_ping_took_no_time() -> None:
    pulse = Pulse(LAN, T)
    answer(pulse, asked(pulse, T), T - 0.25)
    assert pulse.timeout_s == LAN.margin_s
    assert pulse.metrics.latency_s == 0.0


@pytest.mark.parametrize(("answers", "least_s"), [(HISTORY - 1, 0.25), (HISTORY, 0.1)])
def test_after_ten_answers_a_miss_is_followed_fast(answers: int, least_s: float) -> None:
    pulse = Pulse(LAN, T)
    trips(pulse, *[0.01] * answers)
    times = pings(run(pulse, pulse.next_deadline + 0.6, None))
    assert times[1] - times[0] == about(least_s)


def test_no_pause_behind_a_miss_is_longer_than_the_interval() -> None:
    pulse = Pulse(replace(LAN, patience_s=50.0), T)
    trips(pulse, *[0.01] * HISTORY)
    times = pings(run(pulse, T + 60, None))
    assert max(later - earlier for earlier, later in pairwise(times)) == about(LAN.interval_s)


# --------------------------------------------------------------------------------------------- what is learned


def known(longest_s: float = 0.0, ours: SelfHealth | None = None) -> tuple[Pulse, float]:
    """A pulse of a link that is known as a good one but for one wait, and when that ended."""
    pulse = Pulse(QUICK, T, ours=ours)
    trips(pulse, *[0.0] * EXPERIENCE)
    return pulse, silence(pulse, longest_s)


@pytest.mark.parametrize(
    ("answers", "patience_s"),
    [(EXPERIENCE - 1, 2 * LAN.patience_s + LAN.margin_s), (EXPERIENCE, STEADY * LAN.margin_s)],
)
def test_patience_is_that_of_a_newcomer_until_there_is_experience(answers: int, patience_s: float) -> None:
    pulse = Pulse(QUICK, T)
    trips(pulse, *[0.0] * answers)
    assert verdicts(pulse, pulse.next_deadline) == (about(patience_s / 2), about(patience_s))


def test_the_longest_wait_fades_with_the_time_between_answers() -> None:
    pulse, at = known(0.75)
    at += LONGEST_LIFE_S / 4
    answer(pulse, asked(pulse, at), at)
    assert verdicts(pulse, pulse.next_deadline) == (about(STEADY * 0.5625 / 2), about(STEADY * 0.5625))
    pulse, at = known(0.75)
    at += 2 * LONGEST_LIFE_S
    answer(pulse, asked(pulse, at), at)
    assert verdicts(pulse, pulse.next_deadline)[1] == about(STEADY * LAN.margin_s)


def test_shorter_waits_teach_nothing_and_all_of_it_is_scaled_by_caution() -> None:
    pulse, at = known(0.75)
    faded_s = 0.75 * (1 - (silence(pulse, 0.25) - at) / LONGEST_LIFE_S)
    assert verdicts(pulse, pulse.next_deadline)[1] == about(STEADY * faded_s)
    hasty = Pulse(replace(QUICK, caution=0.5), T)
    trips(hasty, *[0.0] * EXPERIENCE)
    silence(hasty, 4.0)
    assert verdicts(hasty, hasty.next_deadline) == (about(2.0), about(3.0)), "half of 1.5 times four, and of four"


@pytest.mark.parametrize(("waited_s", "patience_s"), [(10.0, LONGER * 10.0), (10.0 + 2**-10, 2 * LAN.patience_s + 5)])
def test_a_wait_of_ten_seconds_is_the_longest_that_is_no_death(waited_s: float, patience_s: float) -> None:
    pulse, _ = known(waited_s)
    assert verdicts(pulse, pulse.next_deadline)[1] == about(patience_s)


def test_metrics_are_of_the_last_ten_in_order() -> None:
    pulse = Pulse(LAN, T)
    trips(pulse, *[place / 100 for place in range(1, 14)])
    assert pulse.metrics.latency_s == about(sum(range(4, 14)) / 1000)
    assert pulse.metrics.jitter_s == about(0.01)
    one = Pulse(LAN, T)
    trips(one, 0.25)
    assert one.metrics == PingMetrics(0.0, 0.25, None, 0.0)
    assert (one.sent, Pulse(LAN, T).metrics.jitter_s) == (1, None)


def test_an_answer_that_overtook_another_is_counted_for_ten_answers() -> None:
    pulse = Pulse(LAN, T)
    first, second = asked(pulse, T), asked(pulse, T + 0.5)
    for ping in (second, first):
        answer(pulse, ping, T + 0.6)
    assert pulse.metrics.reordered_rate == 1 / 2
    trips(pulse, *[0.0] * 8)
    assert pulse.metrics.reordered_rate == 1 / 10
    trips(pulse, 0.0)
    assert pulse.metrics.reordered_rate == 1 / 10
    trips(pulse, 0.0)
    assert pulse.metrics.reordered_rate == 0
    trips(pulse, *[0.0] * 30)
    assert pulse.metrics.reordered_rate == 0


@pytest.mark.parametrize("behind", [HISTORY - 1, HISTORY])
def test_what_becomes_of_a_ping_is_entered_while_it_is_one_of_the_last_ten(behind: int) -> None:
    """The network is so slow that ten pings are on their way before the first is missed."""

    def sent() -> tuple[Pulse, list[Ping]]:
        pulse = Pulse(Preset("slow", interval_s=0.25, timeout_initial_s=2.0, timeout_max_s=2.0), T)
        return pulse, [asked(pulse, pulse.next_deadline) for _ in range(1 + behind)]

    pulse, pings_sent = sent()
    answer(pulse, pings_sent[0], T + 1.5)
    assert pulse.metrics.latency_s == (1.5 if behind < HISTORY else None)
    pulse, pings_sent = sent()
    answer(pulse, pings_sent[-1], T + 1.5)
    pulse.tick(T + 2.0)
    assert pulse.metrics.loss_rate == (0.5 if behind < HISTORY else 0.0)


# ----------------------------------------------------------------------------------------- what comes, and when


def test_an_echo_counts_with_its_number_and_its_time_and_once() -> None:
    pulse = Pulse(LAN, T)
    first, second = asked(pulse, T), asked(pulse, T + 0.5)
    assert (first.sent_ms, second.sent_ms) == (1_000_000, 1_000_500)
    for number, sent_ms in ((1, 1_000_500), (2, 1_000_000), (3, 1_000_500), (1, 1_000_001)):
        pulse.take_echo(number, sent_ms, T + 0.6)
        assert pulse.metrics == NEVER_HEARD
    pulse.tick(T + 1.0)
    pulse.tick(T + 1.25)
    assert pulse.metrics.loss_rate == 1.0
    for number, sent_ms in ((1, 1_000_500), (1, 1_000_001), (9, 1_000_000)):
        pulse.take_echo(number, sent_ms, T + 1.3)
        assert pulse.metrics.loss_rate == 1.0, "what was missed is answered with its own time, too"
    answer(pulse, first, T + 1.3)
    assert pulse.metrics.latency_s == about(1.3)
    answer(pulse, first, T + 9)
    assert pulse.metrics.latency_s == about(1.3)


def test_so_many_pings_are_remembered_and_the_oldest_forgotten_first() -> None:
    pulse = Pulse(LAN, T)
    sent = list[Ping]()
    while len(sent) < OUTSTANDING_MAX + 3:
        ping, _ = pulse.tick(pulse.next_deadline)
        sent += [] if ping is None else [ping]
    now = pulse.next_deadline
    for forgotten in sent[:3]:
        assert answer(pulse, forgotten, now) is None
    assert pulse.health is Health.FAILED
    assert answer(pulse, sent[3], now) is Health.ALIVE


def test_behind_an_answer_what_is_missing_is_asked_for_fast_and_else_at_the_interval() -> None:
    pulse = Pulse(LAN, T)
    trips(pulse, *[0.0] * HISTORY)
    at = pulse.next_deadline
    seen = run(pulse, at + 0.45, None)
    sent, last_at = [what for _, what in seen if isinstance(what, Ping)], pings(seen)[-1]
    answer(pulse, sent[0], at + 0.46)
    assert pulse.is_overdue
    assert pulse.next_deadline == about(last_at + LAN.interval_min_s)
    for ping in sent[1:]:
        answer(pulse, ping, at + 0.47)
    assert not pulse.is_overdue
    assert pulse.next_deadline == about(last_at + LAN.interval_s)
    late = Pulse(LAN, T)
    trips(late, *[0.0] * HISTORY)
    at = silence(late, 1.5)
    assert late.next_deadline > at, "nothing is due in the past"


def test_a_ping_that_was_overtaken_by_a_later_answer_is_lost_and_no_silence() -> None:
    pulse = Pulse(LAN, T)
    first, second = asked(pulse, T), asked(pulse, T + 0.5)
    answer(pulse, second, T + 0.75)
    third, health = pulse.tick(T + 1.0)
    assert (third is not None, health) == (True, None)
    assert pulse.metrics.loss_rate == 0.5
    assert not pulse.is_overdue, "a later one was answered"
    assert pulse.next_deadline == T + 1.5
    answer(pulse, first, T + 1.25)
    assert pulse.metrics.loss_rate == 0.0
    assert first.number < second.number


def test_who_speaks_after_a_ping_was_lost_for_good_has_still_no_long_wait() -> None:
    """Its link is as good as before: what it says beside its answers is no ping without one."""
    pulse, _ = known()
    first = pulse.next_deadline
    asked(pulse, first)
    again = None
    while again is None:
        now = pulse.next_deadline
        again, _ = pulse.tick(now)
    answer(pulse, again, now)
    waited_s = now - first
    for _ in range(5):
        pulse.lives(now + 0.5)
        now = pulse.next_deadline
        answer(pulse, asked(pulse, now), now)
    pulse.lives(now + 0.5)
    assert verdicts(pulse, pulse.next_deadline)[1] == pytest.approx(STEADY * waited_s, rel=0.01)


def test_another_word_of_it_is_a_sign_of_life_for_what_was_asked_before() -> None:
    pulse = Pulse(LAN, T)
    trips(pulse, *[0.0] * HISTORY)
    first = pulse.next_deadline
    run(pulse, first + 2.5, None)
    assert (pulse.health, pulse.is_overdue) == (Health.SUSPECTED, True)
    assert pulse.lives(first + 2.5) is Health.ALIVE
    assert not pulse.is_overdue
    assert pulse.lives(first + 2.5) is None
    again = next(at for at, what in run(pulse, first + 4, None) if isinstance(what, Ping))
    suspected, failed = verdicts(pulse, again)
    assert failed == about(2 * LAN.patience_s + LAN.margin_s), "waited for anew"
    assert suspected == about(failed / 2)


def test_who_speaks_while_pings_are_missing_is_asked_an_interval_after_the_last() -> None:
    pulse = Pulse(LAN, T)
    trips(pulse, *[0.0] * HISTORY)
    first = pulse.next_deadline
    times = pings(run(pulse, first + 0.5, None))
    pulse.lives(first + 0.5)
    (again, *_) = pings(run(pulse, first + 3, None))
    assert again == about(times[-1] + LAN.interval_s)
    pulse.lives(first + 50)
    assert pulse.next_deadline == about(first + 50), "at once where that has passed"


def test_who_speaks_is_asked_later_once_its_link_is_known_and_not_before() -> None:
    for answers, moved in ((EXPERIENCE - 1, False), (EXPERIENCE, True)):
        pulse = Pulse(LAN, T)
        trips(pulse, *[0.0] * answers)
        due = pulse.next_deadline
        pulse.lives(due - 0.25)
        assert pulse.next_deadline == (due + 0.75 if moved else due)
        pulse.lives(due - 0.5)
        assert pulse.next_deadline == (due + 0.75 if moved else due), "never sooner"


def test_where_the_connection_ended_it_is_asked_at_once_and_waited_for_from_then_on() -> None:
    pulse = Pulse(LAN, T)
    trips(pulse, *[0.0] * HISTORY)
    ended = pulse.next_deadline - 0.25
    pulse.connection_ended(ended)
    assert pulse.is_overdue
    assert pulse.next_deadline == ended
    patience_s = 2 * LAN.patience_s + LAN.margin_s
    assert verdicts(pulse, ended) == (about(patience_s / 2), about(patience_s))
    waiting = Pulse(LAN, T)
    trips(waiting, *[0.0] * HISTORY)
    first = waiting.next_deadline
    run(waiting, first + 1, None)
    misses = waiting._misses
    waiting.connection_ended(first + 1)
    assert waiting._misses == misses
    assert verdicts(waiting, first)[1] == about(patience_s), "it was silent before"


def test_who_comes_back_before_it_was_ever_asked_is_a_newcomer() -> None:
    pulse = Pulse(LAN, T)
    pulse.connection_ended(T - 0.25)
    assert pulse.lives(T) is None
    assert not pulse.is_overdue
    assert pulse.next_deadline == T + 0.5
    trips(pulse, *[0.0] * (EXPERIENCE + 1))
    assert verdicts(pulse, pulse.next_deadline)[1] == about(LAN.floor_s), "and was not waited for meanwhile"


def test_the_first_word_brings_the_first_ping() -> None:
    pulse = Pulse(LAN, T + 5)
    pulse.ask_at_once(T)
    assert pulse.next_deadline == T
    late = Pulse(LAN, T)
    late.ask_at_once(T + 1)
    assert late.next_deadline == T, "it is due"


def test_those_who_came_together_are_asked_apart_from_the_second_ping_on() -> None:
    times = pings(run(Pulse(LAN, T, 0.5), T + 3, 0.0))
    assert times == [T, T + 1.0, T + 1.5, T + 2.0, T + 2.5, T + 3.0]


# -------------------------------------------------------------------------------------------- our own turns


def test_a_turn_is_late_by_more_than_a_quarter_of_the_timeout() -> None:
    for late_s, pause_s in ((0.25, 0.5), (0.25 + 2**-10, 1.0)):
        pulse = Pulse(LAN, T)
        asked(pulse, T + late_s)
        assert pulse.next_deadline == T + late_s + pause_s, "who has too much to do does not ask for more"


def test_behind_a_late_turn_what_is_missing_is_asked_for_as_of_a_newcomer() -> None:
    pulse = Pulse(replace(LAN, margin_s=0.5), T)
    trips(pulse, *[0.0] * HISTORY)
    first = pulse.next_deadline
    asked(pulse, first)
    again = asked(pulse, first + 0.75)
    assert again.number == HISTORY + 2
    assert pulse.next_deadline == first + 1.0


@pytest.mark.parametrize(("late_s", "excused_s"), [(0.125, 0.0), (3.0, 3.0), (10.0, 10.0), (12.0, 10.0)])
def test_what_we_came_late_is_excused_up_to_a_bound(late_s: float, excused_s: float) -> None:
    pulse = Pulse(replace(LAN, margin_s=0.5), T)
    trips(pulse, *[0.0] * HISTORY)
    first = pulse.next_deadline
    asked(pulse, first)
    pulse.tick(first + 0.5 + late_s)
    patience_s = 2 * LAN.patience_s + 0.5
    assert verdicts(pulse, first) == (about(excused_s + patience_s / 2), about(excused_s + patience_s))


def test_an_answer_that_lay_there_while_we_came_late_teaches_no_long_wait() -> None:
    pulse, _ = known()
    first = pulse.next_deadline
    ping = asked(pulse, first)
    pulse.tick(first + LAN.margin_s + 3)
    answer(pulse, ping, first + LAN.margin_s + 3)
    run(pulse, pulse.next_deadline, 0.0)
    assert verdicts(pulse, pulse.next_deadline)[1] < 0.25


def test_each_ping_waits_longer_by_what_we_came_late_up_to_the_longest_timeout() -> None:
    pulse = Pulse(LAN, T)
    asked(pulse, T)
    pulse.tick(T + 0.5 + 1.5)  # the second ping, which came 1.5 s late: the first is missed 2.5 s behind its time
    assert pulse.metrics.loss_rate == 0.0
    pulse.tick(T + 2.5)
    assert pulse.metrics.loss_rate == 1.0
    slow = Pulse(LAN, T)
    asked(slow, T)
    slow.tick(T + 0.5 + 4.25)
    assert slow.metrics.loss_rate == 0.0
    slow.tick(T + 5.0)
    assert slow.metrics.loss_rate == 1.0


def test_no_ping_is_missed_before_those_that_went_ahead_of_it() -> None:
    pulse = Pulse(WAN, T)
    first, second = asked(pulse, T), asked(pulse, T + 0.5)
    answer(pulse, second, T + 0.5)
    asked(pulse, T + 1.0)
    answer(pulse, first, T + 1.25)
    assert pulse.next_deadline == T + 1.5, "the next ping, and no time that has passed"


def test_while_the_broker_does_badly_everything_takes_as_much_longer() -> None:
    ours = SelfHealth()
    pulse = Pulse(LAN, T, ours=ours)
    trips(pulse, *[0.0] * HISTORY)
    ours.stretch = 2.0
    first = pulse.next_deadline
    answer(pulse, asked(pulse, first), first)
    assert pulse.next_deadline == first + 2 * LAN.interval_s
    first = pulse.next_deadline
    seen = run(pulse, first + 20, None)
    assert pings(seen)[1] - first == about(2 * LAN.interval_min_s)
    patience_s = 2 * LAN.patience_s + LAN.margin_s
    assert [at - first for at, what in seen if isinstance(what, Health)] == [about(patience_s), about(2 * patience_s)]
    pace = Pulse(within(10), T, ours=ours)
    trips(pace, 0.0)
    (deadline,) = {pace.next_deadline}
    assert deadline - T == about(2 * (0.95 * 10 - 2 * 2.0 - 1.0)), "as was the pause behind the first ping"


# ------------------------------------------------------------------------------------------- asked elsewhere


def seen_elsewhere() -> tuple[Pulse, float, Ping]:
    """A pulse that was suspected just now, with others to ask through; when, and the ping that went at once."""
    ours = SelfHealth()
    ours.others = 2
    pulse = Pulse(LAN, T, ours=ours)
    trips(pulse, *[0.0] * HISTORY)
    while True:
        now = pulse.next_deadline
        ping, health = pulse.tick(now)
        if health is not None:
            assert health is Health.SUSPECTED
            assert ping is not None
            return pulse, now, ping


def test_with_others_to_ask_through_nobody_fails_before_that_was_done() -> None:
    alone, _ = known()
    assert alone.tick(T + 5_000)[1] is None
    assert alone.tick(T + 6_000)[1] is Health.FAILED, "where nobody else can be asked"
    ours = SelfHealth()
    ours.others = 1
    pulse, _ = known(ours=ours)
    pulse.tick(T + 5_000)
    now = T + 6_000
    ping, health = pulse.tick(now)
    assert (ping is not None, health) == (True, Health.SUSPECTED)
    times = [at - now for at, what in run(pulse, now + 10, None) if what is Health.FAILED]
    assert times == [about(pulse.timeout_s)]


def test_an_answer_that_came_elsewhere_holds_it_for_suspected_as_long_as_such_come() -> None:
    pulse, now, ping = seen_elsewhere()
    assert pulse.vouched(ping.number, ping.sent_ms, now + 0.25) is Health.SUSPECTED, "which is news"
    patience_s = 2 * LAN.patience_s + LAN.margin_s
    gaps_s = []
    for _ in range(20):
        now = pulse.next_deadline
        next_ping, health = pulse.tick(now)
        assert health is None
        if next_ping is not None:
            gaps_s.append((next_ping.sent_ms - ping.sent_ms) / 1000)
            ping = next_ping
            assert pulse.vouched(ping.number, ping.sent_ms, now) is None, "which is none"
    assert gaps_s[1:] == pytest.approx([patience_s / 4] * len(gaps_s[1:]), abs=0.002)
    assert pulse.health is Health.SUSPECTED
    assert verdicts_failed(pulse, ping) == pytest.approx(patience_s, abs=0.002)
    assert pulse.vouched(ping.number, ping.sent_ms, now) is Health.SUSPECTED, "it is no longer dead"
    assert pulse.take_echo(ping.number, ping.sent_ms, now) is Health.ALIVE


@pytest.mark.parametrize("by_an_answer", [True, False])
def test_who_is_heard_here_again_is_asked_here_as_fast_as_ever(by_an_answer: bool) -> None:
    pulse, now, ping = seen_elsewhere()
    pulse.vouched(ping.number, ping.sent_ms, now)
    if by_an_answer:
        pulse.take_echo(ping.number, ping.sent_ms, now)
    else:
        pulse.lives(now)
    run(pulse, now + 5, 0.0)
    times = pings(run(pulse, pulse.next_deadline + 0.5, None))
    assert times[1] - times[0] == about(LAN.interval_min_s)


def test_who_is_found_elsewhere_after_its_death_is_asked_soon() -> None:
    pulse, now, _ = seen_elsewhere()
    seen = run(pulse, now + 300, None)
    last = [what for _, what in seen if isinstance(what, Ping)][-1]
    at = pings(seen)[-1]
    assert pulse.next_deadline == about(at + 60)
    assert pulse.vouched(last.number, last.sent_ms, at + 0.25) is Health.SUSPECTED
    assert pulse.next_deadline == about(at + (2 * LAN.patience_s + LAN.margin_s) / 4)


def test_an_older_answer_that_comes_elsewhere_later_proves_nothing_new() -> None:
    pulse, now, first = seen_elsewhere()
    second = next(what for _, what in run(pulse, now + 0.5, None) if isinstance(what, Ping))
    for ping in (second, first):
        pulse.vouched(ping.number, ping.sent_ms, now + 0.5)
    assert verdicts_failed(pulse, second) == pytest.approx(2 * LAN.patience_s + LAN.margin_s, abs=0.002)


def test_with_others_to_ask_through_a_failure_waits_for_the_first_of_what_was_asked_there_only() -> None:
    ours = SelfHealth()
    ours.others = 2
    pulse = Pulse(replace(LAN, margin_s=0.5), T, ours=ours)
    trips(pulse, *[0.0] * HISTORY)
    first = pulse.next_deadline
    seen = run(pulse, first + 10, None)
    failed = next(at for at, what in seen if what is Health.FAILED)
    assert failed - first == about(2 * LAN.patience_s + 0.5)
    assert failed not in pings(seen), "nobody asks for who is given up"


def verdicts_failed(pulse: Pulse, ping: Ping) -> float:
    return next(at for at, what in run(pulse, ping.sent_ms / 1000 + 6, None) if what is Health.FAILED) - (
        ping.sent_ms / 1000
    )


def test_nobody_vouches_for_who_lives_nor_by_what_was_never_sent() -> None:
    pulse, now, ping = seen_elsewhere()
    for number, sent_ms in ((ping.number, ping.sent_ms + 1), (ping.number + 1, ping.sent_ms), (0, 0)):
        assert pulse.vouched(number, sent_ms, now) is None
    pulse.lives(now)
    assert pulse.vouched(ping.number, ping.sent_ms, now) is None
    assert pulse.health is Health.ALIVE
    assert Pulse(LAN, T).vouched(1, 1_000_000, T) is None


@pytest.mark.parametrize("says", ["something", "that it lives"])
def test_who_speaks_for_itself_again_is_vouched_for_no_more(says: str) -> None:
    pulse, now, ping = seen_elsewhere()
    assert pulse.vouched(ping.number, ping.sent_ms, now + 0.25) is Health.SUSPECTED
    at = now + 0.5
    assert (pulse.lives(at) if says == "something" else pulse.announced(at, at, 300.0)) is Health.ALIVE
    while pulse.health is Health.ALIVE:
        at = pulse.next_deadline
        sent, _ = pulse.tick(at)
        ping = sent or ping
    assert pulse.vouched(ping.number, ping.sent_ms, at + 0.25) is Health.SUSPECTED, "which is news again"


def test_without_a_goal_it_is_asked_until_its_link_is_known_and_may_then_speak_by_itself() -> None:
    pulse = Pulse(LAN, T)
    assert pulse.every_s == 0.0
    trips(pulse, *[0.0] * HISTORY)
    assert LAN.interval_s / 2 <= pulse.every_s <= LAN.interval_s


def test_who_only_says_that_it_lives_is_waited_for_as_one_of_whose_link_nothing_is_known() -> None:
    pulse = Pulse(within(10), T)
    pulse.tick(T)
    for second in range(1, EXPERIENCE + 2):
        pulse.announced(T + second, T + second, 300.0)
    assert pulse.timeout_s == within(10).timeout_initial_s


def test_after_a_second_failure_the_pauses_begin_anew() -> None:
    pulse = Pulse(LAN, T)
    trips(pulse, *[0.0] * HISTORY)
    gaps = []
    for _ in range(2):
        seen = run(pulse, pulse.next_deadline + 200, None)
        failed_at = next(at for at, what in seen if what is Health.FAILED)
        sent = [at for at in pings(seen) if at > failed_at]
        gaps.append([round(later - earlier, 3) for earlier, later in pairwise(sent)][:3])
        now = sent[-1] + 0.01
        assert pulse.take_echo(pulse.sent, int(sent[-1] * 1000), now) is Health.ALIVE
    assert gaps[0] == gaps[1]
