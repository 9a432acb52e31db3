"""What came before the version of the overlay that gives its publisher its key or its right."""

from __future__ import annotations

import zlib

import pytest

from bridge.contract.budgets import LinkGuard
from bridge.contract.early_room import EARLY_BYTES, EARLY_OVERHEAD_BYTES
from bridge.contract.machine import (
    Blame,
    Count,
    Effect,
    Keep,
    Offered,
    Received,
    Refuse,
    Restored,
    Subscribed,
    Take,
    Tick,
    Wire,
    Withhold,
)
from bridge.document import Overlay
from bridge.document.policy import Scope
from bridge.membership.adopting import FLAG_DOCUMENT, OVERLAY_TOPIC, OfferedVersion, canonical
from bridge.membership.early_wires import JUDGED_AT_ONCE, EarlyWires
from bridge.node import LINK_WINDOW, ReaderNode, ReplicaNode
from keys.envelope import PROPERTY_HEADER, Mode
from keys.grants import Grant, Right
from tests.bridge.helpers import (
    NOW,
    counted,
    craft,
    delivered,
    gateway,
    publish,
    replica,
    sent,
    statement,
    subscriber,
    suspected,
    with_properties,
)
from tests.sim.world import World, make_world
from tests.support.regions import fresh, row_of_regions

SCOPES = [Scope("plant/#"), Scope("open/#")]
RIGHTS = {"site": (("open/#",), ("#",))}
"""Site may publish in plant by the next version only."""
world = fresh(row_of_regions, 2, {"site": 1, "control": 2}, SCOPES, rights=RIGHTS)


def next_version(world: World) -> Overlay:
    return world.with_policy(grants=(*world.overlay.policy.grants, Grant("site", "plant/#", Right.PUBLISH)))


def offer(node: ReplicaNode | ReaderNode, peer: str, overlay: Overlay | int) -> list[Effect]:
    version = OfferedVersion(overlay, bytes(32)) if isinstance(overlay, int) else OfferedVersion.of_overlay(overlay)
    return node.handle(Received(peer, Wire(OVERLAY_TOPIC, version.encode())), NOW)


def answer(node: ReplicaNode | ReaderNode, peer: str, overlay: Overlay) -> list[Effect]:
    packed = OfferedVersion.of_overlay(overlay).encode(FLAG_DOCUMENT) + zlib.compress(canonical(overlay))
    return node.handle(Received(peer, Wire(OVERLAY_TOPIC, packed)), NOW)


def ahead(world: World, overlay: Overlay) -> tuple[Wire, Wire]:
    """What a publisher and its replica that adopted the next version send: to it, and on to the next region."""
    before, world.overlay = world.overlay, overlay
    site, first = gateway(world, "site"), replica(world, "r1a", ("site", "r2a"))
    first.handle(Received("r2a", statement(world, "control", "plant/#")), NOW)
    wire = publish(site, "plant/t", sequence=1)["r1a"]
    (onward,) = [s.wire for s in sent(first.handle(Received("site", wire), NOW), "r2a")]
    world.overlay = before
    return wire, onward


def second(world: World) -> ReplicaNode:
    node = replica(world, "r2a", ("r1a", "r1b", "control"))
    node.handle(Received("control", statement(world, "control", "plant/#")), NOW)
    return node


@pytest.mark.attack(105)
def test_what_comes_from_who_is_ahead_waits_for_the_version(world: World) -> None:
    newer = next_version(world)
    _, onward = ahead(world, newer)
    node = second(world)
    offer(node, "r1b", world.overlay)
    offer(node, "r1a", newer)
    effects = node.handle(Received("r1a", onward), NOW)
    assert counted(effects, "publications_ahead") == 1
    assert not [e for e in effects if isinstance(e, Blame | Refuse)]
    adopted = answer(node, "r1a", newer)
    assert [s.peer for s in sent(adopted) if s.wire.topic == onward.topic] == ["control"]
    assert not suspected(adopted)


def test_a_reader_keeps_it_too(world: World) -> None:
    near = make_world({1: 3}, [], {"site": 1, "control": 1}, [Scope("plant/#")], rights={"site": ((), ("#",))})
    newer = next_version(near)
    before, near.overlay = near.overlay, newer
    wires = publish(gateway(near, "site"), "plant/t", b"x", sequence=1)
    nodes = {name: replica(near, name, ("site", "control")) for name in wires}
    onward = {}
    for name, node in nodes.items():
        node.handle(Received("control", statement(near, "control", "plant/#")), NOW)
        (onward[name],) = [s.wire for s in sent(node.handle(Received("site", wires[name]), NOW), "control")]
    near.overlay = before
    control = subscriber(near, "control")
    for name, wire in onward.items():  # links are new: nobody has said yet which version it has
        assert counted(control.handle(Received(name, wire), NOW), "publications_ahead") == 1
    offer(control, "r1a", newer)
    effects = answer(control, "r1a", newer)
    assert [d.sequence for d in delivered(effects)] == [1]
    assert not suspected(effects)


def test_the_publisher_itself_is_refused_and_offers_it_again(world: World) -> None:
    """Acknowledged and kept in memory only, it could be lost."""
    newer = next_version(world)
    wire, _ = ahead(world, newer)
    node = replica(world, "r1a", ("site",))
    offer(node, "site", newer)
    effects = node.handle(Received("site", wire), NOW)
    assert [e.reason for e in effects if isinstance(e, Refuse)] == ["right"]
    assert not suspected(effects)


@pytest.mark.attack(106)
def test_a_liar_that_says_that_it_is_ahead_is_judged_when_the_version_comes(world: World) -> None:
    newer = next_version(world)
    _, onward = ahead(world, newer)
    node = second(world)
    other = world.with_policy()
    offer(node, "r1a", other)
    offer(node, "r1b", other)
    assert counted(node.handle(Received("r1a", onward), NOW), "publications_ahead") == 1
    effects = answer(node, "r1a", other)  # site has no right there, either
    assert counted(effects, "refused") == 1
    assert not [s for s in sent(effects) if s.wire.topic == onward.topic]
    assert not [e for e in effects if isinstance(e, Refuse)]  # which would be of the version


def test_a_liar_that_takes_it_back_is_judged_at_once(world: World) -> None:
    _, onward = ahead(world, next_version(world))
    node = second(world)
    offer(node, "r1a", 99)
    assert counted(node.handle(Received("r1a", onward), NOW), "publications_ahead") == 1
    assert counted(offer(node, "r1a", world.overlay), "refused") == 1


@pytest.mark.attack(106)
def test_a_liar_whose_version_does_not_hold_is_not_believed_any_more(world: World) -> None:
    _, onward = ahead(world, next_version(world))
    node = second(world)
    offer(node, "r1a", 99)
    false = OfferedVersion(99, bytes(32)).encode(FLAG_DOCUMENT) + zlib.compress(canonical(world.overlay))
    node.handle(Received("r1a", Wire(OVERLAY_TOPIC, false)), NOW)
    assert counted(node.handle(Received("r1a", onward), NOW), "refused") == 1


@pytest.mark.attack(106)
def test_a_liar_fills_its_own_part_only() -> None:
    refused: list[Effect] = [Count("refused", 1, "NotAuthorised"), Blame("r1a", False, "why")]
    early, last = EarlyWires(), ""
    honest = Received("r1b", Wire("veilmq/batch/1", b"x", properties=((PROPERTY_HEADER, "h"),)))
    assert early.instead(honest, refused, keeps=True)[0] == Count("publications_ahead")
    most = EARLY_BYTES // EARLY_OVERHEAD_BYTES
    for n in range(most + 10):
        last = f"{n}"
        effects = early.instead(
            Received("r1a", Wire(last, b"", properties=((PROPERTY_HEADER, "h"),))), refused, keeps=True
        )
    assert effects == [Count("publications_ahead"), Count("publications_ahead_dropped", 1)]
    assert len(early) <= most
    early.release_peer("r1b", NOW)
    assert [each.event for each in early.take_due_wires()] == [honest]
    assert early.next_deadline is None
    early.release_peer(None, NOW)
    found = []
    while early.next_deadline is not None:
        some = early.take_due_wires()
        assert len(some) <= JUDGED_AT_ONCE
        found += some
    assert found[-1].event.wire.topic == last
    assert (len(early), early.take_due_wires()) == (0, [])


def own(world: World) -> tuple[Overlay, dict[str, Wire]]:
    """The next version of a region of its own, and a publication of a right that is new in it."""
    newer = next_version(world)
    before, world.overlay = world.overlay, newer
    wires = publish(gateway(world, "site"), "plant/t", b"x", sequence=1)
    world.overlay = before
    return newer, wires


@pytest.fixture
def near() -> World:
    return make_world({1: 3}, [], {"site": 1, "control": 1}, [Scope("plant/#")], rights={"site": ((), ("#",))})


def withheld(effects: list[Effect]) -> list[int]:
    return [e.number for e in effects if isinstance(e, Withhold)]


def taken(effects: list[Effect]) -> list[int]:
    return [number for e in effects if isinstance(e, Take) for number in e.numbers]


@pytest.mark.attack(122)
def test_what_a_reader_keeps_for_the_next_version_outlives_its_process(near: World) -> None:
    """It is in memory only: so no replica may be acknowledged before it is judged. Killed then, it comes again."""
    newer, wires = own(near)
    control = subscriber(near, "control")
    unacknowledged = {}
    for name, wire in wires.items():
        if withheld(control.handle(Received(name, wire), NOW)):
            unacknowledged[name] = wire
    near.overlay = newer
    again = subscriber(near, "control")
    effects = [e for name, wire in unacknowledged.items() for e in again.handle(Received(name, wire), NOW + 2)]
    assert [d.sequence for d in delivered(effects)] == [1]


@pytest.mark.attack(122)
def test_what_waits_is_acknowledged_once_it_is_judged_and_what_it_changed_is_on_disk(near: World) -> None:
    newer, wires = own(near)
    control = subscriber(near, "control")
    first = [n for name, wire in wires.items() for n in withheld(control.handle(Received(name, wire), NOW))]
    came = control.handle(Received("r1a", wires["r1a"]), NOW)
    (again,) = withheld(came)
    assert taken(came) == first[:1], "its former connection has ended, or brought it twice"
    offer(control, "r1a", newer)
    effects = answer(control, "r1a", newer)
    assert [d.sequence for d in delivered(effects)] == [1]
    assert sorted(taken(effects)) == sorted([again, *first[1:]])
    assert [type(e) for e in effects if isinstance(e, Keep | Take)] == [Keep, Take]


@pytest.mark.attack(122)
def test_a_quarter_of_a_link_waits_unacknowledged_and_the_version_comes_through(near: World) -> None:
    control = subscriber(near, "control")
    wire = craft(near, "site", "plant/t", sequence=1, key_id=bytes(15) + b"k")
    effects: list[Effect] = []
    for n in range(300):
        effects += control.handle(Received("r1a", with_properties(wire, ("vmq-part", f"{n}"))), NOW)
    assert counted(effects, "publications_ahead") == 300
    assert len(withheld(effects)) == LINK_WINDOW // 4
    first = offer(control, "r1a", near.overlay)
    rest = control.handle(Tick(), NOW)
    assert counted(first, "refused") == JUDGED_AT_ONCE
    assert sorted(taken(first + rest)) == sorted(withheld(effects))
    assert withheld(control.handle(Received("r1b", wire), NOW)), "and there is room again"


@pytest.mark.attack(122)
def test_what_finds_no_room_when_the_version_comes_stays_unacknowledged(
    near: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.reader.waiting.HELD_MAX", 5)
    newer = next_version(near)
    near.overlay, before = newer, near.overlay
    site = gateway(near, "site")
    wires = [publish(site, "plant/t", b"x", sequence=n, previous=n - 1) for n in range(1, 12)]
    near.overlay = before
    control = subscriber(near, "control")
    numbers = [
        n for n_th in wires[:1] + wires[2:] for r in n_th for n in withheld(control.handle(Received(r, n_th[r]), NOW))
    ]
    offer(control, "r1a", newer)
    adopted = answer(control, "r1a", newer)
    assert counted(adopted, "held_overflow")
    assert not withheld(adopted), "that would be of the version"
    assert set(taken(adopted)) < set(numbers)
    late = [e for r, wire in wires[1].items() for e in control.handle(Received(r, wire), NOW)]
    assert [d.sequence for d in delivered(adopted + late)] == list(range(1, 12))
    assert sorted(taken(adopted + late)) == sorted(numbers)


def test_a_replica_withholds_nothing(world: World) -> None:
    """What it has in these seconds, others of its region have too."""
    newer = next_version(world)
    _, onward = ahead(world, newer)
    node = second(world)
    offer(node, "r1a", newer)
    assert not withheld(node.handle(Received("r1a", onward), NOW))


@pytest.mark.attack(123)
@pytest.mark.parametrize("claim", [99, None])
def test_who_says_that_it_is_ahead_or_nothing_is_throttled_all_the_same(
    monkeypatch: pytest.MonkeyPatch, claim: int | None
) -> None:
    """A liar brings one unauthorised wire again and again."""
    monkeypatch.setattr("bridge.contract.budgets.REFUSED_BURST", 5.0)
    scopes, rights = [Scope("plant/#"), Scope("open/#", Mode.PLAIN)], {"site": (("plant/#",), ("#",))}
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, scopes, rights=rights)
    node = second(world)
    if claim is not None:
        offer(node, "r1a", claim)
    wire = craft(world, "site", "open/t", sequence=1, mode=Mode.PLAIN)
    verified = []
    judge = node.forwarder.take_wire
    monkeypatch.setattr(node.forwarder, "take_wire", lambda event, now: verified.append(event) or judge(event, now))
    effects = [e for _ in range(1000) for e in node.handle(Received("r1a", wire), NOW)]
    assert counted(effects, "link_throttled") > 500
    assert len(verified) == 1, "a repetition costs a look-up"


@pytest.mark.attack(123)
def test_what_waited_of_who_takes_its_claim_back_is_judged_in_parts_and_as_its_link_may(
    near: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = subscriber(near, "control")
    offer(control, "r1a", 99)
    wire = craft(near, "site", "plant/t", sequence=1, key_id=bytes(15) + b"k")
    for n in range(2 * JUDGED_AT_ONCE + 10):
        control.handle(Received("r1a", with_properties(wire, ("vmq-part", f"{n}"))), NOW)
    assert counted(offer(control, "r1a", near.overlay), "refused") == JUDGED_AT_ONCE
    assert control.next_deadline == NOW
    assert counted(control.handle(Tick(), NOW), "refused") == JUDGED_AT_ONCE
    monkeypatch.setattr(LinkGuard, "closed", lambda *_: True)
    last = control.handle(Tick(), NOW)
    assert (counted(last, "refused"), counted(last, "link_throttled")) == (0, 10)
    assert control.next_deadline != NOW


@pytest.mark.attack(130)
def test_what_was_acknowledged_as_it_waited_finds_room_and_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a quarter of the window; and there is no room in its stream when it is judged."""
    monkeypatch.setattr("bridge.reader.waiting.HELD_MAX", 20)
    scopes, rights = [Scope("plant/#", Mode.PLAIN), Scope("open/#", Mode.PLAIN)], {"site": (("open/#",), ("#",))}
    world = make_world({1: 3}, [], {"site": 1, "control": 1}, scopes, rights=rights)
    newer, rows, control = next_version(world), dict[bytes, bytes | None](), gateway(world, "control")
    control._early.withheld_max = 0
    came = control.handle(Subscribed("#"), NOW)
    sent_now = [("open/t", n, n - 1) for n in (1, *range(3, 23))] + [("plant/t", 23, 0), ("plant/t", 25, 24)]
    for topic, n, previous in sent_now:
        wire = craft(world, "site", topic, sequence=n, previous=previous, mode=Mode.PLAIN)
        came += control.handle(Received("r1a", wire), NOW)
    assert counted(came, "publications_ahead") == 2
    came += control.handle(Offered(canonical(newer)), NOW)
    assert counted(came, "held_overflow") == 1
    assert not [effect for effect in came if isinstance(effect, Withhold)]
    for effect in came:
        rows.update(effect.rows if isinstance(effect, Keep) else ())
    world.overlay = newer
    again = gateway(world, "control")
    got = again.handle(Restored(tuple((key, row) for key, row in rows.items() if row is not None)), NOW + 1)
    got += [effect for second in range(1, 20) for effect in again.handle(Tick(), NOW + 1 + second)]
    assert sorted(d.sequence for d in delivered(came + got)) == [1, *range(3, 24), 25]


def test_other_faults_and_other_wires_do_not_wait() -> None:
    early = EarlyWires()
    content: list[Effect] = [Count("refused", 1, "content"), Blame("r1a", False, "why")]
    carried = Received("r1a", Wire("veilmq/batch/1", b"x", properties=((PROPERTY_HEADER, "h"),)))
    assert early.instead(carried, content, keeps=True) == content
    bare, refused = Received("r1a", Wire("$veil/generation", b"x")), [Count("refused", 1, "NotAuthorised")]
    assert early.instead(bare, refused, keeps=True) == refused
    assert len(early) == 0
