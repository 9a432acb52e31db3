"""Endorsements: by members of the view before, after newcomers had time, and told to whoever may lack them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract.machine import Send
from bridge.document.overlay import Overlay
from bridge.document.region_view import Endorsement
from bridge.membership.endorsing import ATTACH_S, VIEWS_TOPIC, Endorser, told
from keys.identity import Identity
from tests.sim.changing import changed, endorsed_by
from tests.sim.world import NOW, World, make_world
from tests.support.regions import fresh, row_of_regions

world = fresh(row_of_regions, 2, {"site": 1})


def grown(world: World) -> Overlay:
    """Region 1 gets a fourth replica."""
    return changed(world, world.overlay, 1, ("r1a", "r1b", "r1c", "r1d"), NOW)


def endorser(world: World, name: str) -> Endorser:
    identity = world.identities[name] if name.startswith("r") else None
    return Endorser(name, identity)


def test_a_member_of_the_view_before_endorses_once_newcomers_had_time_to_link_up(world: World) -> None:
    newer, one = grown(world), endorser(world, "r1a")
    one.adopt_overlay(newer, NOW)
    assert one.next_deadline == NOW + ATTACH_S
    assert one.due_endorsements(newer, NOW + ATTACH_S - 0.1) == []
    (made,) = one.due_endorsements(newer, NOW + ATTACH_S)
    assert made.names_view(newer.latest[1])
    made.verify(world.identities["r1a"].public_bytes)
    assert (one.due_endorsements(newer, NOW + 99), one.next_deadline) == ([], None), "once"


def test_a_view_that_is_in_force_already_is_endorsed_at_once(world: World) -> None:
    newer, one = grown(world), endorser(world, "r1a")
    in_force = newer.endorsed(endorsed_by(world, newer, 1, "r1b", "r1c"), NOW)
    one.adopt_overlay(in_force, NOW)
    assert one.next_deadline == NOW, "it counts already: nobody is waited for"


@pytest.mark.parametrize("name", ["r1d", "r2a", "site", "stranger"])
def test_nobody_else_endorses(world: World, name: str) -> None:
    newer = grown(world)
    other = Endorser(name, world.identities.get(name) if name != "site" else None)
    other.adopt_overlay(newer, NOW)
    assert other.next_deadline is None
    assert other.due_endorsements(newer, NOW + 99) == []


def test_what_is_endorsed_or_has_no_view_before_is_not_endorsed(world: World) -> None:
    one = endorser(world, "r1a")
    one.adopt_overlay(world.overlay, NOW)
    assert one.next_deadline is None
    newer = grown(world)
    mine = newer.endorsed(endorsed_by(world, newer, 1, "r1a"), NOW)
    one.adopt_overlay(mine, NOW)
    assert one.next_deadline is None


def test_a_later_version_outdates_what_was_due(world: World) -> None:
    one = endorser(world, "r1a")
    one.adopt_overlay(grown(world), NOW)
    one.adopt_overlay(world.overlay, NOW + 1)
    assert one.next_deadline is None


def test_who_links_up_is_told_what_it_may_lack_and_who_agrees_once(world: World) -> None:
    newer, one = grown(world), endorser(world, "r2a")
    known = newer.endorsed(endorsed_by(world, newer, 1, "r1a"), NOW)
    one.adopt_overlay(known, NOW)
    (send,) = one.link_up("r1b", known)
    assert isinstance(send, Send)
    assert (send.peer, send.wire.topic) == ("r1b", VIEWS_TOPIC)
    assert Endorsement.decode(send.wire.payload).member == "r1a"
    assert len(one.agrees("r1c", known)) == 1
    assert one.agrees("r1c", known) == []
    assert len(one.link_up("r1c", known)) == 1
    assert len(one.agrees("r1c", known)) == 1, "it lost its memory, perhaps"
    assert one.link_up("r1b", world.overlay) == []


def test_everybody_is_told_in_one_order(world: World) -> None:
    newer = grown(world)
    all_of_them = endorsed_by(world, newer, 1, "r1a", "r1b")
    sends = told(all_of_them, ["z", "a"])
    assert [send.peer for send in sends if isinstance(send, Send)] == ["a", "a", "z", "z"]
    assert sends == told(all_of_them[::-1], ["a", "z"])


def test_topics_are_those_of_the_protocol() -> None:
    assert VIEWS_TOPIC == "$veil/views"


def test_a_new_key_pair_endorses_again_and_gives_nobody_a_voice_that_had_none(world: World) -> None:
    newer, one = grown(world), endorser(world, "r1a")
    fresh = Identity.generate(bytes(range(3, 35)))
    one.adopt_overlay(newer, NOW)
    assert len(one.due_endorsements(newer, NOW + ATTACH_S)) == 1
    one.rotate_identity(fresh, newer, NOW + 3)
    assert one.next_deadline == NOW + 3 + ATTACH_S
    (made,) = one.due_endorsements(newer, NOW + 3 + ATTACH_S)
    made.verify(fresh.public_bytes)
    gateway = Endorser("r1a", None)
    gateway.rotate_identity(fresh, newer, NOW)
    gateway.adopt_overlay(newer, NOW)
    assert gateway.next_deadline is None


def test_a_replica_that_is_not_listed_has_nothing_to_endorse(world: World) -> None:
    one = Endorser("stranger", world.identities["r1a"])
    one.adopt_overlay(grown(world), NOW)
    assert one.next_deadline is None


def test_a_view_that_only_loses_replicas_is_endorsed_at_once() -> None:
    world = make_world({1: 4}, [], {"site": 1})
    smaller = changed(world, world.overlay, 1, ("r1a", "r1b", "r1c"), NOW)
    one = endorser(world, "r1a")
    one.adopt_overlay(smaller, NOW)
    assert one.next_deadline == NOW, "nobody has to link up"


def test_another_version_is_told_again_and_of_views_that_are_settled_nothing(world: World) -> None:
    newer, one = grown(world), endorser(world, "r2a")
    known = newer.endorsed(endorsed_by(world, newer, 1, "r1a"), NOW)
    one.adopt_overlay(known, NOW)
    assert (len(one.agrees("r1b", known)), one.agrees("r1b", known)) == (1, [])
    one.adopt_overlay(known, NOW)
    assert len(one.agrees("r1b", known)) == 1
    assert world.owner is not None
    views = [replace(view, former=None) for view in known.latest.values()]
    settled = Overlay.sign(world.owner, known.policy, views, known.members.values(), known.endorsements)
    assert settled.endorsements
    assert one.link_up("r1c", settled) == one.agrees("r1c", settled) == []
