"""Whom a reader believes that nothing is missing."""

from __future__ import annotations

from bridge.document import Scope, ShownAttribute
from bridge.reader.assembling import SILENT_S, SKIPS_MAX, Skipped
from bridge.topology import Planes
from bridge.wire import PROPERTY_SKIP, Admission
from keys.envelope import Mode
from tests.bridge.helpers import craft
from tests.sim.world import NOW, make_world

BY_REGIONS, BY_PLANES = Scope("plant/#"), Scope("news/#", Mode.PLAIN, planes=True)
OVERLAY = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 2}, [BY_REGIONS, BY_PLANES]).overlay
NAME = b"p" * 16, "plant/a", 9


def test_a_gap_is_bridged_by_f_plus_one_replicas_of_the_view() -> None:
    skipped = Skipped(OVERLAY, "site")
    skipped.note_statement(NAME, "r2a", 0)
    skipped.note_statement(NAME, "r2a", 0)
    skipped.note_statement(NAME, "r1a", 0)
    assert not skipped.bridges(NAME, 5, BY_REGIONS), "one liar, however often, and a stranger"
    skipped.note_statement(NAME, "r2b", 6)
    assert not skipped.bridges(NAME, 5, BY_REGIONS), "what b left out begins later"
    skipped.note_statement(NAME, "r2b", 5)
    assert skipped.bridges(NAME, 5, BY_REGIONS)
    assert not skipped.bridges(NAME, 4, BY_REGIONS)
    assert not skipped.bridges((b"p" * 16, "plant/b", 9), 5, BY_REGIONS)
    skipped.forget_statements(NAME)
    assert not skipped.bridges(NAME, 5, BY_REGIONS)
    assert len(skipped) == 0


def test_by_planes_the_replica_that_we_hang_on_suffices_and_no_other() -> None:
    skipped, host = Skipped(OVERLAY, "site"), Planes(OVERLAY).host_replica(BY_PLANES, "site")
    other = next(name for name in ("r2a", "r2b") if name != host)
    skipped.up.update(("r2a", "r2b", "r2c"))
    skipped.note_statement(NAME, other, 0)
    assert not skipped.bridges(NAME, 5, BY_PLANES)
    skipped.note_statement(NAME, host, 6)
    assert not skipped.bridges(NAME, 5, BY_PLANES)
    skipped.note_statement(NAME, host, 5)
    assert skipped.bridges(NAME, 5, BY_PLANES)


def test_by_planes_any_replica_of_the_region_suffices_while_the_one_that_we_hang_on_is_away() -> None:
    skipped, host = Skipped(OVERLAY, "site"), Planes(OVERLAY).host_replica(BY_PLANES, "site")
    other = next(name for name in ("r2a", "r2b") if name != host)
    skipped.up.add(other)
    skipped.note_statement(NAME, "r1a", 0)
    skipped.note_statement(NAME, other, 6)
    assert not skipped.bridges(NAME, 5, BY_PLANES), "a stranger, and a replica that left out less"
    skipped.note_statement(NAME, other, 5)
    assert skipped.bridges(NAME, 5, BY_PLANES)
    assert not skipped.bridges(NAME, 5, BY_REGIONS)
    skipped.up.add(host)
    assert not skipped.bridges(NAME, 5, BY_PLANES), "it is back"


def test_by_planes_any_replica_suffices_after_a_while_where_the_one_that_we_hang_on_brings_nothing() -> None:
    skipped, host = Skipped(OVERLAY, "site"), Planes(OVERLAY).host_replica(BY_PLANES, "site")
    skipped.up.update(("r2a", "r2b", "r2c"))
    assert skipped.wakes(NAME, BY_PLANES, 100.0, 100.0) is None, "nobody says anything"
    skipped.note_statement(NAME, next(name for name in ("r2a", "r2b") if name != host), 5)
    assert not skipped.bridges(NAME, 5, BY_PLANES, SILENT_S - 0.01)
    assert skipped.wakes(NAME, BY_PLANES, 100.0, 100.2) == 100.0 + SILENT_S
    assert skipped.wakes(NAME, BY_REGIONS, 100.0, 100.2) is None
    assert skipped.wakes(NAME, BY_PLANES, 100.0, 100.0 + SILENT_S) is None, "that was looked at"
    assert skipped.bridges(NAME, 5, BY_PLANES, SILENT_S)
    assert not skipped.bridges(NAME, 5, BY_REGIONS, SILENT_S)
    skipped.note_statement(NAME, host, 8)  # it brought the publication, and left out less
    assert not skipped.bridges(NAME, 5, BY_PLANES, SILENT_S)
    assert skipped.wakes(NAME, BY_PLANES, 100.0, 100.2) is None


def test_memory_is_bounded() -> None:
    skipped = Skipped(OVERLAY, "site")
    for sequence in range(SKIPS_MAX + 10):
        skipped.note_statement((b"p" * 16, "plant/a", sequence), "r2a", 0)
    assert len(skipped) == SKIPS_MAX


def test_the_silence_of_the_replica_that_we_hang_on_says_that_nothing_was_left_out() -> None:
    shown = Scope("news/#", Mode.PLAIN, planes=True, shown=(ShownAttribute(("room",)),))
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 2}, [shown, Scope("clear/#", Mode.PLAIN)])
    skipped, host = Skipped(world.overlay, "site"), Planes(world.overlay).host_replica(shown, "site")
    admission = Admission(world.overlay, replica=False)

    def word(topic: str, peer: str, low: str = "") -> int | None:
        wire = craft(world, "site", topic, sequence=9, previous=7, mode=Mode.PLAIN)
        admitted = admission.publication(dict(wire.properties)["vmq"], wire.topic, NOW)
        return skipped.word(admitted, peer, {PROPERTY_SKIP: low} if low else {})

    assert word("news/a", host) == 7
    other = next(name for name in ("r2a", "r2b") if name != host)
    assert word("news/a", other) is None
    assert word("clear/a", host) is None
    assert [word(topic, other, low="3") for topic in ("news/a", "clear/a")] == [3, 3]
    assert word("news/a", host, low="3") == 3
