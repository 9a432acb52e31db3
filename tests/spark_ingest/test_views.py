"""Views that change while a receiver runs: keys are read by the views that their header names."""

from __future__ import annotations

from bridge.document.overlay import Endorsement, RegionView
from bridge.document.overlay import Overlay as SignedOverlay
from keys.sharetree import Hop
from tests.spark_ingest.region import NOW, OWNER, Link, Overlay, Publisher, identity_of

FIRST, SECOND = (Hop(1, 1, 2, 3),), (Hop(1, 2, 3, 4),)
BEFORE, AFTER = ("r1", "r2", "r3"), ("r2", "r3", "r4", "r5")
"""r1 left with the first view, r4 came with the second, where everybody stands one place further down."""
GRACE_S = 60


class Changing(Overlay):
    """Of our region's two views the second is signed; it is in force once `endorsed`, and after that the first one ends
    when it is `over`."""

    endorsed = over = False

    def views(self) -> list[RegionView]:
        first = RegionView(1, 1, "region 1", BEFORE)
        return [first.successor(AFTER, int(NOW * 1000), GRACE_S).signed(OWNER)]

    @property
    def signed(self) -> SignedOverlay:
        found = super().signed
        if self.endorsed and not found.in_force(1):
            view = found.latest[1]
            said = [Endorsement.sign_view(view, name, identity_of(name, 1)) for name in BEFORE[1:]]
            found = found.endorsed(said, NOW)
        if self.over:
            found = found.as_of(NOW + GRACE_S + 1)
        assert self._signed is not None
        self._signed = self._signed[0], found
        return found


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
    overlay.endorsed = True
    link.follow(NOW + 1)
    (group,) = link.write()
    assert [record.reason for record in group.records] == [None]


def test_shares_count_at_the_senders_place_in_the_keys_own_view() -> None:
    """r2 is at place 2 of the first view and at place 1 of the second."""
    overlay, publisher, link = setup()
    old = publisher.seal("plant/a")
    overlay.endorsed = True
    link.follow()
    for place, replica in ((2, "r2"), (3, "r3")):
        link.collector.receive(replica, old.piece(place), lambda: None, NOW)
    assert len(link.write()) == 1
    link.collector.receive("r4", old.piece(1), lambda: None, NOW)
    assert link.collector.figures["refused_BadShare", "r4"] == 1, "r4 has no place in that view"


def test_a_key_of_a_closed_view_is_refused() -> None:
    overlay, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    overlay.endorsed = overlay.over = True
    link.follow()
    link.collector.receive("r2", sealed.piece(2), lambda: None, NOW)
    assert link.collector.figures["refused_Expired", "r2"] == 1
