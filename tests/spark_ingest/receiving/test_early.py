"""Pieces that come a moment before the version of the overlay that gives their publisher its right."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from sys import getsizeof

import pytest

from gateway.overlay import RegionClient
from spark_ingest.receiving.early import EARLY_BYTES, EARLY_PIECES, EARLY_S, EarlyPiece, early_pieces, keep_piece
from tests.spark_ingest.region import NOW, Link, Overlay, Publisher, records

pytestmark = pytest.mark.attack(105)


def of_a_newcomer() -> tuple[Link, Publisher, Callable[[], None]]:
    """A job's link, a publisher that its version does not know, and the version that does."""
    overlay = Overlay()
    Publisher(overlay)
    link, fresh = Link(overlay), Publisher(overlay, "fresh")
    member = overlay.members.pop(fresh.identity.party_id)
    return link, fresh, lambda: overlay.members.update({fresh.identity.party_id: member})


def test_what_comes_before_the_version_that_allows_it_is_a_row_once_that_is_there() -> None:
    link, fresh, allow = of_a_newcomer()
    link.publish(fresh.seal("plant/a"))
    assert not link.write()
    assert not link.acknowledged
    allow()
    link.follow(NOW + 1)
    assert len(list(records(link.write()))) == 1
    assert len(link.acknowledged) == 3
    assert not [name for name, _ in link.collector.figures if name.startswith("refused")]


@pytest.mark.attack(121)
def test_a_job_that_was_cut_off_loses_nothing_of_before_the_version_that_it_gets_late() -> None:
    """All replicas bring the same before the version: what all of them were acknowledged for would be gone."""
    link, fresh, allow = of_a_newcomer()
    for _ in range(300):
        link.publish(fresh.seal("plant/a"))
    assert not link.acknowledged
    allow()
    link.follow(NOW + 1)
    assert len(list(records(link.write()))) == 300


@pytest.mark.attack(121)
def test_the_version_comes_through_whatever_waits_before_it() -> None:
    window = signature(RegionClient).parameters["receive_maximum"].default
    assert window // 2 == EARLY_PIECES


@pytest.mark.attack(121)
def test_large_pieces_that_nobody_may_publish_fill_no_memory() -> None:
    early = early_pieces()
    large = EarlyPiece("r1", "veilmq/batch/1", bytes(EARLY_BYTES // 2), (("vmq", "h"),), lambda: None, NOW)
    assert [keep_piece(early, each) for each in (large, large, large._replace(replica="r2"))] == [True, False, True]
    assert len(early.take_due(NOW + EARLY_S)) == 2
    assert keep_piece(early, large)
    assert len(early.take_all()) == 1
    assert keep_piece(early, large)


@pytest.mark.parametrize("char", ["a", "\N{GRINNING FACE}"])
@pytest.mark.parametrize("of", ["topic", "property"])
def test_long_topics_and_properties_of_pieces_that_nobody_may_publish_fill_no_memory(char: str, of: str) -> None:
    """Attack: a replica brings headers of strangers, each on a topic as long as there may be."""
    early, held = early_pieces(), list[str]()
    for number in range(EARLY_PIECES):
        text = char * (65_535 // len(char.encode()) - 4) + f"{number:04}"
        topic, properties = (text, ()) if of == "topic" else ("veilmq/batch/1", (("vmq", text),))
        if not keep_piece(early, EarlyPiece("r1", topic, b"", properties, lambda: None, NOW)):
            break
        held.append(text)
    assert held
    assert sum(map(getsizeof, held)) <= EARLY_BYTES * 1.1


def test_a_replica_that_brings_without_end_what_nobody_may_is_refused_at_once() -> None:
    early = early_pieces()
    piece = EarlyPiece("r1", "veilmq/batch/1", b"", (), lambda: None, NOW)
    assert [keep_piece(early, piece) for _ in range(EARLY_PIECES + 1)] == [True] * EARLY_PIECES + [False]
    other = piece._replace(replica="r2", since=NOW + 1)
    assert keep_piece(early, other)
    assert early.next_deadline == NOW + EARLY_S
    assert early.take_due(NOW + EARLY_S - 1) == []
    assert early.take_due(NOW + EARLY_S) == [piece] * EARLY_PIECES
    assert early.take_due(NOW - 3600) == [other]
    assert (early.take_all(), early.next_deadline) == ([], None)
