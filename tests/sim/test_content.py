"""Content modes and repair in whole overlays (docs/protocol.md §4): whatever f bad replicas a region do with content,
every reader gets every publication, once, unaltered, in order, and soon."""

from __future__ import annotations

import random

import pytest

from bridge.document.policy import Scope
from bridge.wire import pieces as content
from keys.envelope import Mode
from papers.sim.adversary import Behaviour
from papers.sim.checkers import check_liveness, check_safety
from tests.seldom import in_turn, slow
from tests.sim.linearview import Overlay
from tests.sim.placements import READERS, Run, assert_promises, everywhere, mixture, random_bad, run
from tests.sim.world import NOW, Traffic, make_world, subscribe

pytestmark = pytest.mark.invariant(15)

MODES = [Mode.COPIES, Mode.ONE, Mode.BLOCKS, Mode.AUTO]
LONG = 5000  # bytes: cut into blocks by `auto`
CONTENT = {
    "withheld": {Behaviour.WITHHOLD},
    "hoarded": {Behaviour.HOARD},
    "corrupt": {Behaviour.CONTENT},
    "other blocks": {Behaviour.PARTS},
    "dropped": {Behaviour.DROP},
    "flood of requests": {Behaviour.PULLS, Behaviour.WITHHOLD},
    "garbage, late": {Behaviour.CONTENT, Behaviour.DELAY},
}


def by_name(mode: Mode) -> str:
    return mode.name.lower()


def assert_soon(done: Run, within_s: float) -> None:
    """Nobody had to wait until something was given up."""
    for reader in READERS:
        assert max(done.lags_s(reader)) < within_s, f"{reader}: {max(done.lags_s(reader)):.2f} s"


# ------------------------------------------------------------------------------------------------ honest overlays


@pytest.mark.parametrize(
    ("counts", "mode"),
    in_turn([(3,), (3, 3), (3, 3, 3), (5, 3), (3, 5), (3, 7), (7, 3), (5, 5, 3)], MODES),
)
def test_every_mode_delivers(mode: Mode, counts: tuple[int, ...]) -> None:
    done = run(counts, {}, {}, bursts_s=(5.0,), mode=mode, extra_bytes=LONG)
    assert_promises(done)
    assert_soon(done, 1.0)
    assert not done.trace.blamed


# --------------------------------------------------------------------------------------------------------- liars


@pytest.mark.parametrize("all_of_them", [False, *slow([True])], ids=["third", "all"])
@pytest.mark.parametrize(("ways", "mode"), in_turn(CONTENT, MODES[:3]))
def test_every_placement_of_liars_in_content(mode: Mode, ways: str, all_of_them: bool) -> None:
    """All 9 placements in two regions of three: 6 of them have liars in different planes. A third of them a mode, so
    that the three modes have each once."""
    placements = list(enumerate(Overlay.line((3, 3)).placements()))
    for seed, bad in placements if all_of_them else placements[MODES.index(mode) :: 3]:
        done = run((3, 3), bad, everywhere(bad, CONTENT[ways]), seed, bursts_s=(5.0,), mode=mode, extra_bytes=LONG)
        assert_promises(done)
        assert_soon(done, 4.0)


@pytest.mark.parametrize("counts", [*slow([(3,)]), (3, 3), *slow([(3, 3, 3)])], ids=str)
@pytest.mark.parametrize("mode", [*MODES[:3], *slow(MODES[3:])], ids=by_name)
def test_every_placement(mode: Mode, counts: tuple[int, ...]) -> None:
    """3 placements in one region, 9 in two, 27 in three; each liar lies in ways of its own."""
    for seed, bad in enumerate(Overlay.line(counts).placements()):
        rng = random.Random(f"{mode}{counts}{bad}")
        liars = {liar: frozenset(rng.choice(list(CONTENT.values()))) for liar in everywhere(bad, ())}
        done = run(counts, bad, liars, seed, bursts_s=(5.0,), mode=mode, extra_bytes=LONG)
        assert_promises(done)
        assert_soon(done, 6.0)


@pytest.mark.parametrize("seed", [0, *slow([1])])
@pytest.mark.parametrize(("counts", "mode"), in_turn([(5,), (5, 5), (3, 5), (5, 3), (3, 7), (7, 5)], MODES[:3]))
def test_some_placements_in_larger_regions(mode: Mode, counts: tuple[int, ...], seed: int) -> None:
    rng = random.Random(f"{mode}{counts}{seed}")
    bad = random_bad(counts, rng)
    liars = mixture(bad, rng)
    assert_promises(run(counts, bad, liars, seed, 0.7, bursts_s=(5.0,), mode=mode, extra_bytes=LONG))


IN_TURN = [(mode, way) for n, way in enumerate(Behaviour) for mode in MODES[n % 3 : n % 3 + 1]]
"""Each behaviour in one of the three modes."""
OTHERS = [(mode, way) for mode in MODES[:3] for way in Behaviour if (mode, way) not in IN_TURN]


@pytest.mark.parametrize("mode_way", [*IN_TURN, *slow(OTHERS)], ids=lambda it: f"{by_name(it[0])}-{it[1].value}")
def test_every_behaviour_in_every_mode(mode_way: tuple[Mode, Behaviour]) -> None:
    mode, way = mode_way
    bad = {1: (1,), 2: (3,)}
    assert_promises(run((3, 3), bad, everywhere(bad, {way}), bursts_s=(5.0,), mode=mode, extra_bytes=LONG))


# --------------------------------------------------------------------------------------------------------- bytes


COUNTED = 25  # publications


def bytes_a_message(mode: Mode, extra_bytes: int, monkeypatch: pytest.MonkeyPatch, everywhere: bool = False) -> float:
    """Bytes that all members of two regions of three send for each publication to one reader, keys included.
    `everywhere`: content on all cross links, as it would be without planes."""
    if everywhere:
        monkeypatch.setattr(content, "INLINE_BYTES", 1 << 30)
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, [Scope("plant/#", mode)])
    kernel = world.kernel(random.Random(7))
    subscribe(kernel, "control", "plant/#")
    kernel.run(NOW + 4)
    before = kernel.trace.sent_bytes
    traffic = Traffic("site")
    for number in range(COUNTED):
        traffic.publish(kernel, NOW + 5 + number * 0.02, f"plant/{number % 4}", bytes(extra_bytes))
    trace = kernel.run(NOW + 20)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    monkeypatch.undo()
    return (trace.sent_bytes - before) / COUNTED


@pytest.mark.parametrize("extra_bytes", [*slow([4096]), 65_536])
def test_bytes_on_the_wire(extra_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three copies a crossing instead of nine; one; three blocks of half the size. Headers go everywhere."""
    flood = bytes_a_message(Mode.COPIES, extra_bytes, monkeypatch, everywhere=True)
    copies, one, blocks = (bytes_a_message(mode, extra_bytes, monkeypatch) for mode in MODES[:3])
    print(f"{extra_bytes} bytes: everywhere {flood:,.0f}, copies {copies:,.0f}, one {one:,.0f}, blocks {blocks:,.0f}")
    assert 14.9 * extra_bytes < flood
    assert 9 * extra_bytes < copies < 9.5 * extra_bytes + 20_000
    assert 4.5 * extra_bytes < blocks < 4.8 * extra_bytes + 20_000
    assert 3 * extra_bytes < one < 3.2 * extra_bytes + 20_000
    assert one < blocks < copies < flood
