"""What came over the overlay goes to local clients with what is left of its expiry interval."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from bridge.contract import Deliver, DeliverShared, Publication
from bridge.document import OwnTopics
from gateway.base import Figures
from gateway.overlay.local_delivery import LocalDelivery

NOW = 1000.0


class Broker:
    def __init__(self) -> None:
        self.live: list[Publication] = []
        self.stored: list[Publication] = []
        self.shared: list[Publication] = []

    def deliver_local(self, publication: Publication, groups_lost: Collection[Any] = ()) -> None:
        self.live.append(publication)

    def deliver_run(self, publications: Sequence[Publication]) -> None:
        self.live += publications

    def deliver_stored(self, publication: Publication, groups_lost: Collection[Any] = ()) -> None:
        self.stored.append(publication)

    def deliver_shared(self, name: Any, publication: Publication) -> None:
        self.shared.append(publication)


def delivered(age_s: float, expiry_s: int | None = 20) -> tuple[Any, Figures]:
    """Published `age_s` ago."""
    figures, broker = Figures("g", "gateway"), Broker()
    hands: Any = broker
    delivery = LocalDelivery(OwnTopics(), figures, None, lambda: NOW)
    of = Publication("t", b"x", expiry_s=expiry_s, time_ms=int((NOW - age_s) * 1000))
    delivery.deliver_publications(hands, [Deliver("far", 1, of), Deliver("far", 2, of, stored=True)])
    delivery.deliver_to_group(hands, DeliverShared("group", "t", of))
    return broker, figures


@pytest.mark.parametrize(("age_s", "left_s"), [(0.0, 20), (0.4, 20), (15.0, 5), (19.9, 1), (-7.0, 20)])
def test_the_interval_began_with_the_publish_and_never_grows(age_s: float, left_s: int) -> None:
    broker, _ = delivered(age_s)
    assert [one.expiry_s for one in broker.live + broker.stored + broker.shared] == [left_s] * 3


@pytest.mark.parametrize("age_s", [20.0, 21.0, 1e9])
def test_what_is_not_valid_any_more_goes_to_nobody_and_is_counted(age_s: float) -> None:
    broker, figures = delivered(age_s)
    assert broker.live == broker.stored == broker.shared == []
    assert figures.counts["expired"] == 3


def test_what_does_not_expire_is_as_it_came() -> None:
    broker, _ = delivered(1e9, expiry_s=None)
    assert [one.expiry_s for one in broker.live] == [None]
