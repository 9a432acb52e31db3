"""Publications of a scope that is to come here: who may have them kept, and how many."""

from __future__ import annotations

import pytest

from bridge.contract.machine import Count, Received, Wire
from bridge.reader.ahead_scopes import AHEAD_OVERHEAD_BYTES, AheadScopes
from bridge.reader.kept import KeptReader, of_kind
from bridge.wire import Admission
from keys.envelope import Mode
from tests.bridge.helpers import NOW, craft
from tests.sim.world import make_world

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
    name = (WORLD.identities["site"].party_id, TO_COME, 1)
    assert ahead.holds(name)
    assert ahead.take() == events
    assert not ahead.holds(name)
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
    assert Received("r1b", wire(1)) in left
    assert len(of_kind([(key, b"") for key in rows], b"h")) == len(left) < 12
