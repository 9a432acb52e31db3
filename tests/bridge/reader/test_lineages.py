"""One member, one key after another: what it seals anew under the next one is no news."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract.machine import Deliver, Effect, Keep, Received, Restored, Tick, Wire
from bridge.document.overlay import Overlay
from bridge.document.policy import Refresh, Scope
from bridge.node import GatewayNode
from bridge.reader.intake import NUMBERS_PER_MS, Lineages
from bridge.reader.waiting import REPAIR_S
from tests.bridge.helpers import delivered, gateway, publish, subscriber
from tests.bridge.reader.test_newest_retained import rotated
from tests.sim.world import NOW, World, make_world

WORLD = make_world({1: 3}, [], {"a": 1, "b": 1})
AFTER = rotated(WORLD, "a")


def to(node: GatewayNode, wires: dict[str, Wire], now: float = NOW) -> list[Deliver]:
    effects = [effect for peer, wire in wires.items() for effect in node.handle(Received(peer, wire), now)]
    return delivered(effects)


def numbers(found: list[Deliver]) -> list[int]:
    return [each.sequence for each in found]


def adopt(node: GatewayNode, world: World, now: float = NOW + 1) -> list[Effect]:
    return node.collector.adopt_overlay(world.overlay, world.secrets, now)


def test_what_is_sealed_anew_under_the_next_key_is_delivered_once():
    reader = subscriber(WORLD, "b")
    assert numbers(to(reader, publish(gateway(WORLD, "a"), "plant/t", sequence=1))) == [1]
    adopt(reader, AFTER)
    again = gateway(AFTER, "a")  # killed before its replicas acknowledged, and started with its new key
    assert to(reader, publish(again, "plant/t", sequence=1, now=NOW + 2), NOW + 2) == []
    assert numbers(to(reader, publish(again, "plant/t", sequence=2, previous=1, now=NOW + 2), NOW + 2)) == [2]


END = WORLD.overlay.certificate("a").not_after_ms * NUMBERS_PER_MS
FIRST, SECOND = WORLD.overlay.certificate("a").party_id, AFTER.overlay.certificate("a").party_id


def without_former(world: World) -> World:
    """The owner lists the former key no longer."""
    assert world.owner is not None
    members = [replace(member, before=None) for member in world.overlay.members.values()]
    policy = replace(world.overlay.policy, version=world.overlay.policy.version + 1)
    overlay = Overlay.sign(world.owner, policy, world.overlay.latest.values(), members)
    return replace(world, overlay=overlay)


def restarted(node: GatewayNode, effects: list[Effect], world: World) -> GatewayNode:
    rows: dict[bytes, bytes] = {}
    for effect in effects:
        for name, row in effect.rows if isinstance(effect, Keep) else ():
            rows.pop(name, None)
            rows.update({} if row is None else {name: row})
    again = subscriber(world, "b")
    again.handle(Restored(tuple(rows.items())), NOW + 3)
    return again


def test_from_the_end_of_the_former_key_on_numbers_are_the_next_keys_own():
    lineages = Lineages(AFTER.overlay)
    assert lineages.author(SECOND, END - 1) == FIRST == lineages.author(FIRST, END - 1)
    assert (lineages.author(SECOND, END), lineages.author(FIRST, END)) == (SECOND, FIRST)
    assert lineages.parties(SECOND, END - 1) == [SECOND, FIRST]
    assert Lineages(WORLD.overlay).parties(FIRST, 1) == [FIRST]


def test_who_stole_the_former_key_uses_up_no_number_of_the_next_one():
    reader = subscriber(WORLD, "b")
    adopt(reader, AFTER)
    thief = gateway(WORLD, "a")  # its key counts still
    to(reader, publish(thief, "plant/t", sequence=END + 5, now=NOW + 2), NOW + 2)
    honest = gateway(AFTER, "a")
    assert numbers(to(reader, publish(honest, "plant/t", sequence=END + 1, now=NOW + 2), NOW + 2)) == [END + 1]


def test_it_is_known_when_the_owner_lists_the_former_key_no_longer_and_after_a_restart():
    reader = subscriber(WORLD, "b")
    first = publish(gateway(WORLD, "a"), "plant/t", sequence=1)
    effects = [effect for peer, wire in first.items() for effect in reader.handle(Received(peer, wire), NOW)]
    adopt(reader, AFTER)
    effects += reader.handle(Tick(), NOW + 1)
    later = without_former(AFTER)
    adopt(reader, later, NOW + 2)
    effects += reader.handle(Tick(), NOW + 2)
    again = gateway(later, "a")
    assert to(reader, publish(again, "plant/t", sequence=1, now=NOW + 3), NOW + 3) == []
    assert to(restarted(reader, effects, later), publish(again, "plant/t", sequence=1, now=NOW + 3), NOW + 3) == []


def test_without_the_former_keys_word_there_is_no_lineage():
    reader = subscriber(WORLD, "b")
    assert numbers(to(reader, publish(gateway(WORLD, "a"), "plant/t", sequence=1))) == [1]
    replaced = without_former(AFTER)
    adopt(reader, replaced)
    assert numbers(to(reader, publish(gateway(replaced, "a"), "plant/t", sequence=1, now=NOW + 2), NOW + 2)) == [1]


def test_what_is_missed_is_asked_for_under_both_keys():
    reader = subscriber(WORLD, "b")
    assert numbers(to(reader, publish(gateway(WORLD, "a"), "plant/t", sequence=1))) == [1]
    adopt(reader, AFTER)
    again = gateway(AFTER, "a")
    assert to(reader, publish(again, "plant/t", sequence=3, previous=2, now=NOW + 2), NOW + 2) == []
    asking = reader.collector._assembling
    assert all(asking._pulls.get((party, 2)) is not None for party in (FIRST, SECOND))
    late = publish(gateway(WORLD, "a"), "plant/t", sequence=2, previous=1, now=NOW + 2)
    assert numbers(to(reader, late, NOW + 3)) == [2, 3]


def test_rotations_one_after_another_are_one_lineage_and_rows_come_back():
    twice = rotated(replace(AFTER, overlay=without_former(AFTER).overlay), "a", seed=9)
    third = twice.overlay.certificate("a").party_id
    lineages = Lineages(AFTER.overlay)
    lineages.adopt_overlay(twice.overlay)
    assert lineages.author(third, 1) == lineages.author(SECOND, 1) == FIRST
    again = Lineages(twice.overlay)
    again.restore([(b"l damaged", b""), *lineages.all_rows()])
    assert again.author(third, 1) == FIRST
    alone = Lineages(twice.overlay)
    assert alone.author(third, 1) == SECOND, "who came later knows no more than the owner says"


def test_who_is_a_member_no_longer_is_forgotten():
    lineages = Lineages(AFTER.overlay)
    assert lineages.all_rows()
    assert AFTER.owner is not None
    members = [member for name, member in AFTER.overlay.members.items() if name != "a"]
    policy = replace(
        AFTER.overlay.policy,
        version=AFTER.overlay.policy.version + 1,
        grants=tuple(grant for grant in AFTER.overlay.policy.grants if grant.member != "a"),
    )
    lineages.adopt_overlay(Overlay.sign(AFTER.owner, policy, AFTER.overlay.latest.values(), members))
    assert lineages.all_rows() == []


ENDS_MS = int((NOW + 60) * 1000)
OWN = ENDS_MS * NUMBERS_PER_MS  # from here on numbers are the next key's own


LONG = make_world({1: 3}, [], {"a": 1, "b": 1}, [Scope("plant/#", refresh=Refresh(messages=1024))])


def ended() -> World:
    """The former key lasted for a minute longer."""
    after = rotated(LONG, "a")
    assert after.owner is not None
    member = after.overlay.members["a"]
    assert member.before is not None
    fields = {f: getattr(member.before, f) for f in member.before.__slots__ if f != "signature"}
    before = member.before.issue(after.owner, **{**fields, "not_after_ms": ENDS_MS})
    members = {**after.overlay.members, "a": replace(member, before=before)}
    return replace(
        after,
        overlay=Overlay.sign(after.owner, after.overlay.policy, after.overlay.latest.values(), members.values()),
    )


def chain_over_the_end(world: World, at: float) -> list[dict[str, Wire]]:
    """What a start with the next key sends: the last that the outbox had of before, and what came after it; its other
    scopes have numbers between."""
    again = gateway(world, "a")
    listed = [OWN - 55, OWN - 50, *range(OWN + 50, OWN + 50 + 2 * 70, 2)]
    return [
        publish(again, "plant/t", sequence=number, previous=before, now=at)
        for before, number in zip([OWN - 60, *listed], listed, strict=False)
    ]


@pytest.mark.attack(68)
def test_a_liar_that_brings_the_next_keys_numbers_first_puts_nothing_out_of_order_and_takes_nothing():
    """Attack: the reader was away for a minute. The liar brings what is numbered from the former key's end on; others
    bring the rest, which the numbers behind it would make a replay."""
    world, reader = ended(), subscriber(LONG, "b")
    to(reader, publish(gateway(LONG, "a"), "plant/t", sequence=OWN - 60))
    adopt(reader, world)
    at = NOW + 100
    with_key, first, *others = chain_over_the_end(world, at)
    assert numbers(to(reader, with_key, at)) == [OWN - 55]
    early = [wires for wires in others if not to(reader, {"r1c": wires["r1c"]}, at + 60)]
    assert len(early) == len(others), "they wait for what precedes them"
    asked = reader.collector._assembling._pulls
    assert [asked.get((key.party_id, OWN - 50)) is not None for key in world.overlay.members["a"].certificates] == [
        True,
        True,
    ]
    found = to(reader, {"r1a": first["r1a"], "r1b": first["r1b"]}, at + 61)
    assert numbers(found) == [OWN - 50, *range(OWN + 50, OWN + 190, 2)]
    assert not any(each.late for each in found)


@pytest.mark.attack(68)
def test_what_was_given_up_of_the_former_keys_numbers_comes_late_and_is_no_replay():
    world, reader = ended(), subscriber(LONG, "b")
    to(reader, publish(gateway(LONG, "a"), "plant/t", sequence=OWN - 60))
    adopt(reader, world)
    at = NOW + 100
    with_key, first, *others = chain_over_the_end(world, at)
    assert numbers(to(reader, with_key, at)) == [OWN - 55]
    for wires in others:
        to(reader, wires, at + 60)
    assert len(delivered(reader.handle(Tick(), at + 60 + REPAIR_S))) == len(others)
    found = to(reader, first, at + 80)
    assert [(each.sequence, each.late) for each in found] == [(OWN - 50, True)]
    assert to(reader, first, at + 81) == []


def test_who_subscribed_after_the_rotation_waits_for_nothing_of_before():
    world = ended()
    reader = subscriber(world, "b")
    again = gateway(world, "a")
    for before, number in ((OWN - 50, OWN + 50), (OWN + 50, OWN + 52)):
        wires = publish(again, "plant/t", sequence=number, previous=before, now=NOW + 100)
        assert numbers(to(reader, wires, NOW + 100)) == [number]
