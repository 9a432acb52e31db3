"""The owner makes a scope plain, sealed or `shares_only` while something of it is stored, in flight or retained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract.batches import Numbered, packed
from bridge.contract.machine import (
    Acked,
    Committed,
    Effect,
    Keep,
    LinkDown,
    LinkUp,
    OutboxPage,
    Publication,
    Received,
    Restored,
    Tick,
)
from bridge.document import Scope, ScopeSecret
from bridge.node import GatewayNode
from bridge.publisher.publisher import UNAUTHORISED_S
from keys.envelope import Mode
from tests.bridge.helpers import NOW, counted, delivered, gateway, publish, replica, sent, suspected
from tests.sim.world import World, make_world
from tests.support.regions import fresh, one_region

pytestmark = pytest.mark.attack(103)

REPLICAS = ("r1a", "r1b", "r1c")
PLAIN, SHARES = {"mode": Mode.PLAIN}, {"shares_only": True}
SECRET = b"TOP SECRET"


world = fresh(one_region, "site", "control", scopes=[Scope("plant/#"), Scope("open/#")])


def change(world: World, node: GatewayNode, how: dict[str, object], now: float = NOW) -> list[Effect]:
    """The owner signs the scope of `plant/#` so, and the node hears of it."""
    was = {"mode": Mode.COPIES, "shares_only": False}
    scopes = world.overlay.policy.scopes
    changed = [replace(s, **was | how) if s.filter == "plant/#" else s for s in scopes]  # type: ignore[arg-type]
    world.overlay = world.with_policy(scopes=tuple(changed))
    secrets = world.secrets = world.secrets_under(world.overlay)
    return node.publisher.adopt_overlay(world.overlay, secrets, now) + node.collector.adopt_overlay(
        world.overlay, secrets, now
    )


def stored(payload: bytes = SECRET, in_clear: bool | None = None, number: int = 1) -> tuple[int, int, Publication]:
    record = Publication("plant/t", payload, 1, time_ms=int(NOW * 1000))
    return number, 0, replace(packed("plant/#", [Numbered(number, record)]), in_clear=in_clear)


def in_clear(effects: list[Effect]) -> bool:
    return any(SECRET in send.wire.payload for send in sent(effects))


# ------------------------------------------------------------------------------------------- what is on disk


@pytest.mark.parametrize("said", [None, False])
def test_a_backlog_that_was_taken_as_sealed_never_goes_in_clear(world: World, said: bool | None) -> None:
    """Nor what a row of before does not say."""
    site = gateway(world, "site")
    effects = change(world, site, PLAIN)
    effects += site.handle(OutboxPage((stored(in_clear=said),), None), NOW)
    assert counted(effects, "not_authorised") == 1
    for elapsed_s in (1, 3600, UNAUTHORISED_S - 1):
        effects += site.handle(Tick(), NOW + elapsed_s)
    assert not counted(effects, "not_authorised_dropped")
    effects += site.handle(Tick(), NOW + UNAUTHORISED_S + 1)
    assert counted(effects, "not_authorised_dropped") == 1
    assert not in_clear(effects)
    assert site.publisher.depth == 0


def test_it_goes_once_its_scope_is_sealed_again(world: World) -> None:
    site = gateway(world, "site")
    change(world, site, PLAIN)
    site.handle(OutboxPage((stored(in_clear=False),), None), NOW)
    effects = change(world, site, {}, NOW + 10)
    assert len(sent(effects)) == len(REPLICAS)
    assert not in_clear(effects)


def test_what_is_on_its_way_to_the_disk_while_the_scope_becomes_plain_does_not_go_in_clear(world: World) -> None:
    site = gateway(world, "site")
    change(world, site, PLAIN)
    assert not in_clear(site.handle(Committed((stored(in_clear=False),)), NOW))


def test_a_backlog_that_a_plain_scope_took_goes_on_as_such_or_sealed(world: World) -> None:
    site = gateway(world, "site")
    change(world, site, PLAIN)
    assert in_clear(site.handle(OutboxPage((stored(in_clear=True),), None), NOW))
    change(world, site, {})
    effects = site.handle(OutboxPage((stored(in_clear=True, number=2),), None), NOW)
    assert [send.ticket for send in sent(effects)].count(2) == len(REPLICAS)
    assert not in_clear([e for e in effects if getattr(e, "ticket", 0) == 2])


def test_what_a_scope_that_is_gone_took_says_itself_whether_it_was_plain(world: World) -> None:
    site = gateway(world, "site")
    narrower = Scope("plant/t", Mode.PLAIN, number=7)
    world.overlay = world.with_policy(scopes=(narrower, *world.overlay.policy.scopes[1:]))
    secrets = [*world.secrets_under(world.overlay), ScopeSecret(narrower, "plant/t", None)]
    site.publisher.adopt_overlay(world.overlay, secrets, NOW)
    assert not in_clear(site.handle(OutboxPage((stored(in_clear=False),), None), NOW))
    assert in_clear(site.handle(OutboxPage((stored(in_clear=True, number=2),), None), NOW))


def test_what_waits_since_it_was_sealed_holds_up_nothing_that_is_plain(world: World) -> None:
    site = gateway(world, "site", links=False)
    site.handle(Committed((stored(),)), NOW)
    change(world, site, PLAIN)
    for peer in REPLICAS:
        site.handle(LinkUp(peer), NOW)
    effects = site.handle(Committed((stored(b"plain", number=2),)), NOW + 1)
    assert [send.ticket for send in sent(effects)].count(2) == len(REPLICAS)


# ------------------------------------------------------------------------------ what a sealed scope had meanwhile


def said(*topics: str) -> Publication:
    """A plain scope took it."""
    payloads = [b"plain" if topic == "plant/a" else SECRET for topic in topics]
    records = [Publication(t, payload, 1, time_ms=int(NOW * 1000)) for t, payload in zip(topics, payloads, strict=True)]
    return replace(packed("plant/#", [Numbered(n, each) for n, each in enumerate(records, 1)]), in_clear=True)


def rows_of(effects: list[Effect], rows: dict[bytes, bytes]) -> None:
    for name, row in [pair for each in effects if isinstance(each, Keep) for pair in each.rows]:
        if row is None:
            rows.pop(name, None)
        else:
            rows[name] = row


def restarted(
    world: World, rows: dict[bytes, bytes], stored: Publication, now: float
) -> tuple[GatewayNode, list[Effect]]:
    """A gateway in its next life, with what it sends and says of the one row on disk."""
    node = gateway(world, "site", links=False)
    effects = node.handle(Restored(tuple(rows.items())), now)
    effects += [e for peer in REPLICAS for e in node.handle(LinkUp(peer), now)]
    effects += node.handle(OutboxPage(((1, 0, stored),), None), now)
    rows_of(effects, rows)
    return node, effects


def with_scopes(world: World, *scopes: Scope) -> None:
    world.overlay = world.with_policy(scopes=scopes)
    world.secrets = world.secrets_under(world.overlay)


@pytest.mark.attack(124)
@pytest.mark.parametrize(
    "stored",
    [
        said("plant/a", "plant/deep/t"),
        said("plant/deep/t"),
        replace(Publication("plant/deep/t", SECRET, 1, retain=True, time_ms=int(NOW * 1000)), in_clear=True),
    ],
)
def test_what_went_to_a_sealed_scope_does_not_go_in_clear_after_a_restart(stored: Publication) -> None:
    """A plain scope took it, a narrower one that is sealed had it, and that becomes plain: it went out in clear."""
    wide, deep = Scope("plant/#", Mode.PLAIN), Scope("plant/deep/#", number=2)
    world = make_world({1: 3}, [], {"site": 1}, [wide, deep])
    rows: dict[bytes, bytes] = {}
    _, effects = restarted(world, rows, stored, NOW)
    assert sent(effects)
    assert not in_clear(effects)
    with_scopes(world, wide, replace(deep, mode=Mode.PLAIN))
    for life in (1, 2):
        node, effects = restarted(world, rows, stored, NOW + 10 * life)
        assert not in_clear(effects)
        assert counted(effects, "not_authorised") == 1
    gone = [e for second in (20, UNAUTHORISED_S + 21) for e in node.handle(Tick(), NOW + second)]
    assert counted(gone, "not_authorised_dropped") == 1


@pytest.mark.attack(124)
@pytest.mark.parametrize("links", [True, False])
def test_what_its_own_scope_protected_for_a_while_does_not_go_in_clear_after_a_restart(
    world: World, links: bool
) -> None:
    """Whether it was sent meanwhile or not, and whether it was in memory when its scope was sealed or came then."""
    site, rows = gateway(world, "site", links=links), dict[bytes, bytes]()
    change(world, site, PLAIN)
    stored = said("plant/t")
    if not links:
        site.handle(OutboxPage(((1, 0, stored),), None), NOW)
    change(world, site, {}, NOW + 1)
    effects = site.handle(OutboxPage(((1, 0, stored),), None), NOW + 2)
    rows_of(effects, rows)
    change(world, site, PLAIN, NOW + 3)
    _, effects = restarted(world, rows, stored, NOW + 10)
    assert (in_clear(effects), counted(effects, "not_authorised")) == (False, 1)


def test_a_part_that_stayed_plain_goes_on_as_such_after_a_restart() -> None:
    wide, deep = Scope("plant/#", Mode.PLAIN), Scope("plant/deep/#", Mode.PLAIN, number=2)
    world = make_world({1: 3}, [], {"site": 1}, [wide, deep])
    rows: dict[bytes, bytes] = {}
    for life in (1, 2):
        _, effects = restarted(world, rows, said("plant/a", "plant/deep/t"), NOW + 10 * life)
        assert {send.ticket for send in sent(effects)} == {1, 2}
        assert in_clear(effects)


@pytest.mark.attack(124)
def test_a_part_that_was_protected_for_a_while_does_not_go_in_clear_after_a_restart() -> None:
    wide, deep = Scope("plant/#", Mode.PLAIN), Scope("plant/deep/#", Mode.PLAIN, number=2)
    world = make_world({1: 3}, [], {"site": 1}, [wide, deep])
    rows: dict[bytes, bytes] = {}
    node, _ = restarted(world, rows, said("plant/a", "plant/deep/t"), NOW)
    for mode in (Mode.COPIES, Mode.PLAIN):
        with_scopes(world, wide, replace(deep, mode=mode))
        node.publisher.adopt_overlay(world.overlay, world.secrets, NOW + 1)
    rows_of(node.publisher.rows.changed_rows(), rows)
    _, effects = restarted(world, rows, said("plant/a", "plant/deep/t"), NOW + 10)
    assert {send.ticket for send in sent(effects)} == {1}
    assert not in_clear(effects)


# -------------------------------------------------------------------------------- what is in flight or retained


@pytest.mark.attack(104)
def test_what_is_in_flight_is_sealed_anew_when_its_scope_takes_another_kind_of_key(world: World) -> None:
    site = gateway(world, "site")
    publish(site, "plant/t", SECRET, sequence=1)
    change(world, site, SHARES, NOW + 10)
    for peer in REPLICAS:
        site.handle(LinkDown(peer), NOW + 11)
    again = {s.peer: s.wire for peer in REPLICAS for s in sent(site.handle(LinkUp(peer), NOW + 12)) if s.ticket == 1}
    effects = replica(world, "r1a", ("site",)).handle(Received("site", again["r1a"]), NOW + 13)
    assert not counted(effects, "refused")
    assert not suspected(effects)


@pytest.mark.attack(104)
@pytest.mark.parametrize(("before", "after"), [({}, SHARES), (SHARES, {}), (PLAIN, {})])
def test_what_is_retained_is_sealed_anew_when_its_scope_is_protected_otherwise(
    world: World, before: dict[str, object], after: dict[str, object]
) -> None:
    site = gateway(world, "site")
    change(world, site, before)
    publish(site, "plant/state", b"on", sequence=1, retain=True)
    for peer in REPLICAS:
        site.handle(Acked(peer, 1), NOW)
    effects = change(world, site, after, NOW + 10)
    wires = {send.peer: send.wire for send in sent(effects) if send.ticket == 1}
    assert counted(effects, "retained_resealed") == 1
    control = gateway(world, "control")
    scope = control.overlay.scope_named("plant/#")
    assert scope is not None
    control.collector.subscriptions.resume_scope(scope.stream, NOW + 10)
    got = [e for peer in REPLICAS for e in control.handle(Received(peer, wires[peer]), NOW + 11)]
    got += [e for elapsed_s in range(1, 5) for e in control.handle(Tick(), NOW + 11 + elapsed_s)]
    assert [each.publication.payload for each in delivered(got)] == [b"on"]


def test_what_is_retained_and_was_sealed_never_goes_in_clear(world: World) -> None:
    site = gateway(world, "site")
    publish(site, "plant/state", SECRET, sequence=1, retain=True)
    for peer in REPLICAS:
        site.handle(Acked(peer, 1), NOW)
    effects = change(world, site, PLAIN, NOW + 10)
    for peer in REPLICAS:
        site.handle(LinkDown(peer), NOW + 11)
        effects += site.handle(LinkUp(peer), NOW + 12)
    assert not in_clear(effects)


def test_how_content_travels_seals_nothing_anew(world: World) -> None:
    site = gateway(world, "site")
    publish(site, "plant/state", b"on", sequence=1, retain=True)
    for peer in REPLICAS:
        site.handle(Acked(peer, 1), NOW)
    publish(site, "plant/t", b"x", sequence=2, previous=1)
    assert not sent(change(world, site, {"mode": Mode.BLOCKS}, NOW + 10))
