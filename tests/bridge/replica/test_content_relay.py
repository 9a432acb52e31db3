"""Content at replicas: who gets which pieces, what is asked for and answered, and what an attacker gains by asking."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import pytest

from bridge.contract.machine import Acked, Effect, LinkDown, LinkUp, Received, Tick, Wire
from bridge.document.overlay import Overlay
from bridge.document.policy import Scope, ShownAttribute
from bridge.membership.adopting import canonical
from bridge.node import ReplicaNode
from bridge.publisher import residents as repairing
from bridge.replica import content_relay as carrying
from bridge.replica import retained as keeping
from bridge.wire import PROPERTY_SHOWN, pulling
from bridge.wire.pieces import PROPERTY_PART
from bridge.wire.pulling import PULL_TOPIC, PullRequest
from keys import reedsolomon
from keys.envelope import (
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    MessageHeader,
    Mode,
    SignedHeader,
    from_property,
    header_of,
    sign_header,
    to_property,
)
from keys.frames import Kind
from tests.bridge.helpers import (
    NOW,
    counted,
    craft,
    gateway,
    publish,
    replica,
    sent,
    subscribe_at,
    suspected,
    with_properties,
)
from tests.sim.world import World, make_world
from tests.support.regions import fresh

REGION_1 = ("r1a", "r1b", "r1c")
REGION_2 = ("r2a", "r2b", "r2c")
LONG = bytes(2000)


SCOPES = [Scope("plant/#", Mode.BLOCKS), Scope("copied/#"), Scope("inner/#", Mode.BLOCKS, regions=(1, 2))]
GATEWAYS = {"site": 1, "local": 1, "control": 2, "nosy": 2}
RIGHTS = {"nosy": ([], ["copied/#"])}
world = fresh(make_world, {1: 3, 2: 3, 3: 3}, [(1, 2), (1, 3)], GATEWAYS, SCOPES, rights=RIGHTS)


def pull(world: World, sequence: int, parts: tuple[int, ...] = (), publisher: str = "site", time_ms: int = 0) -> Wire:
    return Wire(PULL_TOPIC, PullRequest(world.identities[publisher].party_id, sequence, time_ms, parts).encode())


def first(world: World, name: str = "r1a") -> ReplicaNode:
    """A replica of the publisher's region; somebody in region 2 and somebody here reads everything."""
    node = replica(world, name, [*REGION_2, "r3a", "site", "local"])
    for scope in ("plant/#", "copied/#", "inner/#"):
        subscribe_at(node, world, "control", scope, via="r2a")
        subscribe_at(node, world, "local", scope)
    return node


def second(world: World, name: str = "r2a", up: tuple[str, ...] = REGION_1) -> ReplicaNode:
    node = replica(world, name, [*up, "control", "nosy"])
    subscribe_at(node, world, "control", "plant/#")
    subscribe_at(node, world, "control", "copied/#")
    return node


def parts_in(effects: list[Effect], peer: str) -> list[str | None]:
    """Of publications for a peer, which pieces they are."""
    sends = [send.wire for send in sent(effects, peer) if not send.wire.topic.startswith("$")]
    return [dict(wire.properties).get(PROPERTY_PART) for wire in sends]


def requests(effects: list[Effect]) -> list[tuple[str, PullRequest]]:
    pulls = [send for send in sent(effects) if send.wire.topic == PULL_TOPIC]
    return [(send.peer, PullRequest.decode(send.wire.payload)) for send in pulls]


def ticks(node: ReplicaNode, until: float) -> list[Effect]:
    effects: list[Effect] = []
    while (at := node.next_deadline) is not None and at <= until:
        effects += node.handle(Tick(), at)
    return effects


def test_each_replica_gets_its_block_and_passes_it_on_in_its_plane(world: World) -> None:
    wires = publish(gateway(world, "site"), "plant/t", LONG, sequence=1)
    assert [dict(wires[name].properties)[PROPERTY_PART] for name in REGION_1] == ["0", "1", "2"]
    effects = first(world, "r1b").handle(Received("site", wires["r1b"]), NOW)
    assert {peer: parts_in(effects, peer) for peer in REGION_2} == {"r2a": ["-"], "r2b": ["1"], "r2c": ["-"]}
    assert parts_in(effects, "local") == ["1"]


def test_copies_go_whole_in_one_plane_and_short_ones_everywhere(world: World) -> None:
    site, node = gateway(world, "site"), first(world)
    effects = node.handle(Received("site", publish(site, "copied/t", LONG, sequence=1)["r1a"]), NOW)
    assert {peer: parts_in(effects, peer) for peer in REGION_2} == {"r2a": [None], "r2b": ["-"], "r2c": ["-"]}
    effects = node.handle(Received("site", publish(site, "copied/t", b"x", sequence=2, previous=1)["r1a"]), NOW)
    assert all(parts_in(effects, peer) == [None] for peer in REGION_2)


def test_a_replica_without_its_content_announces_late_asks_in_turn_and_passes_on_what_comes(world: World) -> None:
    wires = publish(gateway(world, "site"), "plant/t", LONG, sequence=1)
    near = {name: first(world, name).handle(Received("site", wires[name]), NOW) for name in REGION_1}
    node = second(world)
    told = {name: sent(near[name], "r2a")[0].wire for name in REGION_1}
    assert not sent(node.handle(Received("r1b", told["r1b"]), NOW), "control")
    assert counted(node.handle(Received("r1c", told["r1c"]), NOW), "duplicates_dropped") == 1
    effects = ticks(node, NOW + 0.5)
    assert parts_in(effects, "control") == ["-"], "once"
    asked = requests(effects)
    assert [peer for peer, _ in asked[:3]] == ["r1b", "r1c", "r1a"], "announcers first, then the others"
    assert {request.parts for _, request in asked[:3]} == {(0,)}
    assert asked[3][1].parts == (), "in case that nobody can get it: anything"
    effects = node.handle(Received("r1a", told["r1a"]), NOW + 0.5)
    assert parts_in(effects, "control") == ["0"]
    assert counted(effects, "repairs") == 1
    assert not requests(ticks(node, NOW + 60))


def test_a_block_is_made_again_of_others(world: World) -> None:
    wires = publish(gateway(world, "site"), "plant/t", LONG, sequence=1)
    node = second(world)
    for name in ("r1b", "r1c"):
        other = first(world, name)
        other.handle(Received("site", wires[name]), NOW)
        answer = sent(other.handle(Received("r2a", pull(world, 1)), NOW), "r2a")[0].wire
        effects = node.handle(Received(name, answer), NOW)
    assert parts_in(effects, "control") == ["0"], "that nobody sent it"


def test_a_request_goes_back_to_the_publisher_and_its_answer_to_all_who_asked(world: World) -> None:
    site, node = gateway(world, "site"), first(world)
    for name in REGION_1:  # the others have their blocks, this one nothing
        site.handle(Acked(name, 1), NOW)
    publish(site, "plant/t", LONG, sequence=1)
    for peer in ("r2a", "r2b", "r2a"):
        assert counted(node.handle(Received(peer, pull(world, 1)), NOW), "pulls_passed_on") == 1
    asked = requests(ticks(node, NOW + 0.01))
    assert asked == [("site", PullRequest(world.identities["site"].party_id, 1))], "equal requests are one"
    answer = sent(site.handle(Received("r1a", pull(world, 1)), NOW))[0].wire
    assert dict(answer.properties)[PROPERTY_PART] == "0,1", "never more than suffice"
    effects = node.handle(Received("site", answer), NOW)
    assert {peer for peer in REGION_2 if "0,1" in parts_in(effects, peer)} == {"r2a", "r2b"}


def test_the_publisher_keeps_blocks_for_a_while_after_all_acknowledged(world: World) -> None:
    site = gateway(world, "site")
    publish(site, "plant/t", LONG, sequence=1)
    for name in REGION_1:
        site.handle(Acked(name, 1), NOW)
    assert site.publisher.depth == 0
    assert sent(site.handle(Received("r1a", pull(world, 1, (2,))), NOW + 5))
    site.handle(Tick(), NOW + 11)
    assert not sent(site.handle(Received("r1a", pull(world, 1, (2,))), NOW + 11))


def test_what_the_publisher_keeps_for_others_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairing, "REPAIR_BYTES_MAX", 40_000)
    site = gateway(world, "site")
    for sequence in range(1, 101):
        publish(site, "plant/t", LONG, sequence=sequence, previous=sequence - 1, qos=sequence % 2)
        for name in REGION_1:
            site.handle(Acked(name, sequence), NOW)
    kept = [n for n in range(1, 101) if sent(site.handle(Received("r1a", pull(world, n)), NOW))]
    assert kept == list(range(101 - len(kept), 101))
    assert 10 <= len(kept) <= 40_000 // (3 * len(LONG) // 2)
    assert site.publisher.depth == 0


def test_a_link_that_comes_back_brings_what_it_missed_once(world: World) -> None:
    site, node = gateway(world, "site"), first(world)
    for sequence in (1, 2):
        wires = publish(site, "plant/t", LONG, sequence=sequence, previous=sequence - 1)
        node.handle(Received("site", wires["r1a"]), NOW + sequence * 5)
        node.handle(LinkDown("r2a"), NOW + 6)
    assert parts_in(node.handle(LinkUp("r2a"), NOW + 11), "r2a") == ["0", "0"], "the first may have been on its way"
    assert not parts_in(node.handle(LinkUp("r2a"), NOW + 11), "r2a")
    again = [node.handle(event, NOW + 11) for _ in range(99) for event in (LinkDown("r2a"), LinkUp("r2a"))]
    assert sum(len(parts_in(effects, "r2a")) for effects in again) <= 2 * carrying.COMEBACKS_BURST
    assert not parts_in(node.handle(Tick(), NOW + 12), "r2a")
    later = node.handle(Tick(), NOW + 11 + carrying.COMEBACKS_EVERY_S)
    assert parts_in(later, "r2a") == ["0"], "postponed, and not forgotten"
    assert not parts_in(node.handle(Tick(), NOW + 30), "r2a")


def test_what_a_link_missed_waits_for_the_link(world: World) -> None:
    site, node = gateway(world, "site"), first(world)
    for n in range(carrying.COMEBACKS_BURST + 1):
        node.handle(LinkDown("r2a"), NOW)
        if n == carrying.COMEBACKS_BURST:
            node.handle(Received("site", publish(site, "plant/t", LONG, sequence=1)["r1a"]), NOW)
        node.handle(LinkUp("r2a"), NOW)
    node.handle(LinkDown("r2a"), NOW + 1)
    assert not parts_in(node.handle(Tick(), NOW + carrying.COMEBACKS_EVERY_S), "r2a")
    assert parts_in(node.handle(LinkUp("r2a"), NOW + carrying.COMEBACKS_EVERY_S + 1), "r2a") == ["0"]


def test_only_who_would_have_it_from_us_gets_it(world: World) -> None:
    """A replica of another way, one on the publisher's side, a stranger, a reader of other scopes, a revoked reader."""
    wires = publish(gateway(world, "site"), "inner/t", LONG, sequence=1)
    node = first(world)
    node.handle(Received("site", wires["r1a"]), NOW)
    assert sent(node.handle(Received("r2a", pull(world, 1)), NOW), "r2a")
    for asker in ("r3a", "stranger"):
        effects = node.handle(Received(asker, pull(world, 1)), NOW)
        assert not sent(effects)
        assert suspected(effects) == {asker}
    far = second(world)
    for wire in sent(node.handle(Received("r2a", pull(world, 1)), NOW), "r2a"):
        far.handle(Received("r1a", wire.wire), NOW)
    for asker in ("nosy", "r1a"):
        effects = far.handle(Received(asker, pull(world, 1)), NOW)
        assert not sent(effects)
        assert suspected(effects) == {asker}
    assert sent(far.handle(Received("control", pull(world, 1)), NOW), "control")
    far.forwarder.adopt_overlay(world.revoked("control", -1), NOW)
    assert not sent(far.handle(Received("control", pull(world, 1)), NOW))


def test_who_may_not_read_gets_nothing_of_what_comes_later_either(world: World) -> None:
    """It asks before we heard of the publication, so that we learn its scope only with the answer."""
    wires = publish(gateway(world, "site"), "plant/t", LONG, sequence=1)
    node = second(world, up=("r1a",))
    assert counted(node.handle(Received("nosy", pull(world, 1)), NOW), "pulls_passed_on") == 1
    assert requests(ticks(node, NOW + 0.01))
    told = sent(first(world).handle(Received("site", wires["r1a"]), NOW), "r2a")[0].wire
    effects = node.handle(Received("r1a", told), NOW)
    assert parts_in(effects, "control") == ["0"]
    assert not sent(effects, "nosy")


def test_an_answer_never_brings_a_share(world: World) -> None:
    wires = publish(gateway(world, "site"), "copied/t", LONG, sequence=1, retain=True)
    node = first(world)
    node.handle(Received("site", wires["r1a"]), NOW)
    for asker in ("r2a", "r2b", "local"):
        for send in sent(node.handle(Received(asker, pull(world, 1)), NOW), asker):
            assert not {PROPERTY_KEY, PROPERTY_SHARES} & {name for name, _ in send.wire.properties}


def test_a_piece_is_given_three_times_and_a_replayed_request_no_more(world: World) -> None:
    wires = publish(gateway(world, "site"), "plant/t", LONG, sequence=1)
    node = first(world)
    node.handle(Received("site", wires["r1a"]), NOW)
    answers = [sent(node.handle(Received("r2b", pull(world, 1, (0,))), NOW + n)) for n in range(50)]
    assert sum(map(len, answers)) == pulling.ANSWERS_MAX
    assert sent(node.handle(Received("r2c", pull(world, 1, (0,))), NOW)), "another's are not used up"


@pytest.mark.long
def test_a_flood_of_requests_is_bounded_in_work_bytes_and_in_what_we_ask(world: World) -> None:
    """4,000 requests a second for ten seconds, for what there is and for what there never was."""
    wires = publish(gateway(world, "site"), "plant/t", LONG, sequence=1)
    node = second(world)
    told = sent(first(world).handle(Received("site", wires["r1a"]), NOW), "r2a")[0].wire
    node.handle(Received("r1a", told), NOW)
    looked_at, asked, given = 0, 0, 0
    for number in range(20_000):
        now = NOW + number / 2000
        effects = node.handle(Received("control", pull(world, number % 1000, (0,))), now)
        effects += node.handle(Received("control", pull(world, 1)), now)
        looked_at += 2 - counted(effects, "pulls_refused")
        given += sum(len(send.wire.payload) for send in sent(effects, "control"))
        asked += len(requests(ticks(node, now)))
    assert given <= 2 * pulling.ANSWERS_MAX * len(told.payload)
    unknown = pulling.UNKNOWN_BURST / 2 + 10 * pulling.UNKNOWN_PER_S
    assert looked_at <= unknown + 2 * pulling.ANSWERS_MAX + 1
    assert asked <= 20 * unknown
    ticks(node, NOW + 60)
    assert node.next_deadline is None or node.next_deadline > NOW + 60
    assert sent(node.handle(Received("r1b", told), NOW + 11)) == []


def test_one_askers_flood_leaves_others_their_turn(world: World) -> None:
    node = second(world)
    for number in range(10_000):
        node.handle(Received("nosy", pull(world, 10**6 + number)), NOW)
    assert counted(node.handle(Received("control", pull(world, 5)), NOW), "pulls_passed_on") == 1


@pytest.mark.parametrize("publisher", ["r2a", "nobody"])
def test_a_request_for_a_publisher_that_is_none_is_refused(world: World, publisher: str) -> None:
    party = world.identities[publisher].party_id if publisher in world.identities else bytes(16)
    effects = first(world).handle(Received("local", Wire(PULL_TOPIC, PullRequest(party, 1).encode())), NOW)
    assert suspected(effects) == {"local"}


@pytest.mark.attack(14)
def test_pieces_that_a_publication_does_not_have_are_refused(world: World) -> None:
    """Attack: a publisher signs two headers of one number and time, of three blocks and of one piece, and gives each
    to other replicas. An honest one that heard of the first asks one that has the second: its link pays nothing."""
    site, node = gateway(world, "site"), first(world)
    node.handle(Received("site", publish(site, "plant/t", LONG, sequence=1)["r1a"]), NOW)
    for asked, asker, parts in ((node, "r2a", (3,)), (site, "r1a", (9,))):
        effects = asked.handle(Received(asker, pull(world, 1, parts)), NOW)
        assert not suspected(effects)
        assert not sent(effects)
        assert (counted(effects, "refused"), counted(effects, "pulls_refused")) == (0, 1)
    assert suspected(site.handle(Received("r1a", pull(world, 1, publisher="local")), NOW)) == {"r1a"}


def test_who_asks_for_the_end_of_a_gap_has_what_precedes_it_oldest_first(world: World) -> None:
    site, node = gateway(world, "site"), first(world)
    for number in range(1, 101):
        inner = number % 3 == 0  # in another scope, so of another chain
        before = number - (3 if inner else 3 - number % 3)
        wire = publish(site, "inner/t" if inner else "copied/t", sequence=number, previous=max(before, 0))["r1a"]
        node.handle(Received("site", wire), NOW)

    def answered(sequence: int, above: int, asker: str = "local") -> list[int]:
        request = PullRequest(world.identities["site"].party_id, sequence, above=above)
        effects = node.handle(Received(asker, Wire(PULL_TOPIC, request.encode())), NOW)
        told = [dict(send.wire.properties)[PROPERTY_HEADER] for send in sent(effects, asker)]
        return [MessageHeader.decode(from_property(each)[:-64]).sequence for each in told]

    assert answered(20, 0) == [20], "it alone"
    assert answered(20, 10) == [11, 13, 14, 16, 17, 19, 20]
    chain = [number for number in range(1, 101) if number % 3]
    assert answered(100, 1) == chain[-pulling.CHAIN_MAX :], "bounded"
    assert answered(100, 90) == answered(100, 90) == [91, 92, 94, 95, 97, 98, 100]
    assert answered(100, 90) == [], "an answer a few times, in a gap as well"
    assert answered(20, 10, "r3a") == [11, 13, 14, 16, 17, 19, 20], "whose way is by us"


def test_a_chain_is_given_to_nobody_who_may_not_have_it(world: World) -> None:
    """Attack: a replica that carries one scope asks for the end of a gap of another."""
    site, node = gateway(world, "site"), first(world)
    for number in (1, 2, 3):
        node.handle(Received("site", publish(site, "inner/t", sequence=number, previous=number - 1)["r1a"]), NOW)
    request = PullRequest(world.identities["site"].party_id, 3, above=1)
    assert not sent(node.handle(Received("r3a", Wire(PULL_TOPIC, request.encode())), NOW), "r3a")


def chained(world: World, node: ReplicaNode, publisher: str, count: int) -> None:
    site = gateway(world, publisher)
    for number in range(1, count + 1):
        wire = publish(site, "copied/t", sequence=number, previous=number - 1)["r1a"]
        node.handle(Received(publisher, wire), NOW)


def ask_chain(world: World, node: ReplicaNode, asker: str, sequence: int, above: int, **named: object) -> list[Effect]:
    publisher = world.identities[str(named.get("publisher", "site"))].party_id
    request = PullRequest(publisher, sequence, above=above)
    return node.handle(Received(asker, Wire(PULL_TOPIC, request.encode())), NOW)


@pytest.mark.attack(53)
@pytest.mark.parametrize("above", [50, 51, 60, 2**63, 2**64 - 1])
def test_an_interval_that_ends_before_it_begins_has_nothing_before_it(world: World, above: int) -> None:
    """Attack: who asks for the end of a gap says that the gap begins behind it."""
    node = first(world)
    chained(world, node, "site", 60)
    assert len(sent(ask_chain(world, node, "local", 50, above), "local")) == 1


@pytest.mark.attack(51)
def test_who_asks_for_a_long_gap_again_and_again_gets_it_a_few_times_and_no_work_is_done_for_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: sixty bytes that bring 64 publications, sent ten thousand times, from each place of the chain."""
    node = first(world)
    chained(world, node, "site", 100)
    answered = looked = 0
    have = carrying.Carrying._have

    def counting(self: carrying.Carrying, *arguments: object) -> object:
        nonlocal looked
        looked += 1
        return have(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(carrying.Carrying, "_have", counting)
    for at in range(10_000):
        answered += len(sent(ask_chain(world, node, "local", 100 - at % 100, 1), "local"))
    assert answered <= 100 * pulling.ANSWERS_MAX
    assert looked <= pulling.REQUESTS_BURST, "each step of a chain is a request"
    assert sent(ask_chain(world, node, "r2a", 100, 90), "r2a"), "and others have theirs"


@pytest.mark.attack(52)
def test_a_publisher_whose_gaps_are_false_takes_no_other_publishers_answers(world: World) -> None:
    """Attack: a publisher names predecessors that it never sent, and readers ask for them without end."""
    node = first(world)
    chained(world, node, "local", 20)
    for number in range(1, 10_000):
        ask_chain(world, node, "r2a", number, 1)
    assert len(sent(ask_chain(world, node, "r2a", 20, 10, publisher="local"), "r2a")) == 10


@pytest.mark.attack(53)
def test_a_chain_that_names_itself_or_what_comes_later_ends(world: World) -> None:
    """Attack: a publisher signs that a publication precedes itself, or that two precede each other."""
    site, node = gateway(world, "site"), first(world)
    for number, before in ((5, 5), (6, 7), (7, 6), (8, 7)):
        node.handle(Received("site", publish(site, "copied/t", sequence=number, previous=before)["r1a"]), NOW)
    for number in (5, 6, 7, 8):
        assert len(sent(ask_chain(world, node, "local", number, 1), "local")) <= 3


def test_pieces_asked_for_before_the_publication_came_need_not_exist(world: World) -> None:
    """What nobody can tell yet raises nothing later, and is not repeated to others, who would suspect us."""
    wires = publish(gateway(world, "site"), "copied/t", LONG, sequence=1)
    near, node = first(world), second(world)
    told = sent(near.handle(Received("site", wires["r1a"]), NOW), "r2a")[0].wire
    for asker in ("nosy", "control"):
        assert counted(node.handle(Received(asker, pull(world, 1, (250,))), NOW), "pulls_passed_on") == 1
    asked = requests(ticks(node, NOW + 0.01))
    assert [request.parts for _, request in asked] == [()]
    effects = node.handle(Received("r1a", told), NOW + 0.01)
    assert None in parts_in(effects, "control")
    far = second(world)
    far.handle(Received("control", pull(world, 2, (1, 2), time_ms=int(NOW * 1000))), NOW)
    wires = publish(gateway(world, "site"), "plant/t", LONG, sequence=2)
    told = sent(first(world, "r1b").handle(Received("site", wires["r1b"]), NOW), "r2a")[0].wire
    far.handle(Received("r1b", told), NOW)
    assert all(
        parts == () or parts[-1] < 3 for parts in (request.parts for _, request in requests(ticks(far, NOW + 9)))
    )


def test_who_asks_for_a_piece_of_an_earlier_sealing_is_not_suspected(world: World) -> None:
    """A sealing of another view has another number of blocks."""
    site, node = gateway(world, "site"), first(world)
    node.handle(Received("site", publish(site, "plant/t", LONG, sequence=1)["r1a"]), NOW)
    earlier = int(NOW * 1000) - 5
    assert not suspected(site.handle(Received("r1a", pull(world, 1, (4,), time_ms=earlier)), NOW))
    effects = node.handle(Received("r2a", pull(world, 1, (4,), time_ms=earlier)), NOW)
    assert not suspected(effects)
    assert parts_in(effects, "r2a") == ["0"]


def test_who_asks_for_a_sealing_to_come_does_not_keep_others_from_the_one_that_is(world: World) -> None:
    wires = publish(gateway(world, "site"), "plant/t", LONG, sequence=1)
    node = second(world)
    node.handle(Received("nosy", pull(world, 1, time_ms=2**60)), NOW)
    node.handle(Received("nosy", pull(world, 2, time_ms=2**60)), NOW)
    told = sent(first(world, "r1b").handle(Received("site", wires["r1b"]), NOW), "r2a")[0].wire
    node.handle(Received("r1b", told), NOW)
    asked = [request for _, request in requests(ticks(node, NOW + 2))]
    lacking = [request for request in asked if request.sequence == 1]
    assert {request.parts for request in lacking} >= {(0,)}
    assert all(request.time_ms <= int(NOW * 1000) for request in lacking)
    assert 0 in [request.time_ms for request in asked if request.sequence == 2], "or whatever there is"


@pytest.mark.parametrize("lies", [False, True])
def test_a_block_is_made_once_however_often_it_is_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch, lies: bool
) -> None:
    """Else one reader would keep a replica busy with arithmetic: 2,000 requests a second of a millisecond each."""
    made: list[int] = []
    rebuild = reedsolomon.rebuild

    def counting(blocks: Mapping[int, bytes], index: int, needed: int, total: int) -> bytes:
        made.append(index)
        return bytes(9) if lies else rebuild(blocks, index, needed, total)

    monkeypatch.setattr(reedsolomon, "rebuild", counting)
    wires = publish(gateway(world, "site"), "plant/t", LONG, sequence=1)
    node = first(world)
    for name in ("r1b", "r1c"):
        wire = with_properties(wires[name], without=(PROPERTY_KEY, PROPERTY_SHARES))  # which are not for r1a
        node.handle(Received("site", wire), NOW)
    for _ in range(100):
        node.handle(Received("r2b", pull(world, 1, (0,))), NOW)
    assert made == [0]


def test_content_of_one_sealing_never_goes_with_the_header_of_another(world: World) -> None:
    """A publisher that signs two in one millisecond would have us suspected by whoever comes next."""
    node = second(world)
    texts = [bytes([n]) * 2000 for n in range(2)]
    one, other = (craft(world, "site", "copied/t", sequence=1, key_id=bytes(range(16)), content=text) for text in texts)
    announced = Wire(one.topic, b"", 1, False, (*one.properties, (PROPERTY_PART, "-")))
    node.handle(Received("r1b", announced), NOW)
    assert not parts_in(node.handle(Received("r1a", other), NOW), "control")
    effects = node.handle(Received("r1a", one), NOW)
    assert [send.wire.payload for send in sent(effects, "control")] == [texts[0]]


def test_of_what_expired_the_header_goes_on_once_and_copies_of_it_are_still_judged(world: World) -> None:
    node = second(world)
    wires = {
        qos: craft(
            world,
            "site",
            "copied/t",
            sequence=qos + 1,
            key_id=bytes(range(16)),
            qos=qos,
            content=LONG,
            deadline_ms=int(NOW * 1000),
        )
        for qos in (0, 1)
    }
    late = NOW + 1
    assert not sent(node.handle(Received("r1b", wires[0]), late)), "nobody waits for what is not reliable"
    effects = node.handle(Received("r1b", wires[1]), late)
    assert (parts_in(effects, "control"), counted(effects, "expired")) == (["-"], 1)
    assert all(not send.wire.payload for send in sent(effects))
    assert not sent(node.handle(Received("r1c", wires[1]), late))
    altered = replace(wires[1], payload=LONG[1:])
    assert suspected(node.handle(Received("r1a", altered), late)) == {"r1a"}
    assert not sent(node.handle(Received("r1a", wires[1]), late + carrying.RECENT_S + 1))


def test_who_is_removed_while_it_is_owed_content_stops_nobody(world: World) -> None:
    wires = publish(gateway(world, "site"), "plant/t", LONG, sequence=1)
    told = {n: sent(first(world, n).handle(Received("site", wires[n]), NOW), "r2a")[0].wire for n in ("r1a", "r1b")}
    node = second(world)
    subscribe_at(node, world, "nosy", "copied/#")
    node.handle(Received("r1b", told["r1b"]), NOW)
    node.handle(Received("control", pull(world, 1, (0,))), NOW)
    overlay = world.overlay
    left = [member for name, member in overlay.members.items() if name != "control"]
    assert world.owner is not None
    policy = replace(overlay.policy, version=overlay.policy.version + 1)
    node.offered(canonical(Overlay.sign(world.owner, policy, overlay.latest.values(), left)), NOW)
    assert not sent(ticks(node, NOW + 0.05), "control")
    assert not sent(node.handle(Received("r1a", told["r1a"]), NOW + 0.05), "control")


def test_what_nobody_has_is_given_up(world: World) -> None:
    node = second(world)
    node.handle(Received("control", pull(world, 77)), NOW)
    effects = ticks(node, NOW + 60)
    assert counted(effects, "content_given_up") == 1
    asked = [peer for peer, _ in requests(effects)]
    assert len(asked) < 30
    assert set(asked) == set(REGION_1)


def shows(world: World, publisher: str, topic: str, sequence: int, length: int, retain: bool = False) -> Wire:
    """A publication of two bytes, properly signed, with a list of attributes of so many."""
    text = b"x" * 255
    names = b"\1" + b"\1" + len(b"room").to_bytes(2) + b"room"
    frame = bytes((1, Kind.SHOWN, 0)) + names + bytes([length // 258]) + (b"\2\0\xff" + text) * (length // 258)
    wire = craft(world, publisher, topic, sequence=sequence, mode=Mode.PLAIN, content=b"xy", retain=retain)
    header = SignedHeader.decode(from_property(dict(wire.properties)[PROPERTY_HEADER])).header
    signed = sign_header(
        world.identities[publisher], replace(header, attributes=hashlib.sha256(frame).digest()), wire.topic
    )
    told = (PROPERTY_HEADER, to_property(signed.encode())), (PROPERTY_SHOWN, to_property(frame))
    return replace(wire, properties=told)


@pytest.mark.attack(60)
@pytest.mark.parametrize("retain", [False, True])
def test_long_lists_of_attributes_fill_no_more_memory_than_content_may(
    monkeypatch: pytest.MonkeyPatch, retain: bool
) -> None:
    """Attack: publications of two bytes with as long a list of attributes as there may be. Of what passed, and of what
    is retained, the list is kept as well, so it counts; who brings much of it loses its own."""
    scope = Scope("shown/#", Mode.PLAIN, shown=(ShownAttribute(("room",)),))
    made = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "evil": 1, "control": 2}, [scope])
    monkeypatch.setattr(carrying, "RECENT_BYTES", 200_000)
    monkeypatch.setattr(keeping, "RETAINED_BYTES", 200_000)
    node = replica(made, "r1a", [*REGION_2, "site", "evil"])
    if not retain:
        subscribe_at(node, made, "control", "shown/#", via="r2a")
    node.handle(Received("site", shows(made, "site", "shown/mine", 1, 300, retain)), NOW)
    for sequence in range(1, 65):
        wire = shows(made, "evil", f"shown/{sequence}", sequence, 8000, retain)
        assert counted(node.handle(Received("evil", wire), NOW), "forwarded") == 1
    if retain:
        effects = subscribe_at(node, made, "control", "shown/#", via="r2a")
        kept = [dict(send.wire.properties) for send in sent(effects, "r2a") if send.wire.retain]
    else:
        effects = [e for n in range(1, 65) for e in node.handle(Received("r2a", pull(made, n, publisher="evil")), NOW)]
        effects += node.handle(Received("r2a", pull(made, 1)), NOW)
        kept = [dict(send.wire.properties) for send in sent(effects, "r2a") if send.wire.payload]
    assert 5 < len(kept) <= 200_000 // 8000
    parties = {header_of(from_property(told[PROPERTY_HEADER])).publisher for told in kept}
    assert made.identities["site"].party_id in parties
