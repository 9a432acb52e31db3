"""A scope is added inside another while batches wait for a reader: these are judged by the scopes of their time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bridge.contract import Effect, Numbered, Publication, packed
from bridge.contract.machine import Keep, Received, Restored, Subscribed, Wire
from bridge.document import Overlay, ScopeSecret
from bridge.document.policy import Scope
from bridge.node import GatewayNode
from bridge.wire.admission import BUMP_GRACE_S, KEPT_S
from keys.envelope import Mode
from tests.bridge.helpers import NOW, craft, delivered, gateway, subscriber, suspected
from tests.sim.world import World, make_world

ADOPTED = NOW + 60
OUTER, INNER = Scope("open/#", Mode.PLAIN), Scope("open/a/#", Mode.PLAIN)


def world_of(publish: Sequence[str] = ("#",)) -> World:
    return make_world({1: 3}, [], {"site": 1, "control": 1}, [OUTER], publish=publish)


def split(world: World) -> tuple[Overlay, list[ScopeSecret]]:
    newer = world.with_policy(scopes=(*world.overlay.policy.scopes, INNER))
    inner = newer.scope_named(INNER.filter)
    assert inner is not None
    return newer, [*world.secrets_under(newer), ScopeSecret(inner, INNER.filter, None)]


def batch(world: World, sealed_at: float, topic: str = "open/a/t", sequence: int = 5) -> Wire:
    publication = Publication(topic, b"x", 1, time_ms=int(sealed_at * 1000))
    content = packed("open/t", [Numbered(sequence, publication)]).payload
    return craft(world, "site", "open/t", sequence=sequence, mode=Mode.PLAIN, content=content, now=sealed_at)


def arrive(node: GatewayNode, wire: Wire, now: float) -> tuple[int, set[str]]:
    effects: list[Effect] = node.handle(Received("r1a", wire), now)
    return len(delivered(effects)), suspected(effects)


@pytest.mark.attack(114)
def test_what_waits_in_sessions_for_a_scope_that_was_split_is_delivered() -> None:
    world = world_of()
    control = subscriber(world, "control")
    control.collector.adopt_overlay(*split(world), ADOPTED)
    assert arrive(control, batch(world, NOW + 20), ADOPTED) == (1, set())
    late = batch(world, ADOPTED + BUMP_GRACE_S - 1, sequence=6)
    assert arrive(control, late, ADOPTED + BUMP_GRACE_S) == (1, set()), "its publisher had the version a bit later"


@pytest.mark.attack(114)
def test_what_is_sealed_later_belongs_to_the_new_scope() -> None:
    world = world_of()
    control = subscriber(world, "control")
    control.collector.adopt_overlay(*split(world), ADOPTED)
    at = ADOPTED + BUMP_GRACE_S
    assert arrive(control, batch(world, at), at) == (0, {"site"})


@pytest.mark.attack(114)
@pytest.mark.parametrize("publish", [("open/b/#",), ("open/+",)])
def test_who_dates_back_wins_nothing(publish: Sequence[str]) -> None:
    """Attack: a publisher without a right to the topic dates a batch back to before the scope was split."""
    world = world_of(publish)
    control = subscriber(world, "control")
    control.collector.adopt_overlay(*split(world), ADOPTED)
    assert arrive(control, batch(world, NOW + 20), ADOPTED + 120) == (0, {"site"})


def test_a_scope_that_came_before_the_last_version_counts() -> None:
    world = make_world({1: 3}, [], {"site": 1, "control": 1}, [OUTER, INNER])
    control = subscriber(world, "control")
    newer = world.with_policy(scopes=(*world.overlay.policy.scopes, Scope("open/b/#", Mode.PLAIN)))
    control.collector.adopt_overlay(newer, world.secrets_under(newer), ADOPTED)
    assert arrive(control, batch(world, NOW + 20), ADOPTED) == (0, {"site"})
    assert arrive(control, batch(world, NOW + 20, "open/b/t", 6), ADOPTED) == (1, set())


def test_what_is_older_than_replicas_keep_is_forgotten_with_the_next_version() -> None:
    world = world_of()
    control = subscriber(world, "control")
    newer, secrets = split(world)
    control.collector.adopt_overlay(newer, secrets, ADOPTED)
    control.collector.adopt_overlay(newer, secrets, ADOPTED + BUMP_GRACE_S + KEPT_S)
    assert arrive(control, batch(world, NOW + 20), ADOPTED + 60) == (0, {"site"})


@pytest.mark.attack(114)
def test_a_reader_that_restarts_with_the_new_version_delivers_what_waited() -> None:
    world = world_of()
    before = gateway(world, "control")
    effects = before.handle(Subscribed("#"), NOW) + arrive_all(before, batch(world, NOW + 1, "open/t", 1), NOW + 1)
    rows = {key: value for e in effects if isinstance(e, Keep) for key, value in e.rows if value is not None}
    newer, secrets = split(world)
    control = gateway(replace(world, overlay=newer, secrets=secrets), "control")
    control.handle(Restored(tuple(rows.items())), ADOPTED)
    control.handle(Subscribed("#"), ADOPTED)
    assert arrive(control, batch(world, NOW + 20), ADOPTED + 1) == (1, set())
    assert arrive(control, batch(world, ADOPTED + 1, sequence=6), ADOPTED + 1) == (0, {"site"})


def arrive_all(node: GatewayNode, wire: Wire, now: float) -> list[Effect]:
    return [effect for peer in ("r1a", "r1b") for effect in node.handle(Received(peer, wire), now)]
