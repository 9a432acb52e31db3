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
    CELLULAR,
    EXPERIENCE,
    HISTORY,
    LAN,
    LONGER,
    OUTSTANDING_MAX,
    PRESETS,
    REPEAT,
    STEADY,
    SURVIVED_MAX_S,
    WAN,
    Health,
    Ping,
    Preset,
    Pulse,
    within,
)
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
            health = pulse.answered(ping.number, ping.sent_ms, at)
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
    assert set(gaps[HISTORY:]) == {1.0}


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
            assert pulse.answered(ping.number, ping.sent_ms, now + 0.001) is None
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
    told = [pulse.answered(ping.number, ping.sent_ms, now + 4.2) for ping in sent]
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
    assert pulse.answered(ping.number, ping.sent_ms, at + 0.9) is None
    assert pulse.metrics.loss_rate == 0
    assert pulse.timeout_s > 5 * LAN.margin_s, "such a round trip is possible"


@pytest.mark.parametrize("forged", [(10_000, 0), (1, 5), (-1, 0)])
def test_an_echo_of_what_was_never_sent_changes_nothing(forged: tuple[int, int]) -> None:
    pulse, now = steady()
    seen = run(pulse, now + 4.0, None)
    assert healths(seen) == [Health.SUSPECTED]
    assert pulse.answered(*forged, now + 4.0) is None
    assert pulse.health is Health.SUSPECTED


def test_an_answer_counts_once() -> None:
    pulse = Pulse(LAN, NOW)
    ping, _ = pulse.tick(NOW)
    assert ping is not None
    pulse.answered(ping.number, ping.sent_ms, NOW + 0.1)
    before = pulse.metrics
    assert pulse.answered(ping.number, ping.sent_ms, NOW + 5) is None
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
            pulse.answered(ping.number, ping.sent_ms, now + (0.1 if ping.number % 2 else 0.15))
    five = sent[4]
    pulse.answered(five.number, five.sent_ms, now + 0.01)
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
    assert late == pytest.approx([1.0, 1.0]), "it was silent for so long that nothing is left: a tenth of the goal"


@pytest.mark.parametrize("spread", [0.0, 0.5, 0.99])
def test_who_spoke_need_not_be_asked_before_the_goal_says_so_and_herds_are_spread(spread: float) -> None:
    pace = within(10)
    pulse = Pulse(pace, NOW + 5, spread)
    pulse.begin(NOW)
    pulse.lives(NOW)
    first = pulse.next_deadline
    interval_s = 0.95 * 10 - 2 * pace.patience_s - pace.timeout_initial_s
    assert first == pytest.approx(NOW + (1 - spread) * interval_s)
    times = pings(run(pulse, NOW + 30, 0.01))
    assert all(later - earlier >= interval_s - 0.1 for earlier, later in pairwise(times)), "it is spread once"


def test_nothing_is_told_within_no_time() -> None:
    with pytest.raises(ValueError, match="less than a second"):
        within(0.5)


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
    assert pulse.next_deadline == pytest.approx(now + 0.4 + 7.5)
    assert Pulse(LAN, NOW).every_s == 0, "whose link is not known is asked"


def test_who_answers_late_says_so_earlier() -> None:
    pulse = Pulse(within(10), NOW)
    run(pulse, NOW + 60, 0.8)
    interval_s = pulse.every_s + pulse.timeout_s
    assert pulse.timeout_s > 0.8
    assert pulse.announced(NOW + 60, NOW + 60, 1e9) is None
    assert pulse.next_deadline == pytest.approx(NOW + 60 + interval_s), "so that it comes in time"
    run(pulse, NOW + 300, 1.9)
    assert pulse.every_s >= (pulse.next_deadline - NOW - 300) / 2 > 0


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
            pulse.answered(ping.number, ping.sent_ms, now)
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
    assert pulse.answered(sent[1].number, sent[1].sent_ms, now + 1.2) is None
    assert pulse.answered(sent[0].number, sent[0].sent_ms, now + 1.3) is None
    assert pulse.metrics.reordered_rate == pytest.approx(1 / HISTORY)
    told = next(at for at, what in run(pulse, now + 30, None) if what is Health.FAILED)
    assert told == pytest.approx(now + 1.3 + LAN.patience_s)


def test_while_we_come_late_ourselves_nobody_is_held_for_dead() -> None:
    pulse, now = steady()
    waiting = list[Ping]()
    for _ in range(20):  # each turn comes half a second after its time, and then we read what lay there
        now = pulse.next_deadline + 0.5
        ping, health = pulse.tick(now)
        assert health is None
        for each in waiting:
            pulse.answered(each.number, each.sent_ms, now + 0.001)
        waiting = [ping] if ping else []


def test_being_late_hides_no_death_for_ever() -> None:
    pulse, now = steady()
    begins = now
    while pulse.health is not Health.FAILED:
        now = pulse.next_deadline + LAN.margin_s / 2
        pulse.tick(now)
        assert now < begins + 3 * LAN.timeout_max_s + 6, "each ping waits at most for its longest timeout"
