"""Views that change while a receiver runs: keys are read by the views that their header names."""

from __future__ import annotations

from collections.abc import Collection

from keys.sharetree import Hop
from spark_ingest.receiving.early_keys import AHEAD_MAX, AHEAD_PER_PUBLISHER_MAX, Ahead, Piece
from tests.spark_ingest.region import NOW, Link, Overlay, Publisher

FIRST, SECOND = (Hop(1, 1, 2, 3),), (Hop(1, 2, 3, 4),)


class Changing(Overlay):
    """Of our region's views, `open` are open."""

    open: tuple[Hop, ...] = FIRST

    def place(self, hop: Hop, replica: str) -> int | None:
        """r1 left with the first view, r4 came with the second, where everybody stands one place further down."""
        names = {1: ("r1", "r2", "r3"), 2: ("r2", "r3", "r4", "r5")}[hop.view]
        return names.index(replica) + 1 if hop in self.open and replica in names else None

    def honest_among(self, replicas: Collection[str]) -> bool:
        return False


def setup() -> tuple[Changing, Publisher, Link]:
    overlay = Changing(path=FIRST)
    return overlay, Publisher(overlay), Link(overlay)


def test_a_key_that_comes_before_its_view_waits_for_it_and_its_publication_with_it() -> None:
    overlay, publisher, link = setup()
    overlay.hops = SECOND
    sealed = publisher.seal("plant/a")
    overlay.hops = FIRST
    for place, replica in ((1, "r2"), (2, "r3"), (3, "r4")):
        link.collector.receive(replica, sealed.piece(place), lambda: None, NOW)
    assert not link.write()
    assert link.collector.figures["keys_ahead", ""] == 3
    assert not [figure for figure in link.collector.figures if figure[0].startswith("refused")]
    overlay.hops = overlay.open = SECOND
    link.collector.tick(NOW + 1)
    (group,) = link.write()
    assert [record.reason for record in group.records] == [None]


def test_shares_count_at_the_senders_place_in_the_keys_own_view() -> None:
    """r2 is at place 2 of the first view and at place 1 of the second."""
    overlay, publisher, link = setup()
    old = publisher.seal("plant/a")
    overlay.open = (*FIRST, *SECOND)
    for place, replica in ((2, "r2"), (3, "r3")):
        link.collector.receive(replica, old.piece(place), lambda: None, NOW)
    assert len(link.write()) == 1
    link.collector.receive("r4", old.piece(1), lambda: None, NOW)
    assert link.collector.figures["refused_BadShare", "r4"] == 0, "the key is whole: nothing is read any more"
    other = Publisher(overlay, "gw2").seal("plant/b")
    link.collector.receive("r4", other.piece(1), lambda: None, NOW)
    assert link.collector.figures["refused_BadShare", "r4"] == 1, "r4 has no place in that view"


def test_a_key_of_a_closed_view_is_refused() -> None:
    overlay, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    overlay.hops = overlay.open = SECOND
    link.collector.receive("r2", sealed.piece(2), lambda: None, NOW)
    assert link.collector.figures["refused_Expired", "r2"] == 1


def test_a_publisher_that_names_views_which_never_come_pushes_out_its_own() -> None:
    ahead = Ahead()
    ahead.keep(b"honest", Piece("r1", "key", None))
    for n in range(AHEAD_PER_PUBLISHER_MAX + 10):
        ahead.keep(b"evil", Piece("r1", f"key {n}", None))
    assert len(ahead) == AHEAD_PER_PUBLISHER_MAX + 1
    for n in range(AHEAD_MAX):
        ahead.keep(b"%d" % n, Piece("r1", f"other {n}", None))
    assert len(ahead) == AHEAD_MAX
    assert len(ahead.take()) == AHEAD_MAX
    assert not len(ahead)
