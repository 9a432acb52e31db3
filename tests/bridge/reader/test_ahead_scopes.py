"""Publications of a scope that is to come here: who may have them kept, and how many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import EarlyPolicy
from bridge.contract.early_room import EARLY_OVERHEAD_BYTES
from bridge.contract.machine import Count, Keep, Publication, Received, Restored, Subscribed, Tick, Wire
from bridge.document import Overlay, ScopeSecret
from bridge.document.policy import Scope
from bridge.reader.kept import AHEAD, KeptReader, of_kind
from bridge.reader.overflow import AheadScopes
from bridge.wire import Admission
from bridge.wire.pieces import NO_PART, PROPERTY_PART
from keys.envelope import PROPERTY_KEY, Mode
from keys.errors import BadShare, NotAuthorised
from tests.bridge.helpers import NOW, counted, craft, delivered, gateway, same_version, subscriber, with_properties
from tests.sim.world import World, make_world

WORLD = make_world({1: 3}, [], {"site": 1, "other": 1})
TO_COME, KNOWN = "veilmq/batch/3", "veilmq/batch/2"
KEPT = Count("publications_ahead")
NO_RIGHT = NotAuthorised("no such scope here")
NO_RIGHT.may_be_late = True
REFUSED = [Count("refused", 1, "NotAuthorised")]


def made() -> tuple[AheadScopes, KeptReader]:
    kept = KeptReader()
    return AheadScopes(Admission(WORLD.overlay, replica=False), kept), kept


def wire(sequence: int, topic: str = TO_COME, publisher: str = "site", payload: bytes = b"x") -> Wire:
    return craft(WORLD, publisher, topic, sequence=sequence, mode=Mode.PLAIN, payload=payload)


def test_each_replicas_copy_is_kept_once_and_taken_in_order() -> None:
    ahead, _ = made()
    events = [Received(peer, wire(number)) for number in (2, 1) for peer in ("r1a", "r1b")]
    assert [ahead.instead(event, NO_RIGHT, NOW) for event in events] == [[KEPT]] * 4
    assert ahead.instead(events[0], NO_RIGHT, NOW) == REFUSED
    assert ahead.take_all() == [replace(event, acknowledged=True) for event in events]
    assert not ahead.take_all()


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (wire(1, KNOWN), "NotAuthorised"),
        (wire(1, "veilmq/batch/03"), "BadFrame"),
        (Wire("veilmq/batch/4", b"x", 1, False, wire(1).properties), "BadSignature"),
        (Wire(TO_COME, b"x"), "NotAuthorised"),
        (with_properties(wire(1), (PROPERTY_PART, "0")), "BadFrame"),
        (replace(wire(1), payload=b"other"), "content"),
    ],
    ids=["scope that is here", "no wire topic", "another topic", "unsigned", "no such part", "other content"],
)
def test_nothing_else_is_kept(refused: Wire, why: str) -> None:
    ahead, kept = made()
    assert Count("refused", 1, why) in ahead.instead(Received("r1a", refused), NO_RIGHT, NOW)
    assert not kept.changed_rows(NOW)


def test_what_would_be_refused_under_any_version_is_not_kept() -> None:
    ahead, kept = made()
    assert Count("refused", 1, "BadShare") in ahead.instead(Received("r1a", wire(1)), BadShare("of another link"), NOW)
    assert not kept.changed_rows(NOW)


def test_what_was_announced_and_comes_is_one_wire_with_what_came_of_its_key() -> None:
    ahead, kept = made()
    whole = wire(1)
    announced = with_properties(replace(whole, payload=b""), (PROPERTY_PART, NO_PART), (PROPERTY_KEY, "AAAA"))
    for brought, came in ((announced, [KEPT]), (whole, [KEPT]), (announced, REFUSED), (whole, REFUSED)):
        assert ahead.instead(Received("r1a", brought), NO_RIGHT, NOW) == came
    rows = [key for keep in kept.changed_rows(NOW) if isinstance(keep, Keep) for key, _ in keep.rows]
    assert len(of_kind([(key, b"") for key in rows], AHEAD)) == 1
    (event,) = ahead.take_all()
    assert event.wire.payload == whole.payload
    assert dict(event.wire.properties) == {**dict(whole.properties), PROPERTY_KEY: "AAAA"}


@pytest.mark.attack(131)
@pytest.mark.parametrize("part", [None, "0"], ids=["the same", "with ever another part"])
def test_who_brings_one_header_again_and_again_is_throttled_and_writes_one_row(
    monkeypatch: pytest.MonkeyPatch, part: str | None
) -> None:
    """Attack: a member that may publish nothing, and a replica of its own."""
    monkeypatch.setattr("bridge.contract.budgets.REFUSED_BURST", 5.0)
    world = make_world({1: 3}, [], {"evil": 1, "control": 1}, [Scope("plant/#")], rights={"evil": ((), ())})
    control, late = subscriber(world, "control"), craft(world, "evil", TO_COME, sequence=1, mode=Mode.PLAIN)
    effects = same_version(control, "r1a") + control.handle(Received("r1a", late), NOW)
    for n in range(1000):
        again = with_properties(late, (PROPERTY_PART, str(n))) if part else late
        effects += control.handle(Received("r1a", again), NOW)
    assert counted(effects, "link_throttled") > 900
    assert counted(effects, "publications_ahead") == 1
    rows = [key for effect in effects if isinstance(effect, Keep) for key, _ in effect.rows]
    assert len(of_kind([(key, b"") for key in rows], AHEAD)) == 1


@pytest.mark.attack(96)
def test_whoever_names_scopes_that_never_come_loses_its_own_and_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a member and a replica of its own fill what waits."""
    small = EarlyPolicy(12 * EARLY_OVERHEAD_BYTES, EARLY_OVERHEAD_BYTES)
    monkeypatch.setattr("bridge.reader.overflow.PUBLICATIONS", small)
    ahead, kept = made()
    assert ahead.instead(Received("r1b", wire(1)), NO_RIGHT, NOW) == [KEPT]
    flood = [ahead.instead(Received("r1a", wire(number, publisher="other")), NO_RIGHT, NOW) for number in range(1, 60)]
    assert [KEPT, Count("publications_ahead_dropped", 1)] in flood
    rows = {key for keep in kept.changed_rows(NOW) for key, row in keep.rows if row is not None}  # type: ignore[attr-defined]
    left = ahead.take_all()
    assert Received("r1b", wire(1), acknowledged=True) in left
    assert len(of_kind([(key, b"") for key in rows], AHEAD)) == len(left) < 12


@pytest.mark.attack(129)
def test_a_restart_with_the_version_that_lists_its_scope_lets_nothing_in_that_needs_vouchers():
    """Attack: a member whose certificate ended, and one replica. What is not live counts when f + 1 bring it."""
    scopes = [Scope("plant/#"), Scope("clear/#", Mode.PLAIN)]
    world = make_world({1: 3}, [], {"evil": 1, "control": 1}, scopes)
    before = ended(world, world.overlay)
    newer = ended(world, world.with_policy(scopes=(*world.overlay.policy.scopes, Scope("late/#", Mode.PLAIN))))
    come, secrets = newer.policy.scopes[-1], world.secrets
    said = Publication("late/t", b"x", 1, time_ms=int(NOW * 1000))
    late = craft(world, "evil", f"veilmq/batch/{come.number}", sequence=1, mode=Mode.PLAIN, record=said)
    for brings in (["r1a"], ["r1a", "r1b"]):
        world.overlay, world.secrets = before, secrets
        control, rows = gateway(world, "control"), dict[bytes, bytes | None]()
        effects = control.handle(Subscribed("#"), NOW)
        for peer in brings:
            effects += control.handle(Received(peer, late), NOW)
        for effect in effects:
            rows.update(effect.rows if isinstance(effect, Keep) else ())
        world.overlay, world.secrets = newer, [*secrets, ScopeSecret(come, "late/#", None)]
        again = gateway(world, "control", links=False)
        got = again.handle(Restored(tuple((key, row) for key, row in rows.items() if row is not None)), NOW + 10)
        got += [e for second in range(1, 20) for e in again.handle(Tick(), NOW + 10 + second)]
        assert len(delivered(got)) == len(brings) - 1
        assert counted(got, "vouchers_awaited") == 1


def ended(world: World, overlay: Overlay) -> Overlay:
    """The same, in which the certificate of one member is over."""
    assert world.owner is not None
    evil = overlay.members["evil"]
    over = replace(evil, certificate=replace(evil.certificate, not_after_ms=int((NOW - 60) * 1000)))
    members = [over if member is evil else member for member in overlay.members.values()]
    return Overlay.sign(world.owner, overlay.policy, overlay.views.values(), members)
