"""Floods (EventGuard E1, E4): they end at the first honest node, cost others nothing, and honest bursts pass.

A malicious replica of the first region floods an honest one of the second with what it can have: garbage, forgeries,
replays, publications that are properly signed by a member without the right, statements, keys, offers.
"""

from __future__ import annotations

import base64
import gc
import random
import tracemalloc
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import pytest
from nacl.bindings import crypto_sign_open

import bridge
import keys
from bridge.contract import budgets
from bridge.contract.budgets import REFUSED_BURST
from bridge.contract.machine import Count, Delay, Effect, Received, Send, Wire
from bridge.document.member_budgets import MemberBudgets
from bridge.document.policy import Scope
from bridge.membership.adopting import OVERLAY_TOPIC, OfferedVersion, canonical
from bridge.node import ReplicaNode
from bridge.replica.content_relay import RECENT_S
from bridge.topology import peers_of
from bridge.wire.pieces import NO_PART, PROPERTY_PART
from bridge.wire.statements import KEYS_TOPIC
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, Order, to_property
from keys.keyheader import KEY_DOMAIN
from tests.bridge.helpers import (
    counted,
    craft,
    forge_key,
    gateway,
    publish,
    replica,
    same_version,
    sent,
    statement,
    subscribe_at,
    with_properties,
)
from tests.sim.world import NOW, make_world

pytestmark = pytest.mark.invariant(64, 65)

SCOPES = [Scope("plant/#"), Scope("open/#")]
RIGHTS = {"spy": ((), ())}
WORLD = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "spy": 1, "evil": 1, "control": 2}, SCOPES, rights=RIGHTS)
KEYS = {name: forge_key(WORLD, name, "plant/#") for name in ("site", "spy", "evil")}
FLOOD = 3_000


def seed_of(epoch: int) -> bytes:
    return bytes(32)


def victim(limits: MemberBudgets | None = None) -> ReplicaNode:
    """A replica of the second region that honest neighbours use, with a subscriber."""
    node = replica(WORLD, "r2a", peers_of(WORLD.overlay, "r2a"))
    same_version(node, *sorted(peers_of(WORLD.overlay, "r2a")))
    if limits is not None:
        node = ReplicaNode(WORLD.with_policy(budgets=limits), WORLD.identities["r2a"], "r2a", seed_of)
        for peer in peers_of(WORLD.overlay, "r2a"):
            node.forwarder.link_up(peer, NOW)
    subscribe_at(node, WORLD, "control", "plant/#")
    return node


def honest(count: int) -> list[Wire]:
    """What an honest replica of the first region passes on of the publisher's."""
    site, near = gateway(WORLD, "site"), replica(WORLD, "r1a", peers_of(WORLD.overlay, "r1a"))
    subscribe_at(near, WORLD, "control", "plant/#", via="r2a")
    wires = []
    for n in range(1, count + 1):
        wire = publish(site, "plant/t", str(n).encode(), sequence=n, previous=n - 1)["r1a"]
        wires += [s.wire for s in sent(near.handle(Received("site", wire), NOW), "r2a")]
    return wires


def forged(n: int) -> Wire:
    wire = craft(WORLD, "site", "plant/t", sequence=1 + n, key=KEYS["site"])
    header = dict(wire.properties)[PROPERTY_HEADER]
    at = 100 + n % 30
    altered = header[:at] + ("A" if header[at] != "A" else "B") + header[at + 1 :]
    return Wire(wire.topic, wire.payload, 1, False, ((PROPERTY_HEADER, altered),))


@cache
def flood(kind: str) -> tuple[Wire, ...]:
    """Some distinct wires of one kind, repeated."""
    match kind:
        case "garbage":
            draw = random.Random(1)
            some = [Wire("plant/t", draw.randbytes(40), 1, False, ((PROPERTY_HEADER, "AAAA"),)) for _ in range(50)]
        case "forged":
            some = [forged(n) for n in range(50)]
        case "unauthorised":
            some = [craft(WORLD, "spy", "plant/t", sequence=n + 1, key=KEYS["spy"]) for n in range(50)]
        case "keys":
            some = [Wire(KEYS_TOPIC, b"", 1, False, KEYS["spy"].properties())]
        case "statements":
            some = [statement(WORLD, "spy", "plant/#", version=n + 1) for n in range(50)]
        case "offers":
            some = [Wire(OVERLAY_TOPIC, OfferedVersion(n, bytes(32)).encode()) for n in range(50)]
        case _:
            some = [Wire("$veil/other", b"x"), Wire("", b""), Wire(OVERLAY_TOPIC, b"\1\x0f\2" + bytes(60))]
    return tuple(some[n % len(some)] for n in range(FLOOD))


KINDS = ["garbage", "forged", "unauthorised", "keys", "statements", "offers", "other"]


@pytest.mark.attack(9)
@pytest.mark.parametrize("kind", KINDS)
def test_a_flood_dies_at_the_first_honest_node_and_honest_traffic_passes(kind: str):
    node, through = victim(), honest(60)
    delivered: list[Effect] = []
    flooded: list[Effect] = []
    for n, wire in enumerate(flood(kind)):
        flooded += node.handle(Received("r1b", wire), NOW + n / FLOOD)
        if n % (FLOOD // len(through)) == 0:
            delivered += node.handle(Received("r1a", through[n * len(through) // FLOOD]), NOW + n / FLOOD)
    # one question for an overlay is all that an offer moves us to, and it goes to the liar itself
    assert {e.peer for e in flooded if isinstance(e, Send)} <= ({"r1b"} if kind == "offers" else set())
    assert sum(isinstance(effect, Send) for effect in flooded) <= (1 if kind == "offers" else 0)
    assert counted(flooded, "forwarded") == 0
    assert (counted(delivered, "forwarded"), len(sent(delivered, "control"))) == (60, 60)


def distinct(kind: str, n: int) -> Wire:
    """The n-th wire of a kind that never repeats itself: whatever remembers a part of each grows with it."""
    match kind:
        case "garbage":
            header = base64.urlsafe_b64encode(n.to_bytes(60)).decode()
            return Wire(f"plant/{n}", n.to_bytes(40), 1, False, ((PROPERTY_HEADER, header),))
        case "forged":  # signed for another topic
            wire = craft(WORLD, "site", f"plant/{n}", sequence=n + 1, key_id=(n + 1).to_bytes(16))
            return Wire(f"plant/{n + 1}", wire.payload, 1, False, wire.properties)
        case "unauthorised":
            return craft(WORLD, "spy", f"plant/{n}", sequence=n + 1, key_id=(n + 1).to_bytes(16))
        case "keys":
            return Wire(KEYS_TOPIC, b"", 1, False, forge_key(WORLD, "spy", "plant/#", salt=n).properties())
        case "statements":
            return statement(WORLD, "spy", f"plant/{n}", version=n + 1)
        case "offers":
            return Wire(OVERLAY_TOPIC, OfferedVersion(n, bytes(32)).encode())
        case _:
            return Wire(f"$veil/{n}", b"x")


def traced_bytes() -> int:
    """What is kept of all that was made on behalf of the node: what other threads of this process do is not counted."""
    ours = [tracemalloc.Filter(True, str(Path(of.__file__).parent / "*"), all_frames=True) for of in (bridge, keys)]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_flood_leaves_behind_does_not_grow_with_it(kind: str, monkeypatch: pytest.MonkeyPatch):
    """At a pace at which the link stays open, so that every wire is read; tables are full after the first of them."""
    for bound in ("HEADERS_MAX", "VERIFIED_KEYS_MAX", "RIGHTS_MAX"):
        monkeypatch.setattr(f"bridge.wire.admission.{bound}", 64)
    # Tests remember good signatures (`tests.conftest`), the product does not.
    monkeypatch.setattr("keys.identity.crypto_sign_open", crypto_sign_open)
    node, wires = victim(), [distinct(kind, n) for n in range(1_400)]
    read = 0
    kept_bytes = []
    tracemalloc.start(8)  # before the tables are full, or what replaces an entry of before would count as growth
    try:
        for some in (range(400), range(400, 1_400)):
            for n in some:
                read += not counted(node.handle(Received("r1b", wires[n]), NOW + n / 40), "link_throttled")
            gc.collect()  # what only refers to itself is not kept
            kept_bytes.append(traced_bytes())
    finally:
        tracemalloc.stop()
    grown_bytes = kept_bytes[1] - kept_bytes[0]
    assert read == 1_400
    # a table that is full still grows by a little: its hash table is laid out anew, an entry replaces a smaller one
    assert grown_bytes < 20 * 1_000, "less than the smallest object for each wire"


def test_a_link_that_brings_forgeries_is_read_no_further_until_its_budget_refills():
    node = victim()
    effects = [e for wire in flood("forged") for e in node.handle(Received("r1b", wire), NOW)]
    assert counted(effects, "refused") == REFUSED_BURST
    assert counted(effects, "link_throttled") == FLOOD - REFUSED_BURST
    wire = with_properties(honest(1)[0], without=(PROPERTY_KEY, PROPERTY_SHARES))
    assert counted(node.handle(Received("r1b", wire), NOW), "link_throttled") == 1
    assert counted(node.handle(Received("r1b", wire), NOW + 60), "forwarded") == 1


@pytest.mark.attack(10)
def test_replays_are_dropped_and_cost_their_link_nothing():
    """Copies over several links are how delivery survives: an honest neighbour's are not told from a liar's."""
    node = victim()
    through = [with_properties(wire, without=(PROPERTY_KEY, PROPERTY_SHARES)) for wire in honest(30)]
    first = [e for wire in through for e in node.handle(Received("r1a", wire), NOW)]
    again = [e for _ in range(40) for wire in through for e in node.handle(Received("r1b", wire), NOW)]
    assert counted(first, "forwarded") == 30
    assert (counted(again, "forwarded"), sent(again), counted(again, "link_throttled")) == (0, [], 0)
    assert counted(again, "duplicates_dropped") == 40 * 30


@pytest.mark.attack(10)
def test_replays_of_what_is_forgotten_are_not_verified(monkeypatch: pytest.MonkeyPatch):
    """Attack: a liar replays, and forges, what passed longer ago than anything about it is remembered."""
    node = victim()
    through = [with_properties(wire, without=(PROPERTY_KEY, PROPERTY_SHARES)) for wire in honest(30)]
    for wire in through:
        node.handle(Received("r1a", wire), NOW)
    later = NOW + RECENT_S + 1
    node.handle(Received("r1a", honest(31)[-1]), later)  # what is old is forgotten when something comes
    node.forwarder._admission._admitted.clear()
    monkeypatch.setattr("bridge.wire.admission.verify_header", verified := Mock())
    forgeries = [replace(wire, payload=b"x") for wire in through]
    effects = [e for wire in (*through, *forgeries) for e in node.handle(Received("r1b", wire), later)]
    assert (counted(effects, "duplicates_dropped"), sent(effects)) == (60, [])
    assert not verified.called
    assert not counted(effects, "refused")


def test_honest_bursts_and_a_policy_in_transition_are_not_throttled():
    """While a revocation spreads, a neighbour that has not heard of it passes the revoked member's publications on."""
    node = victim()
    node.offered(canonical_without_site(), NOW)
    (wire, *_) = honest(1)
    effects = [e for _ in range(5_000) for e in node.handle(Received("r1a", wire), NOW)]
    assert (counted(effects, "refused"), counted(effects, "link_throttled")) == (5_000, 0)


@pytest.mark.attack(29)
@pytest.mark.parametrize("how", ["old", "to come", "of an outlived start", "unauthorised"])
def test_what_an_author_makes_honest_neighbours_bring_closes_the_link_for_that_author_only(
    how: str, monkeypatch: pytest.MonkeyPatch
):
    """Attack: a publisher signs what one honest replica takes and the next refuses: times at the edge of what clocks
    allow, publications of a start before one that it told somebody else, a right that ends here first. All honest
    neighbours bring that, as fast as it likes."""
    monkeypatch.setattr(budgets, "REFUSED_BURST", 20.0)
    node, (wire, *_) = victim(), honest(1)
    if how == "of an outlived start":
        later = replace(key := KEYS["evil"].header, order=Order(int(NOW * 1000) - 1, 1))
        later = replace(later, signature=WORLD.identities["evil"].sign(KEY_DOMAIN, later.signed_bytes))
        told = ((PROPERTY_KEY, to_property(later.encode())),)
        node.handle(Received("r1b", Wire(KEYS_TOPIC, b"", 1, False, KEYS["evil"].properties())), NOW)
        node.handle(Received("r1b", Wire(KEYS_TOPIC, b"", properties=told)), NOW)
        assert key.order.generation < later.order.generation
    time_ms = int(NOW * 1000) + {"old": -4_000_000, "to come": 400_000}.get(how, 0)
    author = "spy" if how == "unauthorised" else "evil"
    sealed = {"key_id": KEYS[author].header.key_id, "content": b"sealed"}
    late = [
        craft(WORLD, author, "plant/t", sequence=n, time_ms=time_ms, retain=how == "to come", **sealed)
        for n in range(1, 260)
    ]
    effects = [effect for each in late for effect in node.handle(Received("r1a", each), NOW)]
    assert 190 <= counted(effects, "refused") <= 210
    assert counted(effects, "link_throttled") == len(late) - counted(effects, "refused")
    assert counted(node.handle(Received("r1a", wire), NOW), "forwarded") == 1, "another author's, over the same link"
    others = craft(WORLD, author, "plant/t", sequence=900, **sealed)
    assert counted(node.handle(Received("r1b", others), NOW), "link_throttled") == 0, "the author's, over another link"
    assert counted(node.handle(Received("r1a", others), NOW + 60), "link_throttled") == 0


@pytest.mark.attack(29)
def test_a_liar_that_replays_what_many_authors_signed_closes_its_own_link(monkeypatch: pytest.MonkeyPatch):
    """Each of them pays at that link alone, and together they cost the link itself."""
    monkeypatch.setattr(budgets, "REFUSED_BURST", 1.0)
    guard = budgets.LinkGuard()
    for n in range(60):
        guard.charge("r1b", [Count("refused", 1, "NotFresh", bytes([n]) * 16)], NOW)
    assert guard.closed("r1b", (), NOW)
    assert not guard.closed("r1a", (), NOW)


def canonical_without_site() -> bytes:
    return canonical(WORLD.revoked("site", -1))


@pytest.mark.attack(9)
def test_a_verified_publisher_pays_for_its_own_flood_and_no_other_does():
    """Sixty batches that were sealed at once, where ten a second are allowed: behind the publisher's region four
    seconds' worth goes on. Waiting gives nothing: what counts is when the publisher sealed."""
    node = victim(MemberBudgets(batches=10))
    other = gateway(WORLD, "control")
    through = honest(61)
    effects = [e for wire in through[:60] for e in node.handle(Received("r1a", wire), NOW)]
    assert counted(effects, "forwarded") == 40
    assert counted(effects, "publisher_throttled") == 20
    wire = publish(other, "plant/u", sequence=1)["r2a"]
    assert counted(node.handle(Received("control", wire), NOW), "forwarded") == 1
    assert counted(node.handle(Received("r1a", through[-1]), NOW + 50), "publisher_throttled") == 1
    sealed = {"key_id": KEYS["site"].header.key_id, "content": b"sealed"}
    later = craft(
        WORLD, "site", "plant/t", sequence=900, time_ms=int(NOW * 1000) + 1000, order=(int(NOW * 1000), 1), **sealed
    )
    assert counted(node.handle(Received("r1b", later), NOW + 2), "forwarded") == 1


@pytest.mark.attack(9)
def test_what_was_kept_back_may_come_at_four_times_its_budget():
    """Attack: a liar keeps everything of an hour back, and brings it at once. Or an outage is over."""
    node = victim(MemberBudgets(batches=10))
    sealed = {"key_id": KEYS["site"].header.key_id, "content": b"sealed"}
    wires = [
        craft(WORLD, "site", "plant/t", sequence=n, time_ms=int(NOW * 1000) - 600_000 + n * 1000, **sealed)
        for n in range(1, 200)
    ]
    effects = [e for wire in wires for e in node.handle(Received("r1b", wire), NOW)]
    assert counted(effects, "forwarded") == 160
    assert counted(effects, "publisher_throttled") == 39
    again = [e for wire in wires[160:] for e in node.handle(Received("r1a", wire), NOW + 2)]
    assert counted(again, "forwarded") == 39, "what was dropped is not remembered"


@pytest.mark.attack(9)
def test_a_replica_of_the_publishers_own_region_drops_nothing_and_acknowledges_later():
    home = ReplicaNode(WORLD.with_policy(budgets=MemberBudgets(batches=10)), WORLD.identities["r1a"], "r1a", seed_of)
    site = gateway(WORLD, "site")
    effects = [
        e
        for n in range(1, 101)
        for e in home.handle(Received("site", publish(site, "plant/t", sequence=n, previous=n - 1)["r1a"]), NOW)
    ]
    assert (counted(effects, "forwarded"), counted(effects, "publisher_throttled")) == (100, 0)
    delays = [effect.delay_s for effect in effects if isinstance(effect, Delay)]
    assert delays == pytest.approx([n / 10 for n in range(1, 61)]), "all but the first forty wait, the last for 6 s"
    assert counted(effects, "publisher_delayed") == 60
    assert not counted(effects, "refused")


def test_new_keys_without_end_are_acknowledged_later_too():
    home = ReplicaNode(WORLD.with_policy(budgets=MemberBudgets(keys=1)), WORLD.identities["r1a"], "r1a", seed_of)
    for salt in range(4):
        carried = forge_key(WORLD, "site", "plant/#", salt=salt)
        wire = Wire(KEYS_TOPIC, b"", 1, False, carried.properties(carried.shares[:1]))
        assert not [e for e in home.handle(Received("site", wire), NOW) if isinstance(e, Delay)]
        assert not counted(home.handle(Received("site", wire), NOW), "data_keys"), "once"
    last = forge_key(WORLD, "site", "plant/#", salt=9)
    wire = Wire(KEYS_TOPIC, b"", 1, False, last.properties(last.shares[:1]))
    assert [e.delay_s for e in home.handle(Received("site", wire), NOW) if isinstance(e, Delay)] == [1.0]


@pytest.mark.attack(66)
@pytest.mark.parametrize("qos", [0, 1])
def test_what_has_expired_before_it_came_is_paid_for_as_all_else(qos: int):
    """Attack: publications whose deadline is long past. Each is verified, and of QoS 1 the header goes everywhere."""

    def over(n: int) -> Wire:
        sealed = {"key_id": KEYS["site"].header.key_id, "content": b"sealed", "qos": qos, "deadline_ms": 1}
        return craft(WORLD, "site", "plant/t", sequence=n, **sealed)

    home = ReplicaNode(WORLD.with_policy(budgets=MemberBudgets(batches=10)), WORLD.identities["r1a"], "r1a", seed_of)
    effects = [e for n in range(1, 101) for e in home.handle(Received("site", over(n)), NOW)]
    assert [e.delay_s for e in effects if isinstance(e, Delay)] == pytest.approx([n / 10 for n in range(1, 61)])
    node = victim(MemberBudgets(batches=10))
    effects = [e for n in range(1, 101) for e in node.handle(Received("r1b", over(n)), NOW)]
    went = [effect for effect in sent(effects) if effect.peer == "control"]
    assert (len(went), counted(effects, "publisher_throttled")) == ((40, 60) if qos else (0, 0))
    again = [e for _ in range(9) for e in node.handle(Received("r1c", over(1)), NOW + 1000)]
    assert not counted(again, "forwarded"), "who repeats it spends nothing"


def test_nobody_can_spend_anothers_budget():
    """Attack: forgeries in the publisher's name."""
    node = victim(MemberBudgets(batches=10))
    for wire in flood("forged")[:500]:
        node.handle(Received("r1b", wire), NOW)
    effects = [e for wire in honest(20) for e in node.handle(Received("r1a", wire), NOW)]
    assert counted(effects, "forwarded") == 20


def test_bytes_count_too():
    node = victim(MemberBudgets(sealed_bytes=75))
    effects = [e for wire in honest(60) for e in node.handle(Received("r1a", wire), NOW)]
    assert 0 < counted(effects, "forwarded") < 60
    assert counted(effects, "publisher_throttled") > 0


def test_bytes_that_come_after_their_header_count_too():
    """Attack: announce everything first, so that content is no news."""
    node = victim(MemberBudgets(sealed_bytes=75))
    effects = []
    for wire in honest(60):
        announced = Wire(wire.topic, b"", 1, False, (*wire.properties, (PROPERTY_PART, NO_PART)))
        effects += [e for each in (announced, wire) for e in node.handle(Received("r1a", each), NOW)]
    assert 0 < counted(effects, "content_after") < 60
    assert counted(effects, "publisher_throttled") > 0
