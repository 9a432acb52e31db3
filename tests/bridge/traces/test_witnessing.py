"""What a majority of witnesses says: f of 2f + 1 that lie, wherever they sit, change nothing that is believed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

import pytest

from bridge.traces.kinds import TraceKind
from bridge.traces.self_health import SICK
from bridge.traces.witnessing import FLAPS_MAX, FLAPS_S, SILENT_S, Belief, Level, Panel
from keys.delegation import Delegated, Seat, Token
from keys.errors import BadContent, Replayed
from keys.ownword import OwnWord

NOW = 1_800_000_000.0
NOW_MS = int(NOW * 1000)
LIFE_MS = 600_000
K = TraceKind
ANY = (K.FAILED, K.DISCONNECT, K.FAILURE_SUSPICION, K.ALLS_WELL, K.JOIN)
PLACEMENTS = [(n, bad) for n in (3, 5) for bad in combinations(range(n), n // 2)]


def token(witness: int, of: int = 3, since_ms: int = NOW_MS, begins_ms: int = NOW_MS) -> Token:
    """Verified elsewhere; here it says who speaks."""
    seat = None if of == 1 else Seat(witness, of, since_ms)
    return Token(bytes(16), bytes(32), Delegated.PUBLISH, begins_ms, begins_ms + LIFE_MS, seat)


class Heard:
    """A panel, and all that it came to believe."""

    def __init__(self, of: int = 3) -> None:
        self.panel, self.of, self.now = Panel(), of, NOW
        self.numbers = dict.fromkeys(range(of), 0)
        self.told: list[Belief] = []

    def say(self, witness: int, kind: TraceKind, under: Token | None = None, **fields: object) -> Belief | None:
        self.numbers[witness] += 1
        spoken = under or token(witness, self.of)
        told = self.panel.hear(spoken, kind, self.numbers[witness], int(self.now * 1000), fields, self.now)
        if told is not None:
            self.told.append(told)
        return told

    def all_say(self, kind: TraceKind, *who: int) -> None:
        for witness in who or range(self.of):
            self.say(witness, kind)

    def believes(self) -> Level | None:
        return self.panel.believed

    @property
    def kinds(self) -> list[TraceKind]:
        return [belief.kind for belief in self.told]

    def changes(self) -> list[TraceKind]:
        return [belief.kind for belief in self.told if "after" in belief.fields or belief.kind is not K.ALLS_WELL]


@pytest.fixture
def alive() -> Heard:
    heard = Heard()
    heard.all_say(K.JOIN)
    return heard


# ------------------------------------------------------------------------------------------------- majorities


def test_a_majority_makes_it_alive_suspected_disconnected_failed_and_alive_again(alive: Heard) -> None:
    assert alive.kinds == [K.JOIN]
    for kind in (K.FAILURE_SUSPICION, K.DISCONNECT, K.FAILED, K.ALLS_WELL):
        assert alive.say(0, kind) is None, "one witness is no majority"
        told = alive.say(1, kind)
        assert told is not None
        assert told.kind is kind
        assert told.fields["witnesses"] == [0, 1]
        alive.say(2, kind)
    assert alive.changes() == [K.JOIN, K.FAILURE_SUSPICION, K.DISCONNECT, K.FAILED, K.ALLS_WELL]
    assert alive.told[-1].fields["after"] == "failed" or alive.told[-2].fields["after"] == "failed"


def test_who_says_failed_supports_a_suspicion_and_not_more(alive: Heard) -> None:
    alive.say(0, K.FAILED)
    told = alive.say(1, K.FAILURE_SUSPICION)
    assert told is not None
    assert told.kind is K.FAILURE_SUSPICION
    assert told.fields["witnesses"] == [0, 1]
    assert alive.say(2, K.DISCONNECT) is not None
    assert alive.believes() is Level.DISCONNECTED


def test_a_suspicion_after_a_disconnect_takes_nothing_back(alive: Heard) -> None:
    alive.all_say(K.DISCONNECT)
    alive.all_say(K.FAILURE_SUSPICION)
    assert alive.believes() is Level.DISCONNECTED
    alive.all_say(K.FAILED)
    assert alive.kinds == [K.JOIN, K.DISCONNECT, K.FAILED]


def test_nothing_is_believed_before_a_majority_spoke() -> None:
    heard = Heard(5)
    heard.all_say(K.ALLS_WELL, 0, 1)
    heard.all_say(K.FAILED, 2, 3)
    assert heard.told == []
    assert heard.say(4, K.FAILED) is not None


@pytest.mark.parametrize(("n", "bad"), PLACEMENTS)
def test_f_liars_neither_kill_the_living_nor_revive_the_dead_nor_flap_them(n: int, bad: tuple[int, ...]) -> None:
    honest = [witness for witness in range(n) if witness not in bad]
    for seed in range(10):
        rng, heard = random.Random(f"{n} {bad} {seed}"), Heard(n)
        for _ in lies(heard, bad, rng, (K.FAILED,) if seed % 2 else ANY):
            heard.all_say(K.ALLS_WELL, *honest)
        assert set(heard.kinds) <= {K.ALLS_WELL, K.JOIN}
        assert not any("after" in belief.fields for belief in heard.told), "it never seemed otherwise"
        for kind in (K.FAILURE_SUSPICION, K.FAILED):
            for witness in rng.sample(honest, len(honest)):
                heard.say(witness, kind)
        assert heard.believes() is Level.FAILED
        count = len(heard.told)
        for _ in lies(heard, bad, rng, (K.ALLS_WELL, K.JOIN) if seed % 2 else ANY):
            pass
        assert len(heard.told) == count
        assert heard.believes() is Level.FAILED


def lies(heard: Heard, bad: tuple[int, ...], rng: random.Random, kinds: tuple[TraceKind, ...]) -> Iterator[None]:
    """A minute of what bad witnesses say."""
    for _ in range(60):
        heard.now += 1
        for _ in range(4):
            heard.say(rng.choice(bad), rng.choice(kinds))
        yield


def test_while_the_honest_do_not_agree_a_liar_flaps_it_a_few_times_and_no_more(alive: Heard) -> None:
    alive.say(1, K.FAILURE_SUSPICION)
    for _ in range(100):
        alive.now += 0.1
        alive.say(2, K.FAILED)
        alive.say(2, K.ALLS_WELL)
    assert len(alive.changes()) <= 2 * FLAPS_MAX + 1
    assert not alive.panel.opinions(alive.now)[2].counts
    alive.say(0, K.FAILURE_SUSPICION)
    assert alive.believes() is Level.SUSPECTED, "the honest two decide without it"
    alive.all_say(K.ALLS_WELL, 0, 1)
    assert alive.believes() is Level.ALIVE
    alive.now += FLAPS_S
    alive.say(2, K.ALLS_WELL)
    assert alive.panel.opinions(alive.now)[2].counts


# --------------------------------------------------------------------------------------------------- silence


def test_a_witness_that_fell_silent_changes_nothing_and_its_old_word_counts_for_nothing(alive: Heard) -> None:
    alive.say(2, K.FAILED)
    for _ in range(10):
        alive.now += SILENT_S / 8
        alive.all_say(K.ALLS_WELL, 0, 1)
    alive.say(0, K.FAILED)
    assert alive.believes() is Level.ALIVE, "one that spoke now, and one of long ago"
    assert [opinion.counts for opinion in alive.panel.opinions(alive.now)] == [True, True, False]
    alive.say(1, K.FAILED)
    assert alive.believes() is Level.FAILED


def test_silence_of_all_changes_nothing(alive: Heard) -> None:
    alive.all_say(K.FAILED)
    alive.now += 10 * SILENT_S
    alive.panel.seat(token(0), alive.now)
    alive.say(0, K.ALLS_WELL)
    assert alive.believes() is Level.FAILED


# ---------------------------------------------------------------------------------------------------- tokens


def test_a_witness_with_two_tokens_counts_once(alive: Heard) -> None:
    alive.say(0, K.FAILED)
    alive.say(0, K.FAILED, token(0, begins_ms=NOW_MS + 300_000))
    assert alive.believes() is Level.ALIVE
    with pytest.raises(Replayed):
        alive.say(0, K.FAILED, token(0))


def test_witnesses_that_were_replaced_are_not_heard(alive: Heard) -> None:
    later = NOW_MS + 1_000
    alive.say(0, K.JOIN, token(0, since_ms=later, begins_ms=later))
    for former in (token(1), token(2), token(0, of=5), token(0, of=1)):
        with pytest.raises(Replayed):
            alive.say(1, K.FAILED, former)
    assert alive.believes() is Level.ALIVE
    alive.say(1, K.FAILED, token(1, since_ms=later, begins_ms=later))
    alive.say(2, K.FAILED, token(2, since_ms=later, begins_ms=later))
    assert alive.believes() is Level.FAILED


def test_one_witness_follows_three_and_three_follow_one() -> None:
    heard = Heard()
    assert heard.panel.seat(token(0, of=1, begins_ms=NOW_MS - 1), NOW) == 0
    heard.all_say(K.JOIN)
    assert heard.panel.size == 3
    with pytest.raises(Replayed):
        heard.panel.seat(token(0, of=1, begins_ms=NOW_MS - 1), NOW)
    heard.panel.seat(token(0, of=1, begins_ms=NOW_MS + 1), NOW)
    assert heard.panel.size == 1
    heard.panel.seat(token(0, of=1, begins_ms=NOW_MS), NOW)  # late, from before the renewal
    with pytest.raises(Replayed):
        heard.panel.seat(token(1), NOW)


def test_after_the_clock_went_back_the_entity_is_believed_once_its_former_tokens_ended(alive: Heard) -> None:
    back = token(0, since_ms=NOW_MS - 50_000, begins_ms=NOW_MS - 50_000)
    with pytest.raises(Replayed):
        alive.panel.seat(back, NOW)
    alive.panel.seat(back, NOW + LIFE_MS / 1000 + 1)


def test_two_numbers_of_witnesses_at_once_are_refused(alive: Heard) -> None:
    with pytest.raises(BadContent):
        alive.panel.seat(token(0, of=5), NOW)


def test_a_late_word_by_another_topic_is_not_the_last_word(alive: Heard) -> None:
    under = token(1)
    assert alive.panel.hear(under, K.FAILED, 50, NOW_MS, {}, NOW) is None
    assert alive.panel.hear(under, K.ALLS_WELL, 49, NOW_MS, {}, NOW) is None
    assert alive.panel.opinions(NOW)[1].level is Level.FAILED
    assert [opinion.dissents for opinion in alive.panel.opinions(NOW)] == [False, True, False]


# ---------------------------------------------------------------------------------- heartbeats and own words


def test_heartbeats_of_all_witnesses_are_told_once(alive: Heard) -> None:
    count = len(alive.told)
    for second in range(100):
        alive.now += 1
        for witness in range(3):
            alive.say(witness, K.ALLS_WELL, latency_ms=10 * witness, ping=second, note="x" if witness else "lie")
    beats = alive.told[count:]
    assert 99 <= len(beats) <= 101
    assert beats[-1].fields["latency_ms"] == 10
    assert beats[-1].fields["note"] == "x"
    count = len(alive.told)
    for _ in range(100):
        alive.now += 1
        alive.all_say(K.ALLS_WELL, 0, 1)
    assert len(alive.told) - count == 100, "a witness is gone, heartbeats go on"
    count = len(alive.told)
    for _ in range(100):
        alive.say(2, K.ALLS_WELL)
    assert len(alive.told) - count <= 3, "one alone makes no pulse"


def own(number: int, kind: TraceKind, since_ms: int = NOW_MS, time_ms: int = NOW_MS) -> OwnWord:
    return OwnWord(since_ms, number, time_ms, kind, b"{}")


def test_what_it_says_of_itself_is_told_once_and_in_order(alive: Heard) -> None:
    panel = alive.panel
    assert panel.own(own(2, K.READY))
    assert not panel.own(own(2, K.READY)), "the other witnesses bring it too"
    assert not panel.own(own(1, K.INITIALIZING))
    assert panel.own(own(1, K.LOAD_INFORMATION)), "load and states overtake each other"
    assert not panel.own(own(9, K.SHUTDOWN, since_ms=NOW_MS - 1)), "of its former witnesses"


def test_after_it_went_silent_late_heartbeats_make_it_no_alive_and_a_new_token_does(alive: Heard) -> None:
    assert alive.panel.own(own(5, K.REVERTING_TO_SILENT_MODE, time_ms=NOW_MS + 50))
    alive.all_say(K.ALLS_WELL)
    assert alive.believes() is None
    for witness in range(3):
        alive.say(witness, K.JOIN, token(witness, begins_ms=NOW_MS + 100))
    assert alive.believes() is Level.ALIVE
    assert not alive.panel.own(own(6, K.REVERTING_TO_SILENT_MODE, time_ms=NOW_MS + 50)), "an old word, brought again"
    assert alive.believes() is Level.ALIVE


def test_one_witness_with_an_old_word_makes_nobody_silent_at_a_tracker_that_has_just_come() -> None:
    heard = Heard()
    old = own(5, K.REVERTING_TO_SILENT_MODE, time_ms=NOW_MS + 50)
    later = NOW_MS + 100
    heard.say(0, K.ALLS_WELL, token(0, begins_ms=later - 60))
    assert not heard.panel.own(old), "two witnesses were not heard yet: they may have been let speak after it"
    heard.say(1, K.JOIN, token(1, begins_ms=later))
    heard.say(2, K.JOIN, token(2, begins_ms=later))
    assert not heard.panel.own(old)
    assert heard.believes() is Level.ALIVE


def test_that_it_goes_silent_is_told_once_a_majority_of_its_witnesses_is_known() -> None:
    heard = Heard(5)
    word = own(5, K.REVERTING_TO_SILENT_MODE, time_ms=NOW_MS + 50)
    told = []
    for witness in range(5):
        heard.panel.seat(token(witness, 5), NOW)
        told.append(heard.panel.own(word))
    assert told == [False, False, True, False, False]


def test_a_witness_that_says_that_it_does_badly_is_not_counted_for_it() -> None:
    heard = Heard()
    heard.all_say(K.JOIN)
    heard.say(0, K.FAILED, sick=0.9)
    heard.say(1, K.FAILED, sick=SICK)
    assert heard.believes() is Level.ALIVE
    heard.say(2, K.FAILED, sick=0.05)
    assert heard.believes() is Level.ALIVE
    heard.say(0, K.FAILED)  # it is well again, and says so again
    assert heard.believes() is Level.FAILED
