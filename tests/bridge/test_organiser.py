"""The organiser alone: what it signs, when, and that it never gives a number twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bridge.contract import Adopt, Blame, Count, Effect, Keep, LinkUp, Offered, Received, Rotated, Send, Tick, Wire
from bridge.document import SwapNews
from bridge.measuring import SUMMARY_TOPIC, InterestSummary, ReplicaSummary
from bridge.membership import ENDORSE_S, SWAPS_TOPIC
from bridge.membership.adopting import canonical
from bridge.organiser import BACKOFF_MOST_S, HIGHEST, OrganiserNode
from tests.bridge.document.test_swap_attacks import rekeyed
from tests.bridge.measuring.test_swap_objection import told, with_organiser
from tests.bridge.measuring.test_swap_proposal import INTERVAL, INTERVAL_S, interests
from tests.sim.organised_world import BOSS, agreed
from tests.sim.world import NOW, World

ALL = (1, 2, 3, 4)


@pytest.fixture
def made() -> World:
    return with_organiser(((4, 1), (2, 4)))


def boss(made: World, signs: bool = True, highest: int = 0) -> OrganiserNode:
    node = OrganiserNode(made.overlay, made.identities[BOSS], BOSS, signs, highest)
    for name in ("r2a", "r2b"):
        node.handle(LinkUp(name), NOW)
    return node


def all_told(made: World, interval: int = INTERVAL) -> list[ReplicaSummary | InterestSummary]:
    return [*told(made, interval=interval), *interests(made, 1, 4, interval=interval)]


def tell(
    node: OrganiserNode, words: Sequence[ReplicaSummary | InterestSummary], now: float = NOW, peer: str = "r2a"
) -> list[Effect]:
    return [effect for word in words for effect in node.handle(Received(peer, Wire(SUMMARY_TOPIC, word.encode())), now)]


def signed(effects: list[Effect]) -> list[SwapNews]:
    return [SwapNews.decode(e.wire.payload) for e in effects if isinstance(e, Send) and e.wire.topic == SWAPS_TOPIC]


def test_it_signs_what_it_would_propose_and_keeps_the_number_first(made: World) -> None:
    node = boss(made)
    assert node.next_deadline == 0.0
    assert signed(node.handle(Tick(), NOW)) == []
    tell(node, all_told(made))
    effects = node.handle(Tick(), NOW + 1)
    kinds = [type(effect) for effect in effects]
    assert effects[0] == Keep(((HIGHEST, (1).to_bytes(4)),))
    assert kinds.index(Adopt) < kinds.index(Send)
    assert len(signed(effects)) == 2, "to both of its neighbours"
    swap = signed(effects)[0].swaps[0]
    assert (set(swap.added), set(swap.removed), swap.number, swap.grace_s) == ({1, 4}, {2, 3}, 1, 5)
    swap.verify(made.overlay.owner)
    assert node.open_swap == swap
    assert node.signed == node.proposed
    for later in (2, 30, ENDORSE_S - 1):
        assert signed(node.handle(Tick(), NOW + later)) == [], "one at a time"


def test_who_only_looks_signs_nothing(made: World) -> None:
    node = boss(made, signs=False)
    tell(node, all_told(made))
    effects = node.handle(Tick(), NOW + 1)
    assert node.proposed is not None
    assert node.proposed.swap is not None
    assert signed(effects) == []
    assert len(node.summaries) == 24


def test_after_a_minute_a_higher_number_supersedes_and_each_failure_waits_twice_as_long(made: World) -> None:
    node = boss(made, highest=4)
    at, waited = NOW, []
    for turn in range(9):
        tell(node, all_told(made, int(at) // INTERVAL_S), at)
        last = at
        while not (said := signed(node.handle(Tick(), at))):
            before, at = at, at + (1 if turn < 2 else 60)
            if int(at) // INTERVAL_S != int(before) // INTERVAL_S:
                tell(node, all_told(made, int(at) // INTERVAL_S), at)
        assert said[0].swaps[0].number == 5 + turn
        waited.append(at - last)
    assert waited[:3] == [0, ENDORSE_S, 2 * ENDORSE_S]
    assert max(waited) <= BACKOFF_MOST_S + 60
    assert waited[-1] >= BACKOFF_MOST_S - 60


def test_a_number_that_was_given_before_a_restart_is_not_given_again(made: World) -> None:
    node = boss(made, highest=7)
    tell(node, all_told(made))
    assert signed(node.handle(Tick(), NOW + 1))[0].swaps[0].number == 8
    spent = boss(made, highest=100)
    assert "owner has to sign" in spent.standing()
    tell(spent, all_told(made))
    assert signed(spent.handle(Tick(), NOW + 1)) == []


def test_once_in_force_the_next_goes_on_from_there_when_the_tree_has_rested(made: World) -> None:
    node = boss(made)
    tell(node, all_told(made))
    swap = signed(node.handle(Tick(), NOW + 1))[0].swaps[0]
    node.handle(Received("r2a", Wire(SWAPS_TOPIC, agreed(made, swap, ALL).encode())), NOW + 2)
    assert node.overlay.swaps == (swap,)
    assert node.open_swap is None
    node.handle(Tick(), NOW + 300)
    assert node.proposed is not None
    assert node.proposed.rests_until == NOW + 1 + 600


@pytest.mark.parametrize("change", ["another", "nobody"])
def test_who_is_not_the_organiser_signs_nothing(made: World, change: str) -> None:
    organising = made.overlay.policy.organising
    assert organising is not None
    made.overlay = made.with_policy(organising=replace(organising, organiser="g1" if change == "another" else ""))
    node = boss(made)
    tell(node, all_told(made))
    assert signed(node.handle(Tick(), NOW + 1)) == []
    assert "not the organiser" in node.standing()


def test_what_is_no_summary_is_refused_and_old_or_forged_ones_count_for_nothing(made: World) -> None:
    node = boss(made)
    words = all_told(made)
    tell(node, words)
    assert tell(node, words) == []
    forged = replace(told(made)[0], interval=INTERVAL + 1)
    assert tell(node, [forged]) == [Count("refused", 1, "BadSignature")]
    effects = node.handle(Received("r2a", Wire(SUMMARY_TOPIC, b"nonsense")), NOW)
    assert any(isinstance(effect, Blame) and not effect.named for effect in effects)
    wrong = InterestSummary("r1a", 1, INTERVAL + 1, INTERVAL_S, 4, bytes(12_500)).signed(made.identities["r1b"])
    assert tell(node, [wrong]) == [Count("refused", 1, "BadSignature")]
    assert set(node.summaries) == set(words)


def test_of_an_overlay_in_which_nobody_measures_it_waits_for_the_owner(made: World) -> None:
    made.overlay = made.with_policy(organising=None)
    node = boss(made)
    assert node.handle(Tick(), NOW) == []
    assert node.proposed is None
    assert node.next_deadline is None


@pytest.mark.attack(90)
def test_it_signs_nothing_between_hearing_of_another_key_for_it_and_taking_that(made: World) -> None:
    """What it signed then would not verify, and it would end with a traceback."""
    node = boss(made)
    tell(node, all_told(made))
    newer = rekeyed(made, BOSS, made.overlay, 7)
    node.handle(Offered(canonical(newer)), NOW + 1)
    assert signed(node.handle(Tick(), NOW + 2)) == []
    node.handle(Rotated(made.identities[BOSS]), NOW + 3)
    sent = signed(node.handle(Tick(), NOW + 4))
    assert sent
    assert sent[0].swaps[0].certificate == newer.certificate(BOSS)


@pytest.mark.attack(201)
@pytest.mark.parametrize("seconds", [INTERVAL_S // 2, INTERVAL_S * 2])
def test_summaries_of_another_length_of_intervals_count_once_the_owner_wants_them(made: World, seconds: int) -> None:
    node = boss(made)
    tell(node, all_told(made))
    organising = made.overlay.policy.organising
    assert organising is not None
    made.overlay = made.with_policy(organising=replace(organising, interval_s=seconds))
    node.handle(Offered(canonical(made.overlay)), NOW)
    later = NOW + 4 * INTERVAL_S
    words = [replace(word, interval=int(later) // seconds, interval_s=seconds) for word in all_told(made)]
    tell(node, [word.signed(made.identities[word.member]) for word in words], later)
    assert signed(node.handle(Tick(), later))[0].swaps[0].number == 1


@pytest.mark.attack(206)
def test_a_replica_whose_clock_was_far_ahead_is_heard_again_once_it_is_right(made: World) -> None:
    node = boss(made)
    words = all_told(made)
    ahead = [replace(word, interval=INTERVAL + 1_000) for word in words if word.member == "r1a"]
    assert len(ahead) == 2
    for word in ahead:
        effects = tell(node, [word.signed(made.identities["r1a"])])
        assert effects == [Count("refused", 1, "NotFresh")]
    tell(node, words)
    assert signed(node.handle(Tick(), NOW + 1))[0].swaps[0].number == 1
