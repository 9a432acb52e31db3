"""Publications from their first piece to the disk: given up, late, sealed anew, and how many may be in memory."""

from __future__ import annotations

import pytest

from bridge.reader.intake import FRESH_S
from spark_ingest.receiving.late import LATE_BYTES, LATE_KEPT
from tests.spark_ingest.receiving.test_collector import setup
from tests.spark_ingest.region import NOW, Link, Overlay, Publisher, records


def test_an_incomplete_publication_that_becomes_whole_is_spooled_again() -> None:
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    link.publish(sealed, places=(1,))
    link.collector.do_due_work(NOW + 10)
    assert [r.reason is None for r in records(link.write())] == [False]
    link.publish(sealed, places=(2,), now=NOW + 60)
    assert [r.reason is None for r in records(link.write())] == [True]
    link.publish(sealed, places=(3,), now=NOW + 60)
    assert not link.write()
    assert len(link.acknowledged) == 3


def test_a_piece_that_completes_during_the_write_of_the_incomplete_form_is_acknowledged_only_later() -> None:
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    link.publish(sealed, places=(1,))
    link.collector.do_due_work(NOW + 10)
    group = link.collector.take_group(10)
    assert group is not None
    link.publish(sealed, places=(2,))
    assert not link.collector.note_written(group)
    assert [r.reason for r in records(link.write())] == [None]
    assert len(link.acknowledged) == 2


def test_a_publication_sealed_anew_under_the_same_sequence_makes_one_row() -> None:
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    publisher.new_key("plant/#")
    anew = publisher.seal("plant/a", sequence=sealed.publication[1])
    link.publish(sealed, places=(1,))
    link.publish(anew, places=(2, 3))
    link.publish(sealed, places=(2, 3))
    assert len(list(records(link.write()))) == 1
    assert len(link.acknowledged) == link.sent


@pytest.mark.parametrize("is_being_written", [False, True])
def test_a_form_that_is_whole_after_another_and_before_the_disk_makes_no_second_row(is_being_written: bool) -> None:
    """What was on its way when an epoch ended is sealed anew under the same sequence; both forms become whole."""
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    publisher.new_key("plant/#")
    anew = publisher.seal("plant/a", sequence=sealed.publication[1])
    link.publish(sealed)
    group = link.collector.take_group(10) if is_being_written else None
    link.publish(anew)
    assert not link.acknowledged, "neither is on disk"
    groups = [group] if group is not None else []
    for each in groups:
        for ack in link.collector.note_written(each):
            ack()
    assert len(list(records([*groups, *link.write()]))) == 1
    assert len(link.acknowledged) == link.sent
    link.publish(anew, places=(1,))
    assert not link.write()
    assert len(link.acknowledged) == link.sent


def test_a_form_that_comes_before_the_disk_and_is_whole_after_it_makes_no_second_row() -> None:
    """Sealed anew for the next view: the content comes at once, the key a moment later."""
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    publisher.new_key("plant/#")
    anew = publisher.seal("plant/a", sequence=sealed.publication[1])
    link.publish(sealed)
    link.publish(anew, with_key=False)
    assert len(list(records(link.write()))) == 1
    link.publish(anew)
    assert not link.write()
    link.collector.do_due_work(NOW + 60)
    assert not link.write(), "nor a row that says that it is incomplete"
    assert len(link.acknowledged) == link.sent


@pytest.mark.parametrize("rows", [1, 10])
@pytest.mark.parametrize("is_being_written", [False, True])
def test_a_form_that_was_given_up_and_becomes_whole_beside_another_makes_no_second_row(
    is_being_written: bool, rows: int
) -> None:
    """The disk is slow, or the spool full: the form without shares stands in the queue when its shares come."""
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    publisher.new_key("plant/#")
    anew = publisher.seal("plant/a", sequence=sealed.publication[1])
    link.publish(sealed, places=(1,))
    link.collector.do_due_work(NOW + 10)
    group = link.collector.take_group(10) if is_being_written else None
    link.publish(anew)
    link.publish(sealed, places=(2, 3))
    groups = [group] if group is not None else []
    for each in groups:
        for ack in link.collector.note_written(each):
            ack()
    found = list(records([*groups, *link.write(max_rows=rows)]))
    assert [record.reason for record in found].count(None) == 1
    assert len(link.acknowledged) == link.sent


def test_what_is_too_old_is_no_row_either_when_its_shares_come_while_it_waits_for_the_disk() -> None:
    """Else a replica that chooses the moment gets a replay in as telemetry."""
    _, publisher, link = setup()
    old = publisher.seal("plant/a", time=NOW - FRESH_S - 1)
    link.publish(old, places=(1,))
    link.collector.do_due_work(NOW + 10)
    link.publish(old, places=(2, 3))
    assert [(record.reason or "").partition(":")[0] for record in records(link.write())] == ["shares", "stale"]
    assert len(link.acknowledged) == link.sent


@pytest.mark.long
def test_incomplete_publications_in_memory_are_bounded() -> None:
    _, publisher, link = setup()
    for _ in range(LATE_KEPT + 3):
        link.publish(publisher.seal("plant/a"), places=(1,))
    link.collector.do_due_work(NOW + 10)
    link.write(max_rows=10_000)
    assert len(link.collector._publications._late) == LATE_KEPT
    assert len(link.acknowledged) == LATE_KEPT + 3


def test_incomplete_publications_in_memory_are_bounded_in_bytes_too() -> None:
    """A publication may be as large as a packet; content that comes to one that was given up counts as well."""
    _, publisher, link = setup()
    publisher.new_key("plant/#")
    size = LATE_BYTES // 8
    made = [publisher.seal("plant/a", bytes(size)) for _ in range(12)]
    for sealed in made[:10]:
        link.send(1, sealed.piece(1, with_key=False))
    for sealed in made[10:]:
        link.send(1, sealed.piece(1, with_key=False, content=b""))
    link.collector.do_due_work(NOW + 10)
    link.write(max_rows=10_000)
    assert sum(len(form.content or b"") for form in link.collector._publications._late) <= LATE_BYTES
    assert len(link.collector._publications._late) == 7 + 2
    for sealed in made[10:]:
        link.send(2, sealed.piece(2, with_key=False), NOW + 11)
    assert sum(len(form.content or b"") for form in link.collector._publications._late) <= LATE_BYTES
    assert len(link.collector._publications._late) == 7
    for place in (1, 2):
        link.send(place, made[11].entry(place), NOW + 12)
    rows = [record for record in records(link.write()) if record.reason is None]
    assert len(rows) == 7
    assert len(link.acknowledged) == link.sent
    assert not link.collector._publications._late._bytes


def test_beyond_what_memory_may_hold_nothing_is_kept_and_nothing_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_ingest.receiving.publications.HELD_MAX", 2)
    overlay = Overlay()
    link, publisher = Link(overlay), Publisher(overlay)
    sealed = [publisher.seal("plant/a") for _ in range(3)]
    for each in sealed:
        link.publish(each)
    assert link.collector.ready == 2
    assert not link.acknowledged
    assert link.collector.figures["held_overflow", ""] == 3
    assert len(list(records(link.write()))) == 2
    assert len(link.acknowledged) == 6
    link.publish(sealed[2])  # it comes again
    assert [record.sequence for record in records(link.write())] == [3]
