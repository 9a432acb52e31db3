"""A plain scope that goes by planes and shows attributes: each plane carries what those who hang on it want, and what
it leaves out is no gap. A bad replica harms only who hangs on its own plane."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from bridge.contract.machine import Effect, Event, Received, Send, Subscribed
from bridge.document import Scope, ShownAttribute
from bridge.predicates import Predicate, parse_where
from bridge.reader.waiting import REPAIR_S
from bridge.topology import Routes
from bridge.wire import PROPERTY_ROUTE, PROPERTY_SHOWN, PROPERTY_SKIP, read_list
from keys.envelope import PROPERTY_HEADER, Mode, from_property, header_of
from papers.sim.adversary import Adversary
from papers.sim.checkers import check_blame, check_safety
from papers.sim.kernel import EventTrace
from tests.seldom import in_turn, mostly_slow
from tests.sim.plane_shell import Shell
from tests.sim.world import NOW, Traffic, World, make_world

pytestmark = pytest.mark.invariant(19)

SCOPE = Scope("plant/#", Mode.PLAIN, shown=(ShownAttribute(("room",)),), planes=True)
ROOMS = ("hall", "attic", "cellar", "attic", "garden")
GATEWAYS = {"site": 1, **{f"near{at}": 1 for at in range(3)}, **{f"mid{at}": 2 for at in range(3)},
            **{f"far{at}": 3 for at in range(6)}}  # fmt: skip
COUNT, EVERY_S = 40, 0.03
BOUND_S = 1.5
"""What a replica that stops may delay a message by, as in `test_planes`."""


def wants(reader: str) -> str:
    """The room whose messages a reader wants."""
    return ("attic", "cellar", "garden")[int(reader[-1]) % 3]


@dataclass
class Outcome:
    trace: EventTrace
    traffic: Traffic
    world: World
    copies: dict[str, list[str]] = field(default_factory=dict)
    """By replica, the rooms of what it got."""

    def room(self, sequence: int) -> str:
        return dict(self.traffic.published[sequence].properties)["room"]

    def missing(self, reader: str) -> set[int]:
        wanted = {number for number in self.traffic.published if self.room(number) == wants(reader)}
        return wanted - {delivery.sequence for delivery in self.trace.delivered[reader]}


def host_of(world: World, reader: str, region: int) -> str:
    """The replica of a region in the plane that a gateway hangs on."""
    planes = Routes(world.overlay, "r1a").planes
    return planes.replica((region, planes.host(SCOPE, reader)))


def run(
    liars: dict[str, type[Adversary]] | None = None,
    stop: str = "",
    scope: Scope = SCOPE,
    retain_at: int = -1,
    gone: str = "",
    count: int = COUNT,
) -> Outcome:
    world = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], GATEWAYS, [scope])
    honest = world.maker

    def maker(name: str, rng: random.Random) -> object:
        make = honest(name, rng)
        return (lambda: liars[name](make(), (), rng)) if liars and name in liars else make  # type: ignore[arg-type]

    world.maker = maker  # type: ignore[method-assign, assignment]
    kernel = world.kernel(random.Random(7))
    shell = Shell(kernel)
    if stop:
        shell.stopped[stop] = (NOW + 4.5, NOW + 9)
    traffic = Traffic("site")
    outcome = Outcome(kernel.trace, traffic, world)
    listen(shell, outcome)
    for reader in GATEWAYS:
        if reader != "site":
            wanted: Predicate = parse_where(f"room = '{wants(reader)}'")
            kernel.plan_event(NOW + 2, reader, Subscribed("plant/#", wanted))
    for at in range(count):
        properties = (("room", ROOMS[at % 5]),)
        retain = at == retain_at
        traffic.publish(kernel, NOW + 4 + EVERY_S * at, "plant/rooms", b"%d" % at, properties=properties, retain=retain)
    if gone:
        shell.run(NOW + 4 + EVERY_S * count / 4)
        kernel.crash(gone)
    shell.run(NOW + 30)
    return outcome


def listen(shell: Shell, outcome: Outcome) -> None:
    """Note what replicas get."""
    passes = shell.kernel._passes

    def through(name: str, event: Event) -> bool:
        if name.startswith("r") and isinstance(event, Received) and event.wire.topic[0] != "$":
            told = dict(event.wire.properties)
            if PROPERTY_SHOWN in told:
                header = header_of(from_property(told[PROPERTY_HEADER]))
                rows = read_list(from_property(told[PROPERTY_SHOWN]), header.attributes).rows
                outcome.copies.setdefault(name, []).append(str(rows[0]["room",]))
        return passes(name, event)

    shell.kernel._passes = through  # type: ignore[method-assign]


def check(outcome: Outcome, readers: Sequence[str], within_s: float = REPAIR_S / 2) -> None:
    """All that they want, once, in order, within `within_s` and without waiting for what they do not want."""
    for reader in readers:
        check_safety(outcome.traffic.published, outcome.trace.delivered[reader])
        assert not outcome.missing(reader), f"{reader} lacks {sorted(outcome.missing(reader))}"
        for at, each in zip(outcome.trace.delivered_at[reader], outcome.trace.delivered[reader], strict=True):
            if outcome.room(each.sequence) == wants(reader):  # its gateway drops what else somebody brings
                assert not each.late, f"{reader} gets {each.sequence} late"
                assert at - each.publication.time_ms / 1000 < within_s, reader


READERS = [reader for reader in GATEWAYS if reader != "site"]


def test_each_plane_carries_what_is_wanted_there_and_what_is_left_out_is_no_gap() -> None:
    outcome = run()
    check(outcome, READERS)
    for reader in READERS:
        assert {wants(reader)} == {outcome.room(each.sequence) for each in outcome.trace.delivered[reader]}
    assert not {"pulls", "holes"} & outcome.trace.figures.keys(), "nobody missed what was left out"
    assert not outcome.trace.blamed
    for replica in ("r3a", "r3b", "r3c"):
        hung = {reader for reader in READERS if GATEWAYS[reader] == 3 and host_of(outcome.world, reader, 3) == replica}
        assert set(outcome.copies.get(replica, [])) == set(map(wants, hung)), replica


def test_what_is_retained_goes_to_all_and_says_what_was_left_out_before_it() -> None:
    outcome = run(retain_at=32)  # the cellar
    check(outcome, READERS)
    for reader in READERS:
        assert any(each.publication.payload == b"32" for each in outcome.trace.delivered[reader]), reader
    assert not {"pulls", "holes"} & outcome.trace.figures.keys()


@pytest.mark.parametrize("stopped", mostly_slow(["r1b", "r2b", "r3c"], "r2b"))
def test_a_stopped_replica_hides_nothing_that_is_wanted(stopped: str) -> None:
    outcome = run(stop=stopped)
    check(outcome, READERS)
    assert not outcome.trace.blamed


@pytest.mark.parametrize("stopped", mostly_slow(["r1b", "r2b", "r3c"], "r3c"))
def test_a_replica_that_stands_still_delays_readers_behind_it_no_longer_than_it_takes_to_be_missed(
    stopped: str,
) -> None:
    """Its links stay up, so that only missing copies show that it hangs."""
    outcome = run(stop=stopped, count=240)
    check(outcome, READERS, within_s=BOUND_S)
    assert not outcome.trace.blamed


@pytest.mark.parametrize("gone", mostly_slow(["r1b", "r3c"], "r1b"))
def test_a_replica_that_is_gone_for_good_makes_nobody_wait(gone: str) -> None:
    """More than requests for gaps could bring, so that only what is believed of a gap helps."""
    outcome = run(gone=gone, count=240)
    check(outcome, READERS, within_s=BOUND_S)
    assert not outcome.trace.blamed


class Hider(Adversary):
    """Sends nothing of the attic, and says of everything else that nothing was left out before it."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        return [lie for effect in self.machine.handle(event, now) for lie in self._lies(effect)]

    def _lies(self, effect: Effect) -> list[Effect]:
        if not isinstance(effect, Send) or PROPERTY_SHOWN not in (told := dict(effect.wire.properties)):
            return [effect]
        header = header_of(from_property(told[PROPERTY_HEADER]))
        rows = read_list(from_property(told[PROPERTY_SHOWN]), header.attributes).rows
        if any(row["room",] == "attic" for row in rows):
            return []
        return [claiming(effect, header.previous > 0)]


class Mute(Adversary):
    """Never says what it left out."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        effects = self.machine.handle(event, now)
        return [claiming(effect, False) if isinstance(effect, Send) else effect for effect in effects]


class Whisperer(Adversary):
    """Gives every neighbour whatever it gets, in whatever plane, and says that nothing was left out before it."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        effects = list(self.machine.handle(event, now))
        if isinstance(event, Received) and PROPERTY_SHOWN in dict(event.wire.properties):
            header = header_of(from_property(dict(event.wire.properties)[PROPERTY_HEADER]))
            kept = Send("", event.wire)
            for peer in sorted(self.peers - {event.peer, "site"}):
                told = claiming(kept, header.previous > 0)
                effects.append(Send(peer, told.wire))
        return effects


def claiming(effect: Send, claims: bool) -> Send:
    wire = effect.wire
    kept = tuple(each for each in wire.properties if each[0] not in (PROPERTY_SKIP, PROPERTY_ROUTE))
    claim = ((PROPERTY_SKIP, "0"),) if claims else ()
    return Send(effect.peer, type(wire)(wire.topic, wire.payload, wire.qos, wire.retain, kept + claim), effect.ticket)


@pytest.mark.parametrize(("way", "region"), in_turn([Hider, Mute, Whisperer], [1, 2, 3]))
def test_a_liar_harms_only_who_hangs_on_its_plane(way: type[Adversary], region: int) -> None:
    outcome = run(liars={f"r{region}b": way})
    behind = [reader for reader in READERS if GATEWAYS[reader] >= region]
    on_its_plane = [reader for reader in behind if host_of(outcome.world, reader, region) == f"r{region}b"]
    assert on_its_plane, "the liar stands in somebody's way"
    check(outcome, [reader for reader in READERS if reader not in on_its_plane])
    for reader in on_its_plane:
        check_safety(outcome.traffic.published, outcome.trace.delivered[reader])
        if way is not Hider:
            assert not outcome.missing(reader), reader
    check_blame(outcome.trace.named_members(), {f"r{region}b": way})
