"""What a majority of witnesses says: f of 2f + 1 that lie, wherever they sit, change nothing that is believed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

import pytest

from bridge.base import Wall
from bridge.traces.kinds import TraceKind
from bridge.traces.self_health import SICK
from bridge.tracking.witnessing import FLAPS_MAX, FLAPS_S, SILENT_S, Belief, Level, Opinion, Panel
from keys.delegation import Delegated, Seat, Token
from keys.errors import BadContent, Replayed
from keys.ownword import OwnWord

pytestmark = pytest.mark.invariant(47)

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


# ---------------------------------------------------------------------------------------------- exact edges


def opinion_of(heard: Heard, witness: int) -> Opinion:
    return heard.panel.opinions(heard.now)[witness]


def test_a_witness_that_was_seated_and_said_nothing_has_no_opinion_that_counts() -> None:
    heard = Heard()
    heard.panel.seat(token(0), NOW)
    assert opinion_of(heard, 0) == Opinion(0, None, 0, counts=False, dissents=False)
    assert opinion_of(heard, 1) == Opinion(1, None, 0, counts=False, dissents=False)
    heard.say(0, K.FAILED)
    assert opinion_of(heard, 0) == Opinion(0, Level.FAILED, NOW_MS, counts=True, dissents=True)


def test_a_fickle_witness_counts_again_so_long_after_the_first_of_its_last_relentings(alive: Heard) -> None:
    for second in range(FLAPS_MAX):
        alive.now = NOW + second
        alive.say(2, K.FAILED)
        alive.say(2, K.ALLS_WELL)
    alive.now = NOW + FLAPS_S - 0.5
    assert not opinion_of(alive, 2).counts
    alive.now = NOW + FLAPS_S
    assert opinion_of(alive, 2).counts


def test_who_makes_it_worse_and_worse_takes_nothing_back(alive: Heard) -> None:
    for _ in range(FLAPS_MAX):
        for kind in (K.FAILURE_SUSPICION, K.DISCONNECT, K.FAILED):
            alive.say(2, kind)
    alive.say(2, K.ALLS_WELL)
    alive.all_say(K.ALLS_WELL)
    assert opinion_of(alive, 2).counts


def test_a_silent_witness_counts_until_just_then_and_its_old_word_is_not_told(alive: Heard) -> None:
    alive.say(2, K.FAILED)
    alive.now = NOW + SILENT_S
    assert opinion_of(alive, 2).counts
    alive.now += 0.5
    assert not opinion_of(alive, 2).counts
    alive.all_say(K.FAILED, 0)
    told = alive.say(1, K.FAILED)
    assert told is not None
    assert told.fields == {"after": "alive", "witnesses": [0, 1], "of": 3}


def test_too_little_was_heard_once_a_majority_is_silent() -> None:
    assert Panel().silent_at == 0.0
    panel = Panel()
    for witness, after_s in enumerate((4, 1, 5, 2, 3)):
        panel.seat(token(witness, of=5), NOW + after_s)
    assert panel.silent_at == NOW + 3 + SILENT_S


def test_a_clock_that_went_back_is_believed_by_the_wall_and_from_just_after_the_last_token() -> None:
    panel, back = Panel(Wall(NOW)), token(0, since_ms=NOW_MS - 50_000, begins_ms=NOW_MS - 50_000)
    panel.seat(token(0), 0.0)
    with pytest.raises(Replayed):
        panel.seat(back, LIFE_MS / 1000)
    panel.seat(back, LIFE_MS / 1000 + 0.002)
    further = token(0, since_ms=NOW_MS - 60_000, begins_ms=NOW_MS - 60_000)
    panel.seat(further, LIFE_MS / 1000 - 50 + 0.002)  # once the tokens of then have ended, not those before


def test_after_its_clock_went_back_an_entity_begins_anew_with_what_it_says_of_itself(alive: Heard) -> None:
    assert alive.panel.own(own(7, K.READY))
    assert alive.panel.own(own(8, K.REVERTING_TO_SILENT_MODE, time_ms=NOW_MS + 50))
    earlier, alive.now = NOW_MS - 50_000, NOW + LIFE_MS / 1000 + 1
    for witness in range(3):
        alive.say(witness, K.JOIN, token(witness, since_ms=earlier, begins_ms=earlier))
    assert alive.believes() is Level.ALIVE
    assert alive.panel.own(own(1, K.READY, since_ms=earlier))
    assert alive.panel.own(own(1, K.LOAD_INFORMATION, since_ms=earlier))


def test_the_only_witness_is_heard_again_after_the_clock_went_back_and_keeps_its_word() -> None:
    heard = Heard(1)
    heard.say(0, K.FAILED)
    later = NOW_MS + 1_000
    assert heard.panel.seat(token(0, of=1, begins_ms=later), NOW + 1) == 0
    assert heard.panel.seat(token(0, of=1), NOW + 1) == 0
    assert opinion_of(heard, 0).level is Level.FAILED
    assert heard.panel.seat(token(0, of=1, begins_ms=NOW_MS - 9_000), NOW + LIFE_MS / 1000 + 2) == 0
    assert heard.believes() is Level.FAILED


def test_witnesses_whose_tokens_all_ended_and_are_renewed_keep_their_words(alive: Heard) -> None:
    alive.say(0, K.FAILED)
    alive.now += LIFE_MS / 1000 + 1
    alive.panel.seat(token(1, begins_ms=int(alive.now * 1000)), alive.now)
    assert opinion_of(alive, 0).level is Level.FAILED


def test_who_does_badly_is_heard_when_it_says_that_all_is_well(alive: Heard) -> None:
    alive.say(2, K.FAILED)
    alive.say(2, K.ALLS_WELL, sick=0.9)
    assert opinion_of(alive, 2).level is Level.ALIVE
    alive.say(2, K.DISCONNECT, sick=0.9)
    assert opinion_of(alive, 2).level is Level.DISCONNECTED


def test_a_number_that_was_used_says_nothing_about_health_and_still_brings_metrics(alive: Heard) -> None:
    assert alive.panel.hear(token(2), K.FAILED, 50, NOW_MS, {}, NOW) is None
    assert alive.panel.hear(token(2), K.ALLS_WELL, 50, NOW_MS + 9, {}, NOW) is None
    assert alive.panel.hear(token(2), K.NETWORK_METRICS, 49, NOW_MS + 9, {"rtt": 5}, NOW) is None
    assert opinion_of(alive, 2) == Opinion(2, Level.FAILED, NOW_MS, counts=True, dissents=True)
    told = alive.say(0, K.NETWORK_METRICS, rtt=9)
    assert told == Belief(K.NETWORK_METRICS, {"rtt": 5, "witnesses": [0, 2], "of": 3})


def test_what_is_told_is_what_is_believed_whatever_word_made_the_majority(alive: Heard) -> None:
    alive.say(0, K.FAILURE_SUSPICION)
    told = [alive.say(1, K.FAILED), alive.say(2, K.FAILED), alive.say(2, K.JOIN), alive.say(0, K.FAILED)]
    kinds = [None if belief is None else belief.kind for belief in told]
    assert kinds == [K.FAILURE_SUSPICION, K.FAILED, K.FAILURE_SUSPICION, K.FAILED]
    alive.now += SILENT_S + 1  # witness 2, which says that it lives, is silent meanwhile
    alive.all_say(K.FAILED, 0, 1)
    assert alive.say(0, K.ALLS_WELL) is None
    told_alive = alive.say(2, K.NETWORK_METRICS)
    assert told_alive is not None
    assert told_alive.kind is K.ALLS_WELL
    assert told_alive.fields["after"] == "failed"


def test_a_heartbeat_that_tells_of_a_change_is_no_round(alive: Heard) -> None:
    for _ in range(3):
        alive.now += 1
        assert [alive.say(witness, K.ALLS_WELL, after="failed") for witness in range(3)] == [None] * 3


def test_the_third_of_five_completes_a_round_and_only_what_three_agree_on_is_told() -> None:
    heard = Heard(5)
    heard.all_say(K.JOIN)
    common = {"h": 1, "g": 2, "f": 3, "e": 4, "d": 5, "c": 6, "b": 7, "a": 8}
    assert heard.say(0, K.ALLS_WELL, **common, two="x", number=1, note="p", both=True, tags=[1]) is None
    assert heard.say(1, K.ALLS_WELL, **common, two="x", number=2, note="q", both=False, tags=[1]) is None
    told = heard.say(4, K.ALLS_WELL, **common, note="r", both=True, tags=[1], mixed=True)
    assert told is not None
    assert list(told.fields.items())[:8] == sorted(common.items())
    assert set(told.fields) == {*common, "witnesses", "of"}
    assert told.fields["of"] == 5


def test_a_yes_is_no_number_and_one_number_is_no_median(alive: Heard) -> None:
    alive.say(0, K.NETWORK_METRICS, mixed=True, agreed=False, alone=5)
    told = alive.say(1, K.NETWORK_METRICS, mixed=0, agreed=False)
    assert told is not None
    assert told.fields == {"agreed": False, "witnesses": [0, 1], "of": 3}
    assert alive.say(2, K.NETWORK_METRICS, mixed=-1) is None
    assert alive.say(1, K.NETWORK_METRICS, mixed=0) is None
    told = alive.say(0, K.NETWORK_METRICS, mixed=True)
    assert told is not None
    assert told.fields["mixed"] == -1


def test_a_witness_that_was_away_owes_one_round_and_no_more(alive: Heard) -> None:
    for _ in range(10):
        alive.all_say(K.ALLS_WELL, 0, 1)
    assert alive.say(2, K.ALLS_WELL) is None
    assert alive.say(1, K.ALLS_WELL) is None
    assert alive.say(2, K.ALLS_WELL) is not None


def test_only_going_silent_makes_it_silent_and_then_nothing_is_held_against_it(alive: Heard) -> None:
    assert alive.panel.own(own(1, K.READY, time_ms=NOW_MS + 50))
    assert alive.believes() is Level.ALIVE
    assert alive.panel.own(own(2, K.REVERTING_TO_SILENT_MODE)), "at the very time that its tokens begin"
    assert [opinion.level for opinion in alive.panel.opinions(NOW)] == [None] * 3
    alive.all_say(K.JOIN)
    assert alive.believes() is None, "tokens of just then are of before"


def test_time_may_begin_at_nought() -> None:
    panel = Panel(Wall(-NOW))
    for witness in range(3):
        panel.seat(token(witness, since_ms=0, begins_ms=0), NOW)
    assert panel.own(own(1, K.REVERTING_TO_SILENT_MODE, since_ms=0, time_ms=0))


def test_when_witnesses_end_their_predecessors_are_not_waited_for() -> None:
    panel = Panel()
    panel.seat(token(0), NOW)  # ends in ten minutes
    panel.seat(token(0, since_ms=NOW_MS + 1, begins_ms=NOW_MS - LIFE_MS // 2), NOW)  # in five
    back = token(0, since_ms=NOW_MS - 50_000, begins_ms=NOW_MS - 50_000)
    with pytest.raises(Replayed):
        panel.seat(back, NOW + LIFE_MS / 2_000)
    assert panel.seat(back, NOW + LIFE_MS / 2_000 + 0.002) == 0
