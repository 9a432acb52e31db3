"""How swaps and their endorsements spread, and when a replica endorses one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bridge.contract import Adopt, Blame, Count, Effect, Received, Send, Wire
from bridge.document import Overlay, SignedSwap, SwapEndorsement, SwapNews
from bridge.document.policy import Scope
from bridge.membership.adopting import OverlayKeeper, canonical
from bridge.membership.swapping import (
    CLOCKS_S,
    ENDORSE_S,
    JUDGE_EVERY_S,
    NEWS_BURST,
    NEWS_EVERY_S,
    SWAPS_TOPIC,
    is_known,
    news_since,
    question,
    told,
)
from keys.envelope import Mode
from tests.sim.changing import changed, endorsed_by
from tests.sim.organised_world import BOSS, agreed, endorsements, of_regions, organised, swap_on
from tests.sim.world import NOW, World
from tests.support.regions import fresh

ALL = (1, 2, 3, 4)
GOOD = ((1, 4), (2, 3))
PEERS = ("r2a", "r2b", "site")


world = fresh(organised)


class Replica:
    """The keeper of `r1a`, and what it would object."""

    def __init__(self, world: World, name: str = "r1a", overlay: Overlay | None = None) -> None:
        self.why = ""
        self.asked = 0
        self.keeper = OverlayKeeper(overlay or world.overlay, name, world.identities[name])
        self.keeper.swaps.objection = self._objection
        for peer in PEERS:
            self.keeper.link_up(peer, NOW)

    def _objection(self, overlay: Overlay, swap: SignedSwap, now: float) -> str:
        self.asked += 1
        return self.why

    def hears(self, news: SwapNews, now: float = NOW, peer: str = "r2a") -> list[Effect]:
        return self.keeper.swapped(Received(peer, Wire(SWAPS_TOPIC, news.encode())), now)

    def endorsed(self, now: float) -> list[bytes]:
        """What it endorses at a tick."""
        said = news_of(self.keeper.tick(now))
        return [each.digest for news in said.values() for each in news.endorsements if each.member == "r1a"][:1]


def news_of(effects: list[Effect]) -> dict[str, SwapNews]:
    return {
        e.peer: SwapNews.decode(e.wire.payload) for e in effects if isinstance(e, Send) and e.wire.topic == SWAPS_TOPIC
    }


def named(effects: list[Effect]) -> set[str]:
    return {e.member for e in effects if isinstance(e, Blame) and e.named}


def suspected(effects: list[Effect]) -> set[str]:
    return {e.member for e in effects if isinstance(e, Blame) and not e.named}


def test_news_are_passed_on_once_to_all_others_and_kept_before(world: World) -> None:
    replica = Replica(world)
    swap = swap_on(world.overlay, world, *GOOD)
    effects = replica.hears(SwapNews((swap,)))
    assert news_of(effects) == {"r2b": SwapNews((swap,)), "site": SwapNews((swap,))}
    adopts = [at for at, effect in enumerate(effects) if isinstance(effect, Adopt)]
    sends = [at for at, effect in enumerate(effects) if isinstance(effect, Send)]
    assert adopts
    assert adopts[0] < sends[0]
    assert replica.hears(SwapNews((swap,)), peer="r2b") == []
    one = SwapNews((), endorsements(world, swap, "r2a"))
    assert news_of(replica.hears(one)) == {"r2b": one, "site": one}
    assert replica.hears(one, peer="site") == []


def test_who_links_up_is_told_all(world: World) -> None:
    replica = Replica(world)
    swap = swap_on(world.overlay, world, *GOOD)
    replica.hears(agreed(world, swap, ALL))
    assert news_of(replica.keeper.link_up("r4a", NOW)) == {"r4a": agreed(world, swap, ALL)}
    assert news_of(Replica(world).keeper.link_up("r4a", NOW)) == {}, "there is nothing"
    assert news_of(replica.hears(SwapNews(), peer="site")) == {"site": agreed(world, swap, ALL)}, "and who asks"
    for _ in range(9):
        effects = replica.hears(SwapNews(), peer="site")
    assert effects == [Count("swaps_withheld")]


def test_who_hears_of_what_stands_on_something_that_it_lacks_asks_a_few_times(world: World) -> None:
    first = swap_on(world.overlay, world, *GOOD)
    there = world.overlay.hears(agreed(world, first, ALL), NOW)
    second = swap_on(there, world, (2, 3), (1, 2), NOW + 100)
    replica = Replica(world)
    asked = 0
    for _ in range(9):
        effects = replica.hears(SwapNews((second,)), NOW + 100)
        asked += news_of(effects) == {"r2a": SwapNews()}
        assert suspected(effects) == set()
    assert asked == NEWS_BURST
    replica.hears(there.hears(agreed(world, second, ALL), NOW + 100).swap_news, NOW + 101)
    assert replica.keeper.overlay.swaps == (first, second)


def test_what_nobody_honest_passes_on_is_charged_and_suspects_the_link(world: World) -> None:
    replica = Replica(world)
    forged = swap_on(world.overlay, world, *GOOD, by="r3a")
    for payload in (SwapNews((forged,)).encode(), b"", b"nonsense"):
        effects = replica.keeper.swapped(Received("r2a", Wire(SWAPS_TOPIC, payload)), NOW)
        assert suspected(effects) == {"r2a"}
        assert any(isinstance(e, Count) and e.name == "refused" for e in effects)
    assert replica.keeper.swapped(Received("stranger", Wire(SWAPS_TOPIC, b"")), NOW) == []


def test_two_of_one_number_name_the_organiser_once_and_everybody_hears(world: World) -> None:
    replica = Replica(world)
    one, other = swap_on(world.overlay, world, *GOOD), swap_on(world.overlay, world, (2, 4), (2, 3))
    assert named(replica.hears(SwapNews((one,)))) == set()
    effects = replica.hears(SwapNews((other,)), peer="site")
    assert (named(effects), suspected(effects)) == ({BOSS}, set())
    assert set(news_of(effects)["r2b"].swaps) == {other}
    assert named(replica.hears(SwapNews((one, other)))) == set(), "once"
    assert replica.endorsed(NOW + 1) == []
    there = Replica(world, "r2b")
    assert named(there.hears(replica.keeper.overlay.swap_news)) == {BOSS}


# --------------------------------------------------------------------------------------------- endorsing


def test_a_replica_endorses_when_it_has_no_objection_any_more(world: World) -> None:
    replica = Replica(world)
    replica.why = "no lanes"
    swap = swap_on(world.overlay, world, *GOOD)
    replica.hears(SwapNews((swap,)))
    assert replica.endorsed(NOW) == []
    assert replica.keeper.swaps.why == "no lanes"
    assert replica.keeper.next_deadline == NOW + JUDGE_EVERY_S
    assert replica.endorsed(NOW + JUDGE_EVERY_S / 2) == []
    assert replica.asked == 1, "not at every tick"
    replica.why = ""
    effects = replica.keeper.tick(NOW + JUDGE_EVERY_S)
    assert set(news_of(effects)) == set(PEERS)
    kept = next(effect for effect in effects if isinstance(effect, Adopt))
    assert kept.overlay.swap_endorsers(swap) == {"r1a"}, "kept before it is said"
    assert replica.keeper.overlay.swap_endorsers(swap) == {"r1a"}
    assert replica.endorsed(NOW + 5) == []
    assert replica.keeper.next_deadline is None


def test_only_replicas_of_the_cycle_endorse(world: World) -> None:
    swap = swap_on(world.overlay, world, (2, 4), (2, 3))
    for name, says in (("r1a", False), ("r2a", True), ("r4a", True)):
        replica = Replica(world, name)
        replica.hears(SwapNews((swap,)), peer="site")
        effects = replica.keeper.tick(NOW + 1)
        assert bool(news_of(effects)) is says, name
    gateway = OverlayKeeper(world.overlay, "site")
    gateway.link_up("r1a", NOW)
    gateway.swapped(Received("r1a", Wire(SWAPS_TOPIC, SwapNews((swap,)).encode())), NOW)
    assert news_of(gateway.tick(NOW + 1)) == {}
    assert gateway.next_deadline is None


def test_none_is_endorsed_a_minute_after_it_was_heard_of_or_with_another_time(world: World) -> None:
    replica = Replica(world)
    replica.why = "too little is known"
    replica.hears(SwapNews((swap_on(world.overlay, world, *GOOD),)))
    replica.endorsed(NOW + ENDORSE_S - 1)
    replica.why = ""
    assert replica.endorsed(NOW + ENDORSE_S) == []
    for away_s in (CLOCKS_S + 1, -CLOCKS_S - 1):
        other = Replica(world)
        other.hears(SwapNews((swap_on(world.overlay, world, *GOOD, NOW + away_s),)))
        assert other.endorsed(NOW) == []
        assert other.asked == 0


def test_the_next_number_waits_a_minute_and_a_lower_one_for_ever(world: World) -> None:
    replica = Replica(world)
    first = swap_on(world.overlay, world, *GOOD, number=2, steps=2)
    second = swap_on(world.overlay, world, (1, 4), (1, 2), NOW + 40, number=3, steps=3)
    lower = swap_on(world.overlay, world, *GOOD, NOW + 40)
    replica.hears(SwapNews((first,)))
    assert replica.endorsed(NOW) == [first.digest]
    replica.hears(SwapNews((second, lower)), NOW + 40)
    assert replica.endorsed(NOW + 41) == []
    assert replica.endorsed(NOW + ENDORSE_S) == [second.digest]
    for later in (1, 61, 200):
        assert replica.endorsed(NOW + ENDORSE_S + later) == []
    restarted = Replica(world, overlay=Overlay.from_document(_document(replica), int(NOW * 1000)))
    restarted.hears(SwapNews((swap_on(world.overlay, world, *GOOD, number=2, steps=2),)), NOW + 70)
    assert restarted.endorsed(NOW + 70) == [], "what it endorsed is in its file"


def test_once_one_is_in_force_the_next_is_endorsed_without_waiting(world: World) -> None:
    replica = Replica(world)
    first = swap_on(world.overlay, world, *GOOD)
    replica.hears(SwapNews((first,)))
    assert replica.endorsed(NOW) == [first.digest]
    replica.hears(agreed(world, first, ALL), NOW + 1)
    back = swap_on(replica.keeper.overlay, world, (2, 3), (1, 4), NOW + 2)
    replica.hears(SwapNews((back,)), NOW + 2)
    assert replica.endorsed(NOW + 2) == [back.digest]


def _document(replica: Replica) -> dict[str, object]:
    found: dict[str, object] = json.loads(canonical(replica.keeper.overlay))
    return found


def test_a_tree_of_the_owners_takes_the_place_of_what_was_offered(world: World) -> None:
    replica = Replica(world)
    replica.hears(SwapNews((swap_on(world.overlay, world, *GOOD),)))
    tree = world.overlay.policy.tree.followed_by(world.overlay.policy.edges, int(NOW * 1000), 2, 60, 101)
    newer = world.with_policy(edges=((1, 2), (2, 3), (2, 4)), tree=tree)
    replica.keeper.offered(canonical(newer), NOW)
    assert replica.keeper.overlay.offered == ()
    assert replica.endorsed(NOW + 1) == []


def test_a_file_of_the_same_version_with_more_swaps_is_heard(world: World) -> None:
    replica = Replica(world)
    swap = swap_on(world.overlay, world, *GOOD)
    effects = replica.keeper.offered(canonical(world.overlay.hears(agreed(world, swap, ALL), NOW)), NOW)
    assert replica.keeper.overlay.swaps == (swap,)
    assert set(news_of(effects)) == set(PEERS)


def test_the_parts(world: World) -> None:
    swap = swap_on(world.overlay, world, *GOOD)
    after = world.overlay.hears(agreed(world, swap, (1,)), NOW)
    assert news_since(world.overlay, after) == agreed(world, swap, (1,))
    assert news_since(after, after) == SwapNews()
    assert is_known(SwapNews((swap,), (SwapEndorsement(swap.digest, "r3a"),)), after)
    assert not is_known(SwapNews((), (SwapEndorsement(bytes(32), "r3a"),)), after)
    assert told(SwapNews(), PEERS) == []
    assert [e.peer for e in told(SwapNews((swap,)), PEERS) if isinstance(e, Send)] == sorted(PEERS)
    assert news_of(list(question("r1b"))) == {"r1b": SwapNews()}


@pytest.mark.attack(76)
def test_a_link_that_goes_up_and_down_is_told_all_swaps_a_few_times_and_then_later(world: World) -> None:
    replica = Replica(world)
    swap = swap_on(world.overlay, world, *GOOD)
    replica.hears(agreed(world, swap, ALL))
    told_times = 0
    for turn in range(40):
        now = NOW + 1 + turn / 100
        told_times += bool(news_of(replica.keeper.link_up("r4a", now)))
        replica.keeper.link_down("r4a", now)
    assert told_times == NEWS_BURST
    replica.keeper.link_up("r4a", NOW + 2)
    due = replica.keeper.next_deadline
    assert due is not None
    assert due <= NOW + 2 + NEWS_EVERY_S
    assert news_of(replica.keeper.tick(NOW + 2 + NEWS_EVERY_S)) == {"r4a": agreed(world, swap, ALL)}
    assert news_of(replica.keeper.tick(NOW + 3 + NEWS_EVERY_S)) == {}


@pytest.mark.attack(87)
def test_who_endorsed_before_a_restart_lets_that_swap_have_its_time_still(world: World) -> None:
    replica = Replica(world)
    first = swap_on(world.overlay, world, *GOOD)
    replica.hears(SwapNews((first,)))
    assert replica.endorsed(NOW + 1) == [first.digest]
    kept = Overlay.from_document(json.loads(canonical(replica.keeper.overlay)), int((NOW + 2) * 1000))
    again = Replica(world, overlay=kept)
    again.keeper.tick(NOW + 3)
    second = swap_on(world.overlay, world, (2, 4), (2, 3), NOW + 4, number=2, steps=2)
    third = swap_on(world.overlay, world, *GOOD, NOW + 40, number=3, steps=3)
    again.hears(SwapNews((second,)), NOW + 4)
    assert again.endorsed(NOW + 5) == []
    again.hears(SwapNews((third,)), NOW + 40)
    assert again.endorsed(NOW + 41) == []
    assert again.endorsed(NOW + 3 + ENDORSE_S) == [third.digest]


@pytest.mark.attack(72, 82)
def test_a_tree_that_must_not_be_is_not_endorsed(world: World) -> None:
    apart = organised(Scope("shop/#", Mode.PLAIN, regions=(2, 3)))
    replica = Replica(apart)
    swap = swap_on(apart.overlay, apart, *GOOD)
    replica.hears(SwapNews((swap,)))
    assert replica.endorsed(NOW + 1) == []
    assert replica.keeper.swaps.why == "the tree must not be"


@pytest.mark.attack(88)
def test_who_is_dropped_while_a_swap_waits_goes_quietly(world: World) -> None:
    replica = Replica(world, "r1c")
    without = changed(world, world.overlay, 1, ("r1a", "r1b", "r1d"), NOW - 500, grace_s=60)
    without = without.endorsed(endorsed_by(world, without, 1, "r1a", "r1b"), NOW - 500)
    gone = changed(world, without, 3, ("r3a", "r3b", "r3d"), NOW, grace_s=60)
    assert "r1c" not in gone.members
    replica.why = "not yet"
    replica.hears(SwapNews((swap_on(world.overlay, world, *GOOD),)))
    replica.keeper.offered(canonical(without), NOW + 1)
    replica.keeper.offered(canonical(gone), NOW + 1)
    assert replica.keeper.removed
    for second in range(2, 9):
        replica.keeper.tick(NOW + second)
        replica.keeper.next_deadline  # noqa: B018


@pytest.mark.attack(83)
def test_a_replica_proves_anew_what_is_in_force_when_those_who_did_left(world: World) -> None:
    swap = swap_on(world.overlay, world, *GOOD)
    replica = Replica(world, "r1c")
    replica.hears(agreed(world, swap, ALL))
    replica.keeper.tick(NOW + 1)
    assert replica.keeper.overlay.swap_endorsers(swap) == set(of_regions(ALL)), "enough did"
    version = changed(world, world.overlay, 1, ("r1b", "r1c", "r1d"), NOW + 50)
    replica.keeper.offered(canonical(version), NOW + 50)
    assert replica.keeper.next_deadline is not None
    assert replica.keeper.next_deadline <= NOW + 50
    effects = replica.keeper.tick(NOW + 50)
    told_of = news_of(effects)
    assert {each.member for news in told_of.values() for each in news.endorsements} == {"r1c"}
    assert {type(effects[0]), type(effects[1])} == {Count, Adopt}, "in the file before anybody hears of it"
    assert news_of(replica.keeper.tick(NOW + 51)) == {}, "once"


@pytest.mark.attack(89)
def test_a_thief_of_the_organisers_key_uses_up_no_number_of_the_next_one(world: World) -> None:
    """Replicas endorsed a good one of number 99, which never got there: the organiser that the owner named then, or its
    new key, had no number that they would endorse, until the owner changed edges."""
    replica = Replica(world)
    high = swap_on(world.overlay, world, *GOOD, number=99, steps=99)
    replica.hears(SwapNews((high,)))
    assert replica.endorsed(NOW + 1) == [high.digest]
    organising = world.overlay.policy.organising
    assert organising is not None
    newer = world.with_policy(organising=replace(organising, organiser="site"))
    replica.keeper.offered(canonical(newer), NOW + 2)
    low = swap_on(newer, world, *GOOD, NOW + 70, by="site")
    replica.hears(SwapNews((low,)), NOW + 70)
    assert replica.endorsed(NOW + 71) == [low.digest]
