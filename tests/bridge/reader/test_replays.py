"""What may be a replay: who has to bring it before it is believed, and how old the first of a stream may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import Received, Tick, Wire
from bridge.document import Scope
from bridge.reader.intake import FRESH_S, RECALLED_S, Vouchers, is_dated
from bridge.wire import admission as admitting
from bridge.wire.admission import Admission, Admitted
from keys.envelope import PROPERTY_HEADER, Mode
from tests.bridge.helpers import counted, craft, delivered, subscriber, with_properties
from tests.sim.world import NOW, World, make_world
from tests.support.regions import fresh, one_region

world = fresh(one_region, "site", "evil", "control", replicas=5)


def admitted(world: World, sequence: int = 1, *, publisher: str = "site", live: bool = False) -> Admitted:
    wire = craft(world, publisher, "plant/a", sequence=sequence, key_id=b"k" * 16)
    found = Admission(world.overlay, replica=False).publication(dict(wire.properties)[PROPERTY_HEADER], wire.topic, NOW)
    return found._replace(live=live)


def test_what_is_live_needs_nobody(world: World):
    assert Vouchers(world.overlay, 1).vouched("r1a", admitted(world, live=True), "plant/a")


def test_what_is_not_needs_one_honest_replica_among_those_that_bring_it(world: World):
    vouchers, old = Vouchers(world.overlay, 1), admitted(world)
    assert [vouchers.vouched(peer, old, "plant/a") for peer in ("r1a", "r1a", "r1b", "r1c")] == [False] * 3 + [True]
    assert not vouchers.vouched("r1d", old, "plant/b"), "on another topic it is something else"
    assert not vouchers.vouched("stranger", admitted(world, 2), "plant/a")


def test_a_replica_that_replays_pushes_out_its_own_entries(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.reader.intake.VOUCHED_MAX", 4)
    vouchers, old = Vouchers(world.overlay, 1), admitted(world)
    for peer in ("r1a", "r1b"):
        vouchers.vouched(peer, old, "plant/a")
    for sequence in range(2, 20):
        vouchers.vouched("r1e", admitted(world, sequence, publisher="evil" if sequence % 2 else "site"), "plant/a")
    assert vouchers.vouched("r1c", old, "plant/a")


@pytest.mark.attack(36)
def test_a_replica_that_brings_something_first_takes_no_voucher_of_others_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Attack: of five replicas a liar brings what is honest first, and then so much that it is forgotten."""
    monkeypatch.setattr("bridge.reader.intake.VOUCHED_MAX", 4)
    vouchers, old = Vouchers(world.overlay, 1), admitted(world)
    for peer in ("r1e", "r1a", "r1b"):
        believed = vouchers.vouched(peer, old, "plant/a")
    assert believed, "two liars of five need one more"
    old = admitted(world, 2)
    for peer in ("r1e", "r1a"):
        assert not vouchers.vouched(peer, old, "plant/a")
    for sequence in range(3, 20):
        vouchers.vouched("r1e", admitted(world, sequence, publisher="evil"), "plant/a")
    assert [vouchers.vouched(peer, old, "plant/a") for peer in ("r1b", "r1c")] == [False, True]


@pytest.mark.parametrize("off_s", [-FRESH_S - 1, -FRESH_S, 0, FRESH_S, FRESH_S + 1])
def test_the_first_of_a_stream_is_young_or_retained(world: World, off_s: float):
    header = admitted(world).header
    assert is_dated(header, NOW + off_s) == (abs(off_s) > FRESH_S)
    assert not is_dated(replace(header, retain=True), NOW + off_s)


class Verified:
    """How many headers were verified."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number, genuine = 0, admitting.verify_header

        def verify(*arguments: object) -> None:
            self.number += 1
            genuine(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr("bridge.wire.admission.verify_header", verify)
        monkeypatch.setattr("bridge.wire.admission.HEADERS_MAX", 4)


def plain(world: World, sequence: int, publisher: str = "site", **said: object) -> Wire:
    return craft(world, publisher, "clear/a", sequence=sequence, mode=Mode.PLAIN, **said)  # type: ignore[arg-type]


def forged(wire: Wire) -> Wire:
    told = dict(wire.properties)["vmq"]
    return with_properties(wire, ("vmq", told[:-8] + "AAAAAAAA"), without=("vmq",))


@pytest.mark.attack(10)
def test_a_flood_of_replays_and_of_forgeries_that_claim_to_be_some_is_not_verified(monkeypatch: pytest.MonkeyPatch):
    """Attack: a replica sends again and again what it carried, more of it than a reader remembers to have verified."""
    world = make_world({1: 3}, [], {"site": 1, "evil": 1, "control": 1}, [Scope("clear/#", Mode.PLAIN)])
    node = subscriber(world, "control")
    verified = Verified(monkeypatch)
    wires = [plain(world, sequence, previous=sequence - 1) for sequence in range(1, 21)]
    for wire in wires:
        assert delivered(node.handle(Received("r1b", wire), NOW))
    before, later = verified.number, NOW + RECALLED_S + 1
    # With what was never delivered, since it is old and nothing else is known of its author; and what is forged.
    old = [plain(world, sequence, "evil", now=NOW - 2 * FRESH_S) for sequence in range(1, 21)]
    sent = (*wires, *old, *map(forged, wires))
    effects = [e for wire in sent for e in node.handle(Received("r1a", wire), later)]
    assert counted(effects, "replays_dropped") == 60 - 4, "four are remembered"
    assert counted(effects, "duplicates_dropped") == 4
    assert counted(effects, "refused") == 0
    assert verified.number == before
    late = plain(world, 21, previous=20, now=NOW)
    assert delivered(node.handle(Received("r1a", late), later)), "what is no replay comes, however late"


def test_what_may_be_news_is_verified_and_forgeries_of_it_are_charged(monkeypatch: pytest.MonkeyPatch):
    world = make_world({1: 3}, [], {"site": 1, "control": 1}, [Scope("clear/#", Mode.PLAIN)])
    node = subscriber(world, "control")
    verified = Verified(monkeypatch)
    node.handle(Received("r1b", plain(world, 5)), NOW)
    node.handle(Received("r1b", plain(world, 9, previous=8)), NOW)
    node.handle(Tick(), NOW + 11)  # 8 was given up, and is missed
    for sequence, now in ((8, NOW), (10, NOW), (4, NOW + RECALLED_S - 1)):
        assert counted(node.handle(Received("r1a", forged(plain(world, sequence))), now), "refused") == 1
    before = verified.number
    assert delivered(node.handle(Received("r1a", plain(world, 8, previous=5)), NOW + RECALLED_S + 5)), "late, and once"
    assert verified.number == before + 1
    said = dict(plain(world, 5).properties)["vmq"]
    for topic, told in (("nothing", said), ("veilmq/batch/x", said), ("veilmq/batch/1", "AAAA")):
        wire = Wire(topic, b"", 1, False, (("vmq", told),))
        assert counted(node.handle(Received("r1a", wire), NOW + 2 * RECALLED_S), "refused") == 1
