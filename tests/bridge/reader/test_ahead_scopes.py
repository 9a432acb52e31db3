"""Publications of a scope that is to come here: who may have them kept, and how many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract.machine import Count, Keep, Publication, Received, Restored, Subscribed, Tick, Wire
from bridge.document import Overlay, ScopeSecret
from bridge.document.policy import Scope
from bridge.reader.ahead_scopes import AHEAD_OVERHEAD_BYTES, AheadScopes
from bridge.reader.kept import AHEAD, KeptReader, of_kind
from bridge.wire import Admission
from keys.envelope import Mode
from tests.bridge.helpers import NOW, counted, craft, delivered, gateway
from tests.sim.world import World, make_world

WORLD = make_world({1: 3}, [], {"site": 1, "other": 1})
TO_COME, KNOWN = "veilmq/batch/3", "veilmq/batch/2"
KEPT = Count("publications_ahead")


def made() -> tuple[AheadScopes, KeptReader]:
    kept = KeptReader()
    return AheadScopes(Admission(WORLD.overlay, replica=False), kept), kept


def wire(sequence: int, topic: str = TO_COME, publisher: str = "site", payload: bytes = b"x") -> Wire:
    return craft(WORLD, publisher, topic, sequence=sequence, mode=Mode.PLAIN, payload=payload)


def test_each_replicas_copy_is_kept_once_and_taken_in_order() -> None:
    ahead, _ = made()
    events = [Received(peer, wire(number)) for number in (2, 1) for peer in ("r1a", "r1b")]
    assert [ahead.keep(event, NOW) for event in events] == [[KEPT]] * 4
    assert ahead.keep(events[0], NOW) == [Count("duplicates_dropped")]
    assert ahead.take() == [replace(event, acknowledged=True) for event in events]
    assert not ahead.take()


@pytest.mark.parametrize(
    "refused",
    [
        wire(1, KNOWN),
        wire(1, "veilmq/batch/03"),
        Wire("veilmq/batch/4", b"x", 1, False, wire(1).properties),
        Wire(TO_COME, b"x"),
    ],
    ids=["a scope that is here", "no wire topic", "signed for another topic", "unsigned"],
)
def test_nothing_else_is_kept(refused: Wire) -> None:
    ahead, kept = made()
    assert ahead.keep(Received("r1a", refused), NOW) == []
    assert not kept.changes(NOW)


def test_whoever_names_scopes_that_never_come_loses_its_own_and_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a member and a replica of its own fill what waits."""
    monkeypatch.setattr("bridge.reader.ahead_scopes.AHEAD_BYTES", 12 * AHEAD_OVERHEAD_BYTES)
    ahead, kept = made()
    assert ahead.keep(Received("r1b", wire(1)), NOW) == [KEPT]
    flood = [ahead.keep(Received("r1a", wire(number, publisher="other")), NOW) for number in range(1, 60)]
    assert [KEPT, Count("publications_ahead_dropped", 1)] in flood
    rows = {key for keep in kept.changes(NOW) for key, row in keep.rows if row is not None}  # type: ignore[attr-defined]
    left = ahead.take()
    assert Received("r1b", wire(1), acknowledged=True) in left
    assert len(of_kind([(key, b"") for key in rows], AHEAD)) == len(left) < 12


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
