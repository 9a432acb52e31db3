"""Delivery of publications of the overlay to local clients, with rights to topics and the rest of the expiry interval.

Not here: order and keys (`bridge.reader`), choice of local clients (`gateway.broker`).
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.contract import Count, Deliver, DeliverShared, Publication
from bridge.document import OwnTopics
from gateway.base import Figures
from gateway.clients import LocalBroker
from gateway.overlay.settling import Settling


class LocalDelivery:
    """The delivery of a gateway. `now`: UNIX time in seconds, corrected by the clocks of replicas."""

    def __init__(
        self, own_topics: OwnTopics, figures: Figures, settling: Settling | None, now: Callable[[], float]
    ) -> None:
        self._own_topics, self._figures, self._settling, self._now = own_topics, figures, settling, now

    def deliver_publication(self, broker: LocalBroker, effect: Deliver) -> None:
        """Hands a publication to local subscribers and retained messages."""
        publication = self._permitted(effect.publication)
        if publication is None:
            return
        if not effect.stored:
            broker.deliver_local(publication, effect.groups_lost)
            return
        if self._settling is not None:
            self._settling.extend_wait(effect.scope)
        broker.deliver_stored(publication, effect.groups_lost)

    def deliver_to_group(self, broker: LocalBroker, effect: DeliverShared) -> None:
        """Hands a publication to a shared group."""
        publication = self._permitted(effect.publication)
        if publication is not None:
            broker.deliver_shared((effect.group, effect.filter), publication)

    def _permitted(self, publication: Publication) -> Publication | None:
        """Returns the publication with the rest of the expiry interval; None: for nobody."""
        if self._own_topics.are_ours(publication.topic):
            self._figures.count_effect(Count("own_topics_refused"))  # of a member whose rights reach too far
            return None
        left = publication.with_expiry_left(self._now())
        if left is None:
            self._figures.count_effect(Count("expired"))
        return left
