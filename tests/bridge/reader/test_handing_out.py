"""The last step of a publication: what it lacks then is its publisher's fault, or nobody's."""

from __future__ import annotations

from bridge.contract.machine import Blame, Count
from bridge.document.policy import Scope
from bridge.reader.handing_out import HandingOut
from bridge.reader.key_opening import KeyRing, OpeningKeys
from bridge.reader.newest_retained import Joining
from bridge.reader.streams import Held
from bridge.wire.admission import Admission
from keys.envelope import Mode
from tests.bridge.helpers import NOW, counted, craft, delivered, suspected
from tests.sim.world import World, make_world


def made() -> tuple[World, HandingOut]:
    world = make_world({1: 3}, [], {"site": 1, "control": 1}, [Scope("plant/#"), Scope("clear/#", Mode.PLAIN)])
    admission = Admission(world.overlay, replica=False)
    keys = KeyRing(world.overlay, 1, OpeningKeys(world.secrets, world.keys), admission)
    return world, HandingOut(world.secrets, keys, Joining(world.overlay))


def held(world: World, topic: str, mode: Mode, content: bytes | None = None) -> Held:
    key_id = bytes(16) if mode is Mode.PLAIN else b"k" * 16
    wire = craft(world, "site", topic, sequence=1, mode=mode, content=content, key_id=key_id)
    told = dict(wire.properties)["vmq"]
    admitted = Admission(world.overlay, replica=False).publication(told, wire.topic, NOW)
    return Held(admitted, wire.payload, wire.topic, NOW, admitted.header.publisher)


def test_what_is_whole_is_delivered_as_its_turn_was() -> None:
    world, handing_out = made()
    one = held(world, "clear/t", Mode.PLAIN)
    assert [(d.publication.topic, d.late) for d in delivered(handing_out.hand_out(one, True))] == [("clear/t", True)]


def test_content_that_is_none_and_a_key_that_never_came_are_the_publishers_fault() -> None:
    world, handing_out = made()
    for one in (held(world, "clear/t", Mode.PLAIN, b"garbage"), held(world, "plant/t", Mode.COPIES, b"sealed")):
        effects = handing_out.hand_out(one, False)
        assert counted(effects, "unopened") == 1
        assert suspected(effects) == {"site"}
        assert not delivered(effects)


def test_what_is_over_is_counted_and_a_scope_that_is_ours_no_more_is_not_delivered() -> None:
    world, handing_out = made()
    one = held(world, "clear/t", Mode.PLAIN)
    one.is_over = True
    assert handing_out.hand_out(one, False) == [Count("expired")]
    one.is_over = False
    handing_out.adopt_scopes([])
    assert [type(effect) for effect in handing_out.hand_out(one, False)] == [Count, Blame]
