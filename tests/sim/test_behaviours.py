"""Every way to lie, alone and mixed, by bad replicas in one plane and in different ones
(docs/protocol.md §1, §3, §5)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from bridge.contract.machine import Effect, LinkUp, Received, Send, Subscribed, Tick, Unsubscribed
from bridge.reader.blame import Evidence, member_at
from bridge.topology import peers_of
from keys.envelope import KeyHeader, check_share
from keys.sharetree import Combination, Hop, Label, Share, level1_values
from papers.sim.adversary import Adversary, Behaviour, Coalition
from papers.sim.checkers import check_blame, check_liveness, check_safety
from tests.seldom import in_turn, slow
from tests.sim.linearview import Overlay
from tests.sim.placements import Recorder, assert_promises, everywhere, mixture, name, random_bad, run
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

pytestmark = pytest.mark.invariant(12)

PLANES = {"one plane": {1: (2,), 2: (2,)}, "two planes": {1: (1,), 2: (3,)}, "two planes, crossed": {1: (3,), 2: (1,)}}


# -------------------------------------------------------------------------------------------------- one by one


@pytest.mark.attack(22)
@pytest.mark.parametrize(("way", "planes"), in_turn(Behaviour, PLANES))
def test_one_behaviour(way: Behaviour, planes: str) -> None:
    bad = PLANES[planes]
    assert_promises(run((3, 3), bad, everywhere(bad, {way}), bursts_s=(5.0,)))


@pytest.mark.slow
@pytest.mark.parametrize("probability", [0.4, 1.0])
@pytest.mark.parametrize("way", Behaviour, ids=lambda way: way.value)
def test_one_behaviour_at_every_placement(way: Behaviour, probability: float) -> None:
    """39 placements of one bad replica in each of up to three regions of three."""
    for counts in ((3,), (3, 3), (3, 3, 3)):
        for seed, bad in enumerate(Overlay.line(counts).placements()):
            assert_promises(run(counts, bad, everywhere(bad, {way}), seed, probability, bursts_s=(5.0,)))


def fed(world: World, liar: str, received: Sequence[Received], ways: set[Behaviour] | None) -> list[Effect]:
    """What one replica sends when it gets `received`: honest if `ways` is None."""
    rng = random.Random(1)
    machine = world.node(liar, rng)
    if ways is not None:
        machine = Adversary(machine, ways, rng, coalition=Coalition({liar: (1, 2), "r2a": (2, 1)}, rng))
    effects: list[Effect] = []
    for peer in peers_of(world.overlay, liar):
        effects += machine.handle(LinkUp(peer), NOW)
    for event in received:
        effects += machine.handle(event, NOW + 6)
    effects += machine.handle(Tick(), NOW + 60)
    return [effect for effect in effects if isinstance(effect, Send)]


@pytest.mark.parametrize("way", Behaviour, ids=lambda way: way.value)
def test_each_behaviour_is_a_lie(way: Behaviour) -> None:
    """A replica in the middle sends something else, or at another time, than an honest one: no run above is idle."""
    world = make_world({3: 3, 1: 3, 2: 3}, [(3, 1), (1, 2)], {"site": 3, "control": 2})
    rng = random.Random(2)
    kernel = world.kernel(rng)
    recorder = Recorder(kernel.nodes["r1b"])
    kernel.nodes["r1b"] = recorder
    subscribe(kernel, "control", "#")
    traffic = Traffic("site")
    for number in range(6):
        traffic.publish(kernel, NOW + 5, ("plant/a", "open/a")[number % 2], b"%d" % number)
    kernel.run(NOW + 10)
    honest = fed(world, "r1b", recorder.received, None)
    assert len(honest) > 6
    assert fed(world, "r1b", recorder.received, {way}) != honest


# ------------------------------------------------------------------------------------------------------- mixed


@pytest.mark.parametrize("seed", [*range(3), *slow(range(3, 8))])
def test_mixtures(seed: int) -> None:
    check_mixture(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 250))
def test_many_mixtures(seed: int) -> None:
    check_mixture(seed)


def check_mixture(seed: int) -> None:
    rng = random.Random(seed)
    counts = rng.choice([(3, 3), (3, 3, 3), (5,), (5, 5), (3, 5), (5, 3, 3), (3, 3, 3, 3)])
    bad = random_bad(counts, rng)
    liars = mixture(bad, rng, most=6)
    assert_promises(run(counts, bad, liars, seed, rng.choice([0.2, 0.5, 1.0]), mute=rng.random() < 0.5))


@pytest.mark.parametrize("seed", [0, *slow([1, 2])])
def test_liars_that_share_all_and_cover_each_other(seed: int) -> None:
    """Five bursts, hence five keys: shares pooled and replayed, lies that fit together, honest columns altered."""
    rng = random.Random(seed)
    counts = ((3, 3, 3), (5, 5), (3, 5))[seed]
    bad = random_bad(counts, rng)
    ways = {Behaviour.COLLUDE, Behaviour.FRAME, Behaviour.REPLAY}
    done = run(counts, bad, everywhere(bad, ways), seed, bursts_s=(5.0, 70.0, 135.0, 200.0, 265.0))
    assert_promises(done)
    assert done.trace.suspected()


# ------------------------------------------------------------------------------------------------------- blame


@pytest.mark.parametrize("way", [Behaviour.SHARES, Behaviour.COLLUDE], ids=lambda way: way.value)
def test_who_alters_shares_is_named(way: Behaviour) -> None:
    """At every placement in two regions of three somebody is, and always a liar."""
    for bad in Overlay.line((3, 3)).placements():
        done = run((3, 3), bad, everywhere(bad, {way}), bursts_s=(5.0,))
        assert_promises(done)
        assert done.trace.named_members()


FRAMED = (((3, 3), {1: (), 2: (1,)}), ((3, 3), {1: (3,), 2: (1,)}), ((5, 5), {1: (4, 5), 2: (1, 2)}))


@pytest.mark.parametrize(("counts", "bad"), FRAMED)
def test_an_honest_replica_that_liars_frame_is_suspected_and_not_named(
    counts: tuple[int, ...], bad: dict[int, tuple[int, ...]]
) -> None:
    done = run(counts, bad, everywhere(bad, {Behaviour.FRAME}))
    assert_promises(done)
    assert done.trace.suspected() - set(done.liars)


@pytest.mark.parametrize(("counts", "bad"), FRAMED)
def test_naming_by_mismatch_alone_would_frame_the_innocent(
    counts: tuple[int, ...], bad: dict[int, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same runs, judged as on a path of one region: whoever's column misfits under the combination that opened."""

    def judge(
        self: Evidence, header: KeyHeader, hops: tuple[Hop, ...], shares: Mapping[Label, Share], winning: Combination
    ) -> list[Effect]:
        values = level1_values(shares.values(), hops, winning)
        misfits = {place for place, value in values.items() if value is None or not check_share(header, place, value)}
        return self._name_liars({member_at(self._overlay, hops[0], place) for place in misfits})

    monkeypatch.setattr(Evidence, "judge", judge)
    with pytest.raises(AssertionError, match="innocents were named"):
        assert_promises(run(counts, bad, everywhere(bad, {Behaviour.FRAME})))


@pytest.mark.parametrize("way", [Behaviour.DROP, Behaviour.SILENT, Behaviour.DELAY, Behaviour.VIEW, Behaviour.PATH])
def test_nobody_is_named_for_what_is_absent_late_or_of_another_view(way: Behaviour) -> None:
    bad = {1: (1,), 2: (2,)}
    done = run((3, 3), bad, everywhere(bad, {way}))
    assert_promises(done)
    assert done.trace.named_members() == set()


# --------------------------------------------------------------------------------------- silence, and comebacks


@pytest.mark.parametrize("way", [Behaviour.SILENT, Behaviour.SHARES, Behaviour.REORDER])
def test_liars_that_never_acknowledge_hold_nobody_up(way: Behaviour) -> None:
    """The readers have everything at once; the outbox keeps it for the straggler's hour, and then forgets it."""
    bad = {1: (2,), 2: (1,)}
    done = run((3, 3), bad, everywhere(bad, {way}), mute=True, bursts_s=(5.0, 70.0, 4000.0))
    assert_promises(done)
    first = {n for n, publication in done.traffic.published.items() if publication.time_ms < (NOW + 300) * 1000}
    assert first
    assert first <= done.trace.forgotten["site"]


@pytest.mark.parametrize(
    "lies",
    [{Behaviour.REPLAY, Behaviour.DELAY}, {Behaviour.COLLUDE}, {Behaviour.SILENT}],
    ids=["late", "pooled", "none"],
)
def test_a_reader_that_leaves_and_comes_back_among_liars(lies: set[Behaviour]) -> None:
    """Statements that were overtaken are replayed and delayed: what is published after the return still comes."""
    bad = {1: (3,), 2: (1,)}
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2})
    world.liars = {name(region, place): frozenset(lies) for region, places in bad.items() for place in places}
    kernel = world.kernel(random.Random(3))
    subscribe(kernel, "control", "plant/#")
    for moment in range(3):
        kernel.plan_event(NOW + 10 + 20 * moment, "control", Unsubscribed("plant/#"))
        kernel.plan_event(NOW + 20 + 20 * moment, "control", Subscribed("plant/#"))
    traffic = Traffic("site")
    back = set()
    for number in range(90):
        sequence = traffic.publish(kernel, NOW + 5 + number, f"plant/{number % 2}", b"%d" % number)
        if 12 <= (number - 6) % 20 < 18 or number > 70:  # neither while it is away nor on the way back
            back.add(sequence)
    trace = kernel.run(NOW + 150)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(back, trace.delivered["control"])
    check_blame(trace.named_members(), world.liars)


def test_a_liar_that_floods_costs_honest_nodes_no_state() -> None:
    """Invented wires are refused and charged to the link; nothing of them is kept or passed on."""
    bad = {1: (1,), 2: (2,)}
    quiet = run((3, 3), bad, everywhere(bad, set()), probability=0.0)
    loud = run((3, 3), bad, everywhere(bad, {Behaviour.FLOOD}))
    assert_promises(loud)
    refused = [amount for figure, amount in loud.trace.figures.items() if figure.startswith("refused")]
    assert sum(refused) > 100
    for figure in ("forwarded", "statements", "delivered"):
        assert loud.trace.figures[figure] == quiet.trace.figures[figure]
