"""Sealed content round full links: where a scope says so, a slow link or a stopped replica delays nobody's content, and
whoever carries it for another can neither hide nor alter it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from bridge.contract.machine import Effect, Event, Send, Wire
from bridge.document import Scope
from bridge.wire import NO_PART, PROPERTY_PART, PROPERTY_ROUTE
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, Mode
from papers.sim.adversary import Adversary
from papers.sim.checkers import check_liveness, check_safety
from papers.sim.kernel import EventTrace
from tests.seldom import slow
from tests.sim.plane_shell import Shell
from tests.sim.world import NOW, Traffic, make_world, subscribe

pytestmark = pytest.mark.invariant(16)

READERS = {"mid": 2, "far": 3, "side": 4}
COUNT, EVERY_S = 50, 0.04
SLOW_S = 3.0


class Carrier(Adversary):
    """Honest, but in what it carries for another replica."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        return [lie for effect in self.machine.handle(event, now) for lie in self._lies(effect)]

    def _lies(self, effect: Effect) -> list[Effect]:
        is_content = isinstance(effect, Send) and effect.wire.topic[0] != "$" and len(effect.wire.payload) > 0
        if not is_content or not isinstance(effect, Send) or effect.peer[:2] != self.name[:2]:
            return [effect]
        return self.lie(effect)

    @property
    def name(self) -> str:
        return str(self.machine.forwarder.routes.name)  # type: ignore[attr-defined]

    def lie(self, send: Send) -> list[Effect]:
        """To a replica of its own region."""
        return []


class Altering(Carrier):
    def lie(self, send: Send) -> list[Effect]:
        wire = send.wire
        return [Send(send.peer, Wire(wire.topic, wire.payload[:-1] + b"!", 1, False, wire.properties), send.ticket)]


def run(
    mode: Mode, *, detours: bool = True, liars: dict[str, type[Adversary]] | None = None, stop: str = ""
) -> EventTrace:
    """r1b's links to region 2 are slow, or a replica stands still."""
    scope = Scope("plant/#", mode, planes=detours)
    world = make_world({1: 3, 2: 3, 3: 3, 4: 3}, [(1, 2), (2, 3), (2, 4)], {"site": 1, **READERS}, [scope])
    honest = world.maker

    def maker(name: str, rng: random.Random) -> object:
        make = honest(name, rng)
        return (lambda: liars[name](make(), (), rng)) if liars and name in liars else make  # type: ignore[arg-type]

    world.maker = maker  # type: ignore[method-assign, assignment]
    kernel = world.kernel(random.Random(5))
    shell = Shell(kernel)
    if stop:
        shell.stopped[stop] = (NOW + 5, NOW + 8)
    for reader in READERS:
        subscribe(kernel, reader, "plant/#")
    shell.run(NOW + 4)
    shell.slow = {} if stop else {("r1b", "r2b"): SLOW_S}
    traffic = Traffic("site")
    for number in range(COUNT):
        traffic.publish(kernel, NOW + 5 + number * EVERY_S, "plant/a", b"%d" % number * 900)
    trace = shell.run(NOW + 25)
    for reader in READERS:
        check_safety(traffic.published, trace.delivered[reader])
        check_liveness(traffic.published, trace.delivered[reader])
        assert not any(delivery.late for delivery in trace.delivered[reader]), reader
    return trace


def longest_s(trace: EventTrace) -> float:
    pairs = (
        pair for reader in READERS for pair in zip(trace.delivered_at[reader], trace.delivered[reader], strict=True)
    )
    return max(at - delivery.publication.time_ms / 1000 for at, delivery in pairs)


MODES = [Mode.COPIES, Mode.ONE, Mode.BLOCKS]


@pytest.mark.parametrize("mode", [MODES[0], *slow(MODES[1:])], ids=lambda mode: mode.name.lower())
def test_content_goes_round_a_slow_link_and_hardly_anybody_has_to_ask(mode: Mode) -> None:
    round_it, straight = run(mode), run(mode, detours=False)
    assert round_it.figures["detours"] > COUNT / 10
    assert round_it.figures.get("pulls", 0) < straight.figures["pulls"] / 2
    assert longest_s(round_it) < 1.0
    assert not round_it.blamed


@pytest.mark.parametrize("mode", [*slow(MODES[:-1]), MODES[-1]], ids=lambda mode: mode.name.lower())
def test_a_stopped_replica_delays_nobody_for_long(mode: Mode) -> None:
    trace = run(mode, stop="r2b")
    assert trace.figures["detours"] > 0
    assert longest_s(trace) < 1.5
    assert not trace.blamed


@pytest.mark.parametrize("way", [Carrier, Altering])
@pytest.mark.parametrize("mode", [MODES[0], *slow(MODES[1:])], ids=lambda mode: mode.name.lower())
def test_who_withholds_or_alters_what_it_carries_for_another_hides_nothing_and_frames_nobody(
    mode: Mode, way: type[Adversary]
) -> None:
    blamed, altered = set[str](), 0
    for liar in ("r2a", "r2c"):
        trace = run(mode, liars={liar: way})
        assert trace.figures["detours"] > 0
        assert longest_s(trace) < 1.5
        blamed.update(blame.member for _, blame in trace.blamed)
        altered += trace.figures.get("refused{content}", 0)
        assert blamed <= {"r2a", "r2c"}
    assert (altered > 0, bool(blamed)) == (way is Altering, way is Altering)


def test_what_is_carried_for_another_never_brings_a_share() -> None:
    seen: list[Send] = []

    class Watching(Carrier):
        def lie(self, send: Send) -> list[Effect]:
            seen.append(send)
            return [send]

    run(Mode.ONE, liars={"r2a": Watching, "r2c": Watching})
    assert seen
    for send in seen:
        told = dict(send.wire.properties)
        assert not {PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_ROUTE} & told.keys()
        assert told.get(PROPERTY_PART) != NO_PART
