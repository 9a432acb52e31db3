"""keys.verdicts: what counts as a key, and who contradicts it; the wires around it are in test_fetching."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from keys.epochs import KeyName
from keys.material import combine, deal
from keys.requests import Outputs
from keys.verdicts import DEALS_KEPT, Verdict
from tests.keys.helpers import stream

NAME = KeyName("a/#", 0, 0)
SERVERS = ("a", "b", "c", "d")
GENERATIONS = [material.generations[0] for material in deal(4, 1, 0, stream("verdicts"))]
WORDS = [Outputs(NAME, g.deal, g.outputs(NAME)) for g in GENERATIONS]
KEY = combine(list({index: output for word in WORDS for index, output in word.outputs}.values()))


def lie(word: Outputs, seed: int) -> Outputs:
    return Outputs(NAME, word.deal, tuple((index, bytes([seed]) * 32) for index, _ in word.outputs))


def test_any_three_of_four_are_enough_in_any_order_and_two_are_not() -> None:
    for order in permutations(range(4)):
        verdict = Verdict(SERVERS, 1, chain=False)
        found = []
        for number in order:
            assert verdict.hear(SERVERS[number], WORDS[number])
            found.append(verdict.agreed_key())
        assert found == [None, None, KEY, KEY]
        assert verdict.liars() == set()


@settings(max_examples=100)
@given(st.permutations(range(4)), st.integers(0, 3), st.lists(st.integers(0, 2), min_size=1, max_size=4))
def test_one_that_changes_its_word_again_and_again_changes_nothing(
    order: list[int], bad: int, seeds: list[int]
) -> None:
    verdict = Verdict(SERVERS, 1, chain=False)
    for seed, number in [(seed, number) for seed in seeds for number in order]:
        word = lie(WORDS[bad], seed) if number == bad else WORDS[number]
        assert verdict.hear(SERVERS[number], word)
        assert verdict.agreed_key() in (None, KEY)
        assert verdict.liars() <= {SERVERS[bad]}
    assert verdict.agreed_key() == KEY
    assert verdict.liars() == {SERVERS[bad]}


def test_a_server_that_invents_deals_is_bounded_and_believed_by_nobody() -> None:
    verdict = Verdict(SERVERS, 1, chain=False)
    for number in range(3):
        verdict.hear(SERVERS[number], WORDS[number])
    for invented in range(100):
        verdict.hear("d", Outputs(NAME, b"\xff" * 11 + bytes([invented]), WORDS[3].outputs))
    assert verdict.agreed_key() == KEY
    assert len(verdict._votes["d"]) == DEALS_KEPT


def test_words_about_sets_of_others_count_for_nothing() -> None:
    verdict = Verdict(SERVERS, 1, chain=False)
    assert not verdict.hear("a", WORDS[1])
    assert not verdict.hear("a", Outputs(NAME, WORDS[0].deal, WORDS[0].outputs[1:]))
    assert verdict.voters() == set()


def test_in_a_chain_most_words_win_and_doubt_decides_a_draw() -> None:
    right, wrong = (Outputs(NAME, bytes(12), ((0, bytes([value]) * 32),)) for value in (1, 2))
    verdict = Verdict(("a", "b", "c"), 0, chain=True)
    assert verdict.agreed_key() is None
    verdict.hear("a", wrong)
    assert verdict.agreed_key() == b"\2" * 32
    verdict.hear("b", right)
    assert verdict.agreed_key() == b"\2" * 32  # a draw without a doubt changes nothing
    verdict.doubt()
    assert verdict.agreed_key() == b"\1" * 32
    verdict.hear("c", right)
    verdict.doubt()
    assert verdict.agreed_key() == b"\1" * 32  # two words against one, whatever a publisher uses
    assert verdict.liars() == set()


def test_a_server_of_a_chain_that_invents_a_late_deal_does_not_hold_on_to_it() -> None:
    wrong, right = Outputs(NAME, b"\xff" * 12, ((0, b"\2" * 32),)), Outputs(NAME, bytes(12), ((0, b"\1" * 32),))
    verdict = Verdict(("a", "b", "c"), 0, chain=True)
    verdict.hear("a", wrong)
    assert verdict.agreed_key() == b"\2" * 32
    verdict.doubt()
    verdict.hear("b", right)
    assert verdict.agreed_key() == b"\1" * 32
    verdict.hear("c", right)
    verdict.doubt()
    assert verdict.agreed_key() == b"\1" * 32


def test_the_later_of_two_deals_counts_once_it_is_complete() -> None:
    later = [material.generations[0] for material in deal(4, 1, 1, stream("later"))]
    words = [Outputs(NAME, g.deal, g.at_epoch(1).outputs(KeyName("a/#", 1, 0))) for g in later]
    verdict = Verdict(SERVERS, 1, chain=False)
    for server, old, new in zip(SERVERS, WORDS, words, strict=True):
        verdict.hear(server, old)
        verdict.hear(server, new)
    assert verdict.agreed_key() == combine(list({i: out for word in words for i, out in word.outputs}.values()))
    assert verdict.liars() == set()


LATER = [material.generations[0] for material in deal(4, 1, 1, stream("later still"))]
LATER_WORDS = [Outputs(NAME, g.deal, g.at_epoch(1).outputs(KeyName("a/#", 1, 0))) for g in LATER]
LATER_KEY = combine(list({index: output for word in LATER_WORDS for index, output in word.outputs}.values()))


def test_a_later_deal_takes_the_place_of_the_one_that_was_believed_though_fewer_say_it() -> None:
    verdict = Verdict(SERVERS, 1, chain=False)
    for server, word in zip(SERVERS, WORDS, strict=True):
        verdict.hear(server, word)
    assert verdict.agreed_key() == KEY
    for server, word, key in zip(SERVERS[:3], LATER_WORDS[:3], (KEY, KEY, LATER_KEY), strict=True):
        verdict.hear(server, word)
        assert verdict.agreed_key() == key
    verdict.hear("d", lie(WORDS[3], 9))
    assert (verdict.agreed_key(), verdict.liars()) == (LATER_KEY, set()), "about a deal that counts no more"


def test_a_server_that_contradicts_in_one_set_is_a_liar_as_soon_as_it_is_heard() -> None:
    verdict = Verdict(SERVERS, 1, chain=False)
    for number in range(3):
        verdict.hear(SERVERS[number], WORDS[number])
    assert verdict.agreed_key() == KEY
    (index, _), *others = WORDS[3].outputs
    verdict.hear("d", Outputs(NAME, WORDS[3].deal, ((index, b"\1" * 32), *others)))
    assert verdict.liars() == {"d"}
    assert verdict.agreed_key() == KEY


def test_an_invented_deal_that_came_first_hides_no_complete_one() -> None:
    verdict = Verdict(SERVERS, 1, chain=False)
    verdict.hear("a", Outputs(NAME, b"\xff" * 12, WORDS[0].outputs))
    for number in range(3):
        verdict.hear(SERVERS[number], WORDS[number])
    assert verdict.agreed_key() == KEY


def test_of_one_server_the_deals_that_it_said_last_are_kept() -> None:
    verdict = Verdict(SERVERS, 1, chain=False)
    for number in (1, 2, 1, 3):
        verdict.hear("a", Outputs(NAME, bytes([number]) * 12, WORDS[0].outputs))
    assert set(verdict._votes["a"]) == {b"\1" * 12, b"\3" * 12}


def test_in_a_chain_one_word_is_enough_however_many_the_policy_lets_lie() -> None:
    verdict = Verdict(("a", "b", "c", "d"), 1, chain=True)
    verdict.hear("a", Outputs(NAME, bytes(12), ((0, b"\1" * 32),)))
    assert verdict.agreed_key() == b"\1" * 32


THREE = [material.generations[0] for material in deal(3, 0, 0, stream("three"))]
THREE_WORDS = [Outputs(NAME, g.deal, g.outputs(NAME)) for g in THREE]
THREE_KEY = combine(list({index: output for word in THREE_WORDS for index, output in word.outputs}.values()))


def test_of_three_servers_two_have_every_set_and_one_has_not() -> None:
    """A set of which nobody said anything gives no key, nor an error."""
    for order in permutations(range(3)):
        verdict = Verdict(("a", "b", "c"), 0, chain=False)
        found = []
        for number in order:
            verdict.hear("abc"[number], THREE_WORDS[number])
            found.append(verdict.agreed_key())
        assert found == [None, THREE_KEY, THREE_KEY]
        assert verdict.liars() == set()


def test_of_three_servers_two_that_invent_a_late_deal_have_fewer_words_in_some_set() -> None:
    verdict = Verdict(("a", "b", "c"), 0, chain=False)
    for name, word in zip("abc", THREE_WORDS, strict=True):
        verdict.hear(name, word)
    for name, word in zip("ab", THREE_WORDS, strict=False):
        verdict.hear(name, Outputs(NAME, b"\xff" * 12, lie(word, 7).outputs))
    assert verdict.agreed_key() == THREE_KEY
