"""What finds no room at a gateway: in hand and unacknowledged, bounded for each link, and never lost.

The shell's part is played here: it acknowledges what is not withheld, and what is taken; what a link's window has no
room for waits at the replica; who is killed gets again what it did not acknowledge.
"""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest

from bridge.contract import Count, Effect, Event, Keep, Received, Restored, Subscribed, Take, Tick, Wire, Withhold
from bridge.document.policy import Scope
from bridge.membership.adopting import canonical
from bridge.reader import overflow as module
from bridge.reader.overflow import HOSTED_WINDOW, Overflow
from bridge.reader.streams import Held
from bridge.reader.waiting import REPAIR_S
from bridge.wire.admission import Admission
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, Mode
from tests.bridge.helpers import NOW, counted, craft, delivered, gateway, publish, sent, subscriber, with_properties
from tests.seldom import slow
from tests.sim.world import World, make_world
from tests.support.regions import fresh, one_region

REPLICAS = ("r1a", "r1b", "r1c")


world = fresh(one_region, "site", "evil", "worse", "control", scopes=[Scope("plant/#"), Scope("clear/#", Mode.PLAIN)])


def plain(world: World, sequence: int, previous: int = 0, publisher: str = "evil", content: bytes = b"x") -> Wire:
    return craft(
        world, publisher, "clear/t", sequence=sequence, previous=previous, mode=Mode.PLAIN, payload=content
    )  # fmt: skip


# --------------------------------------------------------------------------------------------- the table alone


def held_of(world: World, wire: Wire) -> Held:
    told = dict(wire.properties)[PROPERTY_HEADER]
    admitted = Admission(world.overlay, replica=False).publication(told, wire.topic, NOW)
    return Held(admitted, wire.payload, wire.topic, NOW, admitted.header.publisher)


def put(world: World, overflow: Overflow, wire: Wire, peer: str = "r1a") -> int:
    return overflow.put_in_hand(held_of(world, wire), Received(peer, wire))


def test_one_publisher_has_a_quarter_of_a_links_window_and_all_have_a_half(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "LINK_WINDOW", 16)
    overflow = Overflow(())
    for publisher in ("evil", "worse"):
        numbers = [put(world, overflow, plain(world, n, publisher=publisher)) for n in range(1, 6)]
        assert [bool(number) for number in numbers] == [True] * 4 + [False]
    assert not put(world, overflow, plain(world, 1, publisher="site")), "the half that is left is for what goes on"
    assert put(world, overflow, plain(world, 1, publisher="site"), "r1b"), "another link"


def test_a_stock_brokers_window_is_the_smallest_that_is_usual(world: World):
    overflow = Overflow({"r1a"})
    found = [put(world, overflow, plain(world, n)) for n in range(1, HOSTED_WINDOW)]
    assert sum(map(bool, found)) == HOSTED_WINDOW // 4


def test_what_is_in_hand_is_bounded_in_bytes_long_properties_too(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "OVERFLOW_BYTES_MAX", 64_000)
    overflow = Overflow(())
    found = [put(world, overflow, plain(world, n, content=bytes(5_000))) for n in range(1, 9)]
    assert sum(map(bool, found)) == 3
    padded = with_properties(plain(world, 1, publisher="worse"), (PROPERTY_KEY, "k" * 60_000))
    assert put(world, overflow, padded), "what nobody reads is not kept"
    entry = overflow.first_of(held_of(world, padded).name[0])
    assert entry is not None
    assert len(str(entry.brought)) < 2_000


def test_copies_are_withheld_with_it_and_taken_with_it(world: World):
    overflow, wire = Overflow(()), plain(world, 1)
    first = put(world, overflow, wire)
    entry = overflow.get(held_of(world, wire).name)
    assert entry is not None
    second, again = overflow.join(entry, "r1b"), overflow.join(entry, "r1a")
    assert overflow.taken() == [Take((first,))], "it came again, on another connection or the same one"
    overflow.pop(entry)
    assert overflow.taken() == [Take((again, second))]
    assert overflow.taken() == []
    assert not overflow
    assert not overflow._links


def test_of_two_sealings_the_later_one_is_in_hand_and_nothing_is_counted_twice(world: World):
    overflow = Overflow(())
    made = [
        craft(world, "evil", "clear/t", sequence=1, mode=Mode.PLAIN, payload=b"%d" % n, order=(n, 0)) for n in (1, 2)
    ]
    numbers = [put(world, overflow, made[0]), put(world, overflow, made[1], "r1b")]
    entry = overflow.first_of(held_of(world, made[0]).name[0])
    assert entry is not None
    assert entry.held.content == made[1].payload
    assert sorted(entry.numbers.values()) == numbers
    overflow.pop(entry)
    assert not overflow._bytes


# ------------------------------------------------------------------------------------------------ at a gateway


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.reader.waiting.HELD_MAX", 20)


@pytest.mark.attack(93)
@pytest.mark.usefixtures("_small")
def test_what_finds_no_room_is_not_acknowledged_and_goes_on_in_order_when_there_is(world: World):
    """Number 2 is late; 20 of what follows find room, 18 do not."""
    site, control = gateway(world, "site"), subscriber(world, "control")
    wires = {n: publish(site, "plant/t", b"%d" % n, sequence=n, previous=n - 1) for n in range(1, 41)}
    got: list[Effect] = []
    for n in (1, *range(3, 41)):
        for r in REPLICAS:
            came = control.handle(Received(r, wires[n][r]), NOW)
            assert [type(e) for e in came].count(Withhold) == (n > 22)
            got += came
    assert counted(got, "held_overflow") == 18
    assert not [e for e in got if isinstance(e, Take)]
    came = control.handle(Received("r1a", wires[2]["r1a"]), NOW + 1)
    assert [(d.sequence, d.late) for d in delivered(got + came)] == [(n, False) for n in range(1, 41)]
    kinds = [type(e) for e in came if isinstance(e, Keep | Take)]
    assert kinds == [Keep, Take], "what is acknowledged is on disk before"
    withheld = {e.number for e in got if isinstance(e, Withhold)}
    assert withheld == {n for e in came if isinstance(e, Take) for n in e.numbers}
    assert len(withheld) == 54


@pytest.mark.attack(93)
@pytest.mark.usefixtures("_small")
def test_the_one_that_all_wait_for_finds_room(world: World):
    site, control = gateway(world, "site"), subscriber(world, "control")
    wires = {n: publish(site, "plant/t", b"%d" % n, sequence=n, previous=n - 1) for n in range(1, 23)}
    got: list[Effect] = []
    for n in (1, *range(3, 23)):  # 20 that wait for 2: exactly what there is room for
        for r in REPLICAS:
            got += control.handle(Received(r, wires[n][r]), NOW)
    assert sent(control.handle(Tick(), NOW + 0.2)), "it is asked for"
    came = control.handle(Received("r1c", wires[2]["r1c"]), NOW + 0.3)
    assert not counted(got + came, "held_overflow")
    assert [d.sequence for d in delivered(got + came)] == list(range(1, 23))


@pytest.mark.attack(130)
@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("in_hand", [False, True], ids=["alone", "in hand of another replica"])
def test_what_was_acknowledged_before_finds_room_or_makes_it_and_is_on_disk(world: World, in_hand: bool):
    control, rows = gateway(world, "control"), dict[bytes, bytes | None]()
    came = control.handle(Subscribed("#"), NOW)
    for n in (1, *range(3, 23)):
        came += control.handle(Received("r1a", plain(world, n, previous=n - 1)), NOW)
    last = [Received("r1b", plain(world, 23, previous=22), acknowledged=True)]
    if in_hand:
        last.insert(0, Received("r1a", last[0].wire))
        assert [type(e) for e in control.handle(last.pop(0), NOW)].count(Withhold) == 1
    told = control.handle(last[0], NOW)
    assert not [e for e in told if isinstance(e, Withhold)]
    assert counted(told, "waits_cut_short") == 1
    for effect in came + told:
        rows.update(effect.rows if isinstance(effect, Keep) else ())
    again = gateway(world, "control")
    got = again.handle(Restored(tuple((key, row) for key, row in rows.items() if row is not None)), NOW + 1)
    got += [e for second in range(1, 20) for e in again.handle(Tick(), NOW + 1 + second)]
    assert sorted(d.sequence for d in delivered(came + told + got)) == [1, *range(3, 24)]


@pytest.mark.attack(130)
@pytest.mark.usefixtures("_small")
def test_what_was_acknowledged_while_its_scope_was_to_come_is_not_in_hand_only():
    """When the version comes there is no room; and the process is killed just after it adopted."""
    world, rows = make_world({1: 3}, [], {"site": 1, "control": 1}, [Scope("plant/#", tokens=True)]), {}
    site, control = gateway(world, "site"), gateway(world, "control")
    wires = {n: publish(site, "plant/t", b"%d" % n, sequence=n, previous=n - 1) for n in range(1, 23)}
    came = control.handle(Subscribed("plant/#"), NOW)
    for n in (1, *range(3, 23)):
        came += [e for r in REPLICAS for e in control.handle(Received(r, wires[n][r]), NOW)]
    newer = world.renew_tokens("plant/#")
    site = gateway(world, "site")
    for n in (23, 24):
        for r, wire in publish(site, "plant/t", b"%d" % n, sequence=n, previous=n - 1).items():
            came += control.handle(Received(r, wire), NOW)
    assert counted(came, "publications_ahead") == 6
    came += control.offered(canonical(newer), NOW + 1) + control.handle(Tick(), NOW + 1)
    assert not [e for e in came if isinstance(e, Withhold)], "so all of it is acknowledged"
    for effect in came:
        rows.update(effect.rows if isinstance(effect, Keep) else ())
    again = gateway(world, "control")
    got = again.handle(Restored(tuple((key, row) for key, row in rows.items() if row is not None)), NOW + 2)
    got += again.handle(Subscribed("plant/#"), NOW + 2)
    got += [e for r in REPLICAS for e in again.handle(Received(r, wires[2][r]), NOW + 3)]
    got += [e for second in range(1, 20) for e in again.handle(Tick(), NOW + 3 + second)]
    assert sorted(d.sequence for d in delivered(came + got)) == list(range(1, 25))


@pytest.mark.usefixtures("_small")
def test_the_wait_ends_and_what_is_in_hand_goes_on_though_the_predecessor_never_comes(world: World):
    site, control = gateway(world, "site"), subscriber(world, "control")
    wires = {n: publish(site, "plant/t", b"%d" % n, sequence=n, previous=n - 1) for n in range(1, 41)}
    got = [e for n in (1, *range(3, 41)) for r in REPLICAS for e in control.handle(Received(r, wires[n][r]), NOW)]
    came = control.handle(Tick(), NOW + REPAIR_S)
    assert [d.sequence for d in delivered(got + came)] == [1, *range(3, 41)]
    assert counted(came, "holes") == 1


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("hosted", [(), REPLICAS], ids=["own", "hosted"])
def test_beyond_a_links_part_waits_are_cut_short_and_nothing_is_lost(
    hosted: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    """Stock brokers answer no request, so nothing may be acknowledged away."""
    monkeypatch.setattr(module, "LINK_WINDOW", 32)
    world = make_world({1: 3}, [], {"site": 1, "control": 1}, hosted=hosted)
    site, control = gateway(world, "site"), subscriber(world, "control")
    got: list[Effect] = []
    wires = {n: publish(site, "plant/t", b"%d" % n, sequence=n, previous=n - 1) for n in range(1, 61)}
    for n in (1, *range(3, 61)):
        for r in REPLICAS:
            got += control.handle(Received(r, wires[n][r]), NOW)
    assert counted(got, "waits_cut_short") >= 1
    got += control.handle(Received("r1b", wires[2]["r1b"]), NOW + 1)
    got += [e for t in range(1, 12) for e in control.handle(Tick(), NOW + 1 + t)]
    told = [(d.sequence, d.late) for d in delivered(got)]
    assert sorted(told) == [(n, n == 2) for n in range(1, 61)], "each once; late is only what the others waited for"
    assert [n for n, late in told if not late] == [1, *range(3, 61)]


@pytest.mark.long
@pytest.mark.attack(93)
@pytest.mark.usefixtures("_small")
def test_who_fills_the_room_on_purpose_mutes_nobody(world: World, monkeypatch: pytest.MonkeyPatch):
    """Two members name predecessors that never were, without end. Of each link's window a half stays for others."""
    monkeypatch.setattr(module, "LINK_WINDOW", 16)
    site, control = gateway(world, "site"), subscriber(world, "control")
    unacknowledged: Counter[str] = Counter()
    of: dict[int, str] = {}

    def bring(wire: Wire, peer: str, now: float) -> list[Effect]:
        effects = control.handle(Received(peer, wire), now)
        for effect in effects:
            if isinstance(effect, Withhold):
                of[effect.number] = peer
                unacknowledged[peer] += 1
            if isinstance(effect, Take):
                unacknowledged.subtract(of[number] for number in effect.numbers)
        assert max(unacknowledged.values(), default=0) <= 8
        return effects

    told: list[tuple[int, bool]] = []
    for turn in range(60):
        now = NOW + turn / 10
        for publisher in ("evil", "worse"):
            for n in range(8):
                wire = plain(world, 1000 * turn + 2 * n + 2, 1000 * turn + 2 * n + 1, publisher)
                for peer in REPLICAS:
                    bring(wire, peer, now)
        wires = publish(site, "plant/t", sequence=turn + 1, previous=turn, now=now)
        told += [
            (d.sequence, d.late) for r in REPLICAS for d in delivered(bring(wires[r], r, now)) if d.scope == "plant/#"
        ]
    assert told == [(n, False) for n in range(1, 61)]


class Links:
    """Three replicas with windows of 16 and queues for a gateway, its disk, and its shell."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world, self.rng, self.now = world, rng, NOW
        self.queues: dict[str, deque[Wire]] = {r: deque() for r in REPLICAS}
        self.flying: dict[str, list[Wire]] = {r: [] for r in REPLICAS}  # sent, and not acknowledged
        self.withheld: dict[int, tuple[str, Wire]] = {}
        self.rows: dict[bytes, bytes] = {}
        self.told: Counter[int] = Counter()
        self.counts: Counter[str] = Counter()
        self.reader = subscriber(world, "control")

    def publish(self) -> set[int]:
        """Of 120 publications, those that some replica has; beside each, one whose predecessor never was."""
        site, wanted = gateway(self.world, "site"), set()
        for n in range(1, 121):
            wires = publish(site, "plant/t", b"%d" % n, sequence=n, previous=n - 1)
            has_key = PROPERTY_KEY in dict(wires["r1a"].properties)  # without it all that follows would wait for it
            is_nowhere = not has_key and self.rng.random() < 0.05
            for r in REPLICAS:
                if has_key or (not is_nowhere and self.rng.random() < 0.9):
                    self.queues[r].append(wires[r])
                    wanted.add(n)
                self.queues[r].append(plain(self.world, 3 * n, 3 * n - 1))
        for r in REPLICAS:  # a replica, or the way to it, that changes the order
            queue = list(self.queues[r])
            for _ in range(40):
                at = self.rng.randrange(6, len(queue) - 9)
                queue.insert(at + self.rng.randrange(9), queue.pop(at))
            self.queues[r] = deque(queue)
        return wanted

    @property
    def is_idle(self) -> bool:
        return not any(self.queues.values()) and not any(self.flying.values())

    def handle(self, event: Event, brought: tuple[str, Wire] | None = None) -> None:
        effects = self.reader.handle(event, self.now)
        number = next((effect.number for effect in effects if isinstance(effect, Withhold)), 0)
        for effect in effects:
            match effect:
                case Count(figure):
                    self.counts[figure] += 1
                case Keep(rows):
                    for key, row in rows:
                        self.rows.pop(key, None)
                        self.rows.update({} if row is None else {key: row})
                case Take(numbers):
                    number = 0 if number in numbers else number
                    for peer, wire in [self.withheld.pop(each) for each in numbers if each in self.withheld]:
                        self.flying[peer].remove(wire)
                case _:
                    pass
        if brought is not None and number:
            self.withheld[number] = brought
        elif brought is not None:
            self.flying[brought[0]].remove(brought[1])
        self.told.update(d.sequence for d in delivered(effects) if d.scope == "plant/#")
        of_one = Counter((peer, wire.topic) for peer, wire in self.withheld.values())
        assert max(of_one.values(), default=0) <= 4

    def step(self) -> None:
        """A replica sends what its window has room for, or the gateway is killed; then time passes."""
        peer = self.rng.choice(REPLICAS)
        if self.rng.random() < 0.02:
            for r in REPLICAS:
                self.queues[r].extendleft(reversed(self.flying[r]))
                self.flying[r].clear()
            self.withheld.clear()
            self.reader = gateway(self.world, "control")
            self.handle(Restored(tuple(self.rows.items())))
            self.handle(Subscribed("#"))
        elif self.queues[peer] and len(self.flying[peer]) < 16:
            wire = self.queues[peer].popleft()
            self.flying[peer].append(wire)
            self.handle(Received(peer, wire), (peer, wire))
        self.now += self.rng.random() / 5
        self.handle(Tick())


@pytest.mark.long
@pytest.mark.attack(93)
@pytest.mark.parametrize("seed", [*range(4), *slow(range(4, 12))])
def test_whatever_is_lost_reordered_or_killed_each_comes_once_and_no_window_stands_still(
    world: World, seed: int, monkeypatch: pytest.MonkeyPatch
):
    """Room for 6; a publisher whose chains are false; numbers that nobody brings; kills at any moment."""
    monkeypatch.setattr("bridge.reader.waiting.HELD_MAX", 6)
    monkeypatch.setattr(module, "LINK_WINDOW", 16)
    links = Links(world, random.Random(seed))
    wanted = links.publish()
    while not links.is_idle:
        links.step()
        assert links.now < NOW + 3000, "a window stands still"
    for _ in range(30):
        links.now += 1
        links.handle(Tick())
    assert sorted(links.told.elements()) == sorted(wanted)
    assert not links.withheld
    assert links.counts["held_overflow"] > 10
