"""What is retained on a topic, at a subscriber that has just come: the newest, once, within bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract.machine import Acked, Effect, Received, Tick, Wire
from bridge.document.overlay import Overlay
from bridge.document.region_view import Member
from bridge.node import GatewayNode
from bridge.reader.kept import RETAINED, KeptReader, of_kind
from bridge.reader.newest_retained import RETAINED_LIVE_S, RETAINED_WAIT_S, Joining, Rank
from bridge.reader.streams import Held
from bridge.reader.waiting import KEPT_OVERHEAD_BYTES, REPAIR_S
from bridge.wire.admission import Admission
from keys.identity import Identity
from tests.bridge.helpers import craft, delivered, forge_key, gateway, publish, sent, subscriber, with_properties
from tests.sim.world import NOW, World, make_world

WORLD = make_world({1: 3}, [], {"a": 1, "b": 1})
REPLICAS = ("r1a", "r1b", "r1c")


def rotated(world: World, name: str, seed: int = 0) -> World:
    """The member has another signing key; its former certificate counts still."""
    assert world.owner is not None
    fresh, before = Identity.generate(bytes([seed, *reversed(range(31))])), world.overlay.certificate(name)
    bare = replace(before, public_key=fresh.public_bytes, agreement_key=fresh.agreement_bytes)
    fields = {f: getattr(bare, f) for f in before.__slots__ if f != "signature"}
    members = {**world.overlay.members, name: Member(before.issue(world.owner, **fields), before=before)}
    policy = replace(world.overlay.policy, version=world.overlay.policy.version + 1)
    overlay = Overlay.sign(world.owner, policy, world.overlay.latest.values(), members.values())
    return replace(world, overlay=overlay, identities={**world.identities, name: fresh})


def held(
    publisher: str, sequence: int, sealed: float, topic: str = "plant/t", arrived: float = NOW,
    order: tuple[int, int] = (0, 0), snapshot: bool = False, world: World = WORLD,
) -> Held:  # fmt: skip
    wire = craft(
        world, publisher, topic, sequence=sequence, now=sealed, key_id=b"k" * 16, content=b"c", retain=True,
        order=order, snapshot=snapshot,
    )  # fmt: skip
    admitted = Admission(world.overlay, replica=True).publication(dict(wire.properties)["vmq"], wire.topic, arrived)
    return Held(admitted, wire.payload, wire.topic, arrived, admitted.header.publisher)


def told(joining: Joining, one: Held, at: float = NOW) -> Rank:
    return joining.take_opened(one, int(at * 1000))


def test_only_what_was_sealed_a_while_ago_may_be_old():
    assert not Joining.may_be_old(held("a", 1, NOW - RETAINED_LIVE_S + 0.1))
    assert Joining.may_be_old(held("a", 1, NOW - RETAINED_LIVE_S - 0.1))
    assert Joining.may_be_old(held("a", 1, NOW, snapshot=True)), "it was published before, whenever it was sealed"


def test_after_the_wait_the_newest_of_each_topic_is_taken_up():
    joining = Joining(WORLD.overlay)
    assert joining.next_deadline is None
    offered = [joining.offer(h) for h in (
        held("a", 1, NOW - 50), held("b", 9, NOW - 60), held("a", 2, NOW - 40), held("b", 1, NOW - 99, "plant/u"),
    )]  # fmt: skip
    assert offered == [True, True, True, True]
    assert joining.next_deadline == NOW + RETAINED_WAIT_S
    assert joining.take_due(NOW + RETAINED_WAIT_S - 0.1) == []
    due = joining.take_due(NOW + RETAINED_WAIT_S)
    numbers = [(h.admitted.publisher.name, h.admitted.header.sequence) for h in due]
    assert numbers == [("a", 2), ("b", 9), ("b", 1)], "of each member the last, what was sealed last first"
    assert joining.next_deadline is None


def test_later_offers_do_not_prolong_the_wait():
    joining = Joining(WORLD.overlay)
    joining.offer(held("a", 1, NOW - 50))
    joining.offer(held("a", 2, NOW - 40, arrived=NOW + 0.4))
    assert len(joining.take_due(NOW + RETAINED_WAIT_S)) == 1


def test_what_its_member_overtook_while_it_waited_is_dropped():
    joining = Joining(WORLD.overlay)
    joining.offer(held("a", 1, NOW - 50))
    assert told(joining, held("a", 2, NOW)) is Rank.NEWEST
    assert joining.take_due(NOW + RETAINED_WAIT_S) == []
    assert not joining.offer(held("a", 1, NOW - 50))
    assert not joining.offer(held("a", 2, NOW)), "it is known"


@pytest.mark.attack(23)
def test_an_older_one_that_was_sealed_later_waits_in_vain():
    """A rollback: a clone or a liar that has the value of yesterday, sealed in a later life or again today."""
    joining = Joining(WORLD.overlay)
    assert joining.offer(held("a", 7, NOW - 50, order=(5, 1)))
    for rolled in (held("a", 6, NOW - 3, order=(9, 1)), held("a", 7, NOW - 3, order=(4, 9)), held("a", 7, NOW - 50)):
        assert not joining.offer(rolled)
    assert joining.offer(held("a", 7, NOW - 60, order=(5, 2)))
    ((one),) = joining.take_due(NOW + RETAINED_WAIT_S)
    assert told(joining, one) is Rank.NEWEST
    assert told(joining, held("a", 6, NOW, order=(9, 1))) is Rank.OVERTAKEN


def test_of_several_members_last_ones_that_which_was_published_last_has_the_topic_whenever_it_was_sealed():
    joining = Joining(WORLD.overlay)
    assert told(joining, held("a", 1, NOW - 50), NOW - 60) is Rank.NEWEST
    assert told(joining, held("b", 1, NOW - 40), NOW - 55) is Rank.NEWEST
    assert told(joining, held("a", 2, NOW), NOW - 57) is Rank.OVERTAKEN
    assert told(joining, held("a", 1, NOW + 1), NOW) is Rank.OVERTAKEN, "one member's go by its numbers"
    assert told(joining, held("a", 3, NOW), NOW + 1e6) is Rank.NEWEST
    assert told(joining, held("b", 2, NOW + 1), NOW + 1) is Rank.NEWEST, "nobody publishes after it seals"


@pytest.mark.attack(23)
@given(st.permutations([("a", 1, 60), ("a", 2, 30), ("a", 3, 20), ("b", 1, 50), ("b", 2, 25), ("b", 3, 20)]))
def test_whatever_comes_first_the_same_has_the_topic(values: list[tuple[str, int, int]]):
    """The last that is told to be the newest is retained; of one time the later name's, at every reader."""
    joining, has = Joining(WORLD.overlay), ("", 0)
    for member, number, age_s in values:
        if told(joining, held(member, number, NOW - age_s), NOW - age_s) is Rank.NEWEST:
            has = member, number
    assert has == ("b", 3)


def test_a_flooder_of_topics_displaces_only_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.reader.newest_retained.WAITING_BYTES", 6 * KEPT_OVERHEAD_BYTES - 1)
    joining = Joining(WORLD.overlay)
    joining.offer(held("a", 1, NOW - 50))
    for n in range(20):
        joining.offer(held("b", n + 1, NOW - 50, f"open/{n}"))
    due = joining.take_due(NOW + RETAINED_WAIT_S)
    assert len(due) == 5
    assert "a" in [h.admitted.publisher.name for h in due]
    assert joining.next_deadline is None


def test_members_of_a_topic_are_forgotten_with_what_they_published(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.reader.newest_retained.NEWEST_MAX", 3)
    kept = KeptReader()
    joining = Joining(WORLD.overlay, kept)
    for n in range(9):
        told(joining, held("a", n + 1, NOW, f"plant/{n}"))
    assert len(joining._members) == 3
    ((keep,),) = [kept.changed_rows(NOW)]
    assert sum(row is not None for key, row in keep.rows if key[:1] == RETAINED) == 3  # type: ignore[union-attr]


def test_what_is_known_outlives_the_process():
    kept = KeptReader()
    joining = Joining(WORLD.overlay, kept)
    told(joining, held("a", 1, NOW - 9, order=(3, 2)), NOW - 9)
    told(joining, held("b", 5, NOW - 5), NOW - 5)
    ((keep,),) = [kept.changed_rows(NOW)]
    again = Joining(WORLD.overlay)
    for key, row in of_kind([row for row in keep.rows if row[1] is not None], RETAINED):  # type: ignore[union-attr]
        again.restore(key.decode(), row)
    assert not again.offer(held("a", 1, NOW - 9, order=(3, 2)))
    assert again.offer(held("a", 1, NOW - 9, order=(3, 3)))
    assert told(again, held("a", 3, NOW), NOW - 7) is Rank.OVERTAKEN


@pytest.mark.parametrize("after_s", [1.0, REPAIR_S + 1.0])
def test_what_waits_in_its_chain_and_comes_as_a_snapshot_is_delivered_once(after_s: float):
    """Its predecessor was lost with the memory of all replicas; its author sealed it anew for them."""
    reader = subscriber(WORLD, "b")

    def wires(sequence: int, previous: int, now: float, retain: bool, snapshot: bool = False) -> dict[str, Wire]:
        key = forge_key(WORLD, "a", "plant/#", 10 * sequence + snapshot)
        wire = craft(
            WORLD, "a", "plant/t", sequence=sequence, previous=previous, key=key, now=now, retain=retain,
            snapshot=snapshot,
        )  # fmt: skip
        return {r: with_properties(wire, *key.properties([key.shares[at]])) for at, r in enumerate(REPLICAS)}

    got = to(reader, wires(1, 0, NOW, retain=False), NOW) + to(reader, wires(3, 2, NOW, retain=True), NOW)
    got += to(reader, wires(4, 3, NOW, retain=False), NOW)
    assert [each.sequence for each in delivered(got)] == [1]
    got = to(reader, wires(3, 0, NOW + 1, retain=True, snapshot=True), NOW + after_s)
    got += reader.handle(Tick(), NOW + 3 * REPAIR_S)
    assert [each.sequence for each in delivered(got)] == [3, 4]


# ----------------------------------------------------------------------------------------------- rotated keys


def to(node: GatewayNode, wires: dict[str, Wire], now: float) -> list[Effect]:
    """From every replica, and what waited for others is taken up."""
    effects = [effect for peer, wire in wires.items() for effect in node.handle(Received(peer, wire), now)]
    return effects + node.handle(Tick(), now + RETAINED_WAIT_S)


@pytest.mark.parametrize("is_there", [True, False], ids=["snapshot", "in its chain"])
def test_what_its_author_seals_anew_after_a_rotation_is_not_told_again(is_there: bool):
    site, reader = gateway(WORLD, "a"), subscriber(WORLD, "b")
    first = publish(site, "plant/t", sequence=1, retain=True)
    assert len(delivered(to(reader, first, NOW))) == 1
    for peer in REPLICAS if is_there else ():
        site.handle(Acked(peer, 1), NOW)
    after = rotated(WORLD, "a")
    site.publisher.rotate_identity(after.identities["a"])
    effects = site.publisher.adopt_overlay(after.overlay, after.secrets, NOW + 9)
    reader.collector.adopt_overlay(after.overlay, after.secrets, NOW + 9)
    again = {send.peer: send.wire for send in sent(effects)}
    assert again.keys() == set(REPLICAS)
    assert again["r1a"].topic != first["r1a"].topic
    assert delivered(to(reader, again, NOW + 9)) == []
    assert [d.publication.payload for d in delivered(to(reader, publish(site, "plant/t", b"y", sequence=2,
            previous=1, retain=True, now=NOW + 20), NOW + 20))] == [b"y"]  # fmt: skip


@pytest.mark.attack(34)
def test_of_one_author_the_present_key_has_the_last_word():
    """Whoever stole the former key may not pin a topic for ever with the greatest number that there is."""
    after = rotated(WORLD, "a")
    joining = Joining(WORLD.overlay)
    assert told(joining, held("a", 5, NOW)) is Rank.NEWEST
    joining.adopt_overlay(after.overlay)
    assert told(joining, held("a", 5, NOW + 1, world=after), NOW) is Rank.KNOWN
    assert told(joining, held("a", 1 << 40, NOW + 2, order=(9, 9)), NOW + 2) is Rank.OVERTAKEN
    assert not joining.offer(held("a", 1 << 40, NOW - 50, order=(9, 9), world=WORLD))
    joining = Joining(WORLD.overlay)
    assert told(joining, held("a", 1 << 40, NOW, order=(9, 9))) is Rank.NEWEST
    joining.adopt_overlay(after.overlay)
    assert joining.offer(held("a", 5, NOW + 1, snapshot=True, world=after))
    ((one),) = joining.take_due(NOW + 1 + RETAINED_WAIT_S)
    assert told(joining, one, NOW + 1) is Rank.NEWEST


def test_what_is_sealed_anew_after_a_rotation_outranks_before_it_is_opened():
    """Else a thief's later one would, though the true one came and was known already."""
    after = rotated(WORLD, "a")
    joining = Joining(after.overlay)
    assert told(joining, held("a", 5, NOW)) is Rank.NEWEST
    assert not joining.offer(held("a", 5, NOW + 1, snapshot=True, world=after))
    assert not joining.offer(held("a", 6, NOW - 50))
    assert joining.offer(held("a", 6, NOW - 50, world=after))
