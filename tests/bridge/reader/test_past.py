"""The judge of a gateway's readings: eras and their scopes (whole readings: `tests/sim/test_history.py`)."""

from __future__ import annotations

from bridge.contract import Deliver, Received
from bridge.document import History, Scope
from bridge.reader.past import PastCollector
from tests.bridge.helpers import gateway, publish
from tests.sim.world import NOW, make_world


def test_it_delivers_by_the_scopes_of_an_era_and_says_which_streams_grew() -> None:
    world = make_world({1: 3}, [], {"site": 1, "desk": 1}, [Scope("plant/#", history=History(7, 100))])
    past = PastCollector("desk", world.overlay.policy.scopes[0], world.secrets, world.keys)
    assert past.next_deadline is None
    assert past.changed_streams() == past.streams() == []
    past.adopt_era(world.overlay, NOW)
    site = gateway(world, "site")
    wires = publish(site, "plant/t", b"once", sequence=1)
    found = [effect for peer, wire in wires.items() for effect in past.take_copy(Received(peer, wire, True), NOW)]
    assert [each.publication.payload for each in found if isinstance(each, Deliver)] == [b"once"]
    assert [stream.highest for _, stream in past.changed_streams()] == [1]
    assert past.changed_streams() == []
    assert [stream.highest for _, stream in past.streams()] == [1]


def test_an_era_without_the_scope_has_no_secret_of_it() -> None:
    world = make_world({1: 3}, [], {"site": 1, "desk": 1}, [Scope("plant/#", history=History(7, 100))])
    before = make_world({1: 3}, [], {"site": 1, "desk": 1}, [Scope("other/#")])
    past = PastCollector("desk", world.overlay.policy.scopes[0], world.secrets, world.keys)
    past.adopt_era(before.overlay, NOW)
    past.adopt_era(world.overlay, NOW)
    wires = publish(gateway(world, "site"), "plant/t", b"later", sequence=1)
    found = [effect for peer, wire in wires.items() for effect in past.take_copy(Received(peer, wire, True), NOW)]
    assert [each.publication.payload for each in found if isinstance(each, Deliver)] == [b"later"]
