"""What the owner says of measuring: read back as it was written, and refused out of range."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.document.organise import BAR_MOST_S, TIMES_MOST, Bar, Organising
from bridge.document.policy import Policy
from keys.errors import BadFrame
from keys.frames import Reader
from keys.identity import Identity
from tests.sim.world import make_world

SAID = Organising(((1, 2), (2, 9)), 30, 3, 25, 1200)


def test_it_reads_back_alone_and_in_the_policy() -> None:
    frame = Reader(SAID.encode())
    assert Organising.read(frame) == SAID
    frame.expect_end()
    policy = replace(make_world({1: 3}, [], {"g": 1}).overlay.policy, organising=SAID).signed(
        Identity.generate(bytes(32))
    )
    assert Policy.decode(policy.signed_bytes(), policy.signature) == policy
    assert policy.signed_bytes()[2] & 0x02, "who does not know it must not go on without it"


@pytest.mark.parametrize(
    "wrong",
    [
        replace(SAID, interval_s=0),
        replace(SAID, interval_s=3601),
        replace(SAID, hops=0),
        replace(SAID, hops=17),
        replace(SAID, min_gain_percent=100),
        replace(SAID, dwell_s=30 * 86_400 + 1),
    ],
)
def test_numbers_out_of_range_are_refused(wrong: Organising) -> None:
    with pytest.raises(BadFrame):
        Organising.read(Reader(wrong.encode()))


BARRED = replace(SAID, bars=(Bar((2, 9), 1, 5_000), Bar((1, 2), 3, 7_000)))


def test_bars_read_back_and_are_flagged_only_where_there_are_some() -> None:
    policy = replace(make_world({1: 3}, [], {"g": 1}).overlay.policy, organising=BARRED).signed(
        Identity.generate(bytes(32))
    )
    assert Policy.decode(policy.signed_bytes(), policy.signature) == policy
    assert policy.signed_bytes()[2] & 0x04, "who does not know them would propose what is barred"
    assert not replace(policy, organising=SAID).signed_bytes()[2] & 0x04
    nobody_measures = bytearray(policy.signed_bytes())
    nobody_measures[2] &= ~0x02
    with pytest.raises(BadFrame):
        Policy.decode(bytes(nobody_measures), b"")


ORGANISED = replace(BARRED, organiser="g", grace_s=30)


@pytest.mark.parametrize("said", [ORGANISED, replace(ORGANISED, bars=())])
def test_the_organiser_reads_back_and_is_flagged_only_where_there_is_one(said: Organising) -> None:
    policy = replace(make_world({1: 3}, [], {"g": 1}).overlay.policy, organising=said).signed(
        Identity.generate(bytes(32))
    )
    assert Policy.decode(policy.signed_bytes(), policy.signature) == policy
    assert policy.signed_bytes()[2] & 0x08, "who does not know it would not go by swaps"
    assert not replace(policy, organising=BARRED).signed_bytes()[2] & 0x08
    nobody_measures = bytearray(replace(policy, organising=replace(said, bars=())).signed_bytes())
    nobody_measures[2] &= ~0x02
    with pytest.raises(BadFrame):
        Policy.decode(bytes(nobody_measures), b"")


@pytest.mark.parametrize("wrong", [{"organiser": ""}, {"grace_s": 0}, {"grace_s": 3601}])
def test_an_organiser_of_no_name_or_of_no_grace_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadFrame, match="organiser"):
        SAID.read_organiser(Reader(replace(ORGANISED, **wrong).encode_organiser()))  # type: ignore[arg-type]


@pytest.mark.parametrize("percent", [0, 20, 100])
def test_the_weight_of_processing_reads_back_and_is_flagged_only_where_it_is_none_of_the_usual(percent: int) -> None:
    said = replace(ORGANISED, processing_percent=percent)
    policy = replace(make_world({1: 3}, [], {"g": 1}).overlay.policy, organising=said).signed(
        Identity.generate(bytes(32))
    )
    assert Policy.decode(policy.signed_bytes(), policy.signature) == policy
    assert policy.signed_bytes()[2] & 0x10, "who does not know it would judge by other costs"
    assert not replace(policy, organising=ORGANISED).signed_bytes()[2] & 0x10
    assert (SAID.processing_weight, said.processing_weight) == (1.0, percent / 50)


@pytest.mark.parametrize("percent", [50, 101])
def test_a_weight_that_is_none_or_the_usual_one_is_refused(percent: int) -> None:
    with pytest.raises(BadFrame, match=f"{percent} percent"):
        SAID.read_weight(Reader(bytes([percent])))


@pytest.mark.parametrize("times", [0, TIMES_MOST + 1, 255])
def test_a_bar_that_was_never_made_is_refused(times: int) -> None:
    with pytest.raises(BadFrame, match=f"{times} times"):
        Bar.read(Reader(Bar((1, 2), times, 0).encode()))


def test_each_bar_of_a_link_lasts_twice_as_long_as_the_one_before() -> None:
    said, now = SAID, 1_000.0
    for times in range(1, 5):
        said = said.with_bar((1, 2), now)
        (bar,) = said.bars
        assert (bar.times, bar.until_ms) == (times, int(1000 * (now + SAID.dwell_s * 2**times)))
        now = bar.until_ms / 1000
        assert said.barred(now - 0.001) == ((1, 2),)
        assert said.barred(now) == ()


def test_a_bar_is_of_one_link_whichever_end_is_named_first_and_is_forgotten_after_as_long_again() -> None:
    said = SAID.with_bar((1, 2), 0.0).with_bar((2, 9), 0.0).with_bar((2, 1), 0.0)
    assert [(bar.link, bar.times) for bar in said.bars] == [((2, 9), 1), ((2, 1), 2)]
    late = said.with_bar((9, 2), 4 * SAID.dwell_s)
    assert [(bar.link, bar.times) for bar in late.bars] == [((2, 1), 2), ((9, 2), 1)]
    for _ in range(2 * TIMES_MOST):
        late = late.with_bar((1, 2), 0.0)
    assert (late.bars[-1].times, late.bars[-1].until_ms) == (TIMES_MOST, 1000 * BAR_MOST_S)


def test_gain_and_strange_links() -> None:
    assert SAID.min_gain == 0.25
    assert SAID.strange({1, 2, 9}) == ""
    assert SAID.strange({1, 2}) == "2-9"
    assert replace(SAID, bars=(Bar((3, 9), 1, 0),)).strange({1, 2, 9}) == "3-9"
    assert Organising(((4, 4),)).strange({4}) == "4-4"
