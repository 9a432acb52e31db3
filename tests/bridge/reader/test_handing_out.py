"""The last step of a publication: what it lacks then is its publisher's fault, or nobody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bridge.contract.batches import Numbered, packed
from bridge.contract.machine import Blame, Count, Effect, Publication
from bridge.document.policy import Scope
from bridge.reader.handing_out import HandingOut
from bridge.reader.key_opening import KeyRing, OpeningKeys
from bridge.reader.newest_retained import RETAINED_LIVE_S, Joining
from bridge.reader.streams import Held
from bridge.wire.admission import AHEAD_S, Admission
from keys.envelope import Mode
from tests.bridge.helpers import NOW, counted, craft, delivered, suspected
from tests.sim.world import World, make_world

SCOPES = [Scope("plant/#"), Scope("clear/#", Mode.PLAIN)]


def made(scopes: Sequence[Scope] = SCOPES) -> tuple[World, HandingOut]:
    world = make_world({1: 3}, [], {"site": 1, "control": 1}, scopes)
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


@pytest.mark.parametrize("spoilt", ["", "replayed", "expired", "refused"])
def test_a_batch_of_a_scope_with_receipts_is_told_if_it_is_handed_out_whole_and_live(spoilt: str) -> None:
    world, handing_out = made([Scope("clear/#", Mode.PLAIN, receipts=True), Scope("plain/#", Mode.PLAIN)])
    told: list[tuple[Held, list[int], object]] = []
    handing_out.had = lambda held, records, key: told.append((held, [record.number for record in records], key))
    records = [Publication("clear/t", b"x", 1, time_ms=int(NOW * 1000)) for _ in range(2)]
    if spoilt == "expired":
        records[1] = replace(records[1], time_ms=int(NOW * 1000) - 9_000, expiry_s=5)
    if spoilt == "refused":
        records[1] = replace(records[1], response_topic="a/#")
    content = packed("clear/t", [Numbered(number, each) for number, each in enumerate(records, 1)]).payload
    one = held(world, "clear/t", Mode.PLAIN, content)
    one.replayed = spoilt == "replayed"
    effects = handing_out.hand_out(one, False)
    assert [each.sequence for each in delivered(effects)] == ([1] if spoilt in ("expired", "refused") else [1, 2])
    assert {each.stored for each in delivered(effects)} == {one.replayed}
    assert told == ([] if spoilt else [(one, [1, 2], None)])
    handing_out.hand_out(held(world, "plain/t", Mode.PLAIN), False)
    assert len(told) == (not spoilt), "a scope without receipts"


def retained(world: World, sequence: int, publisher: str = "site", at_s: float = 0.0, sent_s: float = 0.0) -> Held:
    """A retained publication. `at_s`, `sent_s`: seconds from NOW to its sealing, and to its publication."""
    said = Publication("clear/t", b"%d" % sequence, 1, True, time_ms=int((NOW + sent_s) * 1000))
    wire = craft(world, publisher, "clear/t", sequence=sequence, mode=Mode.PLAIN, retain=True, record=said,
                 time_ms=int((NOW + at_s) * 1000))  # fmt: skip
    admitted = Admission(world.overlay, replica=False).publication(dict(wire.properties)["vmq"], wire.topic, NOW)
    return Held(admitted, wire.payload, wire.topic, NOW, admitted.header.publisher)


def told(effects: Sequence[Effect]) -> list[tuple[int, bool, bool]]:
    return [(each.sequence, each.publication.retain, each.late) for each in delivered(effects)]


def test_of_retained_publications_an_older_one_is_delivered_as_live_alone() -> None:
    world, handing_out = made()
    assert told(handing_out.hand_out(retained(world, 5), False)) == [(5, True, False)]
    assert handing_out.hand_out(retained(world, 5), False) == [Count("duplicates_dropped")]
    assert told(handing_out.hand_out(retained(world, 4), False)) == [(4, False, True)], "late"
    other = retained(world, 9, "control", sent_s=-60)
    assert told(handing_out.hand_out(other, False)) == [(9, False, False)], "another publisher's, published before"
    assert told(handing_out.hand_out(retained(world, 6), True)) == [(6, True, True)]


def test_an_overtaken_one_that_may_be_a_replay_is_dropped() -> None:
    world, handing_out = made()
    handing_out.hand_out(retained(world, 5), False)
    old = retained(world, 4, at_s=-RETAINED_LIVE_S - 1)
    old.replayed = True
    assert handing_out.hand_out(old, False) == [Count("replays_dropped")]
    recent = retained(world, 3, at_s=-RETAINED_LIVE_S)
    recent.replayed = True
    assert told(handing_out.hand_out(recent, False)) == [(3, False, True)]


@pytest.mark.parametrize("ahead_s", [0.0, 1.0])
def test_one_that_claims_a_time_to_come_is_delivered_as_live(ahead_s: float) -> None:
    world, handing_out = made()
    one = retained(world, 5, at_s=AHEAD_S)
    one.arrived = NOW - ahead_s
    assert told(handing_out.hand_out(one, False)) == [(5, not ahead_s, False)]
    assert told(handing_out.hand_out(retained(world, 4), False)) == [(4, bool(ahead_s), not ahead_s)], (
        "outranked by none"
    )
