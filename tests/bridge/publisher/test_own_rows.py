"""What of the publisher side is on disk beside the outbox comes back to where it belongs."""

from __future__ import annotations

import random

from bridge.contract.machine import Keep
from bridge.document import Scope, ScopeSecret
from bridge.publisher.publisher import Publisher
from bridge.wire import OwnLife
from tests.sim.world import World, make_world


def publisher(world: World) -> Publisher:
    draw = random.Random(1).randbytes
    return Publisher(world.overlay, world.identities["site"], "site", world.secrets, world.keys, draw, OwnLife(1, {}))


def test_rows_go_to_all_parts_and_each_takes_its_own() -> None:
    world = make_world({1: 3}, [], {"site": 1})
    before = publisher(world)
    before.scopes.stored(7, 9)
    before.sealer.sealed_before.note_sealed(8)
    rows = [row for each in before.rows.changed_rows() if isinstance(each, Keep) for row in each.rows]
    assert {name[:1] for name, _ in rows} == {b"c", b"q"}
    assert before.rows.changed_rows() == []
    world.secrets = [ScopeSecret(Scope("else/#"), "else/#")]
    again = publisher(world)
    again.rows.restore((name, row) for name, row in rows if row is not None)
    assert again.sealer.sealed_before.may_be(8)
    assert again.scopes.is_behind(7)
    again.rows.all_read()
    assert not again.sealer.sealed_before.may_be(8)
